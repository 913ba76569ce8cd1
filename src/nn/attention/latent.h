/*
 * nn/attention/latent: the projections of multi-head latent attention (MLA; DeepSeek-V2, arXiv:2405.04434).
 * Keys and values of all heads come from a latent, a short vector per token. Queries may come from a second
 * latent. Only the last rope_dim columns of a q or k head are rotated. For keys, the projection to the latent
 * also computes these columns, once for all heads. nn/attention/latent_attention.h computes attention from
 * these projections.
 *
 * Tensor parallelism splits the heads. Every rank computes the projections to latents (A) and the latents'
 * norms in full, and the projections from latents (B) for its heads. In backward, ranks sum their terms of a
 * normed latent's gradient. From there on, all ranks compute the same bits.
 */
#ifndef NN_ATTENTION_LATENT_H
#define NN_ATTENTION_LATENT_H

#include "nn/linear/linear.h"
#include "nn/norm.h"

typedef struct latent_shape {
    int64_t query_rank;         /* width of the query latent; 0: none */
    int64_t key_rank;           /* width of the latent of keys and values; 0: plain attention */
    int64_t nope_dim, rope_dim; /* columns of a q or k head without RoPE and with RoPE */
    int64_t value;              /* columns of a v head */
} latent_shape;

/* y = norm(latent) B^T. The latent is the first b.in columns of x A^T. Later columns do not affect y. */
typedef struct latent_path {
    linear a, b; /* a.weight NULL: the model has no such path */
    norm norm;
    activation_specs specs;          /* specs of the normed latent, which b reads */
    activation_specs grad_a, grad_b; /* specs of the gradients of a's and b's outputs */
} latent_path;

/* What forward saves of one path for backward. */
typedef struct latent_saved {
    tensor made; /* x A^T: [T, a.out] */
    plan_buffer buffer;
} latent_saved;

static inline int64_t latent_key_width(const latent_shape *s) {
    return s->nope_dim + s->rope_dim;
}

/* The tensor-parallel ranks that split b's output. `sequence` is false: each rank gets all rows of a sum. */
static inline tensor_ranks latent_ranks(const latent_path *p) {
    return (tensor_ranks){.group = p->b.ranks.group};
}

/* Connects a and b: adds a's spec to *input, the specs of the path's input x, and sets p's own specs. */
ott_status latent_connect(latent_path *p, activation_specs *input);
/* Computes y[T, b.out] from x[T,D]. Opens s->made. */
ott_status latent_forward(exec *cx, latent_path *p, const activation *x, const tensor *y, latent_saved *s);
/* View of the extra columns of x A^T. */
tensor latent_extra_columns(const latent_path *p, const latent_saved *s);
/* Computes dx (unless NULL) and accumulates the gradients of the weights. Closes s and g, the gradient of y.
   extra: the gradient of the columns of x A^T after the latent, summed over the ranks; NULL: none. */
ott_status latent_backward(exec *cx, latent_path *p, latent_saved *s, const activation *x, activation *g,
                           const tensor *extra, const tensor *dx, bool accumulate);
ott_status latent_close(exec *cx, latent_saved *s);

/* Makes k and v with heads of one width. made[T, heads * (nope_dim + value)] is y of the path `key`.
   rotated[T, rope_dim] are the columns of x A^T after the latent, rotated. */
ott_status latent_split(exec *cx, const latent_shape *s, int64_t heads, const tensor *made,
                        const tensor *rotated, const tensor *k, const tensor *v);
/* Backward of latent_split: computes the gradients `made` and `rotated` (may be fp32) from dk and dv. */
ott_status latent_merge(exec *cx, const latent_shape *s, int64_t heads, const tensor *dk, const tensor *dv,
                        const tensor *made, const tensor *rotated);

#endif
