/* nn/moe/moe: forward and backward of mixture of experts. */
#include "nn/moe/moe.h"
#include <math.h>

static bool has_shared(const moe *m) {
    return m->shared.down.weight != NULL;
}

ott_status moe_connect(moe *m, activation_specs *input, activation_specs *grad_output) {
    linear *const experts[] = {&m->gate, &m->up};
    activation_specs inside = {0};
    if (has_shared(m)) TRY(mlp_connect(&m->shared, input, grad_output));
    TRY(linear_connect(&m->router, input, &inside));
    for (int i = 0; i < 2; i++) TRY(linear_connect(experts[i], input, &inside));
    return linear_connect(&m->down, &inside, grad_output);
}

/* ---- routing ---- */

static int token_ranks_of(const moe *m) {
    return m->token_ranks ? m->token_ranks->size : 1;
}

/* Number of sequences in a micro-batch. tokens: number of its tokens on each context-parallel rank. */
static int64_t sequences_of(const moe *m, int64_t tokens) {
    int64_t all = tokens * token_ranks_of(m), length = m->options->sequence;
    return length > 0 && all % length == 0 ? all / length : 1;
}

static int ranks_of(const moe *m) {
    return m->ranks ? m->ranks->group->size : 1;
}

/* Returns how many runs of tokens this rank has. runs: number in the micro-batch: one run per sequence, or
   one of all tokens. Returns 1 if the rank has a part of a run. */
static int64_t local_runs(const moe *m, int64_t runs) {
    int64_t ranks = token_ranks_of(m);
    return runs > ranks ? runs / ranks : 1;
}

/* Balance loss factor weight * E / (K L^2 S): E experts, K choices per token, S = `runs` runs of L tokens. */
static double balance_scale(const moe *m, double weight, int64_t tokens, int64_t runs) {
    const moe_options *o = m->options;
    double length = (double)(tokens * token_ranks_of(m)) / (double)runs;
    return weight * (double)o->experts / ((double)o->choices * length * length * (double)runs);
}

/* Maximum number of tokens that take an expert as their first choice, as their second, ...; 0: no limit. */
static int64_t capacity_of(const moe *m, int64_t tokens) {
    const moe_options *o = m->options;
    double all = (double)(tokens * token_ranks_of(m));
    double capacity = ceil(all * (double)o->choices / (double)o->experts * o->capacity);
    return capacity < all ? (int64_t)capacity : 0;
}

/* Maximum number of rows that this rank's experts can get if each rank has `tokens` tokens. */
static int64_t max_local_rows(const moe *m, int64_t tokens) {
    const moe_options *o = m->options;
    return m->ranks ? expert_ranks_max_rows(m->ranks, tokens, o->choices, capacity_of(m, tokens))
                    : tokens * o->choices;
}

/* Assigns memory in `block` (NULL: none) to the routing tensors of `tokens` tokens. Returns its size. */
static int64_t lay_out_saved(const exec *cx, const moe *m, int64_t tokens, char *block, moe_saved *s) {
    const moe_options *o = m->options;
    int64_t rows = tokens * o->choices, sequences = local_runs(m, sequences_of(m, tokens)), bytes = 0;
    bool counts = o->balance > 0 || m->count.data;
    int64_t ranks = m->ranks ? m->ranks->group->size : 0, most = max_local_rows(m, tokens);
    int64_t every = o->balances_gradients && m->token_ranks ? token_ranks_of(m) * ranks_of(m) : 0;
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
    float scale = (float)(m->options->z / (double)(s->lse.columns * token_ranks_of(m)));
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

static ott_status gather_tokens(exec *cx, const moe *m, const tensor *own, const tensor *all) {
    return group_run(m->token_ranks, cx,
                     &(collective){.kind = COLLECTIVE_ALL_GATHER, .input = *own, .output = *all});
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
        TRY(gather_tokens(cx, m, own, &expert));
    }
    TRY(op_route_sort(cx, &(route_sort_args){.expert = &expert,
                                             .row = &s->row,
                                             .source = &s->source,
                                             .end = &s->end,
                                             .capacity = capacity,
                                             .first = first}));
    return plan_close(cx->plan, &buffer);
}

static ott_status route_tokens(exec *cx, moe *m, const activation *x, moe_saved *s) {
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

/* ---- rows ---- */

/* Sets row_number[i] = i. op_route_sort writes these numbers if all rows have expert 0. */
static ott_status number_rows(exec *cx, const moe_saved *s) {
    int64_t rows = s->row_number.rows;
    tensor expert, source, end;
    plan_buffer expert_buffer, source_buffer, end_buffer;
    TRY(exec_open(cx, "row numbers: experts", OTT_I32, s->max_rows, 1, &expert, &expert_buffer));
    TRY(exec_open(cx, "row numbers: sources", OTT_I32, 1, s->max_rows, &source, &source_buffer));
    TRY(exec_open(cx, "row numbers: ends", OTT_I32, 1, 1, &end, &end_buffer));
    expert.rows = source.columns = rows;
    if (!plan_recording(cx->plan)) TRY(device_zero(cx->device, expert.data, tensor_bytes(expert)));
    TRY(op_route_sort(
        cx, &(route_sort_args){.expert = &expert, .row = &s->row_number, .source = &source, .end = &end}));
    TRY(plan_close(cx->plan, &expert_buffer));
    TRY(plan_close(cx->plan, &source_buffer));
    return plan_close(cx->plan, &end_buffer);
}

/* Sends the routing weight of each row to the rank of the row's expert. */
static ott_status send_weights(exec *cx, const moe *m, const moe_saved *s) {
    int64_t tokens = s->weight.rows, choices = s->weight.columns;
    tensor all, sorted;
    plan_buffer all_buffer, sorted_buffer;
    TRY(exec_open(cx, "routing weights by choice", OTT_F32, choices * tokens, 1, &all, &all_buffer));
    TRY(exec_open(cx, "routing weights by expert", OTT_F32, choices * tokens, 1, &sorted, &sorted_buffer));
    for (int64_t k = 0; k < choices; k++) {
        tensor from = tensor_columns(s->weight, k, 1), to = tensor_rows(all, k * tokens, tokens);
        TRY(op_convert(cx, &(convert_args){.x = &from, .y = &to}));
    }
    TRY(op_permute(cx, &(permute_args){.x = &all, .source = &s->source, .y = &sorted}));
    TRY(expert_ranks_dispatch(cx, m->ranks, &sorted, &s->row_weight));
    TRY(plan_close(cx->plan, &all_buffer));
    return plan_close(cx->plan, &sorted_buffer);
}

/* Number of rows to assume while the plan is recorded. */
static int64_t expected_rows(const moe_saved *s) {
    return s->source.columns < s->max_rows ? s->source.columns : s->max_rows;
}

/* Exchanges row counts and routing weights, so that this rank knows which rows it receives. */
static ott_status exchange_routing(exec *cx, const moe *m, moe_saved *s) {
    TRY(expert_ranks_exchange_counts(cx, m->ranks, expected_rows(s), &s->end, &s->all_end, &s->own_end));
    STATUS_REQUIRE(expert_ranks_received_rows(m->ranks) <= s->max_rows);
    s->row_weight.rows = s->row_number.rows = expert_ranks_received_rows(m->ranks);
    TRY(send_weights(cx, m, s));
    return number_rows(cx, s);
}

/* Opens a tensor for the rows of this rank's experts. */
static ott_status open_expert_rows(exec *cx, const char *what, ott_dtype d, const moe *m, const moe_saved *s,
                                   int64_t columns, tensor *y, plan_buffer *buffer) {
    TRY(exec_open(cx, what, d, s->max_rows, columns, y, buffer));
    if (m->ranks) y->rows = s->row_number.rows;
    return OTT_OK;
}

/* Opens y: the rows of x sorted by expert, or with expert parallelism the rows that this rank receives. */
static ott_status open_permuted(exec *cx, const char *what, const moe *m, const moe_saved *s, const tensor *x,
                                tensor *y, plan_buffer *buffer) {
    tensor sorted;
    plan_buffer sorted_buffer;
    TRY(open_expert_rows(cx, what, x->dtype, m, s, x->columns, y, buffer));
    if (!m->ranks) return op_permute(cx, &(permute_args){.x = x, .source = &s->source, .y = y});
    TRY(exec_open(cx, "rows by expert", x->dtype, s->source.columns, x->columns, &sorted, &sorted_buffer));
    TRY(op_permute(cx, &(permute_args){.x = x, .source = &s->source, .y = &sorted}));
    TRY(expert_ranks_dispatch(cx, m->ranks, &sorted, y));
    return plan_close(cx->plan, &sorted_buffer);
}

/* Writes to x[t] the sum of token t's rows of y. With shared experts, adds the sum to the output in x[t]. */
static ott_status unpermute_rows(exec *cx, const moe *m, const moe_saved *s, const tensor *y,
                                 const tensor *x) {
    tensor sorted = *y;
    plan_buffer buffer = PLAN_NONE;
    if (m->ranks) {
        TRY(exec_open(cx, "rows by expert", y->dtype, s->source.columns, y->columns, &sorted, &buffer));
        TRY(expert_ranks_combine(cx, m->ranks, y, &sorted));
    }
    TRY(op_unpermute(
        cx, &(unpermute_args){.y = &sorted, .row = &s->row, .plus = has_shared(m) ? x : NULL, .x = x}));
    return plan_close(cx->plan, &buffer);
}

static ott_status apply_weights(exec *cx, const moe *m, const moe_saved *s, const tensor *y) {
    tensor number = tensor_vector(s->row_number.data, OTT_I32, s->row_number.rows);
    return op_weigh(cx, &(weigh_args){.x = y,
                                      .weight = m->ranks ? &s->row_weight : &s->weight,
                                      .source = m->ranks ? &number : &s->source,
                                      .y = y});
}

/* dweight = gradient of the routing weights. y: rows before apply_weights; dy: gradient of rows after it. */
static ott_status apply_weights_backward(exec *cx, const moe *m, const moe_saved *s, const tensor *y,
                                         const tensor *dy, const tensor *dweight) {
    tensor received, sorted, all, row;
    plan_buffer received_buffer, sorted_buffer;
    if (!m->ranks)
        return op_weigh_backward(
            cx, &(weigh_backward_args){.x = y, .dy = dy, .row = &s->row, .dweight = dweight});
    TRY(open_expert_rows(cx, "routing weight gradient by row", OTT_F32, m, s, 1, &received,
                         &received_buffer));
    TRY(exec_open(cx, "routing weight gradient by expert", OTT_F32, s->source.columns, 1, &sorted,
                  &sorted_buffer));
    TRY(op_weigh_backward(
        cx, &(weigh_backward_args){.x = y, .dy = dy, .row = &s->row_number, .dweight = &received}));
    TRY(expert_ranks_combine(cx, m->ranks, &received, &sorted));
    all = tensor_matrix(dweight->data, OTT_F32, tensor_count(*dweight), 1);
    row = tensor_matrix(s->row.data, OTT_I32, tensor_count(s->row), 1);
    TRY(op_unpermute(cx, &(unpermute_args){.y = &sorted, .row = &row, .x = &all}));
    TRY(plan_close(cx->plan, &received_buffer));
    return plan_close(cx->plan, &sorted_buffer);
}

/* ---- grouped GEMMs ---- */

/* Rows [first, first + count) of the received rows: from one rank. grouped: ends of the experts' rows. */
typedef struct rank_rows {
    int64_t first, count;
    grouped_rows grouped;
} rank_rows;

static rank_rows rows_from(const moe *m, const moe_saved *s, int rank) {
    if (!m->ranks) return (rank_rows){0, s->source.columns, {s->end, s->max_rows}};
    const expert_ranks *r = m->ranks;
    const int64_t *rows = r->received;
    const grouped_rows grouped = {tensor_rows(s->own_end, rank, 1), s->max_rows / r->group->size};
    return (rank_rows){group_part_first(rows, 0, rank, rank), rows[rank], grouped};
}

/* Returns each expert's end row in expert-parallel rank `rank`'s tokens, per context-parallel rank. */
static grouped_balance balance_from(const moe *m, const moe_saved *s, int rank) {
    int64_t first = m->ranks ? m->ranks->group->rank * expert_ranks_own(m->ranks) : 0;
    tensor end = m->ranks ? tensor_rows(s->all_end, rank, 1) : s->end;
    if (m->token_ranks) {
        end = tensor_rows(s->every_end, rank, token_ranks_of(m));
        end.ld *= ranks_of(m);
    }
    return (grouped_balance){end, first};
}

static ott_status multiply_received(exec *cx, const moe *m, linear *l, const moe_saved *s, const tensor *x,
                                    const tensor *y) {
    for (int k = 0; k < ranks_of(m); k++) {
        rank_rows r = rows_from(m, s, k);
        tensor from = tensor_rows(*x, r.first, r.count), to = tensor_rows(*y, r.first, r.count);
        TRY(linear_forward_grouped(cx, l, &from, &r.grouped, &to));
    }
    return OTT_OK;
}

static ott_status multiply_back(exec *cx, const moe *m, linear *l, const moe_saved *s, const tensor *g,
                                const tensor *dx, bool accumulate) {
    for (int k = 0; k < ranks_of(m); k++) {
        rank_rows r = rows_from(m, s, k);
        tensor from = tensor_rows(*g, r.first, r.count), to = tensor_rows(*dx, r.first, r.count);
        TRY(linear_grad_input_grouped(cx, l, &from, &r.grouped, &to, accumulate));
    }
    return OTT_OK;
}

static ott_status add_weight_gradient(exec *cx, const moe *m, linear *l, const moe_saved *s, const tensor *x,
                                      const tensor *g) {
    for (int k = 0; k < ranks_of(m); k++) {
        rank_rows r = rows_from(m, s, k);
        tensor in = tensor_rows(*x, r.first, r.count), grad = tensor_rows(*g, r.first, r.count);
        grouped_balance balance;
        bool balances = m->options->balances_gradients;
        if (balances) balance = balance_from(m, s, k);
        TRY(linear_grad_weight_grouped(cx, l, &in, &grad, &r.grouped, balances ? &balance : NULL));
    }
    return OTT_OK;
}

/* ---- forward ---- */

/* Opens `all`: the rows of all sequence-parallel ranks, gathered. x: the slice that this rank has. */
static ott_status gather_rows(exec *cx, const moe *m, const char *what, const activation *x,
                              activation *all) {
    return tensor_ranks_gather(cx, &m->sequence_ranks, what, NULL, x, all);
}

static ott_status project_inputs(exec *cx, moe *m, const activation *x, moe_saved *s) {
    tensor rows;
    plan_buffer buffer;
    int64_t hidden = m->options->hidden;
    s->max_rows = max_local_rows(m, x->t.rows);
    TRY(route_tokens(cx, m, x, s));
    if (m->ranks) TRY(exchange_routing(cx, m, s));
    if (s->every_end.data) TRY(gather_tokens(cx, m, m->ranks ? &s->all_end : &s->end, &s->every_end));
    TRY(open_expert_rows(cx, "experts' gate", x->t.dtype, m, s, hidden, &s->gate, &s->gate_buffer));
    TRY(open_expert_rows(cx, "experts' up", x->t.dtype, m, s, hidden, &s->up, &s->up_buffer));
    TRY(open_permuted(cx, "experts' input", m, s, &x->t, &rows, &buffer));
    TRY(multiply_received(cx, m, &m->gate, s, &rows, &s->gate));
    TRY(multiply_received(cx, m, &m->up, s, &rows, &s->up));
    TRY(plan_close(cx->plan, &buffer));
    return has_shared(m) ? mlp_forward(cx, &m->shared, x, &s->shared) : OTT_OK;
}

ott_status moe_forward(exec *cx, moe *m, const activation *x, moe_saved *s) {
    activation all;
    TRY(gather_rows(cx, m, "gathered experts' input", x, &all));
    TRY(project_inputs(cx, m, &all, s));
    return activation_close(cx, &all);
}

ott_status moe_activate(exec *cx, moe *m, moe_saved *s) {
    return has_shared(m) ? mlp_activate(cx, &m->shared, &s->shared) : OTT_OK;
}

/* Opens silu(gate) * up. */
static ott_status open_hidden(exec *cx, const moe *m, const moe_saved *s, tensor *y, plan_buffer *buffer) {
    TRY(open_expert_rows(cx, "experts' swiglu output", s->gate.dtype, m, s, s->gate.columns, y, buffer));
    return op_swiglu_forward(cx, &(swiglu_forward_args){.gate = &s->gate, .up = &s->up, .y = y});
}

ott_status moe_project(exec *cx, moe *m, moe_saved *s, const tensor *out) {
    full_rows all;
    TRY(tensor_full_open(cx, &m->sequence_ranks, out, &all));
    tensor y, rows;
    plan_buffer y_buffer, buffer;
    if (has_shared(m)) TRY(mlp_project(cx, &m->shared, &s->shared, &all.t));
    TRY(open_hidden(cx, m, s, &y, &y_buffer));
    TRY(apply_weights(cx, m, s, &y));
    TRY(open_expert_rows(cx, "experts' output", all.t.dtype, m, s, all.t.columns, &rows, &buffer));
    TRY(multiply_received(cx, m, &m->down, s, &y, &rows));
    TRY(plan_close(cx->plan, &y_buffer));
    TRY(unpermute_rows(cx, m, s, &rows, &all.t));
    TRY(plan_close(cx->plan, &buffer));
    return tensor_full_close(cx, &m->sequence_ranks, out, &all);
}

ott_status moe_keep(exec *cx, moe *m, moe_saved *s) {
    return has_shared(m) ? mlp_keep(cx, &m->shared, &s->shared) : OTT_OK;
}

ott_status moe_keep_products(exec *cx, moe_saved *s) {
    return mlp_keep_products(cx, &s->shared);
}

ott_status moe_discard(exec *cx, moe_saved *s) {
    TRY(mlp_discard(cx, &s->shared));
    TRY(plan_close(cx->plan, &s->gate_buffer));
    TRY(plan_close(cx->plan, &s->up_buffer));
    return plan_close(cx->plan, &s->routing_buffer);
}

/* ---- backward ---- */

/* Computes dy, the gradient of silu(gate) * up, and the gradient of routing weights and of down's weight. */
static ott_status backward_down(exec *cx, moe *m, const moe_saved *s, const tensor *g, const tensor *dweight,
                                tensor *dy, plan_buffer *dy_buffer) {
    tensor rows, y;
    plan_buffer buffer, y_buffer;
    TRY(open_expert_rows(cx, "experts' swiglu gradient", g->dtype, m, s, s->gate.columns, dy, dy_buffer));
    TRY(open_permuted(cx, "experts' output gradient", m, s, g, &rows, &buffer));
    TRY(multiply_back(cx, m, &m->down, s, &rows, dy, false));
    TRY(open_hidden(cx, m, s, &y, &y_buffer));
    TRY(apply_weights_backward(cx, m, s, &y, dy, dweight));
    TRY(apply_weights(cx, m, s, &y));
    TRY(add_weight_gradient(cx, m, &m->down, s, &y, &rows));
    TRY(plan_close(cx->plan, &y_buffer));
    TRY(plan_close(cx->plan, &buffer));
    return apply_weights(cx, m, s, dy);
}

/* s->gate and s->up contain gradients here. Sets dx, or with shared experts adds to the gradient in dx. */
static ott_status backward_inputs(exec *cx, moe *m, const moe_saved *s, const tensor *x, const tensor *dx) {
    tensor rows, drows;
    plan_buffer buffer, dbuffer;
    TRY(open_permuted(cx, "experts' input", m, s, x, &rows, &buffer));
    TRY(add_weight_gradient(cx, m, &m->gate, s, &rows, &s->gate));
    TRY(add_weight_gradient(cx, m, &m->up, s, &rows, &s->up));
    TRY(plan_close(cx->plan, &buffer));
    TRY(open_expert_rows(cx, "experts' input gradient", dx->dtype, m, s, dx->columns, &drows, &dbuffer));
    TRY(multiply_back(cx, m, &m->gate, s, &s->gate, &drows, false));
    TRY(multiply_back(cx, m, &m->up, s, &s->up, &drows, true));
    TRY(unpermute_rows(cx, m, s, &drows, dx));
    return plan_close(cx->plan, &dbuffer);
}

static ott_status backward_experts(exec *cx, moe *m, const moe_saved *s, const tensor *x, const tensor *g,
                                   const tensor *dweight, const tensor *dx) {
    tensor dy;
    plan_buffer buffer;
    TRY(backward_down(cx, m, s, g, dweight, &dy, &buffer));
    TRY(op_swiglu_backward(cx,
                           &(swiglu_backward_args){
                               .dy = &dy, .gate = &s->gate, .up = &s->up, .dgate = &s->gate, .dup = &s->up}));
    TRY(plan_close(cx->plan, &buffer));
    return backward_inputs(cx, m, s, x, dx);
}

static route_losses losses_of(const exec *cx, const moe *m, int64_t tokens) {
    const moe_options *o = m->options;
    int64_t sequences = sequences_of(m, tokens);
    if (!cx->pass_scale) return (route_losses){0};
    return (route_losses){.balance = (float)balance_scale(m, o->balance, tokens, 1),
                          .sequence_balance = (float)balance_scale(m, o->sequence_balance, tokens, sequences),
                          .z = (float)(2 * o->z / (double)(tokens * token_ranks_of(m)))};
}

/* Adds the gradient through the router to dx. */
static ott_status backward_router(exec *cx, moe *m, const moe_saved *s, const activation *x,
                                  const tensor *dweight, const tensor *dx) {
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

ott_status moe_backward(exec *cx, moe *m, moe_saved *s, const activation *x, const activation *g,
                        const tensor *dx) {
    activation all, grad;
    full_rows dall;
    TRY(gather_rows(cx, m, "gathered experts' input", x, &all));
    TRY(gather_rows(cx, m, "gathered output gradient", g, &grad));
    TRY(tensor_full_open(cx, &m->sequence_ranks, dx, &dall));
    tensor dweight;
    plan_buffer buffer;
    if (m->ranks) TRY(expert_ranks_reload_counts(cx, m->ranks, expected_rows(s), &s->all_end));
    if (has_shared(m)) TRY(mlp_backward(cx, &m->shared, &s->shared, &all, &grad, &dall.t));
    TRY(exec_open(cx, "routing weight gradient", OTT_F32, s->weight.rows, s->weight.columns, &dweight,
                  &buffer));
    TRY(backward_experts(cx, m, s, &all.t, &grad.t, &dweight, &dall.t));
    TRY(backward_router(cx, m, s, &all, &dweight, &dall.t));
    TRY(plan_close(cx->plan, &buffer));
    TRY(activation_close(cx, &all));
    TRY(activation_close(cx, &grad));
    TRY(tensor_full_close(cx, &m->sequence_ranks, dx, &dall));
    return moe_discard(cx, s);
}
