/* nn/weight/codes: frozen weights that are stored as FP8 codes: how GEMMs read the codes. */
#include "nn/weight/weight.h"

weight_codes_use weight_get_codes_use(const weight_source *w, bool columnwise) {
    const qtensor stored = frozen_quantized(w->parameter, 0);
    const cast_spec *needed = columnwise ? &w->quantized.spec.columnwise : &w->quantized.spec.rowwise;
    const cast_spec *have = columnwise ? &stored.spec.columnwise : &stored.spec.rowwise;
    if (w->grouped_fp8) return WEIGHT_CODES_REQUANTIZED;
    if (!cast_spec_is_fp8(needed)) return WEIGHT_CODES_DEQUANTIZED;
    bool fits = have->format == needed->format && have->grain == needed->grain;
    return fits && w->kind == &weight_frozen ? WEIGHT_CODES_DIRECT : WEIGHT_CODES_REQUANTIZED;
}

/* Adds the columnwise use to *q, a view of stored codes. Some backends need a transposed copy for it. */
static ott_status open_columnwise(exec *cx, qtensor *q, plan_buffer *buffer) {
    if (!cx->device->can->contiguous_contraction) return OTT_OK;
    int64_t bytes = dtype_count_bytes(q->spec.rowwise.format, q->rows * q->columns);
    TRY(plan_open(cx->plan, "columnwise codes", bytes, buffer));
    const tensor x = tensor_matrix(q->rowwise.data, q->spec.rowwise.format, q->rows, q->columns);
    const tensor y = tensor_matrix(buffer->data, x.dtype, x.columns, x.rows);
    q->columnwise.data = buffer->data;
    q->columnwise.ld = q->rows;
    q->columnwise.transposed = true;
    return op_transpose(cx, &(transpose_args){.x = &x, .y = &y});
}

static ott_status open_codes(exec *cx, const weight_source *w, const weight_use *use, operand *out,
                             plan_buffer *buffer) {
    qtensor q = frozen_quantized(w->parameter, 0);
    weight_codes_use reading = weight_get_codes_use(w, use->columnwise);
    bool requantized = reading == WEIGHT_CODES_REQUANTIZED;
    plan_buffer values;
    tensor x;
    if (reading == WEIGHT_CODES_DIRECT) {
        if (use->columnwise) TRY(open_columnwise(cx, &q, buffer));
        *out = weight_operand(use->columnwise, (tensor){0}, &q);
        return OTT_OK;
    }
    TRY(exec_open(cx, "dequantized weight", requantized ? OTT_F32 : w->high_precision, q.rows, q.columns, &x,
                  requantized ? &values : buffer));
    TRY(op_dequantize(cx, &(dequantize_args){.q = &q, .y = &x}));
    *out = weight_operand(use->columnwise, x, NULL);
    if (!requantized) return OTT_OK;
    TRY(weight_open_quantized(cx, w, use->columnwise, &x, out, buffer));
    return plan_close(cx->plan, &values);
}

const weight_kind weight_frozen = {.open = open_codes};

static ott_status open_experts(exec *cx, const weight_source *w, const weight_use *use, operand *out,
                               plan_buffer *buffer) {
    tensor x;
    TRY(exec_open(cx, "dequantized experts", w->high_precision, w->quantized.rows, w->quantized.columns, &x,
                  buffer));
    *out = weight_operand(use->columnwise, x, NULL);
    return frozen_expert_values(cx, w->parameter, use->end, &x);
}

const weight_kind weight_experts = {.open = open_experts};
