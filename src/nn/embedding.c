/* nn/embedding: token ids to vectors. Ranks that have other rows of the table give 0 for these tokens, so that the sum
   over all is exact. */
#include "nn/embedding.h"

static int64_t rows_before(const embedding *e) {
    return e->ranks.group ? e->weight->local.row : 0;
}

static int64_t rows_after(const embedding *e) {
    return e->ranks.group ? e->weight->rows - e->weight->local.row - e->weight->local.rows : 0;
}

ott_status embedding_forward(exec *cx, const embedding *e, const tensor *token, const tensor *y) {
    partial_sum sum;
    ott_dtype format = y->dtype == OTT_F16 ? OTT_F32 : y->dtype; /* groups do not add fp16 */
    TRY(tensor_partial_open(cx, &e->ranks, format, y, &sum));
    TRY(op_embedding_forward(cx, &(embedding_forward_args){.token = token,
                                                           .table = &e->weight->value,
                                                           .y = &sum.t,
                                                           .before = rows_before(e),
                                                           .after = rows_after(e)}));
    TRY(tensor_partial_close(cx, &e->ranks, y, &sum));
    return exec_hook(cx, e->name, "output", y);
}

ott_status embedding_backward(exec *cx, const embedding *e, const tensor *token, const tensor *dy) {
    activation own = {.t = *dy}, all;
    TRY(exec_hook(cx, e->name, "grad_output", dy));
    if (e->weight->frozen) return OTT_OK;
    TRY(tensor_ranks_gather(cx, &e->ranks, "gathered gradient", NULL, &own, &all));
    TRY(op_embedding_backward(cx, &(embedding_backward_args){.token = token,
                                                             .dy = &all.t,
                                                             .dtable = &e->weight->grad,
                                                             .has_padding = e->has_padding,
                                                             .padding = e->padding,
                                                             .before = rows_before(e),
                                                             .after = rows_after(e)}));
    return activation_close(cx, &all);
}
