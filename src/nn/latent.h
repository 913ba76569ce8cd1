/*
 * nn/latent: multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): its projections. Keys and values of all heads come from a
 * latent, a few numbers of each token; queries may too. Rotary embedding turns the last columns of a head alone; those of keys
 * come beside the latent, once for all heads. What attention itself (nn/attention.h) gets are plain heads of one width: zeros
 * behind values, or where these are wider behind queries and keys, change nothing.
 *
 * Ranks among which heads are divided (nn/tensor_ranks.h) have the projections to latents, A, and their norms whole, of all rows,
 * and of those from latents, B, some heads. What each makes of a latent's gradient is a part of a sum: they add it up before the
 * norm, so that from there on all have the same gradients, of one rank's codes in FP8.
 */
#ifndef NN_LATENT_H
#define NN_LATENT_H

#include "nn/linear.h"
#include "nn/norm.h"

typedef struct latent_shape {
    int64_t query_rank,
        key_rank; /* widths of the latents: of queries, 0: none; of keys and values, 0: plain attention */
    int64_t nope_dim, rope_dim; /* columns of a head of q and k, those that rotary embedding turns last */
    int64_t value;              /* of a head of v */
} latent_shape;

/* y = norm(first columns of x A^T) B^T. What A makes beyond the latent is not in y. */
typedef struct latent_path {
    linear a, b; /* a.weight NULL: there is none */
    norm norm;
    activation_specs specs;          /* of the latent, wanted by b */
    activation_specs grad_a, grad_b; /* of the gradients of what they make */
} latent_path;

typedef struct latent {
    latent_shape shape; /* key_rank 0: none */
    latent_path query, key;
} latent;

/* What forward leaves for backward, of each path. */
typedef struct latent_saved {
    tensor made; /* by A: [T, a.out] */
    plan_buffer buffer;
} latent_saved;

static inline int64_t latent_key_width(const latent_shape *s) {
    return s->nope_dim + s->rope_dim;
}

/* The ranks that have other columns of what b makes, and all rows. */
static inline tensor_ranks latent_ranks(const latent_path *p) {
    return (tensor_ranks){.group = p->b.ranks.group};
}

ott_status latent_connect(latent_path *p, activation_specs *input);
/* y[T, b.out] from x[T,D]; opens s. */
ott_status latent_forward(exec *cx, latent_path *p, const activation *x, const tensor *y, latent_saved *s);
/* Of what A makes, the columns beyond the latent. */
tensor latent_extra_columns(const latent_path *p, const latent_saved *s);
/* dx from g, the gradient of y, which is closed, and from that of the columns beside the latent, of all ranks (NULL: there are none);
   dx NULL: another rank makes it. Closes s. */
ott_status latent_backward(exec *cx, latent_path *p, latent_saved *s, const activation *x, activation *g,
                           const tensor *beside, const tensor *dx, bool accumulate);
ott_status latent_close(exec *cx, latent_saved *s);

/* k and v [T, heads * key width] from what the path of keys makes, [T, heads * (still + value)], and turned[T, turning]. */
ott_status latent_split(exec *cx, const latent_shape *s, int64_t heads, const tensor *made,
                        const tensor *turned, const tensor *k, const tensor *v);
/* The gradients of those two from those of k and v; turned may be fp32. */
ott_status latent_merge(exec *cx, const latent_shape *s, int64_t heads, const tensor *dk, const tensor *dv,
                        const tensor *made, const tensor *turned);
/* The first `count` columns of heads of x as heads of y, with zeros behind them. */
ott_status latent_resize(exec *cx, int64_t heads, int64_t count, const tensor *x, const tensor *y);

#endif
