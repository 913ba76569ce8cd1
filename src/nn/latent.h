/*
 * nn/latent: the projections of multi-head latent attention (MLA; DeepSeek-V2, arXiv:2405.04434). Keys and
 * values of all heads come from a latent, a short vector per token; queries may come from a second one. Only
 * the last rope_dim columns of a head are rotated; for keys they are computed next to the latent, once for
 * all heads. Attention (nn/attention.h) receives plain heads of one width: the narrower of q/k and v is
 * padded with zeros.
 *
 * Tensor parallelism splits the heads. Every rank computes the projections to latents (A) and their norms for
 * all tokens, and the projections from latents (B) for its heads. The ranks' terms of a latent's gradient are
 * summed before the norm; from there on all ranks compute the same bits.
 */
#ifndef NN_LATENT_H
#define NN_LATENT_H

#include "nn/linear.h"
#include "nn/norm.h"

typedef struct latent_shape {
    int64_t query_rank;         /* width of the query latent; 0: none */
    int64_t key_rank;           /* width of the latent of keys and values; 0: plain attention */
    int64_t nope_dim, rope_dim; /* columns of a q or k head without, then with rotary embedding */
    int64_t value;              /* columns of a v head */
} latent_shape;

/* y = norm(first b.in columns of x A^T) B^T. The extra columns of x A^T, after the latent, do not enter y. */
typedef struct latent_path {
    linear a, b; /* a.weight NULL: no such path */
    norm norm;
    activation_specs specs;          /* of the latent, which b reads */
    activation_specs grad_a, grad_b; /* of the gradients of a's and b's outputs */
} latent_path;

typedef struct latent {
    latent_shape shape; /* key_rank 0: the model has no latents */
    latent_path query, key;
} latent;

/* What forward saves for backward, per path. */
typedef struct latent_saved {
    tensor made; /* x A^T: [T, a.out] */
    plan_buffer buffer;
} latent_saved;

static inline int64_t latent_key_width(const latent_shape *s) {
    return s->nope_dim + s->rope_dim;
}

/* The ranks that hold the other columns of b's output, without sequence parallelism. */
static inline tensor_ranks latent_ranks(const latent_path *p) {
    return (tensor_ranks){.group = p->b.ranks.group};
}

/* Connects a and b: adds to the specs of the input x and sets the path's own specs. */
ott_status latent_connect(latent_path *p, activation_specs *input);
/* Computes y[T, b.out] from x[T,D]; opens s. */
ott_status latent_forward(exec *cx, latent_path *p, const activation *x, const tensor *y, latent_saved *s);
/* View of the extra columns of x A^T. */
tensor latent_extra_columns(const latent_path *p, const latent_saved *s);
/* Computes dx and accumulates weight gradients. g: the gradient of y; closed. extra: the gradient of the
   extra columns, summed over the ranks; NULL: none. dx NULL: another rank computes it. Closes s. */
ott_status latent_backward(exec *cx, latent_path *p, latent_saved *s, const activation *x, activation *g,
                           const tensor *extra, const tensor *dx, bool accumulate);
ott_status latent_close(exec *cx, latent_saved *s);

/* Fills k and v, heads of one width, from the key path's output made[T, heads * (nope_dim + value)] and the
   rotated extra columns rotated[T, rope_dim]. */
ott_status latent_split(exec *cx, const latent_shape *s, int64_t heads, const tensor *made,
                        const tensor *rotated, const tensor *k, const tensor *v);
/* Backward of latent_split: fills made and rotated, which may be fp32, from dk and dv. */
ott_status latent_merge(exec *cx, const latent_shape *s, int64_t heads, const tensor *dk, const tensor *dv,
                        const tensor *made, const tensor *rotated);
/* Copies the first `count` columns of each head of x to the heads of y and fills the rest with zeros. */
ott_status latent_resize(exec *cx, int64_t heads, int64_t count, const tensor *x, const tensor *y);

#endif
