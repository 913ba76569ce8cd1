/* nn/weight/master: copies of an fp32 or bf16 master: FP8 codes and the activation format, once per step. */
#include "nn/weight/weight.h"

/* ---- the copies ---- */

/* Size of the copy in the activation format; 0 if GEMMs read only FP8 codes or the master. */
static int64_t high_precision_bytes(const weight_source *w) {
    const qtensor *q = &w->quantized;
    bool needed = !cast_spec_is_fp8(&q->spec.rowwise) || !cast_spec_is_fp8(&q->spec.columnwise);
    bool differs = w->high_precision != w->parameter->shard.value.dtype;
    return needed && differs ? dtype_count_bytes(w->high_precision, q->rows * q->columns) : 0;
}

/* Size of the columnwise codes if each backward makes them; 0 if they are kept. */
static int64_t requantized_bytes(const weight_source *w, const device *d) {
    const qtensor *q = &w->quantized;
    bool alike = cast_spec_is_fp8(&q->spec.rowwise) && quant_spec_shares_scales(&q->spec);
    bool has_own_codes = cast_spec_is_fp8(&q->spec.columnwise) && (!alike || d->can->contiguous_contraction);
    int64_t bytes = dtype_count_bytes(q->spec.columnwise.format, q->rows * q->columns);
    return w->requantizes && has_own_codes ? backend_align(d->can, bytes) : 0;
}

static ott_status allocate_copies(weight_source *w, device *d, qblocks *blocks) {
    qtensor *q = &w->quantized;
    int64_t requantized = requantized_bytes(w, d), high_precision = high_precision_bytes(w);
    int64_t quantized = blocks->rowwise.bytes + blocks->columnwise.bytes - requantized;
    if (quantized + high_precision == 0) return OTT_OK;
    TRY(device_allocate(d, MEM_WEIGHT, quantized + high_precision, w->name, &w->block));
    blocks->rowwise.data = w->block;
    blocks->columnwise.data = (char *)w->block + blocks->rowwise.bytes;
    TRY(qtensor_lay_out(q, d->can, blocks));
    if (requantized) q->columnwise.data = NULL;
    if (high_precision)
        w->copy = tensor_matrix((char *)w->block + quantized, w->high_precision, q->rows, q->columns);
    return OTT_OK;
}

/* True if no columnwise codes are kept: each backward makes them. */
static bool is_requantized(const weight_source *w) {
    return w->requantizes && w->kind == &weight_master && cast_spec_is_fp8(&w->quantized.spec.columnwise) &&
           !w->quantized.columnwise.data;
}

/* Returns w->quantized, but without columnwise codes if each backward makes them. */
static qtensor kept_copy(const weight_source *w) {
    qtensor q = w->quantized;
    if (is_requantized(w)) q.spec.columnwise.format = OTT_F32;
    return q;
}

/* Like shard_quantize, but skips an amax that the optimizer step computed, and codes that are not kept. */
static ott_status quantize_kept(exec *cx, const weight_source *w) {
    const tensor *master = &w->parameter->value;
    const qtensor kept = kept_copy(w);
    if (!weight_is_quantized(cx, w)) TRY(op_amax(cx, &(amax_args){.x = master, .q = &w->quantized}));
    TRY(shard_reduce_amax(cx, &w->shard, &w->quantized));
    TRY(op_scale(cx, &(scale_args){.q = &w->quantized}));
    return quant_spec_is_fp8(&kept.spec) ? op_cast(cx, &(cast_args){.x = master, .q = &kept}) : OTT_OK;
}

static ott_status make_codes(exec *cx, const weight_source *w) {
    bool updated = weight_is_quantized(cx, w);
    if (updated && qtensor_has_codes(&w->parameter->shard.quantized)) return OTT_OK;
    if (updated || is_requantized(w)) return quantize_kept(cx, w);
    return shard_quantize(cx, &w->shard, &w->parameter->value, &w->quantized);
}

static ott_status refresh_copies(exec *cx, const weight_source *w) {
    if (quant_spec_is_fp8(&w->quantized.spec)) TRY(make_codes(cx, w));
    if (!w->copy.data) return OTT_OK;
    return op_convert(cx, &(convert_args){.x = &w->parameter->value, .y = &w->copy});
}

static ott_status observe_copies(exec *cx, const weight_source *w) {
    const qtensor kept = kept_copy(w);
    TRY(weight_record_amax(cx, w));
    if (!quant_spec_is_fp8(&kept.spec)) return OTT_OK;
    return exec_hook_quantized(cx, w->name, TENSOR_WEIGHT, &w->parameter->value, &kept);
}

/* ---- reading ---- */

/* SmoothQuant: opens forward's operand, the weight times the channel scales. */
static ott_status open_smoothed(exec *cx, const weight_source *w, const tensor *channel_scales, operand *out,
                                plan_buffer *buffer) {
    const tensor factor = tensor_rows(*channel_scales, 0, 1);
    plan_buffer values;
    tensor x;
    TRY(exec_open(cx, "weight times channel scales", OTT_F32, w->quantized.rows, w->quantized.columns, &x,
                  &values));
    TRY(op_multiply_columns(cx,
                            &(multiply_columns_args){.x = &w->parameter->value, .factor = &factor, .y = &x}));
    TRY(weight_open_quantized(cx, w, false, &x, out, buffer));
    return plan_close(cx->plan, &values);
}

/* Casts the columnwise codes from the master, for a weight whose columnwise codes are not kept. */
static ott_status open_requantized(exec *cx, const weight_source *w, qtensor *q, plan_buffer *codes) {
    int64_t bytes = dtype_count_bytes(q->spec.columnwise.format, q->rows * q->columns);
    TRY(plan_open(cx->plan, "columnwise weight", bytes, codes));
    q->columnwise.data = codes->data;
    q->spec.rowwise.format = OTT_F32;
    return op_cast(cx, &(cast_args){.x = &w->parameter->value, .q = q});
}

ott_status weight_open_copy(exec *cx, const weight_source *w, const weight_use *use, operand *out,
                            plan_buffer *buffer) {
    qtensor q = w->quantized;
    if (use->channel_scales) return open_smoothed(cx, w, use->channel_scales, out, buffer);
    if (use->columnwise && is_requantized(w)) TRY(open_requantized(cx, w, &q, buffer));
    *out = weight_operand(use->columnwise, w->copy.data ? w->copy : w->parameter->value,
                          quant_spec_is_fp8(&q.spec) ? &q : NULL);
    return OTT_OK;
}

/* ---- the optimizer ---- */

/* True if the weight has current scaling and tensor-parallel ranks must reduce its amax. */
static bool depends_on_ranks(const weight_source *w) {
    const quant_spec *q = &w->quantized.spec;
    bool current = (cast_spec_is_fp8(&q->rowwise) && q->rowwise.policy == AMAX_CURRENT) ||
                   (cast_spec_is_fp8(&q->columnwise) && q->columnwise.policy == AMAX_CURRENT);
    return current && !shard_is_full(&w->shard);
}

/* Only the amax, if the scale depends on other ranks or columnwise codes are not kept. */
static qtensor fused_copies(const weight_source *w) {
    qtensor q = w->quantized;
    if (is_requantized(w) || depends_on_ranks(w)) q.rowwise.data = q.columnwise.data = NULL;
    return q;
}

const weight_kind weight_master = {.allocate = allocate_copies,
                                   .refresh = refresh_copies,
                                   .open = weight_open_copy,
                                   .observe = observe_copies,
                                   .fused = fused_copies};
