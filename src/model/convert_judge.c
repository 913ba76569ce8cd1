/* model/convert_judge: decides whether a linear layer is converted to FP8, with which recipe, or why not. */
#include "model/convert.h"
#include "model/names.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- the size of a layer ---- */

/* Sets *worth to true if FP8 is faster than bf16 for these dimensions (torchao's rule, measured on H100). */
static ott_status is_worth(const recipe *r, int64_t in, int64_t out, bool *worth) {
    granularity grain = r->input.rowwise.grain;
    if (grain == GRANULARITY_TENSOR) return *worth = !(in <= 4096 && out <= 1024), OTT_OK;
    if (grain == GRANULARITY_ROW && recipe_gemm_is_fp8(r, GEMM_GRAD_WEIGHT)) {
        *worth = out > 2048 && in > 1024 && !(out <= 4096 && in <= 2048);
        return OTT_OK;
    }
    return status_fail(OTT_ERR_CONFIG,
                       "float8.filter_fqns has \"%s\", which works only with tensorwise and rowwise "
                       "scaling, not with recipe %s: list the layers to leave out instead",
                       CONVERT_FILTER_SMALL, r->name);
}

const recipe *convert_high_precision(const convert_options *o, ott_dtype high) {
    return o->bf16 && high == OTT_BF16 ? o->bf16 : recipe_high_precision(high);
}

/* ---- which recipe a layer runs under ---- */

/* The layer to decide about. */
typedef struct candidate {
    const convert_options *options;
    const model_module *module;
    int64_t layers;           /* number of blocks of the layer's model */
    ott_dtype high_precision; /* format of activations */
} candidate;

__attribute__((format(printf, 4, 5))) static void keep(const candidate *c, convert_verdict *v,
                                                       convert_kept by, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(v->reason, sizeof v->reason, format, values);
    va_end(values);
    v->by = by;
    v->recipe = convert_high_precision(c->options, c->high_precision);
}

/* Why the layer stays in high precision if keep_first or keep_last covers its block; NULL if not covered. */
static const char *kept_at_an_end(const candidate *c) {
    int layer = c->module->layer;
    if (layer == MODULES_OUTSIDE) return NULL; /* the head is in no block */
    if (layer < c->options->keep_first) return "float8.keep_first_layers covers its block";
    return layer >= c->layers - c->options->keep_last ? "float8.keep_last_layers covers its block" : NULL;
}

/* Applies filter_fqns, float8.fallback, keep_first_layers and keep_last_layers. */
static void apply_filters(const candidate *c, convert_verdict *v) {
    const convert_options *o = c->options;
    for (int f = 0; f < o->filter_count; f++) {
        if (strcmp(o->filter[f], CONVERT_FILTER_SMALL) == 0) continue;
        if (!names_any(c->module, names_contain, o->filter[f])) continue;
        keep(c, v, CONVERT_KEPT_FILTER, "%sfilter_fqns has \"%s\"", o->by_call ? "" : "float8.",
             o->filter[f]);
        return;
    }
    const char *end = kept_at_an_end(c);
    const linear *l = c->module->linear; /* NULL: the layer is on another pipeline stage */
    if (c->module->fell_back || (l && l->low_sqnr_count == LINEAR_FELL_BACK))
        keep(c, v, CONVERT_KEPT_FALLBACK, "float8.fallback moved it");
    else if (end)
        keep(c, v, CONVERT_KEPT_END, "%s", end);
}

static ott_status apply_rules(const candidate *c, convert_verdict *v) {
    for (int i = 0; i < c->options->rule_count; i++) {
        const module_rule *rule = &c->options->rules[i];
        if (!names_any(c->module, names_fit, rule->match)) continue;
        v->recipe = rule->recipe;
        if (recipe_gemm_is_fp8(rule->recipe, GEMM_COUNT)) return OTT_OK;
        if (rule->recipe->activation != c->high_precision)
            return status_fail(OTT_ERR_CONFIG,
                               "float8.module gives %s the recipe %s, but activations are %s: give it %s",
                               c->module->name, rule->recipe->name, dtype_name(c->high_precision),
                               recipe_high_precision(c->high_precision)->name);
        keep(c, v, CONVERT_KEPT_RULE, "float8.module has \"%s=%s\"", rule->match, rule->recipe->name);
        return OTT_OK;
    }
    return OTT_OK;
}

static bool filters_small(const convert_options *o) {
    bool named = o->small;
    for (int f = 0; f < o->filter_count; f++) named |= strcmp(o->filter[f], CONVERT_FILTER_SMALL) == 0;
    return named && !o->reduced;
}

/* torchao's filter for small layers requires multiples of 16 even if pad_inner_dim is set. */
static bool takes_any_dimension(const convert_options *o) {
    return o->any_dimension && !filters_small(o);
}

bool convert_takes_dimensions(const convert_options *o, int64_t in, int64_t out) {
    return (in % CONVERT_DIMENSION_MULTIPLE == 0 && out % CONVERT_DIMENSION_MULTIPLE == 0) ||
           takes_any_dimension(o);
}

static ott_status apply_size(const candidate *c, convert_verdict *v) {
    const convert_options *o = c->options;
    const linear *l = c->module->linear;
    const parameter *w = l ? l->weight : c->module->weight; /* the parameter with the full shape */
    int64_t in = w->columns, out = w->rows / w->experts;
    bool worth = true;
    if (!convert_takes_dimensions(o, in, out)) {
        keep(c, v, CONVERT_KEPT_DIMENSIONS, "its dimensions %lld x %lld are not multiples of %d%s",
             (long long)out, (long long)in, CONVERT_DIMENSION_MULTIPLE,
             o->by_call ? "" : " (float8.pad_inner_dim converts it)");
        return OTT_OK;
    }
    if (filters_small(o)) TRY(is_worth(v->recipe, in, out, &worth));
    if (!worth)
        keep(c, v, CONVERT_KEPT_SMALL, "%s finds its dimensions %lld x %lld too small to gain",
             o->by_call ? "auto_filter" : CONVERT_FILTER_SMALL, (long long)out, (long long)in);
    return OTT_OK;
}

ott_status convert_judge(const convert_options *o, const model_module *e, int64_t layers,
                         ott_dtype high_precision, convert_verdict *out) {
    const candidate c = {o, e, layers, high_precision};
    *out = (convert_verdict){.recipe = o->recipe};
    if (!recipe_gemm_is_fp8(o->recipe, GEMM_COUNT)) return OTT_OK;
    bool is_reached = o->for_storage ? e->role != ROLE_ROUTER : o->experts && e->of_experts;
    if (modules_is_mixture(e->role) && !is_reached)
        keep(&c, out, CONVERT_KEPT_EXPERTS,
             o->experts ? "routers and shared experts stay in high precision"
                        : "routers and experts stay in high precision");
    if (!*out->reason) apply_filters(&c, out);
    if (!*out->reason) TRY(apply_rules(&c, out));
    if (!*out->reason) TRY(apply_size(&c, out));
    if (!*out->reason && o->accepts && !o->accepts(o->user, e))
        keep(&c, out, CONVERT_KEPT_REFUSED, "the filter refused it");
    return OTT_OK;
}
