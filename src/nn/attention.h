/*
 * nn/attention: causal self-attention with grouped heads: q, k, v projections, rotation, attention, output
 * projection. The projection back (attention_project) is apart from attention itself, so that recomputation
 * can leave it out. q, k and v are three projections, or one whose columns they are, or come from latents (nn/latent.h).
 */
#ifndef NN_ATTENTION_H
#define NN_ATTENTION_H

#include "nn/context_ranks.h"
#include "nn/head_norm.h"
#include "nn/latent.h"
#include "nn/linear.h"
#include "nn/rope.h"

typedef struct attention {
    linear qkv; /* q, k and v in one, their rows in this order; weight NULL: they are apart */
    linear q, k, v, o;
    norm q_norm,
        k_norm; /* of each head, or of all, as wide as their weights, before rotation; weight NULL: none. Not with qkv */
    latent latent; /* in place of k and v, and of q where queries have a path */
    /* the heads that are here; head_dim is what attention works on: of latents the wider of q and k, and of v */
    int64_t heads, kv_heads, head_dim;
    float softcap;    /* the scores' after that; 0: none */
    float scale;      /* of q k^T before the softmax; 0: 1 / sqrt(head_dim) */
    int64_t window;   /* keys a query sees, itself included; 0: all before it */
    const rope *rope; /* borrowed; NULL: no rotation */
    group *
        context; /* have other tokens of the micro-batch (nn/context_ranks.h); borrowed; NULL: all are here */
    activation_specs input_specs;  /* of the input's whole rows, wanted by qkv, or by q, k, v */
    activation_specs output_specs; /* of the attention output, wanted by o */
    activation_specs grad_specs;   /* of the whole rows of o's output gradient */
    activation_specs grad_qkv, grad_q, grad_k, grad_v; /* of the gradients of qkv, or of q, k, v */
} attention;

/* Keys (after norm and rotation) and values of the tokens of one sequence, in one layer: rows [0, past) are
   filled, and a forward appends those of its own tokens. */
typedef struct attention_cache {
    tensor k, v; /* [capacity, kv_heads * head_dim], activation format; dense */
    int64_t past;
} attention_cache;

/* Where tokens stand: documents [start[b], start[b+1]) and each token's position in its document. */
typedef struct sequence_metadata {
    tensor position;   /* i32[T] */
    tensor cu_seqlens; /* i32[documents + 1] */
    const attention_cache
        *cache; /* evaluation of one document that goes on from here; NULL: nothing before */
} sequence_metadata;

/* What forward leaves for backward; one for each micro-batch in flight. */
typedef struct attention_saved {
    tensor q, k, v, lse; /* q, k after rotation; lse[heads, T]; with a->context its heads of all tokens */
    plan_buffer qkv_buffer, q_buffer, k_buffer, v_buffer, lse_buffer; /* that of qkv, or those of q, k, v */
    head_norm_saved q_norm, k_norm;
    latent_saved query_latent, key_latent;
    activation o;
} attention_saved;

/* The rows of x, y, g and dx are those that are here between layers (nn/tensor_ranks.h), of `at` and of what is saved all T. */

/* Says what the activation that feeds q, k, v and that of o's output gradient are to be made in. */
ott_status attention_connect(attention *a, activation_specs *input, activation_specs *grad_output);

/* Opens and fills everything of `s` from x[T,D]. */
ott_status attention_forward(exec *cx, attention *a, const sequence_metadata *at, const activation *x,
                             attention_saved *s);
/* y[T,D] = o W_o^T. */
ott_status attention_project(exec *cx, attention *a, const attention_saved *s, const tensor *y);
/* After forward when backward will use s as it is: o is kept once, as attention's backward reads it; its
   quantized forms are made again there. */
ott_status attention_keep(exec *cx, attention_saved *s);
ott_status attention_discard(exec *cx, attention_saved *s); /* closes all */
/* From g, the gradient of y, and the input x: dx[T,D] and all weight gradients. Closes all of s. */
ott_status attention_backward(exec *cx, attention *a, const sequence_metadata *at, attention_saved *s,
                              const activation *x, const activation *g, const tensor *dx);

#endif
