/* nn/embedding: looks up token ids. Ranks without a token's row add 0, so the sum over ranks is exact. */
#include "nn/embedding.h"

static int64_t rows_before(const embedding *e) {
    return e->ranks.group ? e->weight->local.row : 0;
}

static int64_t rows_after(const embedding *e) {
    return e->ranks.group ? e->weight->rows - e->weight->local.row - e->weight->local.rows : 0;
}

static ott_status look_up(exec *cx, const embedding *e, const tensor *token, const tensor *y) {
    return op_embedding_forward(cx, &(embedding_forward_args){.token = token,
                                                              .table = &e->weight->value,
                                                              .y = y,
                                                              .before = rows_before(e),
                                                              .after = rows_after(e)});
}

/* For a table that every rank has in full: looks up only the tokens of this rank's rows of y. */
static ott_status look_up_own(exec *cx, const embedding *e, const tensor *token, const tensor *y) {
    int64_t first = y->rows < token->columns ? e->ranks.group->rank * y->rows : 0;
    tensor own = tensor_columns(*token, first, y->rows);
    return look_up(cx, e, &own, y);
}

static ott_status look_up_parts(exec *cx, const embedding *e, const tensor *token, const tensor *y) {
    partial_sum sum;
    ott_dtype format = y->dtype == OTT_F16 ? OTT_F32 : y->dtype; /* collectives cannot sum fp16 tensors */
    TRY(tensor_partial_open(cx, &e->ranks, format, y, &sum));
    TRY(look_up(cx, e, token, &sum.t));
    return tensor_partial_close(cx, &e->ranks, y, &sum);
}

ott_status embedding_forward(exec *cx, const embedding *e, const tensor *token, const tensor *y) {
    TRY((parameter_is_split(e->weight) ? look_up_parts : look_up_own)(cx, e, token, y));
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
