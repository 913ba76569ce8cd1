/*
 * nn/activation: a tensor between the layer that computes it and the layers that read it, with its quantized
 * copies. The producer makes one copy for each different spec of the readers; q, k and v share one.
 *
 * The high-precision tensor and each use (rowwise, columnwise) of each copy are separate buffers of the
 * memory plan, so that forward can free each buffer that backward does not need.
 */
#ifndef NN_ACTIVATION_H
#define NN_ACTIVATION_H

#include "nn/shard.h"

/* The specs that the readers of one activation need. The layers' connect functions collect them. */
typedef struct activation_specs {
    int count; /* number of quantized copies, one for each distinct spec */
    quant_spec spec[QLIST_MAX];
    const float *next[QLIST_MAX]; /* device memory of the next cast's scale; NULL: scaling is not delayed */
    bool columnwise_used[QLIST_MAX]; /* a grad_weight GEMM reads the columnwise use of this copy */
    bool columnwise_high_precision;  /* a grad_weight GEMM reads the high-precision tensor */
    bool high_precision;             /* a GEMM reads the high-precision tensor */
    tensor_shard shard;              /* how the tensor is split over ranks */
} activation_specs;

/* Adds the spec of a reader. next: its scale on the device if its scaling is delayed; otherwise NULL. Readers
   with equal specs have equal scales, so they share one copy with the first reader's scale. grad_weight: the
   reader's weight is trained. *index: the copy for this reader; -1 if it reads only the high-precision
   tensor. OTT_ERR_UNSUPPORTED for more than QLIST_MAX copies. */
ott_status activation_specs_add(activation_specs *e, const quant_spec *s, const float *next, bool grad_weight,
                                int *index);

typedef struct activation {
    tensor t;           /* the high-precision tensor; data NULL: only the quantized copies exist */
    qlist q;            /* the quantized copies */
    tensor_shard shard; /* how t is split over ranks */
    /* SmoothQuant: fp32[2, columns]: divisors of t's columns, then their inverses; data NULL: not used */
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
/* SmoothQuant: divides each column of the tensor by its scale. Call it before activation_quantize. */
ott_status activation_smooth(exec *cx, activation *e);
/* Makes all copies from the tensor. Call it if the op that computed the tensor did not quantize. */
ott_status activation_quantize(exec *cx, const activation *e);
/* Returns the copies that the op which computes the tensor should also make. Returns NULL if the tensor is
   split over ranks: they may have to reduce an amax before the cast. Then activation_finish makes the copies;
   call it after the op in any case. */
const qlist *activation_fused(const activation *e);
ott_status activation_finish(exec *cx, const activation *e);
/* Call it after forward's GEMMs. Closes the rowwise copies, and each columnwise copy that no grad_weight GEMM
   reads. Also closes the high-precision tensor, unless keep_tensor is true or such a GEMM reads it. */
ott_status activation_keep_for_backward(exec *cx, activation *e, const activation_specs *specs,
                                        bool keep_tensor);
ott_status activation_close_tensor(exec *cx, activation *e);
ott_status activation_close_copies(exec *cx, activation *e);
ott_status activation_close(exec *cx, activation *e); /* closes all buffers of `e` that are still open */
/* Returns quantized copy `index`, or NULL if index is -1. */
const qtensor *activation_copy(const activation *e, int index);
/* Makes *view a view of rows [first, first + count) of e; it owns no buffers. In every copy, `first` must be
   the first row of a scale block, or all rows must be in one block. Otherwise it is an internal error. */
ott_status activation_rows(const activation *e, int64_t first, int64_t count, activation *view);

#endif
