/* nn/moe/grouped: quantizes the operands of each expert separately, and multiplies them. */
#include "nn/moe/grouped.h"

static bool is_tensorwise(const quant_spec *s) {
    return (cast_spec_is_fp8(&s->rowwise) && granularity_spans_tensor(s->rowwise.grain)) ||
           (cast_spec_is_fp8(&s->columnwise) && granularity_spans_tensor(s->columnwise.grain));
}

/* A tensorwise weight has one scale for each expert's matrix. Tensorwise inputs and gradients are refused. */
bool grouped_supports(const linear_spec *s, const char **why) {
    *why = "it leaves one use of a weight in high precision";
    if (!cast_spec_is_fp8(&s->weight.rowwise) || !cast_spec_is_fp8(&s->weight.columnwise)) return false;
    *why = "it has one scale for a tensor of tokens, which would depend on the routing";
    return !is_tensorwise(&s->input) && !is_tensorwise(&s->grad_output) &&
           !(s->weight.rowwise.policy == AMAX_DELAYED || s->weight.columnwise.policy == AMAX_DELAYED);
}

typedef struct grouped_operand {
    operand operand;
    plan_buffer buffer; /* buffer of codes and scales; PLAN_NONE in high precision */
} grouped_operand;

/* Quantizes x in groups of rows. Group e ends at end[e]; NULL: equal groups. The buffer has `most` rows. */
static ott_status quantize_groups(exec *cx, qtensor *q, const tensor *x, const tensor *end, int64_t most,
                                  plan_buffer *buffer) {
    qblocks blocks = {0};
    q->rows = most;
    TRY(qtensor_lay_out(q, cx->device->can, &blocks));
    TRY(plan_open(cx->plan, "experts in FP8", blocks.rowwise.bytes + blocks.columnwise.bytes, buffer));
    blocks.rowwise.data = buffer->data;
    blocks.columnwise.data = (char *)buffer->data + blocks.rowwise.bytes;
    q->rows = x->rows;
    TRY(qtensor_lay_out(q, cx->device->can, &blocks));
    return op_grouped_quantize(cx, &(grouped_quantize_args){.x = x, .end = end, .q = q});
}

/* Opens x as an operand of a GEMM, columnwise or rowwise. per_expert: x is expert weights. If it is false, x
   is rows of tokens, sorted by expert as `r` says. */
static ott_status open_copy(exec *cx, const quant_spec *spec, bool columnwise, const tensor *x,
                            const grouped_rows *r, bool per_expert, grouped_operand *f) {
    qtensor q = {.columns = x->columns, .groups = r->end.columns, .spec = *spec};
    (columnwise ? &q.spec.rowwise : &q.spec.columnwise)->format = OTT_F32; /* use that no GEMM reads here */
    bool fp8 = quant_spec_is_fp8(&q.spec);
    f->buffer = PLAN_NONE;
    if (fp8)
        TRY(quantize_groups(cx, &q, x, per_expert ? NULL : &r->end, per_expert ? x->rows : r->max_rows,
                            &f->buffer));
    f->operand = columnwise ? operand_columnwise(*x, fp8 ? &q : NULL) : operand_rowwise(*x, fp8 ? &q : NULL);
    return OTT_OK;
}

static ott_status close_operands(exec *cx, grouped_operand *a, grouped_operand *b) {
    TRY(plan_close(cx->plan, &a->buffer));
    return plan_close(cx->plan, &b->buffer);
}

ott_status grouped_output(exec *cx, const linear_spec *s, const tensor *w, const tensor *x,
                          const grouped_rows *r, const tensor *y) {
    grouped_operand a, b;
    TRY(open_copy(cx, &s->input, false, x, r, false, &a));
    TRY(open_copy(cx, &s->weight, false, w, r, true, &b));
    TRY(op_counted_grouped_gemm(
        cx, GEMM_OUTPUT,
        &(grouped_gemm_args){
            .a = &a.operand, .b = &b.operand, .end = &r->end, .c = y, .spec = s->gemm[GEMM_OUTPUT]}));
    return close_operands(cx, &a, &b);
}

ott_status grouped_grad_input(exec *cx, const linear_spec *s, const tensor *w, const tensor *g,
                              const grouped_rows *r, const tensor *dx, bool accumulate) {
    grouped_operand a, b;
    TRY(open_copy(cx, &s->grad_output, false, g, r, false, &a));
    TRY(open_copy(cx, &s->weight, true, w, r, true, &b));
    TRY(op_counted_grouped_gemm(cx, GEMM_GRAD_INPUT,
                                &(grouped_gemm_args){.a = &a.operand,
                                                     .b = &b.operand,
                                                     .end = &r->end,
                                                     .c = dx,
                                                     .accumulate = accumulate,
                                                     .spec = s->gemm[GEMM_GRAD_INPUT]}));
    return close_operands(cx, &a, &b);
}

ott_status grouped_grad_weight(exec *cx, const linear_spec *s, const tensor *x, const tensor *g,
                               const grouped_rows *r, const grouped_balance *balance, const tensor *dw) {
    grouped_operand a, b;
    TRY(open_copy(cx, &s->grad_output, true, g, r, false, &a));
    TRY(open_copy(cx, &s->input, true, x, r, false, &b));
    TRY(op_counted_grouped_gemm_weight(cx, &(grouped_gemm_weight_args){.a = &a.operand,
                                                                       .b = &b.operand,
                                                                       .end = &r->end,
                                                                       .all = balance ? &balance->end : NULL,
                                                                       .first = balance ? balance->first : 0,
                                                                       .c = dw,
                                                                       .spec = s->gemm[GEMM_GRAD_WEIGHT]}));
    return close_operands(cx, &a, &b);
}
