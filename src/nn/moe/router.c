/* nn/moe/router: routing, router losses, and the backward pass of the router. */
#include "nn/moe/router.h"
#include <math.h>

/* Number of sequences in a micro-batch. tokens: number of its tokens on each context-parallel rank. */
static int64_t sequences_of(const moe *m, int64_t tokens) {
    int64_t all = tokens * router_token_ranks(m), length = m->options->sequence;
    return length > 0 && all % length == 0 ? all / length : 1;
}

/* Returns how many runs of tokens this rank has. runs: number in the micro-batch: one run per sequence, or
   one of all tokens. Returns 1 if the rank has a part of a run. */
static int64_t local_runs(const moe *m, int64_t runs) {
    int64_t ranks = router_token_ranks(m);
    return runs > ranks ? runs / ranks : 1;
}

/* Balance loss factor weight * E / (K L^2 S): E experts, K choices per token, S = `runs` runs of L tokens. */
static double balance_scale(const moe *m, double weight, int64_t tokens, int64_t runs) {
    const moe_options *o = m->options;
    double length = (double)(tokens * router_token_ranks(m)) / (double)runs;
    return weight * (double)o->experts / ((double)o->choices * length * length * (double)runs);
}

/* Maximum number of tokens that take an expert as their first choice, as their second, ...; 0: no limit. */
static int64_t capacity_of(const moe *m, int64_t tokens) {
    const moe_options *o = m->options;
    double all = (double)(tokens * router_token_ranks(m));
    double capacity = ceil(all * (double)o->choices / (double)o->experts * o->capacity);
    return capacity < all ? (int64_t)capacity : 0;
}

int64_t router_max_rows(const moe *m, int64_t tokens) {
    const moe_options *o = m->options;
    return m->ranks ? expert_ranks_max_rows(m->ranks, tokens, o->choices, capacity_of(m, tokens))
                    : tokens * o->choices;
}

/* Assigns memory in `block` (NULL: none) to the routing tensors of `tokens` tokens. Returns its size. */
static int64_t lay_out_saved(const exec *cx, const moe *m, int64_t tokens, char *block, moe_saved *s) {
    const moe_options *o = m->options;
    int64_t rows = tokens * o->choices, sequences = local_runs(m, sequences_of(m, tokens)), bytes = 0;
    bool counts = o->balance > 0 || m->count.data;
    int64_t ranks = m->ranks ? m->ranks->group->size : 0, most = router_max_rows(m, tokens);
    int64_t every = o->balances_gradients && m->token_ranks ? router_token_ranks(m) * moe_rank_count(m) : 0;
    const struct {
        tensor *t;
        ott_dtype format;
        int64_t rows, columns;
    } parts[] = {{&s->logits, OTT_F32, tokens, o->experts},
                 {&s->score, OTT_F32, tokens, o->experts},
                 {&s->weight, OTT_F32, tokens, o->choices},
                 {&s->expert, OTT_I32, tokens, o->choices},
                 {&s->row, OTT_I32, tokens, o->choices},
                 {&s->lse, OTT_F32, 1, tokens},
                 {&s->total, OTT_F32, 1, tokens},
                 {&s->source, OTT_I32, 1, rows},
                 {&s->end, OTT_I32, 1, o->experts},
                 {&s->batch_count, OTT_F32, counts, o->experts},
                 {&s->sequence_count, OTT_F32, o->sequence_balance > 0 ? sequences : 0, o->experts},
                 {&s->all_end, OTT_I32, ranks, o->experts},
                 {&s->own_end, OTT_I32, ranks, ranks ? o->experts / ranks : 0},
                 {&s->row_weight, OTT_F32, ranks ? most : 0, 1},
                 {&s->row_number, OTT_I32, ranks ? most : 0, 1},
                 {&s->every_end, OTT_I32, every, o->experts}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        void *data = block && parts[i].rows > 0 ? block + bytes : NULL;
        *parts[i].t = tensor_matrix(data, parts[i].format, parts[i].rows, parts[i].columns);
        bytes += backend_align(cx->device->can, tensor_bytes(*parts[i].t));
    }
    return bytes;
}

/* If context-parallel ranks share a run (a sequence, or the micro-batch), sums count[1, E] over them. */
static ott_status add_counts(exec *cx, const moe *m, const tensor *count, int64_t runs) {
    group *g = m->token_ranks;
    tensor all, own;
    plan_buffer buffer;
    if (!g || count->rows * g->size == runs) return OTT_OK;
    STATUS_REQUIRE(count->rows == 1 && g->size % runs == 0);
    TRY(exec_open(cx, "choices of a micro-batch", OTT_F32, runs, count->columns, &all, &buffer));
    if (!plan_recording(cx->plan)) TRY(device_zero(cx->device, all.data, tensor_bytes(all)));
    own = tensor_rows(all, g->rank * runs / g->size, 1);
    TRY(op_convert(cx, &(convert_args){.x = count, .y = &own}));
    TRY(group_all_reduce(g, cx, &all, REDUCE_SUM));
    TRY(op_convert(cx, &(convert_args){.x = &own, .y = count}));
    return plan_close(cx->plan, &buffer);
}

/* Writes to `count` how often each expert is chosen, in one row per run (a sequence, or the micro-batch).
   Adds the counts to *sum (unless NULL) and the balance loss to m->losses. count->data NULL: does nothing. */
static ott_status add_balance_loss(exec *cx, const moe *m, const moe_saved *s, const tensor *count,
                                   int64_t runs, double weight, const tensor *sum) {
    bool is_added = m->losses.data && cx->phase == PHASE_TRAIN && weight > 0;
    tensor share;
    plan_buffer buffer;
    if (!count->data) return OTT_OK;
    TRY(exec_open(cx, "expert shares", OTT_F32, count->rows, count->columns, &share, &buffer));
    TRY(op_route_balance(
        cx,
        &(route_balance_args){
            .score = &s->score, .total = &s->total, .expert = &s->expert, .count = count, .share = &share}));
    if (sum) TRY(op_add(cx, &(add_args){.x = sum, .delta = count, .y = sum}));
    if (weight > 0) TRY(add_counts(cx, m, count, runs));
    float scale = (float)balance_scale(m, weight, s->score.rows, runs);
    if (is_added) {
        tensor loss = tensor_columns(m->losses, 0, 1);
        TRY(op_dot(cx, &(dot_args){.x = count, .y = &share, .sum = &loss, .scale = scale}));
    }
    return plan_close(cx->plan, &buffer);
}

static ott_status add_z_loss(exec *cx, const moe *m, const moe_saved *s) {
    if (!m->losses.data || cx->phase != PHASE_TRAIN || m->options->z <= 0) return OTT_OK;
    tensor sum = tensor_columns(m->losses, 1, 1);
    float scale = (float)(m->options->z / (double)(s->lse.columns * router_token_ranks(m)));
    return op_dot(cx, &(dot_args){.x = &s->lse, .y = &s->lse, .sum = &sum, .scale = scale});
}

/* In training: records the expert counts and the router losses. */
static ott_status record_losses(exec *cx, const moe *m, const moe_saved *s) {
    const moe_options *o = m->options;
    int64_t sequences = sequences_of(m, s->score.rows);
    const tensor *sum = m->count.data && cx->phase == PHASE_TRAIN ? &m->count : NULL;
    if (cx->phase == PHASE_EVALUATE) return OTT_OK;
    TRY(add_balance_loss(cx, m, s, &s->batch_count, 1, o->balance, sum));
    TRY(add_balance_loss(cx, m, s, &s->sequence_count, sequences, o->sequence_balance, NULL));
    return add_z_loss(cx, m, s);
}

/* With a capacity, experts prefer tokens of lower ranks. So each rank gathers the choices of all tokens. */
static ott_status sort_choices(exec *cx, const moe *m, const moe_saved *s) {
    const tensor *own = &s->expert;
    int64_t capacity = capacity_of(m, own->rows), first = 0;
    tensor expert = *own;
    plan_buffer buffer = PLAN_NONE;
    if (capacity > 0 && m->token_ranks) {
        first = m->token_ranks->rank * own->rows;
        TRY(exec_open(cx, "choices of all tokens", OTT_I32, own->rows * m->token_ranks->size, own->columns,
                      &expert, &buffer));
        TRY(router_gather(cx, m, own, &expert));
    }
    TRY(op_route_sort(cx, &(route_sort_args){.expert = &expert,
                                             .row = &s->row,
                                             .source = &s->source,
                                             .end = &s->end,
                                             .capacity = capacity,
                                             .first = first}));
    return plan_close(cx->plan, &buffer);
}

ott_status router_forward(exec *cx, moe *m, const activation *x, moe_saved *s) {
    const moe_options *o = m->options;
    int64_t tokens = x->t.rows, bytes = lay_out_saved(cx, m, tokens, NULL, s);
    TRY(plan_open(cx->plan, "routing", bytes, &s->routing_buffer));
    lay_out_saved(cx, m, tokens, s->routing_buffer.data, s);
    TRY(linear_forward(cx, &m->router, x, &s->logits));
    TRY(op_route(cx, &(route_args){.logits = &s->logits,
                                   .bias = m->bias ? &m->bias->value : NULL,
                                   .score = &s->score,
                                   .lse = &s->lse,
                                   .total = &s->total,
                                   .expert = &s->expert,
                                   .weight = &s->weight,
                                   .rule = o->rule}));
    TRY(record_losses(cx, m, s));
    return sort_choices(cx, m, s);
}

static route_losses losses_of(const exec *cx, const moe *m, int64_t tokens) {
    const moe_options *o = m->options;
    int64_t sequences = sequences_of(m, tokens);
    if (!cx->pass_scale) return (route_losses){0};
    return (route_losses){.balance = (float)balance_scale(m, o->balance, tokens, 1),
                          .sequence_balance = (float)balance_scale(m, o->sequence_balance, tokens, sequences),
                          .z = (float)(2 * o->z / (double)(tokens * router_token_ranks(m)))};
}

ott_status router_backward(exec *cx, moe *m, const moe_saved *s, const activation *x, const tensor *dweight,
                           const tensor *dx) {
    const route_losses losses = losses_of(cx, m, s->score.rows);
    tensor unused = tensor_columns(s->lse, 0, 1); /* any tensor: it is multiplied by losses that are 0 */
    plan_buffer buffer;
    activation g = {0};
    TRY(exec_open(cx, "router gradient", OTT_F32, s->logits.rows, s->logits.columns, &g.t, &buffer));
    TRY(op_route_backward(
        cx, &(route_backward_args){.logits = &s->logits,
                                   .score = &s->score,
                                   .lse = &s->lse,
                                   .total = &s->total,
                                   .expert = &s->expert,
                                   .dweight = dweight,
                                   .batch_count = losses.balance > 0 ? &s->batch_count : NULL,
                                   .sequence_count = losses.sequence_balance > 0 ? &s->sequence_count : NULL,
                                   .grad_scale = cx->pass_scale ? cx->pass_scale : &unused,
                                   .dlogits = &g.t,
                                   .rule = m->options->rule,
                                   .losses = losses}));
    TRY(linear_grad_input(cx, &m->router, &g, dx, true));
    TRY(linear_grad_weight(cx, &m->router, x, &g));
    return plan_close(cx->plan, &buffer);
}
