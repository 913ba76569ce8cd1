/* model/adapters: targets, and making. */
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

static ott_status check_decomposed(const model_options *m) {
    const adapter_options *a = &m->adapter;
    if (!a->decomposed || a->dropout == 0 || !a->drops_output) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "peft.use_dora with peft.dropout_position = post: what a composed weight adds to the "
                       "base's is dropped before it, as in PEFT; set peft.dropout_position = pre");
}

ott_status adapters_check(const model_options *m, const module_list *list) {
    const adapter_options *o = &m->adapter;
    if (o->rank == 0) return OTT_OK;
    TRY(check_decomposed(m));
    TRY(check_patterns(list, "peft.target_modules", o->targets));
    TRY(check_patterns(list, "peft.exclude_modules", o->excluded));
    for (int i = 0; i < list->count; i++)
        if (adapters_wants(o, &list->of[i])) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG,
                       "peft.exclude_modules leaves no layer an adapter: nothing would train");
}

/* ---- making ---- */

ott_status adapters_make(arena *memory, const model_options *o, const model_module *m, const linear *layer,
                         const dora_tables *tables, lora **out) {
    const adapter_options *a = &o->adapter;
    void *place;
    TRY(arena_alloc(memory, sizeof **out, &place));
    *out = place;
    **out = (lora){.a = m->lora_a,
                   .b = m->lora_b,
                   .magnitude = m->lora_m,
                   .tables = tables,
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

/* ---- norms ---- */

ott_status adapters_norms(exec *cx, const linear *l, float *norms) {
    plan_buffer buffer;
    tensor w;
    TRY(linear_open_values(cx, l, false, &w, &buffer));
    TRY(dora_norms(cx, l->lora, &w, norms));
    return plan_close(cx->plan, &buffer);
}
