/* nn/linear/linear: the three GEMMs of a linear layer. */
#include "nn/linear/linear.h"

/* ---- setup ---- */

ott_status linear_set_spec(linear *l, device *d, const linear_spec *spec) {
    weight_source *w = &l->source;
    l->spec = *spec;
    w->name = l->name;
    w->parameter = l->weight;
    w->lora = l->lora;
    w->shard = linear_shard(l, TENSOR_WEIGHT);
    w->delayed = &l->delayed[TENSOR_WEIGHT];
    w->grouped_fp8 = l->grouped.fp8;
    TRY(weight_set(w, d, l->out, l->in, spec));
    l->spec.weight = w->quantized.spec;
    return OTT_OK;
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

ott_status linear_connect(linear *l, activation_specs *input, activation_specs *grad_output) {
    const float *next[TENSOR_COUNT];
    for (int t = 0; t < TENSOR_COUNT; t++) next[t] = l->delayed[t].scale.data;
    l->source.quantized.rowwise.next = l->source.quantized.columnwise.next = next[TENSOR_WEIGHT];
    input->shard = linear_shard(l, TENSOR_INPUT);
    grad_output->shard = linear_shard(l, TENSOR_GRAD_OUTPUT);
    if (l->lora) lora_connect(input, grad_output);
    /* The bias' gradient sums rows of all sequence-parallel ranks: they must gather values, not codes. */
    if (l->split == PARAMETER_COLUMNS && l->ranks.sequence && l->bias && !l->bias->frozen)
        grad_output->high_precision = true;
    bool trains = !l->weight->frozen;
    TRY(activation_specs_add(input, &l->spec.input, next[TENSOR_INPUT], trains, &l->input_copy));
    return activation_specs_add(grad_output, &l->spec.grad_output, next[TENSOR_GRAD_OUTPUT], trains,
                                &l->grad_copy);
}

/* In training: records the amax of q for delayed scaling, and calls the user's hook. q NULL: does nothing. */
static ott_status observe_tensor(exec *cx, linear *l, recipe_tensor which, const tensor *t,
                                 const qtensor *q) {
    if (!q || cx->phase != PHASE_TRAIN) return OTT_OK;
    TRY(delayed_record(cx, &l->delayed[which], q));
    if (!t->data) return OTT_OK; /* the values are not here: ranks gathered only codes */
    return exec_hook_quantized(cx, l->name, which, t, q);
}

/* ---- the GEMMs ---- */

/* The bias that forward's GEMM adds, or NULL. If ranks sum their products (sum_of), only rank 0 adds it. */
static const tensor *bias_of_product(const linear *l, const tensor_ranks *sum_of) {
    bool is_added = l->bias && !(sum_of && sum_of->group && sum_of->group->rank > 0);
    return is_added ? &l->bias->value : NULL;
}

/* The adapter whose output is added to the layer's output, or NULL. DoRA changes the weight instead. */
static const lora *added_adapter(const linear *l) {
    return l->lora && !l->lora->magnitude ? l->lora : NULL;
}

ott_status linear_forward(exec *cx, linear *l, const activation *x, const tensor *y) {
    const weight_use use = {.channel_scales = x->channel_scales.data ? &x->channel_scales : NULL};
    const qtensor *input = activation_copy(x, l->input_copy);
    const tensor_ranks *sum_of = l->split == PARAMETER_COLUMNS ? &l->ranks : NULL;
    operand a = operand_rowwise(x->t, input), b;
    plan_buffer buffer;
    partial_sum sum;
    TRY(observe_tensor(cx, l, TENSOR_INPUT, &x->t, input));
    TRY(weight_open(cx, &l->source, &use, &b, &buffer));
    TRY(tensor_partial_open(cx, sum_of, OTT_F32, y, &sum));
    TRY(op_counted_gemm(cx, GEMM_OUTPUT,
                        &(gemm_args){.a = &a,
                                     .b = &b,
                                     .bias = bias_of_product(l, sum_of),
                                     .c = &sum.t,
                                     .spec = l->spec.gemm[GEMM_OUTPUT]}));
    TRY(plan_close(cx->plan, &buffer));
    TRY(weight_add_change(cx, &l->source, false, &x->t, &sum.t));
    TRY(tensor_partial_close(cx, sum_of, y, &sum));
    if (added_adapter(l)) TRY(lora_forward(cx, l->lora, &x->t, y));
    return exec_hook(cx, l->name, "output", y);
}

ott_status linear_grad_input(exec *cx, linear *l, const activation *g, const tensor *dx, bool accumulate) {
    operand a = operand_rowwise(g->t, activation_copy(g, l->grad_copy)), b;
    plan_buffer buffer;
    TRY(weight_open(cx, &l->source, &(weight_use){.columnwise = true}, &b, &buffer));
    TRY(op_counted_gemm(
        cx, GEMM_GRAD_INPUT,
        &(gemm_args){
            .a = &a, .b = &b, .c = dx, .accumulate = accumulate, .spec = l->spec.gemm[GEMM_GRAD_INPUT]}));
    TRY(plan_close(cx->plan, &buffer));
    TRY(weight_add_change(cx, &l->source, true, &g->t, dx));
    return added_adapter(l) ? lora_grad_input(cx, l->lora, &g->t, dx) : OTT_OK;
}

/* The GEMM of grad_weight: c = g^T x, or c += g^T x. */
static ott_status multiply_weight(exec *cx, const linear *l, const activation *x, const activation *g,
                                  const tensor *c, bool accumulate) {
    operand a = operand_columnwise(g->t, activation_copy(g, l->grad_copy));
    operand b = operand_columnwise(x->t, activation_copy(x, l->input_copy));
    return op_counted_gemm(
        cx, GEMM_GRAD_WEIGHT,
        &(gemm_args){
            .a = &a, .b = &b, .c = c, .accumulate = accumulate, .spec = l->spec.gemm[GEMM_GRAD_WEIGHT]});
}

static ott_status accumulate_weight(exec *cx, linear *l, const activation *x, const activation *g) {
    tensor product;
    plan_buffer buffer;
    if (!x->channel_scales.data) return multiply_weight(cx, l, x, g, &l->weight->grad, true);
    const tensor channel_scales = tensor_rows(x->channel_scales, 0, 1);
    TRY(exec_open(cx, "gradient before channel scales", OTT_F32, l->out, l->in, &product, &buffer));
    TRY(multiply_weight(cx, l, x, g, &product, false));
    TRY(op_multiply_columns(
        cx, &(multiply_columns_args){
                .x = &product, .factor = &channel_scales, .y = &l->weight->grad, .accumulate = true}));
    return plan_close(cx->plan, &buffer);
}

ott_status linear_grad_weight(exec *cx, linear *l, const activation *x, const activation *g) {
    TRY(exec_hook(cx, l->name, "grad_output", &g->t));
    TRY(observe_tensor(cx, l, TENSOR_GRAD_OUTPUT, &g->t, activation_copy(g, l->grad_copy)));
    if (!l->weight->frozen) TRY(accumulate_weight(cx, l, x, g));
    if (l->lora)
        TRY(added_adapter(l) ? lora_grad_weight(cx, l->lora, &x->t, &g->t)
                             : weight_grad_composed(cx, &l->source, &x->t, &g->t));
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

/* The use of grouped GEMMs. FP8 GEMMs quantize all experts, also those without rows. */
static weight_use grouped_use(const linear *l, bool columnwise, const grouped_rows *r) {
    return (weight_use){.columnwise = columnwise, .end = l->grouped.fp8 ? NULL : &r->end};
}

ott_status linear_forward_grouped(exec *cx, linear *l, const tensor *x, const grouped_rows *r,
                                  const tensor *y) {
    const weight_use use = grouped_use(l, false, r);
    operand w;
    plan_buffer buffer;
    TRY(weight_open(cx, &l->source, &use, &w, &buffer));
    TRY(grouped_output(cx, linear_products_spec(l), &w.t, x, r, y));
    TRY(plan_close(cx->plan, &buffer));
    return exec_hook(cx, l->name, "output", y);
}

ott_status linear_grad_input_grouped(exec *cx, linear *l, const tensor *g, const grouped_rows *r,
                                     const tensor *dx, bool accumulate) {
    const weight_use use = grouped_use(l, true, r);
    operand w;
    plan_buffer buffer;
    TRY(weight_open(cx, &l->source, &use, &w, &buffer));
    TRY(grouped_grad_input(cx, linear_products_spec(l), &w.t, g, r, dx, accumulate));
    return plan_close(cx->plan, &buffer);
}

ott_status linear_grad_weight_grouped(exec *cx, linear *l, const tensor *x, const tensor *g,
                                      const grouped_rows *r, const grouped_balance *balance) {
    TRY(exec_hook(cx, l->name, "grad_output", g));
    if (l->weight->frozen) return OTT_OK;
    return grouped_grad_weight(cx, linear_products_spec(l), x, g, r, balance, &l->weight->grad);
}
