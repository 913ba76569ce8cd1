/* api/qtensor: quantized tensors: where their codes and scales lie, the cast, the views of the result. */
#include "api/tensor.h"
#include <math.h>

/* ---- the parts of the block; a first pass with base NULL only counts ---- */

typedef struct layout {
    char *base;
    int64_t used;
} layout;

static void *layout_alloc(layout *l, int64_t bytes) {
    void *place = l->base ? l->base + l->used : NULL;
    l->used += (bytes + MEM_ALIGNMENT - 1) / MEM_ALIGNMENT * MEM_ALIGNMENT;
    return place;
}

static qside layout_side(layout *l, const side_spec *s, int64_t lines, int64_t depth) {
    if (!side_spec_is_fp8(s)) return (qside){0};
    int64_t bytes = granularity_groups(s->grain, lines, depth) * (int64_t)sizeof(float);
    qside side = {.amax = layout_alloc(l, bytes),
                  .scale = layout_alloc(l, bytes),
                  .scale_inv = layout_alloc(l, bytes),
                  .data = layout_alloc(l, lines * depth)};
    qside_order(&side, s->grain, lines);
    return side;
}

static void lay_out(qtensor *q, layout *at) {
    q->row = layout_side(at, &q->spec.row, q->rows, q->columns);
    q->column = quant_spec_shares_data(&q->spec) ? qside_shared(q->row)
                                                 : layout_side(at, &q->spec.column, q->columns, q->rows);
}

/* ---- opening and closing ---- */

static void release(ott_qtensor *q, device *d) {
    device_release(d, q->block);
    delayed_store_release(&q->store, d);
}

static ott_status allocate(ott_qtensor *q, device *d) {
    layout size = {0};
    lay_out(&q->q, &size);
    if (size.used == 0) return OTT_OK;
    TRY(device_allocate(d, MEM_WEIGHT, size.used, "a quantized tensor", &q->block));
    lay_out(&q->q, &(layout){.base = q->block});
    const delayed_want want = {.state = &q->delayed, .spec = delayed_side(&q->q.spec)};
    if (!want.spec) return OTT_OK;
    TRY(delayed_store_set(&q->store, d, &want, 1));
    q->q.row.next = q->q.column.next = q->delayed.scale.data;
    return OTT_OK;
}

static const quant_spec *spec_of(const recipe *row, ott_role role) {
    const quant_spec *specs[] = {&row->input, &row->weight, &row->grad_output};
    return specs[role];
}

static ott_status open_qtensor(ott_recipe *r, int64_t rows, int64_t columns, ott_role role,
                               ott_qtensor **out) {
    device *d;
    void *memory;
    const recipe *row;
    ott_context *context = r->handle.context;
    TRY(recipe_to_run(context, r, NULL, &row));
    TRY(context_device(context, &d));
    TRY(handle_open(context, HANDLE_QTENSOR, sizeof(ott_qtensor), &memory));
    ott_qtensor *q = memory;
    q->which = (recipe_tensor)role;
    q->q = (qtensor){.rows = rows, .columns = columns, .spec = *spec_of(row, role)};
    q->high_precision = row->activation;
    ott_status status = allocate(q, d);
    if (status != OTT_OK) {
        release(q, d);
        handle_close(&q->handle);
        return status;
    }
    *out = q;
    return OTT_OK;
}

#define DIMENSION_MOST (INT64_C(1) << 40) /* so that no product of sizes overflows */

ott_status ott_qtensor_open(ott_context *context, int64_t rows, int64_t columns, ott_recipe *r, ott_role role,
                            ott_qtensor **out) {
    API_REQUIRE(context);
    API_REQUIRE(out);
    *out = NULL;
    API_HANDLE_IN(r, RECIPE, context);
    if (rows < 1 || columns < 1 || rows > DIMENSION_MOST / columns)
        return status_fail(OTT_ERR_SHAPE, "%s: [%lld, %lld] is no shape; rows and columns are 1 or more",
                           __func__, (long long)rows, (long long)columns);
    if ((unsigned)role >= TENSOR_COUNT)
        return status_fail(OTT_ERR_ARGUMENT, "%s: role = %d; give OTT_INPUT, OTT_WEIGHT or OTT_GRAD_OUTPUT",
                           __func__, (int)role);
    return API_INSIDE(context, open_qtensor(r, rows, columns, role, out));
}

void ott_qtensor_close(ott_qtensor *q) {
    if (!handle_is_open(q, HANDLE_QTENSOR)) return;
    ott_context *context = q->handle.context;
    if (context_enter(context, __func__) != OTT_OK) return;
    release(q, context->device);
    handle_close(&q->handle);
    context_leave(context);
}

/* ---- the cast ---- */

static ott_status quantize(ott_qtensor *q, const ott_tensor *x) {
    exec cx;
    if (!quant_spec_is_fp8(&q->q.spec)) return OTT_OK;
    TRY(context_exec(q->handle.context, &cx));
    q->q.spec = quant_spec_from(q->q.spec, x->t.dtype);
    TRY(op_quantize(&cx, &(quantize_args){.x = &x->t, .q = &q->q}));
    q->filled = true;
    if (!q->delayed.seen.data) return OTT_OK;
    return op_amax_record(&cx, &(amax_record_args){.q = &q->q, .seen = &q->delayed.seen});
}

static ott_status check_source(const ott_qtensor *q, const ott_tensor *x, const char *function) {
    TRY(tensor_check_number(x, function, "x"));
    return tensor_check_shape(x, q->q.rows, q->q.columns, "q is", function, "x");
}

ott_status ott_quantize(ott_qtensor *q, const ott_tensor *x) {
    API_HANDLE(q, QTENSOR);
    API_HANDLE_IN(x, TENSOR, q->handle.context);
    TRY(check_source(q, x, __func__));
    return API_INSIDE(q->handle.context, quantize(q, x));
}

static ott_status update_scale(ott_qtensor *q, ott_group *g) {
    exec cx;
    if (!q->delayed.seen.data) return OTT_OK;
    TRY(context_exec(q->handle.context, &cx));
    if (g) TRY(delayed_reduce(&cx, &q->store, &g->group));
    return delayed_update(&cx, &q->delayed);
}

ott_status ott_qtensor_update_scale(ott_qtensor *q, ott_group *g) {
    API_HANDLE(q, QTENSOR);
    if (g) API_HANDLE_IN(g, GROUP, q->handle.context);
    return API_INSIDE(q->handle.context, update_scale(q, g));
}

/* ---- looking at the result ---- */

static ott_status check_side(ott_side side, const char *function) {
    if (side == OTT_BY_ROWS || side == OTT_BY_COLUMNS) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: side = %d; give OTT_BY_ROWS or OTT_BY_COLUMNS", function,
                       (int)side);
}

static const side_spec *side_spec_at(const ott_qtensor *q, ott_side side) {
    return side == OTT_BY_ROWS ? &q->q.spec.row : &q->q.spec.column;
}

static const qside *side_at(const ott_qtensor *q, ott_side side) {
    return side == OTT_BY_ROWS ? &q->q.row : &q->q.column;
}

static int64_t side_groups(const ott_qtensor *q, ott_side side) {
    int64_t lines = side == OTT_BY_ROWS ? q->q.rows : q->q.columns;
    return granularity_groups(side_spec_at(q, side)->grain, lines,
                              side == OTT_BY_ROWS ? q->q.columns : q->q.rows);
}

void ott_side_view_init(ott_side_view *view) {
    if (view) *view = (ott_side_view){.struct_size = sizeof *view};
}

ott_status ott_qtensor_side(ott_qtensor *q, ott_side side, ott_side_view *out) {
    API_HANDLE(q, QTENSOR);
    API_REQUIRE(out);
    TRY(check_side(side, __func__));
    const side_spec *spec = side_spec_at(q, side);
    const qside *s = side_at(q, side);
    ott_side_view view = {.format = q->high_precision};
    if (side_spec_is_fp8(spec)) {
        const scale_block share = granularity_block(spec->grain);
        view = (ott_side_view){.format = spec->format,
                               .codes = s->data,
                               .amax = s->amax,
                               .scale = s->scale,
                               .scale_inv = s->scale_inv,
                               .count = side_groups(q, side),
                               .line_step = s->line_step,
                               .depth_step = s->depth_step,
                               .block_lines = share.lines,
                               .block_depth = share.depth};
    }
    return api_write_struct(out, &view, sizeof view, "ott_side_view");
}

/* OTT_ERR_ARGUMENT unless that use is FP8 and was filled. */
static ott_status check_filled(const ott_qtensor *q, ott_side side, const char *function) {
    TRY(check_side(side, function));
    if (!side_spec_is_fp8(side_spec_at(q, side)))
        return status_fail(OTT_ERR_ARGUMENT, "%s: q is not FP8 by %s: its recipe keeps that use in %s",
                           function, side == OTT_BY_ROWS ? "rows" : "columns", dtype_name(q->high_precision));
    if (!q->filled) return status_fail(OTT_ERR_ARGUMENT, "%s: q is empty: ott_quantize fills it", function);
    return OTT_OK;
}

/* Which scale the element at row i, column j has. */
static int64_t group_index(const qside *s, scale_block share, ott_side side, int64_t i, int64_t j) {
    int64_t line = side == OTT_BY_ROWS ? i : j, k = side == OTT_BY_ROWS ? j : i;
    return line / share.lines * s->line_step + k / share.depth * s->depth_step;
}

typedef struct host_side {
    uint8_t *codes;
    float *scale_inv;
    void *values; /* in the format of the result */
} host_side;

static void decode(const ott_qtensor *q, ott_side side, const host_side *h, ott_dtype to) {
    const side_spec *spec = side_spec_at(q, side);
    const scale_block share = granularity_block(spec->grain);
    const qside *s = side_at(q, side);
    for (int64_t i = 0; i < q->q.rows; i++)
        for (int64_t j = 0; j < q->q.columns; j++) {
            int64_t at = i * q->q.columns + j;
            float value = fp8_to_float(h->codes[at], spec->format);
            dtype_store(h->values, to, at, value * h->scale_inv[group_index(s, share, side, i, j)]);
        }
}

static ott_status dequantize(const ott_qtensor *q, ott_side side, const ott_tensor *out) {
    device *d;
    void *memory;
    mem *account = q->handle.context->account;
    int64_t groups = side_groups(q, side) * (int64_t)sizeof(float), count = q->q.rows * q->q.columns;
    TRY(context_device(q->handle.context, &d));
    TRY(mem_alloc(account, MEM_OTHER, groups + tensor_bytes(out->t) + count, "dequantizing", &memory));
    host_side h = {.scale_inv = memory, .values = (char *)memory + groups};
    h.codes = (uint8_t *)h.values + tensor_bytes(out->t);
    ott_status status = OTT_OK;
    TRY_OUT(device_copy_out(d, h.codes, side_at(q, side)->data, count));
    TRY_OUT(device_copy_out(d, h.scale_inv, side_at(q, side)->scale_inv, groups));
    decode(q, side, &h, out->t.dtype);
    TRY_OUT(device_copy_in(d, out->t.data, h.values, tensor_bytes(out->t)));
out:
    mem_free(account, memory);
    return status;
}

ott_status ott_dequantize(ott_qtensor *q, ott_side side, ott_tensor *out) {
    API_HANDLE(q, QTENSOR);
    API_HANDLE_IN(out, TENSOR, q->handle.context);
    TRY(check_filled(q, side, __func__));
    TRY(tensor_check_number(out, __func__, "out"));
    TRY(tensor_check_shape(out, q->q.rows, q->q.columns, "q is", __func__, "out"));
    return API_INSIDE(q->handle.context, dequantize(q, side, out));
}

/* ---- statistics ---- */

void ott_statistics_init(ott_statistics *statistics) {
    if (statistics) *statistics = (ott_statistics){.struct_size = sizeof *statistics};
}

static ott_statistics statistics_from(const float *row) {
    double signal = row[STATISTICS_SIGNAL], noise = row[STATISTICS_NOISE];
    return (ott_statistics){.saturated = row[STATISTICS_SATURATED],
                            .underflowed = row[STATISTICS_UNDERFLOWED],
                            .sqnr_db = noise == 0 ? INFINITY : 10 * log10(signal / noise),
                            .amax = row[STATISTICS_AMAX],
                            .scale_min = row[STATISTICS_SCALE_MIN],
                            .scale_max = row[STATISTICS_SCALE_MAX]};
}

static ott_status measure(const ott_qtensor *q, const ott_tensor *x, ott_side side, ott_statistics *out) {
    exec cx;
    tensor t;
    plan_buffer buffer;
    float rows[2][STATISTICS_COUNT];
    ott_status status = OTT_OK;
    TRY(context_exec(q->handle.context, &cx));
    TRY(exec_open(&cx, "statistics", OTT_F32, 2, STATISTICS_COUNT, &t, &buffer));
    TRY_OUT(
        op_quantize_statistics(&cx, &(quantize_statistics_args){.x = &x->t, .q = &q->q, .statistics = &t}));
    TRY_OUT(device_copy_out(cx.device, rows, t.data, sizeof rows));
    *out = statistics_from(rows[side == OTT_BY_COLUMNS]);
out:
    plan_close(cx.plan, &buffer); /* cannot fail: it is open */
    return status;
}

ott_status ott_quantize_statistics(ott_qtensor *q, const ott_tensor *x, ott_side side, ott_statistics *out) {
    ott_statistics measured;
    API_HANDLE(q, QTENSOR);
    API_HANDLE_IN(x, TENSOR, q->handle.context);
    API_REQUIRE(out);
    TRY(check_filled(q, side, __func__));
    TRY(check_source(q, x, __func__));
    TRY(API_INSIDE(q->handle.context, measure(q, x, side, &measured)));
    return api_write_struct(out, &measured, sizeof measured, "ott_statistics");
}
