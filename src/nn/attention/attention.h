/*
 * nn/attention/attention: causal self-attention with grouped heads (GQA): q, k, v projections, rotary
 * embedding, attention, output projection. attention_project runs the output projection separately, so that
 * recomputation can skip it. q, k and v come from three projections, one fused one, or MLA
 * (nn/attention/latent.h).
 */
#ifndef NN_ATTENTION_ATTENTION_H
#define NN_ATTENTION_ATTENTION_H

#include "nn/attention/context_ranks.h"
#include "nn/attention/head_norm.h"
#include "nn/attention/latent.h"
#include "nn/linear/linear.h"
#include "nn/attention/rope.h"

typedef struct attention {
    linear qkv; /* fused projection with the rows of q, k, v in this order; weight NULL: three projections */
    linear q, k, v, o;
    norm q_norm, k_norm; /* QK norms before rotation (head_norm.h), not used with qkv; weight NULL: none */
    latent latent;       /* MLA: computes k, v and, if latent.query exists, q; shape.key_rank 0: no MLA */
    /* Numbers of heads on this rank, and columns of a head in the attention kernel. With MLA, head_dim is the
       larger of the widths of a q or k head and of a v head. */
    int64_t heads, kv_heads, head_dim;
    float softcap;    /* cap of the scaled scores; 0: no cap */
    float scale;      /* factor of q k^T before the softmax; 0: 1 / sqrt(head_dim) */
    int64_t window;   /* number of keys a query attends to, including its own token; 0: no limit */
    const rope *rope; /* rotary tables; borrowed; NULL: no rotation */
    group *context;   /* context-parallel ranks (nn/attention/context_ranks.h); borrowed; NULL: none */
    activation_specs input_specs;  /* specs of the input of the projections, all ranks' rows */
    activation_specs output_specs; /* specs of the attention output, the input of o */
    activation_specs grad_specs;   /* specs of the gradient of o's output, all ranks' rows */
    activation_specs grad_qkv, grad_q, grad_k, grad_v; /* specs of the projections' output gradients */
} attention;

/* KV cache of one layer for one sequence. Rows [0, past) are the keys (after norm and rotation) and values of
   earlier tokens. A forward pass writes the next rows; then the caller increases `past`. */
typedef struct attention_cache {
    tensor k, v; /* [capacity, kv_heads * head_dim] in the activation format; dense */
    int64_t past;
} attention_cache;

/* Sequence metadata of a micro-batch: its documents and each token's position in its document. */
typedef struct sequence_metadata {
    tensor position;   /* i32[T] position of each token in its document */
    tensor cu_seqlens; /* i32[documents + 1]: document b has tokens [cu_seqlens[b], cu_seqlens[b+1]) */
    const attention_cache *cache; /* keys and values of earlier tokens; NULL: none, as in training */
} sequence_metadata;

/* What forward saves for backward; one per in-flight micro-batch. */
typedef struct attention_saved {
    tensor q, k, v, lse; /* q, k are rotated; lse[heads, T]; context-parallel: all tokens of some heads */
    plan_buffer qkv_buffer, q_buffer, k_buffer, v_buffer, lse_buffer; /* qkv_buffer or the next 3 are open */
    head_norm_saved q_norm, k_norm;
    latent_saved query_latent, key_latent;
    activation o;
} attention_saved;

/* x, y, g, dx have only the rows of this rank (nn/tensor_ranks.h). `at` describes all T tokens. */

/* Connects the projections. *input: the specs of this rank's rows of x; *grad_output: of y's gradient. */
ott_status attention_connect(attention *a, activation_specs *input, activation_specs *grad_output);

/* Computes q, k, v and the attention output from x[T,D]; opens them in `s`. */
ott_status attention_forward(exec *cx, attention *a, const sequence_metadata *at, const activation *x,
                             attention_saved *s);
/* y[T,D] = o W_o^T. */
ott_status attention_project(exec *cx, attention *a, const attention_saved *s, const tensor *y);
/* Closes the quantized copies of o, which backward makes again. Call it if a backward follows. */
ott_status attention_keep(exec *cx, attention_saved *s);
ott_status attention_discard(exec *cx, attention_saved *s); /* closes all tensors of s */
/* Computes dx[T,D] and all weight gradients from g, the gradient of y, and the input x. Closes s. */
ott_status attention_backward(exec *cx, attention *a, const sequence_metadata *at, attention_saved *s,
                              const activation *x, const activation *g, const tensor *dx);

#endif
