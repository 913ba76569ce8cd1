/* optimizer/muon: Muon (Jordan et al. 2024), as torch.optim.Muon computes it. Newton-Schulz iterations
   orthogonalize the momentum of a matrix. AdamW updates vectors, embeddings and output heads. Data-parallel
   ranks that shard a matrix gather its momentum and compute the same update; each applies the update to its
   rows. Each expert's matrix is orthogonalized separately. */
#include "optimizer/rules.h"
#include <math.h>

/* Index of the momentum among the state tensors. If AdamW updates a parameter, it is the first moment. */
enum { MOMENTUM };

static int64_t matrix_rows(const parameter *p) {
    return p->rows / p->experts;
}

/* True if Muon updates p. The parameter's role decides, not its shape. */
static bool is_for_muon(const parameter *p) {
    return p->is_hidden;
}

/* c = a b, or c += a b. a_transposed, b_transposed: the factor is a^T, b^T instead of a, b. */
static ott_status multiply_matrices(exec *cx, tensor a, bool a_transposed, tensor b, bool b_transposed,
                                    const tensor *c, bool accumulate) {
    /* op_gemm expects b with n rows and k columns */
    const operand left = {.t = a, .transposed = a_transposed}, right = {.t = b, .transposed = !b_transposed};
    return op_gemm(cx, &(gemm_args){.a = &left,
                                    .b = &right,
                                    .c = c,
                                    .accumulate = accumulate,
                                    .spec = recipe_high_precision(a.dtype)->gemm[GEMM_OUTPUT]});
}

static ott_status scale_tensor(exec *cx, const tensor *x, float factor, const tensor *y) {
    return op_multiply(cx, &(multiply_args){.x = x, .y = y, .factor = factor});
}

/* Temporary matrices [s, s]. s is the shorter side of the momentum. */
typedef struct squares {
    tensor gram, scaled, polynomial;
} squares;

/* One iteration: y = a x + (b g + c g g) x, g = x x^T; if tall: y = a x + x (b g + c g g), g = x^T x. */
static ott_status iterate_newton_schulz(exec *cx, const squares *s, const tensor *x, const tensor *y) {
    const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    bool tall = x->rows > x->columns;
    TRY(multiply_matrices(cx, *x, tall, *x, !tall, &s->gram, false));
    TRY(scale_tensor(cx, &s->gram, b, &s->polynomial));
    TRY(scale_tensor(cx, &s->gram, c, &s->scaled));
    TRY(multiply_matrices(cx, s->scaled, false, s->gram, false, &s->polynomial, true));
    TRY(scale_tensor(cx, x, a, y));
    return tall ? multiply_matrices(cx, *x, false, s->polynomial, false, y, true)
                : multiply_matrices(cx, s->polynomial, false, *x, false, y, true);
}

/* Runs `steps` iterations. The input is in x, or in `other` if `steps` is odd. The result is in x. */
static ott_status iterate_all(exec *cx, int steps, const tensor *x, const tensor *other) {
    enum { SQUARES = 3 };
    squares s;
    tensor *each[SQUARES] = {&s.gram, &s.scaled, &s.polynomial};
    plan_buffer buffer[SQUARES];
    int64_t side = x->rows < x->columns ? x->rows : x->columns;
    for (int i = 0; i < SQUARES; i++)
        TRY(exec_open(cx, "squares of a momentum", x->dtype, side, side, each[i], &buffer[i]));
    for (int i = steps; i > 0; i--) TRY(iterate_newton_schulz(cx, &s, i % 2 ? other : x, i % 2 ? x : other));
    for (int i = 0; i < SQUARES; i++) TRY(plan_close(cx->plan, &buffer[i]));
    return OTT_OK;
}

/* y = x / |x|. */
static ott_status normalize_update(exec *cx, const tensor *x, const tensor *y) {
    tensor blocks, sum;
    plan_buffer blocks_buffer, sum_buffer;
    TRY(exec_open(cx, "squares of a momentum", OTT_F32, 1, op_reduce_blocks(tensor_count(*x)), &blocks,
                  &blocks_buffer));
    TRY(exec_open(cx, "squared norm of a momentum", OTT_F32, 1, 1, &sum, &sum_buffer));
    TRY(op_block_squares(cx, &(block_squares_args){.x = x, .sums = &blocks}));
    TRY(op_sum_blocks(cx, &(sum_blocks_args){.sums = &blocks, .sum = &sum}));
    TRY(op_muon_normalize(cx, &(muon_normalize_args){.x = x, .sum_squares = &sum, .y = y}));
    TRY(plan_close(cx->plan, &sum_buffer));
    return plan_close(cx->plan, &blocks_buffer);
}

static ott_status orthogonalize(exec *cx, int steps, const tensor *momentum, const tensor *update) {
    tensor other;
    plan_buffer buffer;
    TRY(exec_open(cx, "Newton-Schulz buffer", update->dtype, update->rows, update->columns, &other, &buffer));
    TRY(normalize_update(cx, momentum, steps % 2 ? &other : update));
    TRY(iterate_all(cx, steps, update, &other));
    return plan_close(cx->plan, &buffer);
}

/* A tensor and its buffer; the buffer is PLAN_NONE if the tensor is borrowed. */
typedef struct buffered {
    tensor t;
    plan_buffer buffer;
} buffered;

/* Opens this rank's rows of the matrix to orthogonalize: the momentum or, if o->nesterov, Nesterov's. */
static ott_status open_direction(exec *cx, const optimizer_options *o, const parameter *p,
                                 const tensor *state, buffered *out) {
    const tensor *momentum = &p->shard.slot[MOMENTUM];
    *out = (buffered){.t = *momentum, .buffer = PLAN_NONE};
    if (!o->nesterov || tensor_count(*momentum) == 0) return OTT_OK;
    TRY(exec_open(cx, "Nesterov's momentum", momentum->dtype, momentum->rows, momentum->columns, &out->t,
                  &out->buffer));
    return op_muon_direction(cx, &(muon_direction_args){.momentum = momentum,
                                                        .grad = &p->shard.grad,
                                                        .state = state,
                                                        .y = &out->t,
                                                        .factor = o->momentum});
}

/* Opens the full matrix, gathered from all ranks. */
static ott_status gather_matrix(exec *cx, const parameter *p, const optimizer_ranks *ranks, const tensor *own,
                                buffered *out) {
    *out = (buffered){.t = *own, .buffer = PLAN_NONE};
    if (!p->shard.rows_per_rank) return OTT_OK;
    TRY(exec_open(cx, "gathered momentum", own->dtype, p->rows, p->columns, &out->t, &out->buffer));
    return group_run(ranks->shard, cx,
                     &(collective){.kind = COLLECTIVE_ALL_GATHER,
                                   .input = *own,
                                   .output = out->t,
                                   .output_rows = p->shard.rows_per_rank});
}

static double muon_update_factor(muon_scale how, double rows, double columns) {
    switch (how) {
    case MUON_SCALE_ORIGINAL: return sqrt(rows > columns ? rows / columns : 1.0);
    case MUON_SCALE_RMS: return 0.2 * sqrt(rows > columns ? rows : columns);
    case MUON_SCALE_SPECTRAL: return sqrt(rows / columns);
    case MUON_SCALE_ONE: break;
    }
    return 1.0;
}

static ott_status apply_update(exec *cx, const optimizer_options *o, const optimizer_rows *own,
                               const tensor *update, const tensor *state) {
    double factor = muon_update_factor(o->muon_scale, (double)matrix_rows(own->parameter),
                                       (double)own->parameter->columns);
    tensor rows = tensor_rows(*update, own->parameter->shard.first, own->param.rows);
    if (rows.rows == 0) return OTT_OK;
    return op_muon(cx, &(muon_args){.param = &own->param,
                                    .update = &rows,
                                    .state = state,
                                    .scale = (float)factor,
                                    .weight_decay = own->weight_decay,
                                    .seed = own->seed,
                                    .first = own->first,
                                    .row_step = own->row_step});
}

static ott_status step_matrix(exec *cx, const optimizer_options *o, const parameter *p,
                              const optimizer_ranks *ranks, const tensor *state) {
    buffered direction, full;
    optimizer_rows own = {.parameter = p};
    tensor update;
    plan_buffer buffer;
    int64_t rows = matrix_rows(p);
    if (p->shard.value.rows > 0) STATUS_REQUIRE(optimizer_rows_at(o, p, 0, &own) == p->shard.value.rows);
    if (own.param.rows != 0)
        TRY(op_muon_momentum(cx, &(muon_momentum_args){.momentum = &own.slot[MOMENTUM],
                                                       .grad = &own.grad,
                                                       .state = state,
                                                       .factor = o->momentum,
                                                       .seed = own.seed,
                                                       .first = own.first,
                                                       .row_step = own.row_step}));
    TRY(open_direction(cx, o, p, state, &direction));
    TRY(gather_matrix(cx, p, ranks, &direction.t, &full));
    TRY(exec_open(cx, "update of a matrix", o->muon_format, p->rows, p->columns, &update, &buffer));
    for (int64_t i = 0; i < p->experts; i++) {
        tensor from = tensor_rows(full.t, i * rows, rows), to = tensor_rows(update, i * rows, rows);
        TRY(orthogonalize(cx, o->muon_steps, &from, &to));
    }
    TRY(apply_update(cx, o, &own, &update, state));
    TRY(plan_close(cx->plan, &buffer));
    TRY(plan_close(cx->plan, &full.buffer));
    return plan_close(cx->plan, &direction.buffer);
}

static ott_status step_muon(exec *cx, const optimizer_options *o, const parameter *const *trained, int count,
                            const optimizer_ranks *ranks, const tensor *state) {
    for (int i = 0; i < count; i++) TRY(step_matrix(cx, o, trained[i], ranks, state));
    return OTT_OK;
}

const optimizer_rule optimizer_muon = {.name = "muon",
                                       .slots = 2,
                                       .slot = {"exp_avg", "exp_avg_sq"},
                                       .applied_slots = 1,
                                       .applies_to = is_for_muon,
                                       .schedule = optimizer_schedule_moments,
                                       .step = step_muon};
