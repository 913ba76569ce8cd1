/* nn/linear/linear: the weight's copies that GEMMs read, and the three GEMMs of a layer. */
#include "nn/linear/linear.h"

/* ---- the compute weight ---- */

static ott_dtype master_format(const linear *l) {
    return l->weight ? l->weight->shard.value.dtype : OTT_F32;
}

/* Size of the weight's copy in the activation format; 0 if GEMMs read only FP8 codes or the master. */
static int64_t high_precision_bytes(const linear *l) {
    const quant_spec *w = &l->spec.weight;
    bool needed = !cast_spec_is_fp8(&w->rowwise) || !cast_spec_is_fp8(&w->columnwise);
    bool same = l->spec.activation == master_format(l) || l->grouped.fp8;
    return needed && !same ? l->out * l->in * dtype_bytes(l->spec.activation) : 0;
}

static bool is_sharded(const linear *l) {
    return l->weight && l->weight->shard.rows_per_rank;
}

/* Size of the columnwise codes if each backward makes them; 0 if they are kept. */
static int64_t requantized_bytes(const linear *l, const device *d) {
    const quant_spec *w = &l->spec.weight;
    bool alike = cast_spec_is_fp8(&w->rowwise) && quant_spec_shares_scales(w);
    bool has_own_codes = cast_spec_is_fp8(&w->columnwise) && (!alike || d->can->contiguous_contraction);
    return l->requantizes && has_own_codes ? backend_align(d->can, l->out * l->in) : 0;
}

/* True if the layer has no compute weight: each GEMM computes the weight in the format that it reads. */
static bool is_made_per_gemm(const linear *l) {
    return linear_keeps_codes(l) || linear_is_composed(l);
}

ott_status linear_set_spec(linear *l, device *d, const linear_spec *spec) {
    qblocks blocks = {0};
    linear_release(l, d);
    l->spec = *spec;
    if (is_made_per_gemm(l)) l->spec.weight.rowwise.policy = l->spec.weight.columnwise.policy = AMAX_CURRENT;
    l->compute = (tensor){0};
    l->quantized = (qtensor){.rows = l->out, .columns = l->in, .spec = l->spec.weight};
    TRY(qtensor_lay_out(&l->quantized, d->can, &blocks));
    if (is_sharded(l) || is_made_per_gemm(l)) return OTT_OK;
    int64_t requantized = requantized_bytes(l, d), high_precision = high_precision_bytes(l);
    int64_t quantized = blocks.rowwise.bytes + blocks.columnwise.bytes - requantized;
    if (quantized + high_precision == 0) return OTT_OK;
    TRY(device_allocate(d, MEM_WEIGHT, quantized + high_precision, l->name, &l->compute_block));
    blocks.rowwise.data = l->compute_block;
    blocks.columnwise.data = (char *)l->compute_block + blocks.rowwise.bytes;
    TRY(qtensor_lay_out(&l->quantized, d->can, &blocks));
    if (requantized) l->quantized.columnwise.data = NULL;
    if (high_precision)
        l->compute = tensor_matrix((char *)l->compute_block + quantized, l->spec.activation, l->out, l->in);
    return OTT_OK;
}

void linear_release(linear *l, device *d) {
    device_release(d, l->compute_block);
    l->compute_block = NULL;
    l->compute_step = -1;
    if (l->optimizer_quantizes) l->weight->shard.quantized = (qtensor){0};
    l->optimizer_quantizes = false;
    l->packed = (operand){0};
}

void linear_delayed_requests(linear *l, delayed_request requests[TENSOR_COUNT]) {
    const quant_spec *specs[TENSOR_COUNT] = {&l->spec.input, &l->spec.weight, &l->spec.grad_output};
    for (int t = 0; t < TENSOR_COUNT; t++)
        requests[t] = (delayed_request){
            .state = &l->delayed[t], .spec = delayed_cast(specs[t]), .is_input = t == TENSOR_INPUT};
}

tensor_shard linear_shard(const linear *l, recipe_tensor which) {
    group *by_rows = l->split == PARAMETER_ROWS ? l->ranks.group : NULL;
    group *by_columns = l->split == PARAMETER_COLUMNS ? l->ranks.group : NULL;
    switch (which) {
    case TENSOR_INPUT: return (tensor_shard){.row_ranks = l->row_ranks, .column_ranks = by_columns};
    case TENSOR_WEIGHT: return (tensor_shard){.row_ranks = by_rows, .column_ranks = by_columns};
    case TENSOR_GRAD_OUTPUT: return (tensor_shard){.row_ranks = l->row_ranks, .column_ranks = by_rows};
    case TENSOR_COUNT: break;
    }
    return (tensor_shard){0};
}

/* Like linear_check_blocks, for `rows` rows of this rank's weight that are adjacent in the full weight. */
static ott_status check_scale_blocks(const linear *l, const linear_spec *spec, int64_t rows) {
    const struct {
        const quant_spec *spec;
        int64_t rows, columns; /* rows is 0 for tokens, which tensor parallelism does not split */
    } parts[TENSOR_COUNT] = {[TENSOR_INPUT] = {&spec->input, 0, l->in},
                             [TENSOR_WEIGHT] = {&spec->weight, rows, l->in},
                             [TENSOR_GRAD_OUTPUT] = {&spec->grad_output, 0, rows}};
    int64_t block;
    for (int t = 0; t < TENSOR_COUNT; t++) {
        tensor_shard shard = linear_shard(l, (recipe_tensor)t);
        if (!shard_fits_blocks(&shard, parts[t].spec, parts[t].rows, parts[t].columns, &block))
            return status_fail(
                OTT_ERR_CONFIG,
                "%s: with distributed.tp = %d a rank's part of the weight is %lld x %lld, which splits "
                "scale blocks of %lld; use fewer ranks, or a recipe without blocks",
                l->name, l->ranks.group->size, (long long)rows, (long long)l->in, (long long)block);
    }
    return OTT_OK;
}

ott_status linear_check_blocks(const linear *l, const linear_spec *spec) {
    parameter_run run;
    for (int64_t row = 0; row < l->out; row += run.count) {
        run = parameter_rows_at(&l->weight->local, row, l->out - row);
        TRY(check_scale_blocks(l, spec, run.count));
    }
    return OTT_OK;
}

static const float *next_scale(const linear *l, recipe_tensor which) {
    return l->delayed[which].scale.data;
}

/* True if the bias' gradient sums rows of all sequence-parallel ranks: they must gather values, not codes. */
static bool sums_gathered_gradient(const linear *l) {
    return l->split == PARAMETER_COLUMNS && l->ranks.sequence && l->bias && !l->bias->frozen;
}

ott_status linear_connect(linear *l, activation_specs *input, activation_specs *grad_output) {
    l->quantized.rowwise.next = l->quantized.columnwise.next = next_scale(l, TENSOR_WEIGHT);
    bool trains = !l->weight->frozen;
    input->shard = linear_shard(l, TENSOR_INPUT);
    grad_output->shard = linear_shard(l, TENSOR_GRAD_OUTPUT);
    if (l->lora) lora_connect(input, grad_output);
    if (sums_gathered_gradient(l)) grad_output->high_precision = true;
    TRY(activation_specs_add(input, &l->spec.input, next_scale(l, TENSOR_INPUT), trains, &l->input_copy));
    return activation_specs_add(grad_output, &l->spec.grad_output, next_scale(l, TENSOR_GRAD_OUTPUT), trains,
                                &l->grad_copy);
}

/* True if no columnwise codes are kept: each backward makes them. */
static bool is_requantized(const linear *l) {
    return l->requantizes && !is_sharded(l) && cast_spec_is_fp8(&l->spec.weight.columnwise) &&
           !l->quantized.columnwise.data;
}

/* Returns l->quantized, but without columnwise codes if each backward makes them. */
static qtensor kept_copy(const linear *l) {
    qtensor q = l->quantized;
    if (is_requantized(l)) q.spec.columnwise.format = OTT_F32;
    return q;
}

/* ---- quantization fused into the optimizer step ---- */

/* True if each FP8 use is tensorwise. */
static bool has_one_scale(const quant_spec *q) {
    return (!cast_spec_is_fp8(&q->rowwise) || q->rowwise.grain == GRANULARITY_TENSOR) &&
           (!cast_spec_is_fp8(&q->columnwise) || q->columnwise.grain == GRANULARITY_TENSOR);
}

/* True if the weight has current scaling and tensor-parallel ranks must reduce its amax. */
static bool depends_on_ranks(const linear *l) {
    const quant_spec *q = &l->spec.weight;
    const tensor_shard shard = linear_shard(l, TENSOR_WEIGHT);
    bool current = (cast_spec_is_fp8(&q->rowwise) && q->rowwise.policy == AMAX_CURRENT) ||
                   (cast_spec_is_fp8(&q->columnwise) && q->columnwise.policy == AMAX_CURRENT);
    return current && !shard_is_full(&shard);
}

void linear_fuse_quantize(linear *l) {
    parameter_shard *s = &l->weight->shard;
    const parameter_part part = parameter_shard_part(l->weight);
    qtensor fused = l->quantized;
    if (l->weight->frozen || l->weight->rank != 2 || !linear_casts_weight(l)) return;
    if (part.rows == 0 || parameter_rows_at(&part, 0, part.rows).count < part.rows) return;
    if (is_sharded(l) && !has_one_scale(&fused.spec)) return;
    fused.rows = s->value.rows;
    if (is_sharded(l) || is_requantized(l) || depends_on_ranks(l))
        fused.rowwise.data = fused.columnwise.data = NULL;
    s->quantized = fused;
    l->optimizer_quantizes = true;
    l->quantized_step = -1;
}

bool linear_is_quantized_by_optimizer(const exec *cx, const linear *l) {
    return l->optimizer_quantizes && (l->quantized_step == cx->step || plan_recording(cx->plan));
}

ott_status linear_quantize_weight(exec *cx, linear *l) {
    const parameter_shard *s = &l->weight->shard;
    if (!l->optimizer_quantizes || l->quantized_step == cx->step) return OTT_OK;
    l->quantized_step = cx->step;
    if (qtensor_has_codes(&s->quantized))
        return op_quantize(cx, &(quantize_args){.x = &s->value, .q = &s->quantized});
    return op_amax(cx, &(amax_args){.x = &s->value, .q = &s->quantized});
}

/* ---- refresh for a step ---- */

/* Like shard_quantize, but skips an amax that the optimizer step computed, and codes that are not kept. */
static ott_status quantize_kept(exec *cx, const linear *l, const tensor_shard *shard) {
    const tensor *master = &l->weight->value;
    const qtensor kept = kept_copy(l);
    if (!linear_is_quantized_by_optimizer(cx, l))
        TRY(op_amax(cx, &(amax_args){.x = master, .q = &l->quantized}));
    TRY(shard_reduce_amax(cx, shard, &l->quantized));
    TRY(op_scale(cx, &(scale_args){.q = &l->quantized}));
    return quant_spec_is_fp8(&kept.spec) ? op_cast(cx, &(cast_args){.x = master, .q = &kept}) : OTT_OK;
}

static ott_status make_codes(exec *cx, const linear *l) {
    const tensor_shard shard = linear_shard(l, TENSOR_WEIGHT);
    bool updated = linear_is_quantized_by_optimizer(cx, l);
    if (updated && qtensor_has_codes(&l->weight->shard.quantized)) return OTT_OK;
    if (updated || is_requantized(l)) return quantize_kept(cx, l, &shard);
    return shard_quantize(cx, &shard, &l->weight->value, &l->quantized);
}

static ott_status make_compute(exec *cx, linear *l) {
    if (quant_spec_is_fp8(&l->spec.weight)) TRY(make_codes(cx, l));
    if (!l->compute.data) return OTT_OK;
    return op_convert(cx, &(convert_args){.x = &l->weight->value, .y = &l->compute});
}

/* Returns the weight that high-precision GEMMs read: the compute weight, or the master if there is none. */
static tensor plain_weight(const linear *l) {
    return l->compute.data ? l->compute : l->weight->value;
}

bool linear_weight_is_fixed(const linear *l) {
    return l->weight->frozen && !l->delayed[TENSOR_WEIGHT].seen.data;
}

bool linear_weight_is_fresh(const exec *cx, const linear *l) {
    return l->compute_step == cx->step || (linear_weight_is_fixed(l) && l->compute_step >= 0);
}

/* Makes the compute weight for this step if it is out of date. */
static ott_status refresh_compute_weight(exec *cx, linear *l) {
    if (l->packed.t.data || is_sharded(l) || is_made_per_gemm(l)) return OTT_OK;
    if (linear_weight_is_fresh(cx, l) && !plan_recording(cx->plan)) return OTT_OK;
    TRY(make_compute(cx, l));
    if (!plan_recording(cx->plan)) l->compute_step = cx->step;
    return OTT_OK;
}

/* For delayed scaling: records the amax of a tensor. */
static ott_status record_amax(exec *cx, const linear *l, recipe_tensor which, const qtensor *q) {
    if (!l->delayed[which].seen.data) return OTT_OK;
    return op_amax_record(cx, &(amax_record_args){.q = q, .seen = &l->delayed[which].seen});
}

/* In training: records the amax of q for delayed scaling, and calls the user's hook. q NULL: does nothing. */
static ott_status observe_tensor(exec *cx, linear *l, recipe_tensor which, const tensor *t,
                                 const qtensor *q) {
    if (!q || cx->phase != PHASE_TRAIN) return OTT_OK;
    TRY(record_amax(cx, l, which, q));
    if (!t->data) return OTT_OK; /* the values are not here: ranks gathered only codes */
    return exec_hook_quantized(cx, l->name, which, t, q);
}

/* Like observe_tensor, for a weight whose columnwise codes each backward makes (is_requantized). */
static ott_status observe_kept(exec *cx, linear *l) {
    const qtensor kept = kept_copy(l);
    if (cx->phase != PHASE_TRAIN) return OTT_OK;
    TRY(record_amax(cx, l, TENSOR_WEIGHT, &l->quantized));
    if (!quant_spec_is_fp8(&kept.spec)) return OTT_OK;
    return exec_hook_quantized(cx, l->name, TENSOR_WEIGHT, &l->weight->value, &kept);
}

static ott_status observe_forward(exec *cx, linear *l, const activation *x) {
    TRY(observe_tensor(cx, l, TENSOR_INPUT, &x->t, activation_copy(x, l->input_copy)));
    /* Weights are observed once per step. If a weight is sharded, parallel/store calls the hook for it. */
    if (!cx->is_first_microbatch || !linear_casts_weight(l)) return OTT_OK;
    if (is_requantized(l)) return observe_kept(cx, l);
    if (!is_sharded(l)) return observe_tensor(cx, l, TENSOR_WEIGHT, &l->weight->value, &l->quantized);
    return cx->phase == PHASE_TRAIN ? record_amax(cx, l, TENSOR_WEIGHT, &l->quantized) : OTT_OK;
}

static const qtensor *weight_copy(const linear *l) {
    return quant_spec_is_fp8(&l->spec.weight) ? &l->quantized : NULL;
}

/* ---- weights that are stored as FP8 codes ---- */

linear_codes_use linear_get_codes_use(const linear *l, bool backward) {
    const qtensor kept = frozen_quantized(l->weight, 0);
    const cast_spec *needed = backward ? &l->spec.weight.columnwise : &l->spec.weight.rowwise;
    const cast_spec *have = backward ? &kept.spec.columnwise : &kept.spec.rowwise;
    if (l->grouped.fp8) return LINEAR_CODES_REQUANTIZED;
    if (!cast_spec_is_fp8(needed)) return LINEAR_CODES_DEQUANTIZED;
    if (linear_is_composed(l)) return LINEAR_CODES_REQUANTIZED;
    return have->format == needed->format && have->grain == needed->grain ? LINEAR_CODES_DIRECT
                                                                          : LINEAR_CODES_REQUANTIZED;
}

/* Adds the columnwise use to *q, a view of stored codes. Some backends need a transposed copy for it. */
static ott_status open_kept_columnwise(exec *cx, qtensor *q, plan_buffer *buffer) {
    if (!cx->device->can->contiguous_contraction) return OTT_OK;
    TRY(plan_open(cx->plan, "columnwise codes", q->rows * q->columns, buffer));
    const tensor x = tensor_matrix(q->rowwise.data, q->spec.rowwise.format, q->rows, q->columns);
    const tensor y = tensor_matrix(buffer->data, x.dtype, x.columns, x.rows);
    q->columnwise.data = buffer->data;
    q->columnwise.ld = q->rows;
    q->columnwise.transposed = true;
    return op_transpose(cx, &(transpose_args){.x = &x, .y = &y});
}

/* Opens *q: x[out, in], quantized with current scaling, for the weight's rowwise or columnwise use only. */
static ott_status open_quantized_use(exec *cx, const linear *l, bool columnwise, const tensor *x, qtensor *q,
                                     plan_buffer *buffer) {
    qblocks blocks = {0};
    const tensor_shard shard = linear_shard(l, TENSOR_WEIGHT);
    *q = (qtensor){.rows = l->out, .columns = l->in, .spec = l->spec.weight};
    q->spec.rowwise.policy = q->spec.columnwise.policy = AMAX_CURRENT;
    (columnwise ? &q->spec.rowwise : &q->spec.columnwise)->format = OTT_F32;
    TRY(qtensor_lay_out(q, cx->device->can, &blocks));
    TRY(plan_open(cx->plan, "requantized weight", blocks.rowwise.bytes + blocks.columnwise.bytes, buffer));
    blocks.rowwise.data = buffer->data;
    blocks.columnwise.data = (char *)buffer->data + blocks.rowwise.bytes;
    TRY(qtensor_lay_out(q, cx->device->can, &blocks));
    return shard_quantize(cx, &shard, x, q);
}

/* For a weight that is stored as FP8 codes: opens a GEMM's weight operand. The caller closes `buffer`. */
static ott_status open_weight_codes(exec *cx, const linear *l, bool columnwise, operand *out,
                                    plan_buffer *buffer) {
    qtensor q = frozen_quantized(l->weight, 0);
    linear_codes_use reading = linear_get_codes_use(l, columnwise);
    bool rounded = reading == LINEAR_CODES_REQUANTIZED;
    plan_buffer values;
    tensor x = {0};
    if (reading == LINEAR_CODES_DIRECT) {
        if (columnwise) TRY(open_kept_columnwise(cx, &q, buffer));
    } else {
        TRY(exec_open(cx, "dequantized weight", rounded ? OTT_F32 : l->spec.activation, l->out, l->in, &x,
                      rounded ? &values : buffer));
        TRY(op_dequantize(cx, &(dequantize_args){.q = &q, .y = &x}));
    }
    if (rounded) {
        TRY(open_quantized_use(cx, l, columnwise, &x, &q, buffer));
        TRY(plan_close(cx->plan, &values));
    }
    const qtensor *codes = reading == LINEAR_CODES_DEQUANTIZED ? NULL : &q;
    *out = columnwise ? operand_columnwise(x, codes) : operand_rowwise(x, codes);
    return OTT_OK;
}

/* ---- DoRA weights ---- */

ott_status linear_open_values(exec *cx, const linear *l, bool adapted, tensor *w, plan_buffer *buffer) {
    TRY(exec_open(cx, "composed weight", OTT_F32, l->out, l->in, w, buffer));
    if (linear_keeps_codes(l)) {
        const qtensor q = frozen_quantized(l->weight, 0);
        TRY(op_dequantize(cx, &(dequantize_args){.q = &q, .y = w}));
    } else {
        TRY(op_convert(cx, &(convert_args){.x = &l->weight->value, .y = w}));
    }
    return adapted ? dora_compose(cx, l->lora, w) : OTT_OK;
}

/* True if dropout(x) has a separate GEMM with the weight's change W' - W (nn/linear/dora.h). */
static bool adds_change(const exec *cx, const linear *l) {
    return linear_is_composed(l) && lora_drops_input(cx, l->lora);
}

/* With DoRA: opens a GEMM's weight operand: W', or W if a separate GEMM adds W' - W. */
static ott_status open_composed(exec *cx, const linear *l, bool columnwise, operand *out,
                                plan_buffer *buffer) {
    const cast_spec *needed = columnwise ? &l->spec.weight.columnwise : &l->spec.weight.rowwise;
    bool fp8 = cast_spec_is_fp8(needed);
    plan_buffer values;
    qtensor q;
    tensor w, x = {0};
    TRY(linear_open_values(cx, l, !adds_change(cx, l), &w, &values));
    if (fp8) {
        TRY(open_quantized_use(cx, l, columnwise, &w, &q, buffer));
    } else {
        TRY(exec_open(cx, "composed weight, rounded", l->spec.activation, l->out, l->in, &x, buffer));
        TRY(op_convert(cx, &(convert_args){.x = &w, .y = &x}));
    }
    *out = columnwise ? operand_columnwise(x, fp8 ? &q : NULL) : operand_rowwise(x, fp8 ? &q : NULL);
    return plan_close(cx->plan, &values);
}

/* Opens the change W' - W in the activation format. */
static ott_status open_change(exec *cx, const linear *l, tensor *change, plan_buffer *buffer) {
    plan_buffer composed_buffer, base_buffer;
    tensor composed, base;
    TRY(linear_open_values(cx, l, true, &composed, &composed_buffer));
    TRY(linear_open_values(cx, l, false, &base, &base_buffer));
    TRY(op_multiply(cx, &(multiply_args){.x = &base, .y = &base, .factor = -1.0f}));
    TRY(op_add(cx, &(add_args){.x = &composed, .delta = &base, .y = &composed}));
    TRY(plan_close(cx->plan, &base_buffer));
    TRY(exec_open(cx, "weight change", l->spec.activation, l->out, l->in, change, buffer));
    TRY(op_convert(cx, &(convert_args){.x = &composed, .y = change}));
    return plan_close(cx->plan, &composed_buffer);
}

typedef ott_status (*multiply_change)(exec *cx, const lora *l, const tensor *change, const tensor *x,
                                      const tensor *y);

/* Adds the product of x and the weight's change W' - W to y. `multiply` computes it. */
static ott_status add_change(exec *cx, const linear *l, multiply_change multiply, const tensor *x,
                             const tensor *y) {
    plan_buffer buffer;
    tensor change;
    TRY(open_change(cx, l, &change, &buffer));
    TRY(multiply(cx, l->lora, &change, x, y));
    return plan_close(cx->plan, &buffer);
}

/* ---- SmoothQuant: weights times the channel scales of the input ---- */

static tensor channel_scales_of(const activation *x) {
    return tensor_rows(x->channel_scales, 0, 1);
}

/* SmoothQuant: opens forward's weight operand, W times x's channel scales. The caller closes `buffer`. */
static ott_status open_smoothed(exec *cx, const linear *l, const activation *x, operand *out,
                                plan_buffer *buffer) {
    const tensor channel_scales = channel_scales_of(x);
    plan_buffer values;
    qtensor q;
    tensor w;
    TRY(exec_open(cx, "weight times channel scales", OTT_F32, l->out, l->in, &w, &values));
    TRY(op_multiply_columns(
        cx, &(multiply_columns_args){.x = &l->weight->value, .factor = &channel_scales, .y = &w}));
    TRY(open_quantized_use(cx, l, false, &w, &q, buffer));
    *out = operand_rowwise((tensor){0}, &q);
    return plan_close(cx->plan, &values);
}

/* ---- packing ---- */

/* Packs the operand `from`. *to has the memory: to->t.data for the values, to->scale_inv for the scales. */
static ott_status fill_packed(exec *cx, const linear *l, const operand *from, const operand *to) {
    tensor packed = tensor_vector(to->t.data, to->t.dtype, op_packed_count(cx, from));
    TRY(op_pack(cx, &(pack_args){.b = from, .y = &packed}));
    if (!from->scale_inv) return OTT_OK;
    int64_t groups = granularity_groups(from->grain, l->out, l->in);
    return device_copy(cx->device, (void *)to->scale_inv, from->scale_inv, groups * (int64_t)sizeof(float));
}

/* Opens the weight operand of forward. The caller closes `buffer`, which may be PLAN_NONE. */
static ott_status open_rowwise(exec *cx, const linear *l, operand *out, plan_buffer *buffer) {
    if (linear_is_composed(l)) return open_composed(cx, l, false, out, buffer);
    if (linear_keeps_codes(l)) return open_weight_codes(cx, l, false, out, buffer);
    *out = operand_rowwise(plain_weight(l), weight_copy(l));
    return OTT_OK;
}

/* Packs `plain` into memory of `weights`, which *packed views. */
static ott_status make_packed(exec *cx, const linear *l, const operand *plain, device_arena *weights,
                              operand *packed) {
    int64_t scales =
        plain->scale_inv ? granularity_groups(plain->grain, l->out, l->in) * (int64_t)sizeof(float) : 0;
    int64_t codes = backend_align(cx->device->can, op_packed_count(cx, plain) * dtype_bytes(plain->t.dtype));
    *packed = *plain;
    packed->packed = true;
    TRY(device_arena_take(cx->device, weights, MEM_WEIGHT, codes + scales, l->name, &packed->t.data));
    if (scales) packed->scale_inv = (const float *)((char *)packed->t.data + codes);
    return fill_packed(cx, l, plain, packed);
}

/* Expert weights are not packed. Copies them in the activation format, or in the master's for FP8 GEMMs. */
static ott_status pack_experts(exec *cx, linear *l, device_arena *weights) {
    tensor copy = tensor_matrix(NULL, l->grouped.fp8 ? master_format(l) : l->spec.activation, l->out, l->in);
    TRY(device_arena_take(cx->device, weights, MEM_WEIGHT, tensor_bytes(copy), l->name, &copy.data));
    TRY(op_convert(cx, &(convert_args){.x = &l->weight->value, .y = &copy}));
    linear_release(l, cx->device);
    l->compute.data = NULL;
    l->packed.t = copy;
    return OTT_OK;
}

ott_status linear_pack(exec *cx, linear *l, device_arena *weights) {
    if (l->weight->rank == 3) return linear_keeps_codes(l) ? OTT_OK : pack_experts(cx, l, weights);
    operand plain, packed;
    plan_buffer buffer = PLAN_NONE;
    if (!is_made_per_gemm(l)) TRY(make_compute(cx, l));
    TRY(open_rowwise(cx, l, &plain, &buffer));
    TRY(make_packed(cx, l, &plain, weights, &packed));
    linear_release(l, cx->device);
    l->quantized.rowwise = l->quantized.columnwise = (qdata){0};
    l->compute.data = NULL;
    l->packed = packed;
    return plan_close(cx->plan, &buffer);
}

/* ---- the GEMMs ---- */

/* The bias that forward's GEMM adds, or NULL. If ranks sum their products (sum_of), only rank 0 adds it. */
static const tensor *bias_of_product(const linear *l, const tensor_ranks *sum_of) {
    bool is_added = l->bias && !(sum_of && sum_of->group && sum_of->group->rank > 0);
    return is_added ? &l->bias->value : NULL;
}

ott_status linear_forward(exec *cx, linear *l, const activation *x, const tensor *y) {
    TRY(refresh_compute_weight(cx, l));
    TRY(observe_forward(cx, l, x));
    operand a = operand_rowwise(x->t, activation_copy(x, l->input_copy));
    operand b = l->packed;
    plan_buffer buffer = PLAN_NONE;
    if (x->channel_scales.data)
        TRY(open_smoothed(cx, l, x, &b, &buffer));
    else if (!b.t.data)
        TRY(open_rowwise(cx, l, &b, &buffer));
    const tensor_ranks *sum_of = l->split == PARAMETER_COLUMNS ? &l->ranks : NULL;
    partial_sum sum;
    TRY(tensor_partial_open(cx, sum_of, OTT_F32, y, &sum));
    TRY(exec_gemm(cx, GEMM_OUTPUT,
                  &(gemm_args){.a = &a,
                               .b = &b,
                               .bias = bias_of_product(l, sum_of),
                               .c = &sum.t,
                               .spec = l->spec.gemm[GEMM_OUTPUT]}));
    TRY(plan_close(cx->plan, &buffer));
    if (adds_change(cx, l)) TRY(add_change(cx, l, dora_forward, &x->t, &sum.t));
    TRY(tensor_partial_close(cx, sum_of, y, &sum));
    if (l->lora && !linear_is_composed(l)) TRY(lora_forward(cx, l->lora, &x->t, y));
    return exec_hook(cx, l->name, "output", y);
}

/* Casts the columnwise codes from the master, for a weight whose columnwise codes are not kept. */
static ott_status open_requantized(exec *cx, const linear *l, qtensor *q, plan_buffer *codes) {
    TRY(plan_open(cx->plan, "columnwise weight", l->out * l->in, codes));
    q->columnwise.data = codes->data;
    q->spec.rowwise.format = OTT_F32;
    return op_cast(cx, &(cast_args){.x = &l->weight->value, .q = q});
}

/* Opens the weight operand of grad_input. The caller closes `buffer`, which may be PLAN_NONE. */
static ott_status open_backward(exec *cx, const linear *l, operand *out, plan_buffer *buffer) {
    qtensor q = l->quantized;
    if (linear_is_composed(l)) return open_composed(cx, l, true, out, buffer);
    if (linear_keeps_codes(l)) return open_weight_codes(cx, l, true, out, buffer);
    if (is_requantized(l)) TRY(open_requantized(cx, l, &q, buffer));
    *out = operand_columnwise(plain_weight(l), weight_copy(l) ? &q : NULL);
    return OTT_OK;
}

ott_status linear_grad_input(exec *cx, linear *l, const activation *g, const tensor *dx, bool accumulate) {
    operand a = operand_rowwise(g->t, activation_copy(g, l->grad_copy)), b;
    plan_buffer buffer = PLAN_NONE;
    TRY(refresh_compute_weight(cx, l));
    TRY(open_backward(cx, l, &b, &buffer));
    TRY(exec_gemm(
        cx, GEMM_GRAD_INPUT,
        &(gemm_args){
            .a = &a, .b = &b, .c = dx, .accumulate = accumulate, .spec = l->spec.gemm[GEMM_GRAD_INPUT]}));
    TRY(plan_close(cx->plan, &buffer));
    if (adds_change(cx, l)) return add_change(cx, l, dora_grad_input, &g->t, dx);
    return l->lora && !linear_is_composed(l) ? lora_grad_input(cx, l->lora, &g->t, dx) : OTT_OK;
}

/* The GEMM of grad_weight: c = g^T x, or c += g^T x. */
static ott_status multiply_weight(exec *cx, const linear *l, const activation *x, const activation *g,
                                  const tensor *c, bool accumulate) {
    operand a = operand_columnwise(g->t, activation_copy(g, l->grad_copy));
    operand b = operand_columnwise(x->t, activation_copy(x, l->input_copy));
    return exec_gemm(
        cx, GEMM_GRAD_WEIGHT,
        &(gemm_args){
            .a = &a, .b = &b, .c = c, .accumulate = accumulate, .spec = l->spec.gemm[GEMM_GRAD_WEIGHT]});
}

static ott_status accumulate_weight(exec *cx, linear *l, const activation *x, const activation *g) {
    tensor product;
    plan_buffer buffer;
    if (!x->channel_scales.data) return multiply_weight(cx, l, x, g, &l->weight->grad, true);
    const tensor channel_scales = channel_scales_of(x);
    TRY(exec_open(cx, "gradient before channel scales", OTT_F32, l->out, l->in, &product, &buffer));
    TRY(multiply_weight(cx, l, x, g, &product, false));
    TRY(op_multiply_columns(
        cx, &(multiply_columns_args){
                .x = &product, .factor = &channel_scales, .y = &l->weight->grad, .accumulate = true}));
    return plan_close(cx->plan, &buffer);
}

static ott_status grad_adapter(exec *cx, const linear *l, const tensor *x, const tensor *g) {
    tensor w;
    plan_buffer buffer;
    if (!linear_is_composed(l)) return lora_grad_weight(cx, l->lora, x, g);
    TRY(linear_open_values(cx, l, false, &w, &buffer));
    TRY(dora_grad_weight(cx, l->lora, &w, x, g));
    return plan_close(cx->plan, &buffer);
}

ott_status linear_grad_weight(exec *cx, linear *l, const activation *x, const activation *g) {
    TRY(exec_hook(cx, l->name, "grad_output", &g->t));
    TRY(observe_tensor(cx, l, TENSOR_GRAD_OUTPUT, &g->t, activation_copy(g, l->grad_copy)));
    if (!l->weight->frozen) TRY(accumulate_weight(cx, l, x, g));
    if (l->lora) TRY(grad_adapter(cx, l, &x->t, &g->t));
    if (!l->bias || l->bias->frozen) return OTT_OK;
    return op_column_sum(cx, &(column_sum_args){.x = &g->t, .sum = &l->bias->grad});
}

ott_status linear_backward(exec *cx, linear *l, const activation *x, activation *g, const tensor *dx,
                           bool accumulate) {
    TRY(linear_grad_input(cx, l, g, dx, accumulate));
    TRY(linear_grad_weight(cx, l, x, g));
    return activation_close(cx, g);
}

/* ---- expert weights ---- */

/* Opens expert weights in the format that GEMMs read; codes are dequantized. The caller closes `buffer`. */
static ott_status open_experts(exec *cx, const linear *l, const grouped_rows *r, tensor *w,
                               plan_buffer *buffer) {
    *buffer = PLAN_NONE;
    *w = l->packed.t.data ? l->packed.t : plain_weight(l);
    if (!linear_keeps_codes(l)) return OTT_OK;
    ott_dtype format = l->grouped.fp8 ? OTT_F32 : l->spec.activation;
    TRY(exec_open(cx, "dequantized experts", format, l->out, l->in, w, buffer));
    return frozen_expert_values(cx, l->weight, l->grouped.fp8 ? NULL : &r->end, w);
}

ott_status linear_forward_grouped(exec *cx, linear *l, const tensor *x, const grouped_rows *r,
                                  const tensor *y) {
    tensor w;
    plan_buffer buffer;
    TRY(refresh_compute_weight(cx, l));
    TRY(open_experts(cx, l, r, &w, &buffer));
    TRY(grouped_output(cx, linear_products_spec(l), &w, x, r, y));
    TRY(plan_close(cx->plan, &buffer));
    return exec_hook(cx, l->name, "output", y);
}

ott_status linear_grad_input_grouped(exec *cx, linear *l, const tensor *g, const grouped_rows *r,
                                     const tensor *dx, bool accumulate) {
    tensor w;
    plan_buffer buffer;
    TRY(refresh_compute_weight(cx, l));
    TRY(open_experts(cx, l, r, &w, &buffer));
    TRY(grouped_grad_input(cx, linear_products_spec(l), &w, g, r, dx, accumulate));
    return plan_close(cx->plan, &buffer);
}

ott_status linear_grad_weight_grouped(exec *cx, linear *l, const tensor *x, const tensor *g,
                                      const grouped_rows *r, const grouped_balance *balance) {
    TRY(exec_hook(cx, l->name, "grad_output", g));
    if (l->weight->frozen) return OTT_OK;
    return grouped_grad_weight(cx, linear_products_spec(l), x, g, r, balance, &l->weight->grad);
}
