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

/* The specs of all consumers of an activation, collected by the layers' connect functions. */
typedef struct activation_specs {
    int count; /* number of quantized copies, one for each distinct spec */
    quant_spec spec[QLIST_MAX];
    const float *next[QLIST_MAX]; /* scale of the next cast on the device, if scaling is delayed; else NULL */
    bool columnwise_used[QLIST_MAX]; /* a grad_weight GEMM reads the columnwise use of this copy */
    bool columnwise_high_precision;  /* a grad_weight GEMM reads the high-precision tensor */
    bool high_precision;             /* a GEMM reads the high-precision tensor */
    tensor_shard shard;              /* how the tensor is split over ranks */
} activation_specs;

/* Adds a consumer's spec. next: the consumer's scale on the device if its scaling is delayed, else NULL.
   Consumers with equal specs share one copy and the first consumer's scale, because their scales are equal.
   grad_weight: the consumer's weight is trained. *index: the copy that the consumer reads; -1 if it reads
   only the high-precision tensor. OTT_ERR_UNSUPPORTED for more than QLIST_MAX copies. */
ott_status activation_specs_add(activation_specs *e, const quant_spec *s, const float *next, bool grad_weight,
                                int *index);

typedef struct activation {
    tensor t;           /* the high-precision tensor; data NULL: only the quantized copies exist */
    qlist q;            /* the quantized copies */
    tensor_shard shard; /* how t is split over ranks */
    /* SmoothQuant: fp32[2, columns], the divisors of t's columns and their inverses; data NULL: none */
    tensor channel_scales;
    plan_buffer channel_scales_buffer;
    plan_buffer buffer, rowwise[QLIST_MAX], columnwise[QLIST_MAX];
} activation;

/* Opens the buffers of the tensor and its copies; values are undefined. specs NULL: no copies. `what` is a
   static text for the memory plan. The caller closes `e` with activation_close. */
ott_status activation_open(exec *cx, const char *what, ott_dtype d, int64_t rows, int64_t columns,
                           const activation_specs *specs, activation *e);
/* Moves the existing tensor t and its *buffer into `e`, and opens the quantized copies. */
ott_status activation_adopt(exec *cx, const char *what, tensor t, plan_buffer *buffer,
                            const activation_specs *specs, activation *e);
/* SmoothQuant: divides the tensor by its channel scales. Must precede activation_quantize. */
ott_status activation_smooth(exec *cx, activation *e);
/* Makes all copies from the tensor, for producers that do not quantize. */
ott_status activation_quantize(exec *cx, const activation *e);
/* Returns the quantized copies that the op that computes the tensor should make. Returns NULL if the tensor
   is split over ranks, because the ranks may have to reduce an amax before the cast. Call activation_finish
   after the op: it makes the copies that the op did not make. */
const qlist *activation_fused(const activation *e);
ott_status activation_finish(exec *cx, const activation *e);
/* Call it after the forward GEMMs. Closes the rowwise uses, and the columnwise uses that no grad_weight GEMM
   reads. Also closes the high-precision tensor, unless keep_tensor is true or a grad_weight GEMM reads it. */
ott_status activation_keep_for_backward(exec *cx, activation *e, const activation_specs *specs,
                                        bool keep_tensor);
ott_status activation_close_tensor(exec *cx, activation *e);
ott_status activation_close_copies(exec *cx, activation *e);
ott_status activation_close(exec *cx, activation *e); /* closes all buffers of `e` that are still open */
/* Returns quantized copy `index`, or NULL if index is -1. */
const qtensor *activation_copy(const activation *e, int index);
/* Makes *view rows [first, first + count) of e. The view owns no buffers. In every copy, row `first` must
   start a scale block, or the rows must be in one block; else an internal error. */
ott_status activation_rows(const activation *e, int64_t first, int64_t count, activation *view);

#endif
