/* nn/activation: opens, quantizes and closes tensors between layers. */
#include "nn/activation.h"

ott_status activation_specs_add(activation_specs *e, const quant_spec *s, const float *next, bool grad_weight,
                                int *index) {
    *index = -1;
    if (grad_weight && !cast_spec_is_fp8(&s->columnwise)) e->columnwise_high_precision = true;
    if (!cast_spec_is_fp8(&s->rowwise) || e->columnwise_high_precision) e->high_precision = true;
    if (!quant_spec_is_fp8(s)) return OTT_OK;
    for (int i = 0; i < e->count; i++)
        if (quant_spec_equal(&e->spec[i], s)) {
            e->columnwise_used[i] |= grad_weight;
            *index = i;
            return OTT_OK;
        }
    if (e->count == QLIST_MAX)
        return status_fail(OTT_ERR_UNSUPPORTED, "a tensor needs more than %d different quantized copies",
                           QLIST_MAX);
    *index = e->count;
    e->next[e->count] = next;
    e->columnwise_used[e->count] = grad_weight;
    e->spec[e->count++] = *s;
    return OTT_OK;
}

static ott_status open_block(exec *cx, const char *what, qblock *block, plan_buffer *b) {
    *b = PLAN_NONE;
    if (block->bytes == 0) return OTT_OK;
    TRY(plan_open(cx->plan, what, block->bytes, b));
    block->data = b->data;
    return OTT_OK;
}

static ott_status open_quantized_copy(exec *cx, const char *what, const activation_specs *specs,
                                      activation *e, int i) {
    qtensor *q = &e->q.item[i];
    qblocks blocks = {0};
    *q = (qtensor){.rows = e->t.rows, .columns = e->t.columns, .spec = specs->spec[i]};
    /* Only a trained weight's grad_weight GEMM reads the columnwise copy; evaluation has no such GEMM. */
    if (cx->phase == PHASE_EVALUATE || !specs->columnwise_used[i]) q->spec.columnwise.format = e->t.dtype;
    TRY(qtensor_lay_out(q, cx->device->can, &blocks));
    TRY(open_block(cx, what, &blocks.rowwise, &e->rowwise[i]));
    TRY(open_block(cx, what, &blocks.columnwise, &e->columnwise[i]));
    TRY(qtensor_lay_out(q, cx->device->can, &blocks));
    q->rowwise.next = q->columnwise.next = specs->next[i];
    return OTT_OK;
}

ott_status activation_adopt(exec *cx, const char *what, tensor t, plan_buffer *buffer,
                            const activation_specs *specs, activation *e) {
    *e = (activation){.t = t, .buffer = *buffer};
    if (specs) e->shard = specs->shard;
    *buffer = PLAN_NONE;
    e->q.count = specs ? specs->count : 0;
    for (int i = 0; i < e->q.count; i++) TRY(open_quantized_copy(cx, what, specs, e, i));
    return OTT_OK;
}

ott_status activation_open(exec *cx, const char *what, ott_dtype d, int64_t rows, int64_t columns,
                           const activation_specs *specs, activation *e) {
    tensor t;
    plan_buffer buffer;
    TRY(exec_open(cx, what, d, rows, columns, &t, &buffer));
    return activation_adopt(cx, what, t, &buffer, specs, e);
}

ott_status activation_smooth(exec *cx, activation *e) {
    TRY(exec_open(cx, "channel scales", OTT_F32, 2, e->t.columns, &e->channel_scales,
                  &e->channel_scales_buffer));
    TRY(op_channel_scales(cx, &(channel_scales_args){.x = &e->t, .power = &e->channel_scales}));
    const tensor inverse = tensor_rows(e->channel_scales, 1, 1);
    return op_multiply_columns(cx, &(multiply_columns_args){.x = &e->t, .factor = &inverse, .y = &e->t});
}

ott_status activation_quantize(exec *cx, const activation *e) {
    for (int i = 0; i < e->q.count; i++) TRY(shard_quantize(cx, &e->shard, &e->t, &e->q.item[i]));
    return OTT_OK;
}

const qlist *activation_fused(const activation *e) {
    return shard_is_full(&e->shard) ? &e->q : NULL;
}

ott_status activation_finish(exec *cx, const activation *e) {
    return shard_is_full(&e->shard) ? OTT_OK : activation_quantize(cx, e);
}

ott_status activation_close_tensor(exec *cx, activation *e) {
    return plan_close(cx->plan, &e->buffer);
}

static ott_status close_rowwise(exec *cx, activation *e) {
    for (int i = 0; i < e->q.count; i++) TRY(plan_close(cx->plan, &e->rowwise[i]));
    return OTT_OK;
}

ott_status activation_keep_for_backward(exec *cx, activation *e, const activation_specs *specs,
                                        bool keep_tensor) {
    TRY(close_rowwise(cx, e));
    for (int i = 0; i < e->q.count; i++)
        if (!specs->columnwise_used[i]) TRY(plan_close(cx->plan, &e->columnwise[i]));
    if (keep_tensor || (specs && specs->columnwise_high_precision)) return OTT_OK;
    return activation_close_tensor(cx, e);
}

ott_status activation_close_copies(exec *cx, activation *e) {
    TRY(close_rowwise(cx, e));
    for (int i = 0; i < e->q.count; i++) TRY(plan_close(cx->plan, &e->columnwise[i]));
    return OTT_OK;
}

ott_status activation_close(exec *cx, activation *e) {
    TRY(activation_close_copies(cx, e));
    TRY(plan_close(cx->plan, &e->channel_scales_buffer));
    return activation_close_tensor(cx, e);
}

const qtensor *activation_copy(const activation *e, int index) {
    return index < 0 ? NULL : &e->q.item[index];
}

/* True if rows [first, first + count) begin at a scale block or are in one block of `block` rows. */
static bool fits_block(const cast_spec *s, int64_t block, int64_t first, int64_t count) {
    return !cast_spec_is_fp8(s) || block == INT64_MAX || first % block == 0 || first % block + count <= block;
}

ott_status activation_rows(const activation *e, int64_t first, int64_t count, activation *view) {
    *view = (activation){.t = e->t, .q = e->q, .buffer = PLAN_NONE};
    if (e->t.data) view->t = tensor_rows(e->t, first, count);
    view->t.rows = count;
    for (int i = 0; i < view->q.count; i++) {
        const quant_spec *s = &view->q.item[i].spec;
        STATUS_REQUIRE(fits_block(&s->rowwise, granularity_block(s->rowwise.grain).mn, first, count) &&
                       fits_block(&s->columnwise, granularity_block(s->columnwise.grain).k, first, count));
        view->q.item[i] = qtensor_group(&e->q.item[i], 0, first, count);
    }
    return OTT_OK;
}
