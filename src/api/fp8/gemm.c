/* api/fp8/gemm: the three GEMMs of a linear layer. */
#include "api/fp8/tensor.h"
#include <stdio.h>

/* A GEMM of a linear layer: the roles of operands a and b, and which quantized copies they read. */
typedef struct product {
    const char *name;
    ott_role role[2];
    ott_usage use[2];
} product;

static const product products[GEMM_COUNT] = {
    [OTT_GEMM_OUTPUT] = {"output", {OTT_INPUT, OTT_WEIGHT}, {OTT_ROWWISE, OTT_ROWWISE}},
    [OTT_GEMM_GRAD_INPUT] = {"grad_input", {OTT_GRAD_OUTPUT, OTT_WEIGHT}, {OTT_ROWWISE, OTT_COLUMNWISE}},
    [OTT_GEMM_GRAD_WEIGHT] = {"grad_weight", {OTT_GRAD_OUTPUT, OTT_INPUT}, {OTT_COLUMNWISE, OTT_COLUMNWISE}},
};

static const char *const role_names[TENSOR_COUNT] = {"input", "weight", "grad_output"};

/* One call of ott_gemm. Index 0 of the arrays is for a, index 1 for b. */
typedef struct call {
    const recipe *row;
    const product *product;
    const ott_operand *given[2];
    operand operand[2];
} call;

static const char *operand_letter(int which) {
    return which ? "b" : "a";
}

static const quant_spec *expected_spec(const call *c, int which) {
    const quant_spec *specs[TENSOR_COUNT] = {&c->row->input, &c->row->weight, &c->row->grad_output};
    return specs[c->product->role[which]];
}

static ott_status check_quantized(const call *c, int which, const ott_qtensor *q) {
    ott_role role = c->product->role[which];
    if ((ott_role)q->which != role)
        return status_fail(
            OTT_ERR_ARGUMENT,
            "ott_gemm: %s.quantized is a quantized %s, but the %s product needs a quantized %s here",
            operand_letter(which), role_names[q->which], c->product->name, role_names[role]);
    if (!quant_spec_equal(&q->q.spec, expected_spec(c, which)))
        return status_fail(
            OTT_ERR_ARGUMENT,
            "ott_gemm: %s.quantized was made with another recipe than %s, or before the recipe changed",
            operand_letter(which), c->row->name);
    if (!q->filled)
        return status_fail(OTT_ERR_ARGUMENT, "ott_gemm: %s.quantized is empty: call ott_quantize first",
                           operand_letter(which));
    return OTT_OK;
}

static ott_status take_quantized(call *c, int which, const ott_context *context) {
    const ott_qtensor *q = c->given[which]->quantized;
    char name[16];
    snprintf(name, sizeof name, "%s.quantized", operand_letter(which));
    if (!q)
        return status_fail(OTT_ERR_ARGUMENT,
                           "ott_gemm: %s is NULL, but recipe %s computes the %s product in FP8", name,
                           c->row->name, c->product->name);
    TRY(handle_check_in(q, HANDLE_QTENSOR, context, "ott_gemm", name));
    TRY(check_quantized(c, which, q));
    c->operand[which] = c->product->use[which] == OTT_ROWWISE ? operand_rowwise((tensor){0}, &q->q)
                                                              : operand_columnwise((tensor){0}, &q->q);
    return OTT_OK;
}

static ott_status take_tensor(call *c, int which, const ott_context *context) {
    const ott_tensor *t = c->given[which]->tensor;
    char name[16];
    snprintf(name, sizeof name, "%s.tensor", operand_letter(which));
    if (!t)
        return status_fail(OTT_ERR_ARGUMENT,
                           "ott_gemm: %s is NULL, but recipe %s computes the %s product in %s", name,
                           c->row->name, c->product->name, dtype_name(c->row->activation));
    TRY(handle_check_in(t, HANDLE_TENSOR, context, "ott_gemm", name));
    if (t->t.dtype != c->row->activation)
        return status_fail(
            OTT_ERR_DTYPE,
            "ott_gemm: %s is %s, but recipe %s computes the %s product in %s (ott_tensor_convert converts)",
            name, dtype_name(t->t.dtype), c->row->name, c->product->name, dtype_name(c->row->activation));
    c->operand[which] =
        c->product->use[which] == OTT_ROWWISE ? operand_rowwise(t->t, NULL) : operand_columnwise(t->t, NULL);
    return OTT_OK;
}

/* Writes the shape of t as it is stored, not transposed, which is the shape that the caller gave. */
static void shape_text(tensor t, char out[48]) {
    snprintf(out, 48, "[%lld, %lld]", (long long)t.rows, (long long)t.columns);
}

static ott_status check_shapes(const call *c, const ott_tensor *bias, const ott_tensor *to) {
    const operand *a = &c->operand[0], *b = &c->operand[1];
    int64_t rows = operand_mn(a), columns = operand_mn(b);
    char shape_a[48], shape_b[48], by[160];
    shape_text(a->t, shape_a);
    shape_text(b->t, shape_b);
    if (operand_k(a) != operand_k(b))
        return status_fail(OTT_ERR_SHAPE,
                           "ott_gemm: a is %s and b is %s: the %s product contracts %s of a with %s of b",
                           shape_a, shape_b, c->product->name, a->transposed ? "the rows" : "the columns",
                           b->transposed ? "the rows" : "the columns");
    snprintf(by, sizeof by, "the %s product of a %s and b %s is", c->product->name, shape_a, shape_b);
    TRY(tensor_check_shape(to, rows, columns, by, "ott_gemm", "c"));
    if (!bias) return OTT_OK;
    if (bias->t.dtype != OTT_F32)
        return status_fail(OTT_ERR_DTYPE, "ott_gemm: bias is %s; give fp32", dtype_name(bias->t.dtype));
    return tensor_check_shape(bias, 1, columns, by, "ott_gemm", "bias");
}

static bool overlap(tensor x, tensor y) {
    uintptr_t a = (uintptr_t)x.data, b = (uintptr_t)y.data;
    return a < b + (uintptr_t)tensor_bytes(y) && b < a + (uintptr_t)tensor_bytes(x);
}

static ott_status run_recipe_gemm(ott_recipe *r, call *c, recipe_gemm which, const ott_tensor *bias,
                                  bool accumulate, const ott_tensor *to) {
    ott_context *context = r->handle.context;
    TRY(recipe_to_run(context, r, NULL, &c->row));
    for (int i = 0; i < 2; i++)
        TRY(recipe_gemm_is_fp8(c->row, which) ? take_quantized(c, i, context) : take_tensor(c, i, context));
    TRY(check_shapes(c, bias, to));
    const char *with = overlap(to->t, c->operand[0].t) ? "a" : overlap(to->t, c->operand[1].t) ? "b" : NULL;
    if (bias && overlap(to->t, bias->t)) with = "bias";
    if (with) TRY(status_fail(OTT_ERR_ARGUMENT, "ott_gemm: c overlaps %s", with));
    exec cx;
    TRY(api_exec(to->handle.context, &cx));
    return op_counted_gemm(&cx, which,
                           &(gemm_args){.a = &c->operand[0],
                                        .b = &c->operand[1],
                                        .bias = bias ? &bias->t : NULL,
                                        .c = &to->t,
                                        .accumulate = accumulate,
                                        .spec = c->row->gemm[which]});
}

ott_status ott_gemm(ott_recipe *r, ott_gemm_kind which, const ott_operand *a, const ott_operand *b,
                    const ott_tensor *bias, int accumulate, ott_tensor *c) {
    API_HANDLE(r, RECIPE);
    API_REQUIRE_BOTH(a, b);
    if (bias) API_HANDLE_IN(bias, TENSOR, r->handle.context);
    API_HANDLE_IN(c, TENSOR, r->handle.context);
    TRY(tensor_check_number(c, __func__, "c"));
    if ((unsigned)which >= GEMM_COUNT)
        return status_fail(
            OTT_ERR_ARGUMENT,
            "%s: which = %d; give OTT_GEMM_OUTPUT, OTT_GEMM_GRAD_INPUT or OTT_GEMM_GRAD_WEIGHT", __func__,
            (int)which);
    call now = {.product = &products[which], .given = {a, b}};
    return API_INSIDE(r->handle.context,
                      run_recipe_gemm(r, &now, (recipe_gemm)which, bias, accumulate != 0, c));
}
