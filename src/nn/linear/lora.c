/* nn/linear/lora: the GEMMs of an adapter. */
#include "nn/linear/lora_parts.h"

void lora_connect(activation_specs *input, activation_specs *grad_output) {
    input->high_precision = input->columnwise_high_precision = true;
    grad_output->high_precision = grad_output->columnwise_high_precision = true;
}

/* Opens A or B in the activation format. */
static ott_status open_factor(exec *cx, const parameter *p, ott_dtype d, lora_part *out) {
    *out = (lora_part){.t = p->value, .buffer = PLAN_NONE};
    if (p->value.dtype == d) return OTT_OK;
    TRY(exec_open(cx, "adapter weight", d, p->value.rows, p->value.columns, &out->t, &out->buffer));
    return op_convert(cx, &(convert_args){.x = &p->value, .y = &out->t});
}

/* ---- dropout ---- */

static bool drops_output(const exec *cx, const lora *l) {
    return l->dropout > 0 && l->drops_output && cx->phase != PHASE_EVALUATE;
}

/* Index in the micro-batch of this rank's first token. Each context-parallel rank has `rows` tokens. */
static int64_t first_row(const lora *l, int64_t rows) {
    return l->row_ranks ? l->row_ranks->rank * rows : 0;
}

/* y = dropout(x). x begins at token `row` and column `column` of a matrix with `columns` columns. */
static ott_status drop_elements(exec *cx, const lora *l, const tensor *x, int64_t row, int64_t column,
                                int64_t columns, const tensor *y) {
    if (!cx->token)
        return status_fail(OTT_ERR_UNSUPPORTED, "peft.dropout needs each token's position in the run, "
                                                "which is known only in training: set peft.dropout to 0");
    return op_dropout(cx, &(dropout_args){.x = x,
                                          .token = cx->token,
                                          .y = y,
                                          .scale = 1.0f / (1.0f - l->dropout),
                                          .rate = l->dropout,
                                          .seed = l->seed,
                                          .stream = l->stream,
                                          .first = row * columns + column,
                                          .row_step = columns});
}

/* y = dropout(x). x has this rank's columns of the output, which need not be adjacent in the output. */
static ott_status drop_outputs(exec *cx, const lora *l, const tensor *x, int64_t row, const tensor *y) {
    parameter_run run;
    for (int64_t at = 0; at < y->columns; at += run.count) {
        run = parameter_rows_at(&l->b->local, at, y->columns - at);
        tensor from = tensor_columns(*x, at, run.count), to = tensor_columns(*y, at, run.count);
        TRY(drop_elements(cx, l, &from, row, l->b->local.row + run.first, l->b->rows, &to));
    }
    return OTT_OK;
}

ott_status lora_open_input(exec *cx, const lora *l, const tensor *x, lora_part *out) {
    *out = (lora_part){.t = *x, .buffer = PLAN_NONE};
    if (!lora_drops_input(cx, l)) return OTT_OK;
    TRY(exec_open(cx, "dropped adapter input", x->dtype, x->rows, x->columns, &out->t, &out->buffer));
    return drop_elements(cx, l, x, first_row(l, x->rows), l->a->local.column, l->a->columns, &out->t);
}

/* Opens the gradient of the product B (A x): g, or dropout(g) if dropout applies to this product. */
static ott_status open_adapter_gradient(exec *cx, const lora *l, const tensor *g, lora_part *out) {
    *out = (lora_part){.t = *g, .buffer = PLAN_NONE};
    if (!drops_output(cx, l)) return OTT_OK;
    TRY(exec_open(cx, "dropped adapter gradient", g->dtype, g->rows, g->columns, &out->t, &out->buffer));
    return drop_outputs(cx, l, g, first_row(l, g->rows), &out->t);
}

/* ---- tensors between A and B ---- */

/* Opens u[T,r] = scale * a b, summed over `ranks`, or not summed if `ranks` is NULL. */
static ott_status open_inner(exec *cx, const lora *l, recipe_gemm role, const tensor_ranks *ranks,
                             const tensor *a, operand b, lora_part *out) {
    tensor *u = &out->t;
    partial_sum sum;
    TRY(exec_open(cx, "adapter rank activation", a->dtype, a->rows, l->a->rows, u, &out->buffer));
    TRY(tensor_partial_open(cx, ranks, OTT_F32, u, &sum));
    TRY(lora_multiply(cx, role, lora_rowwise(*a), b, &sum.t, false));
    TRY(tensor_partial_close(cx, ranks, u, &sum));
    return op_multiply(cx, &(multiply_args){.x = u, .y = u, .factor = l->scale});
}

/* Opens scale * A x. If ranks split A by columns, sums the product over them. x: the input after dropout. */
static ott_status open_down(exec *cx, const lora *l, const tensor *x, lora_part *out) {
    tensor_ranks ranks = lora_ranks_of_sum(l, PARAMETER_COLUMNS);
    lora_part a;
    TRY(open_factor(cx, l->a, x->dtype, &a));
    TRY(open_inner(cx, l, GEMM_OUTPUT, &ranks, x, lora_rowwise(a.t), out));
    return lora_part_close(cx, &a);
}

/* Opens scale * B^T g. If ranks split B by rows and `sums` is true, sums the product over the ranks. */
static ott_status open_up(exec *cx, const lora *l, const tensor *g, bool sums, lora_part *out) {
    tensor_ranks ranks = lora_ranks_of_sum(l, PARAMETER_ROWS);
    lora_part b;
    TRY(open_factor(cx, l->b, g->dtype, &b));
    TRY(open_inner(cx, l, GEMM_GRAD_INPUT, sums ? &ranks : NULL, g, lora_columnwise(b.t), out));
    return lora_part_close(cx, &b);
}

/* ---- forward ---- */

/* y += dropout(u b^T). row: index in the micro-batch of the first token of u. */
static ott_status add_dropped(exec *cx, const lora *l, const tensor *u, const tensor *b, int64_t row,
                              const tensor *y) {
    lora_part z;
    TRY(exec_open(cx, "adapter output", y->dtype, y->rows, y->columns, &z.t, &z.buffer));
    TRY(lora_multiply(cx, GEMM_OUTPUT, lora_rowwise(*u), lora_rowwise(*b), &z.t, false));
    TRY(drop_outputs(cx, l, &z.t, row, &z.t));
    TRY(op_add(cx, &(add_args){.x = y, .delta = &z.t, .y = y}));
    return lora_part_close(cx, &z);
}

ott_status lora_forward(exec *cx, const lora *l, const tensor *x, const tensor *y) {
    lora_part input, u, b;
    TRY(lora_open_input(cx, l, x, &input));
    TRY(open_down(cx, l, &input.t, &u));
    TRY(lora_part_close(cx, &input));
    /* with sequence parallelism, y may have only this rank's slice of the rows of x */
    int64_t skipped = y->rows < x->rows ? l->ranks.group->rank * y->rows : 0;
    tensor own = tensor_rows(u.t, skipped, y->rows);
    TRY(open_factor(cx, l->b, x->dtype, &b));
    if (drops_output(cx, l))
        TRY(add_dropped(cx, l, &own, &b.t, first_row(l, x->rows) + skipped, y));
    else
        TRY(lora_multiply(cx, GEMM_OUTPUT, lora_rowwise(own), lora_rowwise(b.t), y, true));
    TRY(lora_part_close(cx, &b));
    return lora_part_close(cx, &u);
}

/* ---- backward ---- */

ott_status lora_add_input_gradient(exec *cx, const lora *l, const tensor *v, const tensor *a,
                                   const tensor *dx) {
    lora_part d;
    TRY(exec_open(cx, "adapter input gradient", v->dtype, dx->rows, dx->columns, &d.t, &d.buffer));
    TRY(lora_multiply(cx, GEMM_GRAD_INPUT, lora_rowwise(*v), lora_columnwise(*a), &d.t, false));
    TRY(drop_elements(cx, l, &d.t, first_row(l, dx->rows), l->a->local.column, l->a->columns, &d.t));
    TRY(op_add(cx, &(add_args){.x = dx, .delta = &d.t, .y = dx}));
    return lora_part_close(cx, &d);
}

ott_status lora_grad_input(exec *cx, const lora *l, const tensor *g, const tensor *dx) {
    lora_part gradient, v, a;
    TRY(open_adapter_gradient(cx, l, g, &gradient));
    TRY(open_up(cx, l, &gradient.t, false, &v));
    TRY(lora_part_close(cx, &gradient));
    TRY(open_factor(cx, l->a, g->dtype, &a));
    TRY(lora_drops_input(cx, l)
            ? lora_add_input_gradient(cx, l, &v.t, &a.t, dx)
            : lora_multiply(cx, GEMM_GRAD_INPUT, lora_rowwise(v.t), lora_columnwise(a.t), dx, true));
    TRY(lora_part_close(cx, &a));
    return lora_part_close(cx, &v);
}

static ott_status add_weight_gradient(exec *cx, const tensor *g, const tensor *x, parameter *p) {
    return lora_multiply(cx, GEMM_GRAD_WEIGHT, lora_columnwise(*g), lora_columnwise(*x), &p->grad, true);
}

ott_status lora_grad_weight(exec *cx, const lora *l, const tensor *x, const tensor *g) {
    lora_part input, gradient, u, v;
    TRY(lora_open_input(cx, l, x, &input));
    TRY(open_adapter_gradient(cx, l, g, &gradient));
    TRY(open_down(cx, l, &input.t, &u));
    TRY(add_weight_gradient(cx, &gradient.t, &u.t, l->b));
    TRY(lora_part_close(cx, &u));
    TRY(open_up(cx, l, &gradient.t, true, &v));
    TRY(add_weight_gradient(cx, &v.t, &input.t, l->a));
    TRY(lora_part_close(cx, &v));
    TRY(lora_part_close(cx, &gradient));
    return lora_part_close(cx, &input);
}
