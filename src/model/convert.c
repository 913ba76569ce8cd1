/* model/convert: which linear layers run in FP8, and how. */
#include "model/convert.h"
#include "model/names.h"
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

ott_status convert_is_worth(const recipe *r, int64_t in, int64_t out, bool *worth) {
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

static bool divides(const linear *l) {
    return l->in % FP8_DIMENSION_MULTIPLE == 0 && l->out % FP8_DIMENSION_MULTIPLE == 0;
}

/* ---- which recipe a layer runs under ---- */

static ott_status keep(conversion *c, linear *l, const recipe **r, convert_kept by, const char *reason) {
    c->summary.kept[by]++;
    TRY(arena_strdup(c->m->names, reason, &l->skip_reason));
    *r = recipe_high_precision(c->m->activation);
    return OTT_OK;
}

/* The option that keeps a layer at either end of the model in high precision, NULL: none. */
static const char *kept_at_an_end(const conversion *c, const model_module *e) {
    if (e->layer == MODULES_OUTSIDE) return NULL; /* the head is in no block */
    if (e->layer < c->options->keep_first) return "float8.keep_first_layers covers its block";
    bool last = e->layer >= c->m->options.layers - c->options->keep_last;
    return last ? "float8.keep_last_layers covers its block" : NULL;
}

/* Is the layer kept by its name? */
static ott_status apply_filters(conversion *c, const model_module *e, const recipe **r) {
    linear *l = e->linear;
    const convert_options *o = c->options;
    char reason[160];
    for (int f = 0; f < o->filter_count; f++) {
        if (strcmp(o->filter[f], CONVERT_FILTER_SMALL) == 0) continue;
        if (!names_any(e, names_contain, o->filter[f])) continue;
        snprintf(reason, sizeof reason, "float8.filter_fqns has \"%s\"", o->filter[f]);
        return keep(c, l, r, CONVERT_KEPT_FILTER, reason);
    }
    if (l->below == LINEAR_FALLEN) return keep(c, l, r, CONVERT_KEPT_FALLEN, "float8.fallback moved it");
    const char *end = kept_at_an_end(c, e);
    return end ? keep(c, l, r, CONVERT_KEPT_END, end) : OTT_OK;
}

static ott_status apply_rules(conversion *c, const model_module *e, const recipe **r) {
    linear *l = e->linear;
    char reason[160];
    for (int i = 0; i < c->options->rule_count; i++) {
        const module_rule *rule = &c->options->rules[i];
        if (!names_any(e, names_fit, rule->match)) continue;
        *r = rule->recipe;
        if (recipe_gemm_is_fp8(rule->recipe, GEMM_COUNT)) return OTT_OK;
        if (rule->recipe->activation != c->m->activation)
            return status_fail(OTT_ERR_CONFIG,
                               "float8.module gives %s the recipe %s, but activations are %s: give it %s",
                               l->name, rule->recipe->name, dtype_name(c->m->activation),
                               recipe_high_precision(c->m->activation)->name);
        snprintf(reason, sizeof reason, "float8.module has \"%s=%s\"", rule->match, rule->recipe->name);
        return keep(c, l, r, CONVERT_KEPT_RULE, reason);
    }
    return OTT_OK;
}

static bool filters_small(const convert_options *o) {
    for (int f = 0; f < o->filter_count && !o->reduced; f++)
        if (strcmp(o->filter[f], CONVERT_FILTER_SMALL) == 0) return true;
    return false;
}

/* torchao's thresholds leave out what does not divide, padded or not. */
static bool takes_any_dimension(const convert_options *o) {
    return o->any_dimension && !filters_small(o);
}

static ott_status apply_size(conversion *c, linear *l, const recipe **r) {
    char reason[160];
    bool worth = true;
    if (!divides(l) && !takes_any_dimension(c->options)) {
        snprintf(reason, sizeof reason,
                 "its dimensions %lld x %lld are not multiples of %d (float8.pad_inner_dim converts it)",
                 (long long)l->out, (long long)l->in, FP8_DIMENSION_MULTIPLE);
        return keep(c, l, r, CONVERT_KEPT_DIMENSIONS, reason);
    }
    if (filters_small(c->options)) TRY(convert_is_worth(*r, l->in, l->out, &worth));
    if (worth) return OTT_OK;
    snprintf(reason, sizeof reason, "%s finds its dimensions %lld x %lld too small to gain",
             CONVERT_FILTER_SMALL, (long long)l->out, (long long)l->in);
    return keep(c, l, r, CONVERT_KEPT_SMALL, reason);
}

static ott_status recipe_of(conversion *c, const model_module *e, const recipe **r) {
    linear *l = e->linear;
    *r = c->options->recipe;
    l->skip_reason = NULL;
    if (!recipe_gemm_is_fp8(*r, GEMM_COUNT)) return OTT_OK;
    TRY(apply_filters(c, e, r));
    if (!l->skip_reason) TRY(apply_rules(c, e, r));
    if (!l->skip_reason) TRY(apply_size(c, l, r));
    if (l->skip_reason)
        log_info(c->options->log, "Not converted to Float8: %s, because %s", l->name, l->skip_reason);
    else if (*r != c->options->recipe)
        log_info(c->options->log, "Float8 with another recipe: %s, %s", l->name, (*r)->name);
    c->summary.converted += !l->skip_reason;
    return OTT_OK;
}

/* ---- the conversion ---- */

static ott_status convert_linear(conversion *c, const model_module *e) {
    const recipe *r;
    linear_spec spec;
    TRY(recipe_of(c, e, &r));
    recipe_compile(r, c->m->activation, &spec);
    TRY(linear_set_spec(e->linear, c->m->device, &spec));
    linear_wants(e->linear, c->wanted + (int64_t)c->summary.linears++ * TENSOR_COUNT);
    return OTT_OK;
}

static ott_status convert_all(conversion *c) {
    const module_list *all = &c->m->modules;
    for (int i = 0; i < all->count; i++)
        if (all->of[i].kind == MODULE_LINEAR) TRY(convert_linear(c, &all->of[i]));
    return delayed_store_set(&c->m->delayed, c->m->device, c->wanted, c->summary.linears * TENSOR_COUNT);
}

static void choose_stored(model *m, bool store) {
    for (int64_t i = 0; i < m->options.layers; i++) m->blocks[i].ffn->store_inputs(&m->blocks[i], store);
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
    if (!recipe_gemm_is_fp8(o->recipe, GEMM_COUNT)) return OTT_OK;
    for (int i = 0; i < o->filter_count; i++) {
        if (strcmp(o->filter[i], CONVERT_FILTER_SMALL) != 0)
            TRY(names_check_filter(&m->modules, o->filter[i], o->log));
        else if (o->reduced)
            log_info(o->log, "%s has no effect: model.reduce makes every layer small", o->filter[i]);
    }
    for (int i = 0; i < o->rule_count; i++) TRY(names_check_rule(&m->modules, o->rules[i].match));
    return OTT_OK;
}

/* "float8.filter_fqns keeps 28, ...": who keeps how many layers. */
static void list_kept(const convert_summary *s, char *out, size_t size) {
    static const char *const by[CONVERT_KEPT_COUNT] = {
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
    if (reaches || !recipe_gemm_is_fp8(o->recipe, GEMM_COUNT)) return OTT_OK;
    list_kept(s, kept, sizeof kept);
    return status_fail(OTT_ERR_CONFIG,
                       "FP8 recipe %s was asked for and would reach none of the %d linear layers: %s; let it "
                       "reach some, or ask for another precision (train.mixed_precision = \"bf16\")",
                       o->recipe->name, s->linears, kept);
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
    m->activation = o->recipe->activation;
    ott_status status = convert_all(&c);
    mem_free(account, memory);
    choose_stored(m, o->store_mlp_inputs);
    if (out) *out = c.summary;
    if (status == OTT_OK) status = check_reach(o, &c.summary);
    return status == OTT_OK ? model_connect(m) : status;
}
