/* model/merge: adapters into the masters. */
#include "model/merge.h"

/* b: scale B in a buffer. */
static ott_status merge_product(exec *cx, const linear *l, const tensor *b) {
    const lora *f = l->lora;
    TRY(op_multiply(cx, &(multiply_args){.x = &f->b->value, .y = b, .factor = f->scale}));
    operand left = operand_rowwise(*b, NULL), right = operand_columnwise(f->a->value, NULL);
    return op_gemm(cx, &(gemm_args){.a = &left,
                                    .b = &right,
                                    .c = &l->weight->value,
                                    .accumulate = true,
                                    .spec = recipe_high_precision(b->dtype)->gemm[GEMM_OUTPUT]});
}

static ott_status merge(void *user, linear *l) {
    exec *cx = user;
    void *place;
    if (!l->lora) return OTT_OK;
    if (linear_keeps_codes(l))
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "%s: its weight is kept in FP8 (train.frozen_dtype), into which an adapter cannot be "
            "merged: export the adapters alone (--format=peft)",
            l->name);
    tensor b = l->lora->b->value;
    TRY(device_allocate(cx->device, MEM_OTHER, tensor_bytes(b), "scaled adapter weight", &place));
    b.data = place;
    ott_status status = merge_product(cx, l, &b);
    if (status == OTT_OK) status = device_synchronize(cx->device);
    device_release(cx->device, place);
    l->lora = NULL;
    return status;
}

ott_status merge_adapters(model *m) {
    exec cx = {.device = m->device};
    TRY(model_visit_linears(m, merge, &cx));
    model_weights_changed(m);
    return OTT_OK;
}
