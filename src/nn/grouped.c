/* nn/grouped: loops over the matrices of a stack. */
#include "nn/grouped.h"

static bool is_of_tensor(const quant_spec *s) {
    return (cast_spec_is_fp8(&s->rowwise) && s->rowwise.grain == GRANULARITY_TENSOR) ||
           (cast_spec_is_fp8(&s->columnwise) && s->columnwise.grain == GRANULARITY_TENSOR);
}

static bool is_delayed(const quant_spec *s) {
    return s->rowwise.policy == AMAX_DELAYED || s->columnwise.policy == AMAX_DELAYED;
}

/* A matrix of a stack may have one scale. */
bool grouped_takes(const linear_spec *s, const char **why) {
    *why = "it leaves one use of a weight in high precision";
    if (!cast_spec_is_fp8(&s->weight.rowwise) || !cast_spec_is_fp8(&s->weight.columnwise)) return false;
    *why = "it has one scale of a tensor of tokens, which changes with where they go";
    return !is_of_tensor(&s->input) && !is_of_tensor(&s->grad_output) && !is_delayed(&s->weight);
}

/* ---- one use of some rows ---- */

typedef struct form {
    quant_spec spec; /* the other use is in high precision */
    bool columnwise;
    plan_buffer buffer; /* none: both are */
} form;

/* With room for so many rows. */
static ott_status open_form(exec *cx, const quant_spec *spec, bool columnwise, int64_t rows, int64_t columns,
                            form *f) {
    qtensor q = {.rows = rows, .columns = columns, .spec = *spec};
    qblocks blocks = {0};
    (columnwise ? &q.spec.rowwise : &q.spec.columnwise)->format = OTT_F32;
    *f = (form){q.spec, columnwise, PLAN_NONE};
    if (!quant_spec_is_fp8(&q.spec)) return OTT_OK;
    TRY(qtensor_lay_out(&q, cx->device->can, &blocks));
    return plan_open(cx->plan, "experts in FP8", blocks.rowwise.bytes + blocks.columnwise.bytes, &f->buffer);
}

/* Quantizes x into it; what a product then reads. */
static ott_status fill_form(exec *cx, const form *f, const tensor *x, operand *out) {
    qtensor q = {.rows = x->rows, .columns = x->columns, .spec = f->spec};
    qblocks blocks = {0};
    bool is_fp8 = quant_spec_is_fp8(&f->spec);
    if (is_fp8) {
        (f->columnwise ? &blocks.columnwise : &blocks.rowwise)->data = f->buffer.data;
        TRY(qtensor_lay_out(&q, cx->device->can, &blocks));
        TRY(op_quantize(cx, &(quantize_args){.x = x, .q = &q}));
    }
    *out =
        f->columnwise ? operand_columnwise(*x, is_fp8 ? &q : NULL) : operand_rowwise(*x, is_fp8 ? &q : NULL);
    return OTT_OK;
}

/* ---- one matrix after the other ---- */

typedef struct grouped_call {
    const tensor *a, *b, *c;
    form of_a, of_b;
    bool accumulate;
    gemm_spec spec;
} grouped_call;

static ott_status multiply(exec *cx, grouped_call *call, const tensor *a, const tensor *b, const tensor *c) {
    operand left, right;
    TRY(fill_form(cx, &call->of_a, a, &left));
    TRY(fill_form(cx, &call->of_b, b, &right));
    return op_gemm(
        cx,
        &(gemm_args){.a = &left, .b = &right, .c = c, .accumulate = call->accumulate, .spec = call->spec});
}

/* by_weight: b are the matrices, and a's rows make rows of c; else a's and b's rows make the matrices of c. */
static ott_status multiply_all(exec *cx, grouped_call *call, const grouped_rows *r, bool by_weight) {
    int64_t matrices = r->end.columns, first = 0;
    const tensor *stack = by_weight ? call->b : call->c, *rows = by_weight ? call->c : call->b;
    int64_t each = stack->rows / matrices;
    for (int64_t e = 0; e < matrices; first = r->known[e++]) {
        int64_t count = r->known[e] - first;
        tensor a = tensor_rows(*call->a, first, count), other = tensor_rows(*rows, first, count);
        tensor matrix = tensor_rows(*stack, e * each, each);
        if (count == 0) continue;
        TRY(by_weight ? multiply(cx, call, &a, &matrix, &other) : multiply(cx, call, &a, &other, &matrix));
    }
    TRY(plan_close(cx->plan, &call->of_a.buffer));
    return plan_close(cx->plan, &call->of_b.buffer);
}

static void count(exec *cx, recipe_gemm role, const grouped_call *call) {
    bool fp8 = quant_spec_is_fp8(&call->of_a.spec) && quant_spec_is_fp8(&call->of_b.spec);
    cx->gemms[role][fp8] += !plan_recording(cx->plan);
}

/* Rows of no matrix are 0. */
static ott_status zero_rest(exec *cx, const grouped_rows *r, const tensor *c) {
    int64_t end = r->known[r->end.columns - 1];
    tensor rest = tensor_rows(*c, end, c->rows - end);
    bool is_there = rest.rows > 0 && !plan_recording(cx->plan);
    return is_there ? device_zero(cx->device, rest.data, tensor_bytes(rest)) : OTT_OK;
}

ott_status grouped_output(exec *cx, const linear_spec *s, const tensor *w, const tensor *x,
                          const grouped_rows *r, const tensor *y) {
    grouped_call call = {.a = x, .b = w, .c = y, .spec = s->gemm[GEMM_OUTPUT]};
    TRY(open_form(cx, &s->input, false, r->most, x->columns, &call.of_a));
    TRY(open_form(cx, &s->weight, false, w->rows / r->end.columns, w->columns, &call.of_b));
    count(cx, GEMM_OUTPUT, &call);
    TRY(multiply_all(cx, &call, r, true));
    return zero_rest(cx, r, y);
}

ott_status grouped_grad_input(exec *cx, const linear_spec *s, const tensor *w, const tensor *g,
                              const grouped_rows *r, const tensor *dx, bool accumulate) {
    grouped_call call = {.a = g, .b = w, .c = dx, .accumulate = accumulate, .spec = s->gemm[GEMM_GRAD_INPUT]};
    TRY(open_form(cx, &s->grad_output, false, r->most, g->columns, &call.of_a));
    TRY(open_form(cx, &s->weight, true, w->rows / r->end.columns, w->columns, &call.of_b));
    count(cx, GEMM_GRAD_INPUT, &call);
    TRY(multiply_all(cx, &call, r, true));
    return accumulate ? OTT_OK : zero_rest(cx, r, dx);
}

ott_status grouped_grad_weight(exec *cx, const linear_spec *s, const tensor *x, const tensor *g,
                               const grouped_rows *r, const tensor *dw) {
    grouped_call call = {.a = g, .b = x, .c = dw, .accumulate = true, .spec = s->gemm[GEMM_GRAD_WEIGHT]};
    TRY(open_form(cx, &s->grad_output, true, r->most, g->columns, &call.of_a));
    TRY(open_form(cx, &s->input, true, r->most, x->columns, &call.of_b));
    count(cx, GEMM_GRAD_WEIGHT, &call);
    return multiply_all(cx, &call, r, false);
}
