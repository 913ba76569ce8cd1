/* nn/weight/composed: weights with a DoRA adapter: each GEMM computes W' (nn/linear/dora.h). */
#include "nn/linear/lora_parts.h"
#include "nn/weight/weight.h"

/* True if dropout(x) has a separate GEMM with the weight's change W' - W. */
static bool adds_change(const exec *cx, const weight_source *w) {
    return w->kind == &weight_composed && lora_drops_input(cx, w->lora);
}

static ott_status open_composed_values(exec *cx, const weight_source *w, tensor *t, plan_buffer *buffer) {
    TRY(weight_open_values(cx, w, t, buffer));
    return dora_compose(cx, w->lora, t);
}

static ott_status open_in_high_precision(exec *cx, const weight_source *w, const char *what, const tensor *x,
                                         tensor *y, plan_buffer *buffer) {
    TRY(exec_open(cx, what, w->high_precision, x->rows, x->columns, y, buffer));
    return op_convert(cx, &(convert_args){.x = x, .y = y});
}

/* Opens W', or W if a separate GEMM adds W' - W. */
static ott_status open_composed(exec *cx, const weight_source *w, const weight_use *use, operand *out,
                                plan_buffer *buffer) {
    const quant_spec *spec = &w->quantized.spec;
    plan_buffer values;
    tensor t, x;
    TRY((adds_change(cx, w) ? weight_open_values : open_composed_values)(cx, w, &t, &values));
    if (cast_spec_is_fp8(use->columnwise ? &spec->columnwise : &spec->rowwise)) {
        TRY(weight_open_quantized(cx, w, use->columnwise, &t, out, buffer));
    } else {
        TRY(open_in_high_precision(cx, w, "composed weight, rounded", &t, &x, buffer));
        *out = weight_operand(use->columnwise, x, NULL);
    }
    return plan_close(cx->plan, &values);
}

const weight_kind weight_composed = {.open = open_composed};

/* Opens the change W' - W in the activation format. */
static ott_status open_change(exec *cx, const weight_source *w, tensor *change, plan_buffer *buffer) {
    plan_buffer composed_buffer, base_buffer;
    tensor composed, base;
    TRY(open_composed_values(cx, w, &composed, &composed_buffer));
    TRY(weight_open_values(cx, w, &base, &base_buffer));
    TRY(op_multiply(cx, &(multiply_args){.x = &base, .y = &base, .factor = -1.0f}));
    TRY(op_add(cx, &(add_args){.x = &composed, .delta = &base, .y = &composed}));
    TRY(plan_close(cx->plan, &base_buffer));
    TRY(open_in_high_precision(cx, w, "weight change", &composed, change, buffer));
    return plan_close(cx->plan, &composed_buffer);
}

ott_status weight_add_change(exec *cx, const weight_source *w, bool columnwise, const tensor *x,
                             const tensor *y) {
    plan_buffer buffer;
    tensor change;
    if (!adds_change(cx, w)) return OTT_OK;
    TRY(open_change(cx, w, &change, &buffer));
    TRY(columnwise ? lora_add_input_gradient(cx, w->lora, x, &change, y)
                   : dora_forward(cx, w->lora, &change, x, y));
    return plan_close(cx->plan, &buffer);
}

ott_status weight_grad_composed(exec *cx, const weight_source *w, const tensor *x, const tensor *g) {
    plan_buffer buffer;
    tensor t;
    TRY(weight_open_values(cx, w, &t, &buffer));
    TRY(dora_grad_weight(cx, w->lora, &t, x, g));
    return plan_close(cx->plan, &buffer);
}
