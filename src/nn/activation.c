/* nn/activation: opening, quantizing and letting go of the tensors between layers. */
#include "nn/activation.h"

ott_status activation_specs_add(activation_specs *e, const quant_spec *s, const float *next, bool grad_weight,
                                int *index) {
    *index = -1;
    if (grad_weight && !side_spec_is_fp8(&s->column)) e->column_high_precision = true;
    if (!quant_spec_is_fp8(s)) return OTT_OK;
    for (int i = 0; i < e->count; i++)
        if (quant_spec_equal(&e->spec[i], s)) {
            e->column_used[i] |= grad_weight;
            *index = i;
            return OTT_OK;
        }
    if (e->count == QLIST_MAX)
        return status_fail(OTT_ERR_UNSUPPORTED, "one tensor is wanted in more than %d FP8 forms", QLIST_MAX);
    *index = e->count;
    e->next[e->count] = next;
    e->column_used[e->count] = grad_weight;
    e->spec[e->count++] = *s;
    return OTT_OK;
}

/* One buffer holds a side: amax, scale and scale_inv of each group, then the codes, each part 64-byte aligned.
 */
static int64_t side_header(int64_t groups) {
    return (groups * 4 + MEM_ALIGNMENT - 1) / MEM_ALIGNMENT * MEM_ALIGNMENT;
}

static ott_status side_open(exec *cx, const char *what, const side_spec *s, const float *next, int64_t lines,
                            int64_t depth, qside *side, plan_buffer *b) {
    int64_t header = side_header(granularity_groups(s->grain, lines, depth));
    TRY(plan_open(cx->plan, what, 3 * header + lines * depth, b));
    char *base = b->data;
    *side = (qside){.amax = (float *)base,
                    .scale = (float *)(base + header),
                    .scale_inv = (float *)(base + 2 * header),
                    .data = base + 3 * header,
                    .next = next};
    qside_order(side, s->grain, lines);
    return OTT_OK;
}

static ott_status form_open(exec *cx, const char *what, const activation_specs *specs, activation *e, int i) {
    qtensor *q = &e->q.item[i];
    int64_t rows = e->t.rows, columns = e->t.columns;
    const float *next = specs->next[i];
    *q = (qtensor){.rows = rows, .columns = columns, .spec = specs->spec[i]};
    /* Without a backward nothing contracts by columns. */
    if (cx->phase == PHASE_EVALUATE) q->spec.column.format = e->t.dtype;
    const quant_spec *spec = &q->spec;
    e->row[i] = e->column[i] = PLAN_NONE;
    if (quant_spec_shares_data(spec)) { /* kept in the column slot: that is the one backward keeps */
        TRY(side_open(cx, what, &spec->row, next, rows, columns, &q->row, &e->column[i]));
        q->column = qside_shared(q->row);
        return OTT_OK;
    }
    if (side_spec_is_fp8(&spec->row))
        TRY(side_open(cx, what, &spec->row, next, rows, columns, &q->row, &e->row[i]));
    if (side_spec_is_fp8(&spec->column))
        TRY(side_open(cx, what, &spec->column, next, columns, rows, &q->column, &e->column[i]));
    return OTT_OK;
}

ott_status activation_adopt(exec *cx, const char *what, tensor t, plan_buffer *buffer,
                            const activation_specs *specs, activation *e) {
    *e = (activation){.t = t, .buffer = *buffer};
    *buffer = PLAN_NONE;
    e->q.count = specs ? specs->count : 0;
    for (int i = 0; i < e->q.count; i++) TRY(form_open(cx, what, specs, e, i));
    return OTT_OK;
}

ott_status activation_open(exec *cx, const char *what, ott_dtype d, int64_t rows, int64_t columns,
                           const activation_specs *specs, activation *e) {
    tensor t;
    plan_buffer buffer;
    TRY(exec_open(cx, what, d, rows, columns, &t, &buffer));
    return activation_adopt(cx, what, t, &buffer, specs, e);
}

ott_status activation_quantize(exec *cx, const activation *e) {
    for (int i = 0; i < e->q.count; i++)
        TRY(op_quantize(cx, &(quantize_args){.x = &e->t, .q = &e->q.item[i]}));
    return OTT_OK;
}

ott_status activation_close_tensor(exec *cx, activation *e) {
    return plan_close(cx->plan, &e->buffer);
}

static ott_status close_rows(exec *cx, activation *e) {
    for (int i = 0; i < e->q.count; i++) TRY(plan_close(cx->plan, &e->row[i]));
    return OTT_OK;
}

ott_status activation_keep_for_backward(exec *cx, activation *e, const activation_specs *specs,
                                        bool keep_tensor) {
    TRY(close_rows(cx, e));
    for (int i = 0; i < e->q.count; i++)
        if (!specs->column_used[i]) TRY(plan_close(cx->plan, &e->column[i]));
    if (keep_tensor || (specs && specs->column_high_precision)) return OTT_OK;
    return activation_close_tensor(cx, e);
}

ott_status activation_close_forms(exec *cx, activation *e) {
    TRY(close_rows(cx, e));
    for (int i = 0; i < e->q.count; i++) TRY(plan_close(cx->plan, &e->column[i]));
    return OTT_OK;
}

ott_status activation_close(exec *cx, activation *e) {
    TRY(activation_close_forms(cx, e));
    return activation_close_tensor(cx, e);
}

const qtensor *activation_form(const activation *e, int index) {
    return index < 0 ? NULL : &e->q.item[index];
}

/* The first row's place in a side, its scales included. Scale blocks that are cut by it would mean others,
   but not where all rows are of one. */
static ott_status side_skip_rows(qside *side, const side_spec *s, int64_t first, int64_t count,
                                 int64_t columns, bool lines_are_rows) {
    if (!side_spec_is_fp8(s)) return OTT_OK;
    scale_block block = granularity_block(s->grain);
    int64_t size = lines_are_rows ? block.lines : block.depth;
    STATUS_REQUIRE(size == INT64_MAX || first % size == 0 || first % size + count <= size);
    int64_t skipped = first / size * (lines_are_rows ? side->line_step : side->depth_step);
    side->data = (char *)side->data + first * columns;
    side->amax += skipped;
    side->scale += skipped;
    side->scale_inv += skipped;
    return OTT_OK;
}

ott_status activation_rows(const activation *e, int64_t first, int64_t count, activation *view) {
    *view = (activation){.t = tensor_rows(e->t, first, count), .q = e->q, .buffer = PLAN_NONE};
    for (int i = 0; i < view->q.count; i++) {
        qtensor *q = &view->q.item[i];
        q->rows = count;
        TRY(side_skip_rows(&q->row, &q->spec.row, first, count, q->columns, true));
        TRY(side_skip_rows(&q->column, &q->spec.column, first, count, q->columns, false));
    }
    return OTT_OK;
}
