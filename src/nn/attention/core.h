/*
 * nn/attention/core: what all kinds of causal self-attention have in common, from q, k and v to the output
 * projection: rotary embedding, grouped heads (GQA), the cache of keys and values, context parallelism.
 * Each kind (attention.h, latent_attention.h) computes q, k and v. Its layer begins with an attention_core,
 * and its saved tensors begin with an attention_core_saved.
 */
#ifndef NN_ATTENTION_CORE_H
#define NN_ATTENTION_CORE_H

#include "nn/attention/context_ranks.h"
#include "nn/attention/rope.h"
#include "nn/linear/linear.h"
#include "nn/sequence.h"

typedef struct attention_core {
    linear o;
    /* Numbers of heads on this rank, and columns of a head of q, k and v. If o reads fewer columns of each v
       head (o.in / heads), the v heads are padded with zeros. */
    int64_t heads, kv_heads, head_dim;
    float softcap;    /* cap of the scaled scores; 0: no cap */
    float scale;      /* factor of q k^T before the softmax; 0: 1 / sqrt(head_dim) */
    int64_t window;   /* number of keys a query attends to, including its own token; 0: no limit */
    const rope *rope; /* rotary tables; borrowed; NULL: no rotation */
    /* First rotated column of a q head. If it is not 0, the kind of attention rotates k, not the core. */
    int64_t rope_first;
    group *context; /* context-parallel ranks (nn/attention/context_ranks.h); borrowed; NULL: none */
    activation_specs input_specs;  /* specs of the input of the projections, all ranks' rows */
    activation_specs output_specs; /* specs of the attention output, the input of o */
    activation_specs grad_specs;   /* specs of the gradient of o's output, all ranks' rows */
} attention_core;

typedef struct attention_core_saved {
    tensor q, k, v, lse; /* q, k are rotated; lse[heads, T]; context-parallel: all tokens of some heads */
    plan_buffer qkv_buffer, q_buffer, k_buffer, v_buffer, lse_buffer; /* qkv_buffer or the next 3 are open */
    activation o;
    tensor dout; /* in backward: gradient of the attention output */
    plan_buffer dout_buffer;
} attention_core_saved;

static inline int64_t attention_core_query_width(const attention_core *c) {
    return c->heads * c->head_dim;
}
static inline int64_t attention_core_key_width(const attention_core *c) {
    return c->kv_heads * c->head_dim;
}

/* Connects o. The projections of q, k and v have added their specs to c->input_specs. *input: the specs of
   this rank's rows of x; *grad_output: of y's gradient. */
ott_status attention_core_connect(attention_core *c, activation_specs *input, activation_specs *grad_output);
/* Opens *all, the input of the projections: the rows of x of all tensor-parallel ranks. */
ott_status attention_core_gather(exec *cx, const attention_core *c, const activation *x, activation *all);
/* Rotates q, k and v of s, and opens the attention output s->o. */
ott_status attention_core_forward(exec *cx, const attention_core *c, const sequence_metadata *at,
                                  attention_core_saved *s);
/* y[T,D] = o W_o^T. */
ott_status attention_core_project(exec *cx, attention_core *c, attention_core_saved *s, const tensor *y);
/* Closes the quantized copies of o, which backward makes again. Call it if a backward follows. */
ott_status attention_core_keep(exec *cx, attention_core_saved *s);
/* Backward of attention_core_project: opens s->dout, and accumulates the gradient of o's weight. */
ott_status attention_core_backward_project(exec *cx, attention_core *c, attention_core_saved *s,
                                           const activation *g);
/* Backward of attention_core_forward: computes dq, dk (before rotation) and dv from s->dout. */
ott_status attention_core_backward(exec *cx, const attention_core *c, const sequence_metadata *at,
                                   const attention_core_saved *s, const tensor *dq, const tensor *dk,
                                   const tensor *dv);
ott_status attention_core_close(exec *cx, attention_core_saved *s); /* closes all tensors of s */
/* Copies the first `count` columns of each head of x to the heads of y. Fills the rest of y with zeros. */
ott_status attention_core_resize(exec *cx, int64_t heads, int64_t count, const tensor *x, const tensor *y);
/* Bytes of sequence_cache.data: k (after norm and rotation) and v of `capacity` tokens. */
int64_t attention_core_cache_bytes(attention_core *c, ott_dtype activation, int64_t capacity);

#endif
