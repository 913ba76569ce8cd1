/* nn/weight/packed: for inference, weights in the order in which GEMMs read them. */
#include "nn/weight/weight.h"

static ott_status open_packed(exec *cx, const weight_source *w, const weight_use *use, operand *out,
                              plan_buffer *buffer) {
    (void)cx, (void)use, (void)buffer;
    *out = w->packed;
    return OTT_OK;
}

const weight_kind weight_packed = {.open = open_packed};

/* Replaces the copies of the weight by `packed`. */
static void use_packed(weight_source *w, device *d, const operand *packed) {
    weight_release(w, d);
    w->quantized.rowwise = w->quantized.columnwise = (qdata){0};
    w->copy.data = NULL;
    w->packed = *packed;
    w->kind = &weight_packed;
}

/* Expert weights are not packed. Copies them in the format that GEMMs read. */
static ott_status pack_experts(exec *cx, weight_source *w, device_arena *weights) {
    operand copy = {.t = tensor_matrix(NULL, w->high_precision, w->quantized.rows, w->quantized.columns)};
    TRY(device_arena_take(cx->device, weights, MEM_WEIGHT, tensor_bytes(copy.t), w->name, &copy.t.data));
    TRY(op_convert(cx, &(convert_args){.x = &w->parameter->value, .y = &copy.t}));
    use_packed(w, cx->device, &copy);
    return OTT_OK;
}

/* Packs `plain` into memory of `weights`, which *packed views. */
static ott_status make_packed(exec *cx, const weight_source *w, const operand *plain, device_arena *weights,
                              operand *packed) {
    scale_grid grid = granularity_grid(plain->grain, w->quantized.rows, w->quantized.columns);
    int64_t scales = plain->scale_inv ? granularity_scale_bytes(plain->grain, grid) : 0;
    int64_t count = op_packed_count(cx, plain);
    int64_t codes = backend_align(cx->device->can, dtype_count_bytes(plain->t.dtype, count));
    *packed = *plain;
    packed->packed = true;
    TRY(device_arena_take(cx->device, weights, MEM_WEIGHT, codes + scales, w->name, &packed->t.data));
    const tensor values = tensor_vector(packed->t.data, packed->t.dtype, count);
    TRY(op_pack(cx, &(pack_args){.b = plain, .y = &values}));
    if (!scales) return OTT_OK;
    packed->scale_inv = (char *)packed->t.data + codes;
    return device_copy(cx->device, (char *)packed->t.data + codes, plain->scale_inv, scales);
}

ott_status weight_pack(exec *cx, weight_source *w, device_arena *weights) {
    operand plain, packed;
    plan_buffer buffer;
    bool narrow = dtype_bits(w->quantized.spec.rowwise.format) < 8; /* op_pack copies whole bytes */
    if (w->kind == &weight_experts || narrow) return OTT_OK;
    if (w->parameter->of_experts) return pack_experts(cx, w, weights);
    w->made_step = -1;
    TRY(weight_open(cx, w, &(weight_use){0}, &plain, &buffer));
    TRY(make_packed(cx, w, &plain, weights, &packed));
    use_packed(w, cx->device, &packed);
    return plan_close(cx->plan, &buffer);
}
