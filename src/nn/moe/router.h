/* nn/moe/router: private to nn/moe. Assigns tokens to experts, and computes the router's losses and
   gradients. */
#ifndef NN_MOE_ROUTER_H
#define NN_MOE_ROUTER_H

#include "nn/moe/moe.h"

/* Number of expert-parallel ranks. */
static inline int moe_rank_count(const moe *m) {
    return m->ranks ? m->ranks->group->size : 1;
}
/* Number of context-parallel ranks. */
static inline int router_token_ranks(const moe *m) {
    return m->token_ranks ? m->token_ranks->size : 1;
}
/* Maximum number of rows that this rank's experts can get if each rank has `tokens` tokens. */
int64_t router_max_rows(const moe *m, int64_t tokens);
/* Gathers a tensor of all context-parallel ranks. own: this rank's rows of `all`. */
static inline ott_status router_gather(exec *cx, const moe *m, const tensor *own, const tensor *all) {
    return group_run(m->token_ranks, cx,
                     &(collective){.kind = COLLECTIVE_ALL_GATHER, .input = *own, .output = *all});
}

/* Opens the routing tensors of s and fills them for the tokens x[T,D]. Records expert counts and losses. */
ott_status router_forward(exec *cx, moe *m, const activation *x, moe_saved *s);
/* Adds the gradient through the router to dx[T,D], and accumulates the gradient of the router's weight.
   dweight: gradient of the routing weights s->weight. */
ott_status router_backward(exec *cx, moe *m, const moe_saved *s, const activation *x, const tensor *dweight,
                           const tensor *dx);

#endif
