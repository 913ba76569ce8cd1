/* model/adapters: targets, making and merging. */
#include "model/adapters.h"
#include "base/rng.h"
#include "base/str.h"
#include "model/names.h"
#include <stdio.h>
#include <string.h>

/* ---- targets ---- */

static bool fits(const model_module *m, const char *pattern) {
    return names_any(m, names_fit, pattern) || names_any(m, names_end, pattern);
}

static bool fits_some(const model_module *m, const config_list *patterns) {
    for (int64_t i = 0; patterns && i < patterns->count; i++)
        if (fits(m, patterns->items[i])) return true;
    return false;
}

static bool may_have(const model_module *m) {
    return m->kind == MODULE_LINEAR && m->layer != MODULES_OUTSIDE && m->rank == 2 && m->role != ROLE_ROUTER;
}

bool adapters_wants(const adapter_options *o, const model_module *m) {
    bool all = o->all || !o->targets || o->targets->count == 0;
    return o->rank > 0 && may_have(m) && (all || fits_some(m, o->targets)) && !fits_some(m, o->excluded);
}

static ott_status check_patterns(const module_list *list, const char *key, const config_list *patterns) {
    for (int64_t i = 0; patterns && i < patterns->count; i++) {
        bool found = false;
        for (int k = 0; k < list->count; k++)
            found |= may_have(&list->of[k]) && fits(&list->of[k], patterns->items[i]);
        if (!found) return names_fail_target(list, key, patterns->items[i]);
    }
    return OTT_OK;
}

ott_status adapters_check(const adapter_options *o, const module_list *list) {
    if (o->rank == 0) return OTT_OK;
    TRY(check_patterns(list, "peft.target_modules", o->targets));
    TRY(check_patterns(list, "peft.exclude_modules", o->excluded));
    for (int i = 0; i < list->count; i++)
        if (adapters_wants(o, &list->of[i])) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG,
                       "peft.exclude_modules leaves no layer an adapter: nothing would train");
}

/* ---- making ---- */

ott_status adapters_make(arena *memory, const model_options *o, const model_module *m, const linear *layer,
                         lora **out) {
    const adapter_options *a = &o->adapter;
    void *place;
    TRY(arena_alloc(memory, sizeof **out, &place));
    *out = place;
    **out = (lora){.a = m->lora_a,
                   .b = m->lora_b,
                   .scale = a->scale,
                   .dropout = a->dropout,
                   .drops_output = a->drops_output,
                   .seed = a->seed,
                   .stream = rng_stream(m->name),
                   .ranks = layer->ranks,
                   .cut = layer->cut,
                   .row_ranks = layer->row_ranks};
    return OTT_OK;
}

/* ---- merging ---- */

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

ott_status adapters_merge(model *m) {
    exec cx = {.device = m->device};
    TRY(model_visit_linears(m, merge, &cx));
    model_weights_changed(m);
    return OTT_OK;
}
