/*
 * nn/attention/attention: causal self-attention in which q, k and v are projections of the input: three, or
 * one fused projection. The output projection runs separately (attention_core_project), so that recomputation
 * can skip it.
 */
#ifndef NN_ATTENTION_ATTENTION_H
#define NN_ATTENTION_ATTENTION_H

#include "nn/attention/core.h"
#include "nn/attention/head_norm.h"

typedef struct attention {
    attention_core core;
    linear qkv; /* fused projection with the rows of q, k, v in this order; weight NULL: three projections */
    linear q, k, v;
    norm q_norm, k_norm; /* QK norms before rotation (head_norm.h), not used with qkv; weight NULL: none */
    activation_specs grad_qkv, grad_q, grad_k, grad_v; /* specs of the projections' output gradients */
} attention;

/* What forward saves for backward; one per in-flight micro-batch. */
typedef struct attention_saved {
    attention_core_saved core;
    head_norm_saved q_norm, k_norm;
} attention_saved;

/* x, g, dx have only the rows of this rank (nn/tensor_ranks.h). `at` describes all T tokens. */

/* Connects the projections. *input: the specs of this rank's rows of x; *grad_output: of y's gradient. */
ott_status attention_connect(attention *a, activation_specs *input, activation_specs *grad_output);
/* Computes q, k, v and the attention output from x[T,D]; opens them in `s`. */
ott_status attention_forward(exec *cx, attention *a, const sequence_metadata *at, const activation *x,
                             attention_saved *s);
ott_status attention_discard(exec *cx, attention_saved *s); /* closes all tensors of s */
/* Computes dx[T,D] and all weight gradients from g, the gradient of y, and the input x. Closes s. */
ott_status attention_backward(exec *cx, attention *a, const sequence_metadata *at, attention_saved *s,
                              const activation *x, const activation *g, const tensor *dx);

#endif
