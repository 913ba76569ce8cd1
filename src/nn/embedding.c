/* nn/embedding: token ids to vectors. */
#include "nn/embedding.h"

ott_status embedding_forward(exec *cx, const embedding *e, const tensor *token, const tensor *y) {
    TRY(op_embedding_forward(cx,
                             &(embedding_forward_args){.token = token, .table = &e->weight->value, .y = y}));
    return exec_hook(cx, e->name, "output", y);
}

ott_status embedding_backward(exec *cx, const embedding *e, const tensor *token, const tensor *dy) {
    TRY(exec_hook(cx, e->name, "grad_output", dy));
    if (e->weight->frozen) return OTT_OK;
    return op_embedding_backward(cx, &(embedding_backward_args){.token = token,
                                                                .dy = dy,
                                                                .dtable = &e->weight->grad,
                                                                .has_padding = e->has_padding,
                                                                .padding = e->padding});
}
