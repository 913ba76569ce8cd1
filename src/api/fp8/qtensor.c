/* api/fp8/qtensor: quantized tensors: memory, casts, views, statistics. */
#include "api/fp8/tensor.h"
#include <math.h>

/* ---- opening and closing ---- */

static void release_qtensor(ott_qtensor *q, device *d) {
    device_release(d, q->block);
    delayed_store_release(&q->store, d);
}

static ott_status allocate_qtensor(ott_qtensor *q, device *d) {
    qblocks blocks = {0};
    TRY(qtensor_lay_out(&q->q, d->can, &blocks));
    int64_t bytes = blocks.rowwise.bytes + blocks.columnwise.bytes;
    if (bytes == 0) return OTT_OK;
    TRY(device_allocate(d, MEM_WEIGHT, bytes, "a quantized tensor", &q->block));
    blocks.rowwise.data = q->block;
    blocks.columnwise.data = (char *)q->block + blocks.rowwise.bytes;
    TRY(qtensor_lay_out(&q->q, d->can, &blocks));
    const delayed_request request = {.state = &q->delayed, .spec = delayed_cast(&q->q.spec)};
    if (!request.spec) return OTT_OK;
    TRY(delayed_store_set(&q->store, d, &request, 1));
    q->q.rowwise.next = q->q.columnwise.next = q->delayed.scale.data;
    return OTT_OK;
}

static const quant_spec *spec_of(const recipe *row, ott_role role) {
    const quant_spec *specs[] = {&row->input, &row->weight, &row->grad_output};
    return specs[role];
}

static ott_status open_qtensor(ott_recipe *r, int64_t rows, int64_t columns, ott_role role,
                               ott_qtensor **out) {
    device *d;
    ott_qtensor *q;
    const recipe *row;
    ott_context *context = r->handle.context;
    TRY(recipe_to_run(context, r, NULL, &row));
    TRY(api_device(context, &d));
    TRY(handle_open(context, HANDLE_QTENSOR, sizeof(ott_qtensor), &q));
    q->which = (recipe_tensor)role;
    q->q = (qtensor){.rows = rows, .columns = columns, .spec = *spec_of(row, role)};
    q->high_precision = row->activation;
    ott_status status = allocate_qtensor(q, d);
    if (status != OTT_OK) {
        release_qtensor(q, d);
        handle_close(&q->handle);
        return status;
    }
    return *out = q, OTT_OK;
}

#define DIMENSION_MOST (INT64_C(1) << 40) /* largest size; a product of two sizes cannot overflow */

ott_status ott_qtensor_open(ott_context *context, int64_t rows, int64_t columns, ott_recipe *r, ott_role role,
                            ott_qtensor **out) {
    API_REQUIRE_BOTH(context, out);
    *out = NULL;
    API_HANDLE_IN(r, RECIPE, context);
    if (rows < 1 || columns < 1 || rows > DIMENSION_MOST / columns)
        return status_fail(OTT_ERR_SHAPE,
                           "%s: [%lld, %lld] is not a shape: rows and columns must be 1 or more", __func__,
                           (long long)rows, (long long)columns);
    if ((unsigned)role >= TENSOR_COUNT)
        return status_fail(OTT_ERR_ARGUMENT, "%s: role = %d; give OTT_INPUT, OTT_WEIGHT or OTT_GRAD_OUTPUT",
                           __func__, (int)role);
    return API_INSIDE(context, open_qtensor(r, rows, columns, role, out));
}

void ott_qtensor_close(ott_qtensor *q) {
    if (!handle_is_open(q, HANDLE_QTENSOR)) return;
    ott_context *context = q->handle.context;
    if (api_enter(context, __func__) != OTT_OK) return;
    release_qtensor(q, context->device);
    handle_close(&q->handle);
    api_leave(context);
}

/* ---- the cast ---- */

static ott_status quantize_tensor(ott_qtensor *q, const ott_tensor *x) {
    exec cx;
    if (!quant_spec_is_fp8(&q->q.spec)) return OTT_OK;
    TRY(api_exec(q->handle.context, &cx));
    q->q.spec = quant_spec_from(q->q.spec, x->t.dtype);
    TRY(op_quantize(&cx, &(quantize_args){.x = &x->t, .q = &q->q}));
    q->filled = true;
    return delayed_record(&cx, &q->delayed, &q->q);
}

static ott_status check_source(const ott_qtensor *q, const ott_tensor *x, const char *function) {
    TRY(tensor_check_number(x, function, "x"));
    return tensor_check_shape(x, q->q.rows, q->q.columns, "q is", function, "x");
}

ott_status ott_quantize(ott_qtensor *q, const ott_tensor *x) {
    API_HANDLE(q, QTENSOR);
    API_HANDLE_IN(x, TENSOR, q->handle.context);
    TRY(check_source(q, x, __func__));
    return API_INSIDE(q->handle.context, quantize_tensor(q, x));
}

static ott_status update_scale(ott_qtensor *q, ott_group *g) {
    exec cx;
    if (!q->delayed.seen.data) return OTT_OK;
    TRY(api_exec(q->handle.context, &cx));
    if (g) TRY(delayed_reduce(&cx, &q->store, &g->group));
    return delayed_update(&cx, &q->delayed);
}

ott_status ott_qtensor_update_scale(ott_qtensor *q, ott_group *g) {
    API_HANDLE(q, QTENSOR);
    if (g) API_HANDLE_IN(g, GROUP, q->handle.context);
    return API_INSIDE(q->handle.context, update_scale(q, g));
}

/* ---- views and dequantization ---- */

static ott_status check_usage(ott_usage use, const char *function) {
    if (use == OTT_ROWWISE || use == OTT_COLUMNWISE) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: use = %d; give OTT_ROWWISE or OTT_COLUMNWISE", function,
                       (int)use);
}

static const cast_spec *spec_at(const ott_qtensor *q, ott_usage use) {
    return use == OTT_ROWWISE ? &q->q.spec.rowwise : &q->q.spec.columnwise;
}

void(ott_qdata_init)(ott_qdata *view, size_t size) {
    API_INIT(view, size, 0);
}

ott_status ott_qtensor_data(ott_qtensor *q, ott_usage use, ott_qdata *out) {
    API_HANDLE(q, QTENSOR);
    API_REQUIRE(out);
    TRY(check_usage(use, __func__));
    const cast_spec *spec = spec_at(q, use);
    ott_qdata view = {.format = q->high_precision};
    if (cast_spec_is_fp8(spec)) {
        bool rowwise = use == OTT_ROWWISE;
        const qdata *d = rowwise ? &q->q.rowwise : &q->q.columnwise;
        const scale_block share = granularity_block(spec->grain);
        view = (ott_qdata){.format = spec->format,
                           .codes = d->data,
                           .row_step = d->transposed ? 1 : d->ld,
                           .column_step = d->transposed ? d->ld : 1,
                           .amax = d->amax,
                           .scale = d->scale,
                           .scale_inv = d->scale_inv,
                           .count = granularity_groups(spec->grain, rowwise ? q->q.rows : q->q.columns,
                                                       rowwise ? q->q.columns : q->q.rows),
                           .mn_step = d->mn_step,
                           .k_step = d->k_step,
                           .block_mn = share.mn,
                           .block_depth = share.k,
                           .scale_inv_format = granularity_scale_format(spec->grain),
                           .tiles_along_k = d->tiles.along_k};
    }
    return api_write_struct(out, &view, sizeof view, "ott_qdata");
}

/* Fails with OTT_ERR_ARGUMENT unless the copy for this use is FP8 and ott_quantize was called. */
static ott_status check_filled(const ott_qtensor *q, ott_usage use, const char *function) {
    TRY(check_usage(use, function));
    if (!cast_spec_is_fp8(spec_at(q, use)))
        return status_fail(OTT_ERR_ARGUMENT, "%s: q has no %s FP8 codes: its recipe keeps that use in %s",
                           function, use == OTT_ROWWISE ? "rowwise" : "columnwise",
                           dtype_name(q->high_precision));
    if (!q->filled) return status_fail(OTT_ERR_ARGUMENT, "%s: q is empty: call ott_quantize first", function);
    return OTT_OK;
}

static ott_status dequantize(const ott_qtensor *q, ott_usage use, const ott_tensor *out) {
    exec cx;
    qtensor asked = q->q;
    TRY(api_exec(q->handle.context, &cx));
    if (use == OTT_COLUMNWISE)
        asked.spec.rowwise.format = q->high_precision; /* makes op_dequantize read the columnwise copy */
    return op_dequantize(&cx, &(dequantize_args){.q = &asked, .y = &out->t});
}

ott_status ott_dequantize(ott_qtensor *q, ott_usage use, ott_tensor *out) {
    API_HANDLE(q, QTENSOR);
    API_HANDLE_IN(out, TENSOR, q->handle.context);
    TRY(check_filled(q, use, __func__));
    TRY(tensor_check_number(out, __func__, "out"));
    TRY(tensor_check_shape(out, q->q.rows, q->q.columns, "q is", __func__, "out"));
    return API_INSIDE(q->handle.context, dequantize(q, use, out));
}

/* ---- statistics ---- */

void(ott_statistics_init)(ott_statistics *statistics, size_t size) {
    API_INIT(statistics, size, 0);
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

static ott_status measure_cast(const ott_qtensor *q, const ott_tensor *x, ott_usage use,
                               ott_statistics *out) {
    exec cx;
    tensor t;
    plan_buffer buffer;
    float rows[2][STATISTICS_COUNT];
    ott_status status = OTT_OK;
    TRY(api_exec(q->handle.context, &cx));
    TRY(exec_open(&cx, "statistics", OTT_F32, 2, STATISTICS_COUNT, &t, &buffer));
    TRY_OUT(
        op_quantize_statistics(&cx, &(quantize_statistics_args){.x = &x->t, .q = &q->q, .statistics = &t}));
    TRY_OUT(device_copy_out(cx.device, rows, t.data, sizeof rows));
    *out = statistics_from(rows[use == OTT_COLUMNWISE]);
out:
    plan_close(cx.plan, &buffer); /* cannot fail, because the buffer is open */
    return status;
}

ott_status ott_quantize_statistics(ott_qtensor *q, const ott_tensor *x, ott_usage use, ott_statistics *out) {
    ott_statistics measured;
    API_HANDLE(q, QTENSOR);
    API_HANDLE_IN(x, TENSOR, q->handle.context);
    API_REQUIRE(out);
    TRY(check_filled(q, use, __func__));
    TRY(check_source(q, x, __func__));
    TRY(API_INSIDE(q->handle.context, measure_cast(q, x, use, &measured)));
    return api_write_struct(out, &measured, sizeof measured, "ott_statistics");
}
