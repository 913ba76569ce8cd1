/* model/convert: which linear layers run in FP8, and how. */
#include "model/convert.h"
#include "base/str.h"
#include "model/names.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* torch._scaled_mm and cuBLASLt want both dimensions of an FP8 operand in multiples of this; so the same
   layers are converted everywhere, the CPU included, which takes any when it is asked to. */
#define FP8_DIMENSION_MULTIPLE 16

typedef struct conversion {
    const convert_options *options;
    model *m;
    convert_summary summary;
    delayed_want *wanted; /* [linears][TENSOR_COUNT] */
} conversion;

/* ---- the size of a layer ---- */

/* torchao's _auto_filter_for_recipe, thresholds measured on H100: is a layer of these dimensions worth
   converting? */
static ott_status is_worth(const recipe *r, int64_t in, int64_t out, bool *worth) {
    granularity grain = r->input.rowwise.grain;
    if (grain == GRANULARITY_TENSOR) {
        *worth = !(in <= 4096 && out <= 1024);
        return OTT_OK;
    }
    if (grain == GRANULARITY_ROW && recipe_gemm_is_fp8(r, GEMM_GRAD_WEIGHT)) {
        *worth = out > 2048 && in > 1024 && !(out <= 4096 && in <= 2048);
        return OTT_OK;
    }
    return status_fail(OTT_ERR_CONFIG,
                       "float8.filter_fqns has \"%s\", whose thresholds are known for tensorwise and rowwise "
                       "scaling only, not for recipe %s: name the layers to leave out instead",
                       CONVERT_FILTER_SMALL, r->name);
}

static bool divides(int64_t in, int64_t out) {
    return in % FP8_DIMENSION_MULTIPLE == 0 && out % FP8_DIMENSION_MULTIPLE == 0;
}

/* ---- which recipe a layer runs under ---- */

/* A layer that is looked at. */
typedef struct candidate {
    const convert_options *options;
    const model_module *module;
    int64_t layers;           /* of its model */
    ott_dtype high_precision; /* of activations */
} candidate;

/* What messages put before the name of an option. */
static const char *section_of(const convert_options *o) {
    return o->by_call ? "" : "float8.";
}

__attribute__((format(printf, 4, 5))) static void keep(const candidate *c, convert_verdict *v,
                                                       convert_kept by, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(v->reason, sizeof v->reason, format, values);
    va_end(values);
    v->by = by;
    v->recipe = recipe_high_precision(c->high_precision);
}

/* The option that keeps a layer at either end of the model in high precision, NULL: none. */
static const char *kept_at_an_end(const candidate *c) {
    int layer = c->module->layer;
    if (layer == MODULES_OUTSIDE) return NULL; /* the head is in no block */
    if (layer < c->options->keep_first) return "float8.keep_first_layers covers its block";
    bool last = layer >= c->layers - c->options->keep_last;
    return last ? "float8.keep_last_layers covers its block" : NULL;
}

/* Is the layer kept by its name, or its place? */
static void apply_filters(const candidate *c, convert_verdict *v) {
    const convert_options *o = c->options;
    for (int f = 0; f < o->filter_count; f++) {
        if (strcmp(o->filter[f], CONVERT_FILTER_SMALL) == 0) continue;
        if (!names_any(c->module, names_contain, o->filter[f])) continue;
        keep(c, v, CONVERT_KEPT_FILTER, "%sfilter_fqns has \"%s\"", section_of(o), o->filter[f]);
        return;
    }
    const char *end = kept_at_an_end(c);
    const linear *l = c->module->linear; /* NULL: on another stage of a pipeline */
    if (c->module->fallen || (l && l->below == LINEAR_FALLEN))
        keep(c, v, CONVERT_KEPT_FALLEN, "float8.fallback moved it");
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

/* torchao's thresholds leave out what does not divide, padded or not. */
static bool takes_any_dimension(const convert_options *o) {
    return o->any_dimension && !filters_small(o);
}

static ott_status apply_size(const candidate *c, convert_verdict *v) {
    const convert_options *o = c->options;
    const linear *l = c->module->linear;
    const parameter *w = l ? l->weight : c->module->weight; /* the whole, wherever its parts are */
    int64_t in = w->columns, out = w->rows / w->stack;
    bool worth = true;
    if (!divides(in, out) && !takes_any_dimension(o)) {
        keep(c, v, CONVERT_KEPT_DIMENSIONS, "its dimensions %lld x %lld are not multiples of %d%s",
             (long long)out, (long long)in, FP8_DIMENSION_MULTIPLE,
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
    if (modules_is_mixture(e->role))
        keep(&c, out, CONVERT_KEPT_EXPERTS, "routers and experts stay in high precision");
    if (!*out->reason) apply_filters(&c, out);
    if (!*out->reason) TRY(apply_rules(&c, out));
    if (!*out->reason) TRY(apply_size(&c, out));
    if (!*out->reason && o->accepts && !o->accepts(o->user, e))
        keep(&c, out, CONVERT_KEPT_REFUSED, "the filter refused it");
    return OTT_OK;
}

static void log_verdict(const convert_options *o, const char *name, const convert_verdict *v) {
    if (*v->reason)
        log_info(o->log, "Not converted to Float8: %s, because %s", name, v->reason);
    else if (v->recipe != o->recipe)
        log_info(o->log, "Float8 with another recipe: %s, %s", name, v->recipe->name);
}

/* ---- the conversion ---- */

/* What is said of a layer, once it is decided on. */
static ott_status note_verdict(conversion *c, linear *l, const convert_verdict *v) {
    log_verdict(c->options, l->name, v);
    l->recipe_name = v->recipe->name;
    l->skip_reason = NULL;
    if (*v->reason) return arena_strdup(c->m->names, v->reason, &l->skip_reason);
    c->summary.converted += recipe_gemm_is_fp8(c->options->recipe, GEMM_COUNT);
    return OTT_OK;
}

/* The layer is converted for its whole size: so must a rank's part of it be. */
static ott_status check_part(const convert_options *o, const linear *l, const linear_spec *spec) {
    if (!spec->fp8 || divides(l->in, l->out) || takes_any_dimension(o)) return linear_check_blocks(l, spec);
    return status_fail(
        OTT_ERR_CONFIG,
        "%s: distributed.tp = %d leaves a rank %lld x %lld of its weight, and FP8 wants multiples of "
        "%d: take fewer ranks, float8.pad_inner_dim = true, or name it in float8.filter_fqns",
        l->name, l->ranks.group->size, (long long)l->out, (long long)l->in, FP8_DIMENSION_MULTIPLE);
}

static ott_status convert_linear(conversion *c, const model_module *e) {
    const convert_options *o = c->options;
    linear *l = e->linear;
    convert_verdict v;
    linear_spec spec;
    TRY(convert_judge(o, e, c->m->options.layers, c->m->activation, &v));
    if (*v.reason) c->summary.kept[v.by]++;
    bool stays = o->by_call && l->spec.fp8 && *v.reason && v.by != CONVERT_KEPT_FALLEN;
    if (!stays) {
        TRY(note_verdict(c, l, &v));
        recipe_compile(v.recipe, c->m->activation, &spec);
        if (e->role == ROLE_ROUTER) recipe_compile(recipe_high_precision(OTT_F32), OTT_F32, &spec);
        TRY(check_part(o, l, &spec));
        l->recasts = c->m->store.options.gather_again;
        TRY(linear_set_spec(l, c->m->device, &spec));
    }
    linear_wants(l, c->wanted + (int64_t)c->summary.linears++ * TENSOR_COUNT);
    return OTT_OK;
}

static ott_status convert_all(conversion *c) {
    const module_list *all = &c->m->modules;
    for (int i = 0; i < all->count; i++)
        if (all->of[i].kind == MODULE_LINEAR) TRY(convert_linear(c, &all->of[i]));
    return delayed_store_set(&c->m->delayed, c->m->device, c->wanted, c->summary.linears * TENSOR_COUNT);
}

/* What becomes of the layers of other stages, which the summary and the log have too. */
static ott_status judge_elsewhere(conversion *c) {
    const module_list *all = &c->m->whole;
    convert_verdict v;
    for (int i = 0; i < all->count; i++) {
        const model_module *e = &all->of[i];
        if (e->kind != MODULE_LINEAR || e->linear) continue;
        TRY(convert_judge(c->options, e, c->m->options.layers, c->m->activation, &v));
        log_verdict(c->options, e->name, &v);
        c->summary.linears++;
        if (*v.reason)
            c->summary.kept[v.by]++;
        else
            c->summary.converted += recipe_gemm_is_fp8(c->options->recipe, GEMM_COUNT);
    }
    return OTT_OK;
}

static void choose_stored(model *m, bool store) {
    for (int64_t i = 0; i < m->options.layers; i++)
        if (m->blocks[i].ffn) m->blocks[i].ffn->store_inputs(&m->blocks[i], store);
}

static ott_status check_recipe(const model *m, const recipe *r) {
    TRY(recipe_check(r));
    return backend_check_recipe(m->device->can, r);
}

static ott_status check_recipes(const model *m, const convert_options *o) {
    TRY(check_recipe(m, o->recipe));
    for (int i = 0; i < o->rule_count; i++) TRY(check_recipe(m, o->rules[i].recipe));
    return OTT_OK;
}

/* A text that names nothing is a slip, and a silent one: the layer it was to name would be converted. */
static ott_status check_names(const model *m, const convert_options *o) {
    if (o->by_call || !recipe_gemm_is_fp8(o->recipe, GEMM_COUNT)) return OTT_OK;
    for (int i = 0; i < o->filter_count; i++) {
        if (strcmp(o->filter[i], CONVERT_FILTER_SMALL) != 0)
            TRY(names_check_filter(&m->whole, o->filter[i], o->log));
        else if (o->reduced)
            log_info(o->log, "%s has no effect: model.reduce makes every layer small", o->filter[i]);
    }
    for (int i = 0; i < o->rule_count; i++) TRY(names_check_rule(&m->whole, o->rules[i].match));
    return OTT_OK;
}

/* "float8.filter_fqns keeps 28, ...": who keeps how many layers. */
static void list_kept(const convert_summary *s, char *out, size_t size) {
    static const char *const by[CONVERT_KEPT_COUNT] = {
        [CONVERT_KEPT_EXPERTS] = "mixtures of experts have",
        [CONVERT_KEPT_FILTER] = "float8.filter_fqns keeps",
        [CONVERT_KEPT_RULE] = "float8.module keeps",
        [CONVERT_KEPT_END] = "float8.keep_first_layers and keep_last_layers keep",
        [CONVERT_KEPT_DIMENSIONS] =
            "dimensions that are no multiples of 16, without float8.pad_inner_dim, keep",
        [CONVERT_KEPT_SMALL] = CONVERT_FILTER_SMALL " finds too small",
    };
    size_t length = 0;
    out[0] = '\0';
    for (int i = 0; i < CONVERT_KEPT_COUNT && length < size; i++)
        if (s->kept[i])
            length += (size_t)snprintf(out + length, size - length, "%s%s %d", length ? ", " : "", by[i],
                                       s->kept[i]);
}

/* FP8 was asked for and reaches no layer, though none has fallen back. */
static ott_status check_reach(const convert_options *o, const convert_summary *s) {
    char kept[320];
    bool reaches = s->converted > 0 || s->kept[CONVERT_KEPT_FALLEN] > 0;
    if (reaches || o->by_call || !recipe_gemm_is_fp8(o->recipe, GEMM_COUNT)) return OTT_OK;
    list_kept(s, kept, sizeof kept);
    return status_fail(OTT_ERR_CONFIG,
                       "FP8 recipe %s was asked for and would reach none of the %d linear layers: %s; let it "
                       "reach some, or ask for another precision (train.mixed_precision = \"bf16\")",
                       o->recipe->name, s->linears, kept);
}

static bool names_some(const module_list *list, const char *text) {
    for (int i = 0; i < list->count; i++)
        if (list->of[i].kind == MODULE_LINEAR && names_any(&list->of[i], names_contain, text)) return true;
    return false;
}

void convert_warn_of_nothing(const convert_options *o, const module_list *list, const convert_summary *s) {
    for (int i = 0; i < o->filter_count; i++)
        if (strcmp(o->filter[i], CONVERT_FILTER_SMALL) != 0 && !names_some(list, o->filter[i]))
            log_warning(o->log,
                        "filter_fqns has \"%s\", which is in the name of no linear layer of this module",
                        str_show(o->filter[i]).text);
    if (s->converted == 0)
        log_warning(o->log, "Nothing was converted to Float8: none of the %d linear layers", s->linears);
}

static ott_status check_masters(const model *m, const convert_options *o) {
    if (!m->packed) return OTT_OK;
    return status_fail(
        OTT_ERR_ARGUMENT,
        "the model cannot be converted to %s: it was packed for inference, which let go of its "
        "fp32 weights; open it anew and convert it before it is packed",
        o->recipe->name);
}

ott_status model_convert(model *m, const convert_options *o, convert_summary *out) {
    mem *account = m->device->account;
    conversion c = {.options = o, .m = m};
    int64_t most = (int64_t)m->modules.count * TENSOR_COUNT;
    void *memory;
    TRY(check_masters(m, o));
    TRY(check_recipes(m, o));
    TRY(check_names(m, o));
    TRY(mem_alloc_array(account, MEM_OTHER, most, sizeof *c.wanted, "states of delayed scaling", &memory));
    c.wanted = memory;
    if (!o->by_call) m->activation = o->recipe->activation;
    ott_status status = convert_all(&c);
    mem_free(account, memory);
    if (status == OTT_OK) status = judge_elsewhere(&c);
    choose_stored(m, o->store_mlp_inputs);
    if (out) *out = c.summary;
    if (status == OTT_OK) status = check_reach(o, &c.summary);
    if (status == OTT_OK) status = store_set(&m->store, m->device, m->activation);
    return status == OTT_OK ? model_connect(m) : status;
}
