/*
 * nn/activation: a tensor between the layer that computes it and the layers that read it, with its quantized
 * copies. The producer makes one copy per distinct quantization spec of the consumers; q, k and v share one.
 *
 * The high-precision tensor and each use (rowwise, columnwise) of each copy are separate buffers of the
 * memory plan, so that forward can free what backward does not need.
 */
#ifndef NN_ACTIVATION_H
#define NN_ACTIVATION_H

#include "nn/shard.h"

/* The specs of all consumers of an activation, collected when modules are connected. */
typedef struct activation_specs {
    int count; /* quantized copies */
    quant_spec spec[QLIST_MAX];
    const float *next[QLIST_MAX];    /* scale on the device if scaling is delayed, else NULL */
    bool columnwise_used[QLIST_MAX]; /* a grad_weight GEMM reads this copy */
    bool columnwise_high_precision;  /* a grad_weight GEMM reads the high-precision tensor */
    bool high_precision;             /* a GEMM reads the high-precision tensor */
    tensor_shard shard;              /* how the tensor is split over ranks */
} activation_specs;

/* Adds a consumer's spec. next: the device scale if its scaling is delayed, else NULL; the first one serves
   all consumers of a copy, as they have seen the same tensors. grad_weight: its weight is trained. *index:
   the copy it reads; -1: only the high-precision tensor. OTT_ERR_UNSUPPORTED for more than QLIST_MAX
   copies. */
ott_status activation_specs_add(activation_specs *e, const quant_spec *s, const float *next, bool grad_weight,
                                int *index);

typedef struct activation {
    tensor t;              /* the high-precision tensor; data NULL: only the quantized copies exist */
    qlist q;               /* the quantized copies */
    tensor_shard shard;    /* as in its specs */
    tensor channel_scales; /* fp32[2, columns]: divisors of t and its copies, inverses; data NULL: none */
    plan_buffer channel_scales_buffer;
    plan_buffer buffer, rowwise[QLIST_MAX], columnwise[QLIST_MAX];
} activation;

/* Opens the buffers of the tensor and its copies; values are undefined. specs NULL: no copies. `what` is a
   static text for the memory plan. The caller closes it with activation_close. */
ott_status activation_open(exec *cx, const char *what, ott_dtype d, int64_t rows, int64_t columns,
                           const activation_specs *specs, activation *e);
/* The same for a tensor that exists: takes over its buffer and opens the copies. */
ott_status activation_adopt(exec *cx, const char *what, tensor t, plan_buffer *buffer,
                            const activation_specs *specs, activation *e);
/* SmoothQuant: divides the tensor by its channel scales (tensor/smooth.h), before copies are made. */
ott_status activation_smooth(exec *cx, activation *e);
/* Makes all copies from the tensor, for producers that do not quantize. */
ott_status activation_quantize(exec *cx, const activation *e);
/* Returns the copies that the producing op can make: all, or NULL if ranks must reduce an amax between amax
   and cast. activation_finish, called after the op, makes them in that case. */
const qlist *activation_fused(const activation *e);
ott_status activation_finish(exec *cx, const activation *e);
/* Call it after the output GEMMs: closes the rowwise copies and the columnwise copies that no grad_weight
   GEMM reads. Closes the high-precision tensor too, unless keep_tensor or a grad_weight GEMM reads it. */
ott_status activation_keep_for_backward(exec *cx, activation *e, const activation_specs *specs,
                                        bool keep_tensor);
ott_status activation_close_tensor(exec *cx, activation *e);
ott_status activation_close_copies(exec *cx, activation *e);
ott_status activation_close(exec *cx, activation *e); /* closes all that is still open */
/* Returns copy `index`; NULL for -1. */
const qtensor *activation_copy(const activation *e, int index);
/* Makes *view rows [first, first + count) of e; it owns nothing. Requires `first` to be a multiple of the
   rows of a scale block, or all rows to be in one block; else an internal error. */
ott_status activation_rows(const activation *e, int64_t first, int64_t count, activation *view);

#endif
