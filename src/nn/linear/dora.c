/* nn/linear/dora: computes W' and the gradients of the adapter. */
#include "nn/linear/dora.h"
#include "nn/linear/lora_parts.h"
#include <math.h>

/* ---- tables ---- */

static ott_status fill_dora_tables(device *d, dora_tables *t) {
    int64_t count = t->ones.columns > t->order.columns ? t->ones.columns : t->order.columns;
    void *memory;
    TRY(mem_alloc_array(d->account, MEM_OTHER, count, sizeof(float), "tables of adapters", &memory));
    float *ones = memory;
    int32_t *order = memory;
    for (int64_t i = 0; i < t->ones.columns; i++) ones[i] = 1.0f;
    ott_status status = device_copy_in(d, t->ones.data, ones, tensor_bytes(t->ones));
    for (int64_t i = 0; i < t->order.columns; i++) order[i] = (int32_t)i;
    if (status == OTT_OK) status = device_copy_in(d, t->order.data, order, tensor_bytes(t->order));
    mem_free(d->account, memory);
    return status;
}

ott_status dora_tables_open(device *d, int64_t outputs, int64_t inputs, dora_tables *out) {
    int64_t ones = backend_align(d->can, inputs * (int64_t)sizeof(float));
    STATUS_REQUIRE(outputs <= INT32_MAX);
    TRY(device_allocate(d, MEM_PARAM, ones + outputs * (int64_t)sizeof(int32_t), "tables of adapters",
                        &out->block));
    out->ones = tensor_vector(out->block, OTT_F32, inputs);
    out->order = tensor_vector((char *)out->block + ones, OTT_I32, outputs);
    return fill_dora_tables(d, out);
}

/* ---- rows ---- */

static ott_status open_fp32(exec *cx, const char *what, int64_t rows, int64_t columns, lora_part *out) {
    return exec_open(cx, what, OTT_F32, rows, columns, &out->t, &out->buffer);
}

/* Opens factor * p in fp32. */
static ott_status open_scaled(exec *cx, const parameter *p, float factor, lora_part *out) {
    TRY(open_fp32(cx, "scaled adapter weight", p->value.rows, p->value.columns, out));
    TRY(op_convert(cx, &(convert_args){.x = &p->value, .y = &out->t}));
    return op_multiply(cx, &(multiply_args){.x = &out->t, .y = &out->t, .factor = factor});
}

/* Multiplies row r of x by factor[r]. */
static ott_status scale_rows(exec *cx, const lora *l, const tensor *x, const tensor *factor) {
    const tensor weight = tensor_matrix(factor->data, OTT_F32, x->rows, 1);
    const tensor order = tensor_vector(l->tables->order.data, OTT_I32, x->rows);
    return op_weigh(cx, &(weigh_args){.x = x, .weight = &weight, .source = &order, .y = x});
}

/* Returns 1 / sqrt(in). This number times 1 / (RMS of a row of V) is 1 / (L2 norm of the row). */
static float norm_share(const lora *l) {
    return 1.0f / sqrtf((float)l->a->columns);
}

/* Replaces W by V in w. */
static ott_status add_adapter_weight(exec *cx, const lora *l, const tensor *w) {
    lora_part a, b;
    TRY(open_scaled(cx, l->a, 1.0f, &a));
    TRY(open_scaled(cx, l->b, l->scale, &b));
    TRY(lora_multiply(cx, GEMM_OUTPUT, lora_rowwise(b.t), lora_columnwise(a.t), w, true));
    TRY(lora_part_close(cx, &b));
    return lora_part_close(cx, &a);
}

/* Divides each row of x by its root mean square (RMS) and writes y. rstd[rows]: 1 / RMS of each row. */
static ott_status divide_rows(exec *cx, const lora *l, const tensor *x, const tensor *y, const tensor *rstd) {
    const tensor ones = tensor_vector(l->tables->ones.data, OTT_F32, x->columns);
    return op_rmsnorm_forward(
        cx, &(rmsnorm_forward_args){.x = x, .weight = &ones, .y = y, .rstd = rstd, .eps = 1e-30f});
}

/* Each rank has some columns of all rows. Replaces rstd[rows] of these columns by rstd of the full rows. */
static ott_status join_norms(exec *cx, const lora *l, const tensor_ranks *ranks, const tensor *rstd) {
    int64_t rows = rstd->columns;
    const tensor own = tensor_matrix(rstd->data, OTT_F32, rows, 1);
    lora_part root, all, divided;
    TRY(open_fp32(cx, "root mean squares of columns", rows, 1, &root));
    const tensor reciprocal = tensor_vector(root.t.data, OTT_F32, rows);
    TRY(open_fp32(cx, "divided columns", rows, ranks->group->size, &divided));
    const tensor first = tensor_matrix(divided.t.data, OTT_F32, rows, 1);
    TRY(divide_rows(cx, l, &own, &first, &reciprocal));
    TRY(tensor_ranks_gather_columns(cx, ranks, "root mean squares of ranks", &root.t, &all.t, &all.buffer));
    TRY(divide_rows(cx, l, &all.t, &divided.t, rstd));
    TRY(lora_part_close(cx, &all));
    TRY(lora_part_close(cx, &divided));
    return lora_part_close(cx, &root);
}

/* Divides each row of V, in w, by its root mean square (RMS). This gives u sqrt(in). rstd[out]: 1 / RMS. */
static ott_status divide_by_norm(exec *cx, const lora *l, const tensor *w, const tensor *rstd) {
    const tensor_ranks ranks = lora_ranks_of_sum(l, PARAMETER_COLUMNS);
    lora_part v;
    TRY(open_fp32(cx, "directions of a weight", w->rows, w->columns, &v));
    TRY(divide_rows(cx, l, w, &v.t, rstd));
    if (ranks.group) {
        TRY(join_norms(cx, l, &ranks, rstd));
        TRY(scale_rows(cx, l, w, rstd));
    } else {
        TRY(op_convert(cx, &(convert_args){.x = &v.t, .y = w}));
    }
    return lora_part_close(cx, &v);
}

/* Opens m / sqrt(in). Times rstd (1 / RMS of each row of V), it is m / |V|. */
static ott_status open_magnitude(exec *cx, const lora *l, lora_part *out) {
    return open_scaled(cx, l->magnitude, norm_share(l), out);
}

ott_status dora_compose(exec *cx, const lora *l, const tensor *w) {
    lora_part rstd, m;
    TRY(add_adapter_weight(cx, l, w));
    TRY(open_fp32(cx, "norms of a weight", 1, w->rows, &rstd));
    TRY(divide_by_norm(cx, l, w, &rstd.t));
    TRY(lora_part_close(cx, &rstd));
    TRY(open_magnitude(cx, l, &m));
    TRY(scale_rows(cx, l, w, &m.t));
    return lora_part_close(cx, &m);
}

ott_status dora_norms(exec *cx, const lora *l, const tensor *w, float *norms) {
    TRY(add_adapter_weight(cx, l, w));
    return dora_base_norms(cx, l, w, norms);
}

ott_status dora_base_norms(exec *cx, const lora *l, const tensor *w, float *norms) {
    lora_part rstd;
    TRY(open_fp32(cx, "norms of a weight", 1, w->rows, &rstd));
    TRY(divide_by_norm(cx, l, w, &rstd.t));
    TRY(device_copy_out(cx->device, norms, rstd.t.data, tensor_bytes(rstd.t)));
    for (int64_t i = 0; i < w->rows; i++) norms[i] = sqrtf((float)l->a->columns) / norms[i];
    return lora_part_close(cx, &rstd);
}

/* ---- the change of the weight, for dropout of the input ---- */

ott_status dora_forward(exec *cx, const lora *l, const tensor *change, const tensor *x, const tensor *y) {
    lora_part input;
    TRY(lora_open_input(cx, l, x, &input));
    TRY(lora_multiply(cx, GEMM_OUTPUT, lora_rowwise(input.t), lora_rowwise(*change), y, true));
    return lora_part_close(cx, &input);
}

/* ---- backward ---- */

/* Adds the row sums of dw * u / sqrt(in) to the gradient of the magnitude m (dora.h). */
static ott_status add_magnitude_gradient(exec *cx, const lora *l, const tensor *u, const tensor *dw) {
    const tensor order = tensor_matrix(l->tables->order.data, OTT_I32, u->rows, 1);
    const tensor_ranks ranks = lora_ranks_of_sum(l, PARAMETER_COLUMNS);
    const tensor *grad = &l->magnitude->grad;
    lora_part d;
    TRY(open_fp32(cx, "magnitude gradient", u->rows, 1, &d));
    TRY(op_weigh_backward(cx, &(weigh_backward_args){.x = u, .dy = dw, .row = &order, .dweight = &d.t}));
    if (ranks.group) TRY(group_all_reduce(ranks.group, cx, &d.t, REDUCE_SUM));
    TRY(op_multiply(cx, &(multiply_args){.x = &d.t, .y = &d.t, .factor = norm_share(l)}));
    const tensor more = tensor_matrix(d.t.data, OTT_F32, grad->rows, grad->columns);
    TRY(op_add(cx, &(add_args){.x = grad, .delta = &more, .y = grad}));
    return lora_part_close(cx, &d);
}

/* grad += a b. If tensor parallelism splits the weight in the way `split`, sums a b over the ranks first. */
static ott_status accumulate_product(exec *cx, const lora *l, parameter_split split, recipe_gemm role,
                                     operand a, operand b, const tensor *grad) {
    const tensor_ranks ranks = lora_ranks_of_sum(l, split);
    lora_part sum;
    if (!ranks.group) return lora_multiply(cx, role, a, b, grad, true);
    TRY(open_fp32(cx, "term of an adapter gradient", grad->rows, grad->columns, &sum));
    TRY(lora_multiply(cx, role, a, b, &sum.t, false));
    TRY(group_all_reduce(ranks.group, cx, &sum.t, REDUCE_SUM));
    TRY(op_add(cx, &(add_args){.x = grad, .delta = &sum.t, .y = grad}));
    return lora_part_close(cx, &sum);
}

/* Accumulates the gradients of A and B from dv, the gradient of V = W + scale B A. */
static ott_status add_factor_gradients(exec *cx, const lora *l, const tensor *dv) {
    lora_part a, b;
    TRY(open_scaled(cx, l->a, l->scale, &a));
    TRY(accumulate_product(cx, l, PARAMETER_COLUMNS, GEMM_OUTPUT, lora_rowwise(*dv), lora_rowwise(a.t),
                           &l->b->grad));
    TRY(lora_part_close(cx, &a));
    TRY(open_scaled(cx, l->b, l->scale, &b));
    TRY(accumulate_product(cx, l, PARAMETER_ROWS, GEMM_GRAD_WEIGHT, lora_columnwise(b.t),
                           lora_columnwise(*dv), &l->a->grad));
    return lora_part_close(cx, &b);
}

ott_status dora_grad_weight(exec *cx, const lora *l, const tensor *w, const tensor *x, const tensor *g) {
    lora_part input, dw, rstd, m;
    TRY(open_fp32(cx, "gradient of a composed weight", w->rows, w->columns, &dw));
    TRY(lora_open_input(cx, l, x, &input));
    TRY(lora_multiply(cx, GEMM_GRAD_WEIGHT, lora_columnwise(*g), lora_columnwise(input.t), &dw.t, false));
    TRY(lora_part_close(cx, &input));
    TRY(add_adapter_weight(cx, l, w));
    TRY(open_fp32(cx, "norms of a weight", 1, w->rows, &rstd));
    TRY(divide_by_norm(cx, l, w, &rstd.t));
    TRY(add_magnitude_gradient(cx, l, w, &dw.t));
    TRY(open_magnitude(cx, l, &m));
    TRY(scale_rows(cx, l, &dw.t, &rstd.t));
    TRY(scale_rows(cx, l, &dw.t, &m.t));
    TRY(lora_part_close(cx, &m));
    TRY(lora_part_close(cx, &rstd));
    TRY(add_factor_gradients(cx, l, &dw.t));
    return lora_part_close(cx, &dw);
}
