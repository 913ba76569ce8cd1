/* nn/loss: chunked output head and cross-entropy. */
#include "nn/loss.h"

ott_status loss_connect(loss_head *h, activation_specs *input) {
    h->grad_specs = (activation_specs){0};
    return linear_connect(&h->head, input, &h->grad_specs);
}

static ott_status chunk_backward(exec *cx, loss_head *h, const activation *x, const activation *g,
                                 const tensor *dx) {
    cx->part = PART_BACKWARD;
    TRY(linear_grad_input(cx, &h->head, g, dx, false));
    return linear_grad_weight(cx, &h->head, x, g);
}

static ott_status chunk_forward(exec *cx, loss_head *h, const activation *x, const tensor *target,
                                const tensor *grad_scale, const tensor *losses, const tensor *dx) {
    activation logits;
    TRY(activation_open(cx, "logits", x->t.dtype, x->t.rows, h->head.out, grad_scale ? &h->grad_specs : NULL,
                        &logits));
    TRY(linear_forward(cx, &h->head, x, &logits.t));
    TRY(op_cross_entropy(cx, &(cross_entropy_args){.logits = &logits.t,
                                                   .target = target,
                                                   .grad_scale = grad_scale,
                                                   .loss = losses,
                                                   .q = activation_fused(&logits)}));
    TRY(activation_finish(cx, &logits));
    if (grad_scale) TRY(chunk_backward(cx, h, x, &logits, dx));
    return activation_close(cx, &logits);
}

ott_status loss_forward(exec *cx, loss_head *h, const activation *x, const tensor *target,
                        const tensor *grad_scale, const tensor *losses, const tensor *dx) {
    for (int64_t first = 0; first < x->t.rows; first += h->chunk) {
        int64_t count = x->t.rows - first < h->chunk ? x->t.rows - first : h->chunk;
        activation part;
        TRY(activation_rows(x, first, count, &part));
        tensor part_target = tensor_columns(*target, first, count);
        tensor part_losses = tensor_columns(*losses, first, count);
        tensor part_dx = dx ? tensor_rows(*dx, first, count) : (tensor){0};
        TRY(chunk_forward(cx, h, &part, &part_target, grad_scale, &part_losses, dx ? &part_dx : NULL));
    }
    return OTT_OK;
}
