/* nn/moe/moe: forward and backward of mixture of experts. */
#include "nn/moe/router.h"

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
        end = tensor_rows(s->every_end, rank, router_token_ranks(m));
        end.ld *= moe_rank_count(m);
    }
    return (grouped_balance){end, first};
}

static ott_status multiply_received(exec *cx, const moe *m, linear *l, const moe_saved *s, const tensor *x,
                                    const tensor *y) {
    for (int k = 0; k < moe_rank_count(m); k++) {
        rank_rows r = rows_from(m, s, k);
        tensor from = tensor_rows(*x, r.first, r.count), to = tensor_rows(*y, r.first, r.count);
        TRY(linear_forward_grouped(cx, l, &from, &r.grouped, &to));
    }
    return OTT_OK;
}

static ott_status multiply_back(exec *cx, const moe *m, linear *l, const moe_saved *s, const tensor *g,
                                const tensor *dx, bool accumulate) {
    for (int k = 0; k < moe_rank_count(m); k++) {
        rank_rows r = rows_from(m, s, k);
        tensor from = tensor_rows(*g, r.first, r.count), to = tensor_rows(*dx, r.first, r.count);
        TRY(linear_grad_input_grouped(cx, l, &from, &r.grouped, &to, accumulate));
    }
    return OTT_OK;
}

static ott_status add_weight_gradient(exec *cx, const moe *m, linear *l, const moe_saved *s, const tensor *x,
                                      const tensor *g) {
    for (int k = 0; k < moe_rank_count(m); k++) {
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
    s->max_rows = router_max_rows(m, x->t.rows);
    TRY(router_forward(cx, m, x, s));
    if (m->ranks) TRY(exchange_routing(cx, m, s));
    if (s->every_end.data) TRY(router_gather(cx, m, m->ranks ? &s->all_end : &s->end, &s->every_end));
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
    TRY(router_backward(cx, m, s, &all, &dweight, &dall.t));
    TRY(plan_close(cx->plan, &buffer));
    TRY(activation_close(cx, &all));
    TRY(activation_close(cx, &grad));
    TRY(tensor_full_close(cx, &m->sequence_ranks, dx, &dall));
    return moe_discard(cx, s);
}
