/*
 * nn/activation: a tensor on its way from the layer that makes it to the layers that use it, with the quantized
 * forms they want. Each distinct quantization spec among the consumers is made once, by the producer; q, k
 * and v share one.
 *
 * An activation lives in planned buffers: the high-precision tensor, and for each form one for each use, so that forward can let go of what backward does not need.
 */
#ifndef NN_ACTIVATION_H
#define NN_ACTIVATION_H

#include "nn/shard.h"

/* What the consumers of an activation want, gathered when modules are compiled. */
typedef struct activation_specs {
    int count;
    quant_spec spec[QLIST_MAX];
    const float *next[QLIST_MAX];    /* AMAX_DELAYED: the scale to use, on the device (nn/delayed.h) */
    bool columnwise_used[QLIST_MAX]; /* some consumer contracts this form in its grad_weight GEMM */
    /* some consumer contracts the high-precision tensor in its grad_weight GEMM */
    bool columnwise_high_precision;
    bool high_precision; /* some consumer reads the high-precision tensor in any of its GEMMs */
    tensor_shard shard;  /* which part of the tensor is here */
} activation_specs;

/* Adds a consumer's spec, and where its scale stands when that is delayed (else NULL); consumers that share a
   form have seen the same tensors, so the first one's scale serves all. grad_weight: it has that GEMM (its
   weight is trained). *index: which of the activation's forms it will use, -1: only the high-precision tensor. */
ott_status activation_specs_add(activation_specs *e, const quant_spec *s, const float *next, bool grad_weight,
                                int *index);

typedef struct activation {
    tensor t; /* the high-precision tensor; data NULL: only its forms are here */
    qlist q;
    tensor_shard shard; /* as its specs have it */
    /* fp32[2, columns]: t is divided by the first row, column by column, and so are its forms; the second is 1 over
       it; data NULL: t is as it is */
    tensor channel_scales;
    plan_buffer channel_scales_buffer;
    plan_buffer buffer, rowwise[QLIST_MAX], columnwise[QLIST_MAX];
} activation;

/* Opens the tensor and all its forms. specs may be NULL: none. `what` is a static text for the memory plan.
 */
ott_status activation_open(exec *cx, const char *what, ott_dtype d, int64_t rows, int64_t columns,
                           const activation_specs *specs, activation *e);
/* The same around a tensor that is already open: takes over its buffer, opens the forms. */
ott_status activation_adopt(exec *cx, const char *what, tensor t, plan_buffer *buffer,
                            const activation_specs *specs, activation *e);
/* Divides the tensor, which has no forms yet, by its channels' powers (tensor/smooth.h). */
ott_status activation_smooth(exec *cx, activation *e);
/* Makes the forms of a tensor whose producer does not. */
ott_status activation_quantize(exec *cx, const activation *e);
/* The forms that an op makes with the tensor: all, or NULL where ranks must meet between amax and cast; then, after
   the op, activation_finish makes them. */
const qlist *activation_fused(const activation *e);
ott_status activation_finish(exec *cx, const activation *e);
/* After the output GEMMs: lets go of what only they used, and of forms that no grad_weight GEMM reads. The
   high-precision tensor stays when `keep_tensor` or when a consumer's grad_weight GEMM reads it. */
ott_status activation_keep_for_backward(exec *cx, activation *e, const activation_specs *specs,
                                        bool keep_tensor);
ott_status activation_close_tensor(exec *cx, activation *e);
ott_status activation_close_copies(exec *cx, activation *e);
ott_status activation_close(exec *cx, activation *e); /* all that is still open */
/* Form `index` of an activation, NULL for -1. */
const qtensor *activation_copy(const activation *e, int index);
/* Rows [first, first + count) as an activation that owns nothing; column scales stay those of the whole. Where
   scales are of blocks of rows, `first` must be a multiple of those, or all rows lie in one of them. */
ott_status activation_rows(const activation *e, int64_t first, int64_t count, activation *view);

#endif
