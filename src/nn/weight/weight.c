/* nn/weight/weight: chooses the kind of a weight, and opens the weight. */
#include "nn/weight/weight.h"

static const weight_kind *choose_kind(const weight_source *w) {
    const parameter *p = w->parameter;
    if (w->lora && w->lora->magnitude) return &weight_composed;
    if (p->codes) return p->of_experts ? &weight_experts : &weight_frozen;
    return p->shard.rows_per_rank ? &weight_sharded : &weight_master;
}

ott_status weight_set(weight_source *w, device *d, int64_t rows, int64_t columns, const linear_spec *spec) {
    const parameter *p = w->parameter;
    qblocks blocks = {0};
    weight_release(w, d);
    w->kind = choose_kind(w);
    w->high_precision = !w->grouped_fp8 ? spec->activation : p->codes ? OTT_F32 : p->shard.value.dtype;
    w->copy = (tensor){0};
    w->quantized = (qtensor){.rows = rows, .columns = columns, .spec = spec->weight};
    if (!w->kind->observe)
        w->quantized.spec.rowwise.policy = w->quantized.spec.columnwise.policy = AMAX_CURRENT;
    TRY(qtensor_lay_out(&w->quantized, d->can, &blocks));
    return w->kind->allocate ? w->kind->allocate(w, d, &blocks) : OTT_OK;
}

void weight_release(weight_source *w, device *d) {
    device_release(d, w->block);
    w->block = NULL;
    w->made_step = -1;
    if (w->parameter) w->parameter->shard.quantized = (qtensor){0};
    w->packed = (operand){0};
}

ott_status weight_open(exec *cx, weight_source *w, const weight_use *use, operand *out, plan_buffer *buffer) {
    bool records = plan_recording(cx->plan), observes = cx->phase == PHASE_TRAIN && cx->is_first_microbatch;
    *buffer = PLAN_NONE;
    if (w->kind->refresh && (records || !weight_is_fresh(cx, w))) {
        TRY(w->kind->refresh(cx, w));
        if (!records) w->made_step = cx->step;
    }
    if (observes && !use->columnwise && w->kind->observe && quant_spec_is_fp8(&w->quantized.spec))
        TRY(w->kind->observe(cx, w));
    return w->kind->open(cx, w, use, out, buffer);
}
