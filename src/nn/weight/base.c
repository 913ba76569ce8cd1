/* nn/weight/base: what all kinds of weights use: copies for one GEMM, and the steps of the copies. */
#include "nn/weight/weight.h"

/* ---- reading ---- */

ott_status weight_open_values(exec *cx, const weight_source *w, tensor *t, plan_buffer *buffer) {
    TRY(exec_open(cx, "composed weight", OTT_F32, w->quantized.rows, w->quantized.columns, t, buffer));
    if (!w->parameter->codes) return op_convert(cx, &(convert_args){.x = &w->parameter->value, .y = t});
    const qtensor q = frozen_quantized(w->parameter, 0);
    return op_dequantize(cx, &(dequantize_args){.q = &q, .y = t});
}

ott_status weight_open_quantized(exec *cx, const weight_source *w, bool columnwise, const tensor *x,
                                 operand *out, plan_buffer *buffer) {
    qblocks blocks = {0};
    qtensor q = {.rows = w->quantized.rows, .columns = w->quantized.columns, .spec = w->quantized.spec};
    q.spec.rowwise.policy = q.spec.columnwise.policy = AMAX_CURRENT;
    (columnwise ? &q.spec.rowwise : &q.spec.columnwise)->format = OTT_F32;
    TRY(qtensor_lay_out(&q, cx->device->can, &blocks));
    TRY(plan_open(cx->plan, "requantized weight", blocks.rowwise.bytes + blocks.columnwise.bytes, buffer));
    blocks.rowwise.data = buffer->data;
    blocks.columnwise.data = (char *)buffer->data + blocks.rowwise.bytes;
    TRY(qtensor_lay_out(&q, cx->device->can, &blocks));
    *out = weight_operand(columnwise, (tensor){0}, &q);
    return shard_quantize(cx, &w->shard, x, &q);
}

ott_status weight_record_amax(exec *cx, const weight_source *w) {
    return delayed_record(cx, w->delayed, &w->quantized);
}

/* ---- steps ---- */

static bool is_fused(const weight_source *w) {
    return quant_spec_is_fp8(&w->parameter->shard.quantized.spec);
}

void weight_changed(weight_source *w) {
    w->made_step = w->optimizer_step = -1;
}

/* True if the copies never change: the weight is frozen and its scaling is not delayed. */
static bool is_fixed(const weight_source *w) {
    return w->parameter->frozen && !w->delayed->seen.data;
}

void weight_made(weight_source *w, int64_t step) {
    if (!is_fixed(w) || w->made_step < 0) w->made_step = step;
}

bool weight_is_fresh(const exec *cx, const weight_source *w) {
    return w->made_step == cx->step || (is_fixed(w) && w->made_step >= 0);
}

void weight_fuse(weight_source *w) {
    parameter_shard *s = &w->parameter->shard;
    const parameter_part part = parameter_shard_part(w->parameter);
    if (w->parameter->frozen || !w->kind->fused || !quant_spec_is_fp8(&w->quantized.spec)) return;
    if (part.rows == 0 || parameter_rows_at(&part, 0, part.rows).count < part.rows) return;
    s->quantized = w->kind->fused(w);
    s->quantized.rows = s->value.rows;
    w->optimizer_step = -1;
}

void weight_updated(weight_source *w, int64_t step) {
    w->optimizer_step = step;
}

bool weight_is_quantized(const exec *cx, const weight_source *w) {
    return is_fused(w) && (w->optimizer_step == cx->step || plan_recording(cx->plan));
}

ott_status weight_prepare_replay(exec *cx, weight_source *w) {
    const parameter_shard *s = &w->parameter->shard;
    if (!is_fixed(w)) w->made_step = -1;
    if (!is_fused(w) || w->optimizer_step == cx->step) return OTT_OK;
    w->optimizer_step = cx->step;
    if (qtensor_has_codes(&s->quantized))
        return op_quantize(cx, &(quantize_args){.x = &s->value, .q = &s->quantized});
    return op_amax(cx, &(amax_args){.x = &s->value, .q = &s->quantized});
}
