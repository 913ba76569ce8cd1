/* model/convert: sets the spec of every linear layer, and logs which layers are not converted. */
#include "model/convert.h"
#include "base/text/str.h"
#include "model/names.h"
#include <stdio.h>
#include <string.h>

typedef struct conversion {
    const convert_options *options;
    model *m;
    convert_summary summary;
    delayed_request *wanted; /* [linears][TENSOR_COUNT] requests of delayed-scaling states */
} conversion;

static void log_verdict(const convert_options *o, const char *name, const convert_verdict *v) {
    if (*v->reason)
        log_info(o->log, "Not converted to Float8: %s, because %s", name, v->reason);
    else if (v->recipe != o->recipe)
        log_info(o->log, "Float8 with another recipe: %s, %s", name, v->recipe->name);
}

/* ---- the conversion ---- */

/* Logs how a layer was converted. Stores its recipe's name, and why it stays in high precision, in *l. */
static ott_status note_verdict(conversion *c, linear *l, const convert_verdict *v) {
    log_verdict(c->options, l->name, v);
    l->recipe_name = v->recipe->name;
    l->skip_reason = NULL;
    if (*v->reason) return arena_strdup(c->m->names, v->reason, &l->skip_reason);
    c->summary.converted += recipe_gemm_is_fp8(c->options->recipe, GEMM_COUNT);
    return OTT_OK;
}

/* OTT_ERR_CONFIG if tensor parallelism splits a scale block between ranks. */
static ott_status check_scale_blocks(const linear *l, const linear_spec *spec) {
    const tensor_shard shards[TENSOR_COUNT] = {linear_shard(l, TENSOR_INPUT), linear_shard(l, TENSOR_WEIGHT),
                                               linear_shard(l, TENSOR_GRAD_OUTPUT)};
    int64_t size, rows;
    for (int64_t row = 0; row < l->out; row += rows) {
        rows = parameter_rows_at(&l->weight->local, row, l->out - row).count;
        /* tensor parallelism does not split tokens, the rows of input and grad_output */
        if (!shard_fits_blocks(&shards[TENSOR_INPUT], &spec->input, 0, l->in, &size) ||
            !shard_fits_blocks(&shards[TENSOR_WEIGHT], &spec->weight, rows, l->in, &size) ||
            !shard_fits_blocks(&shards[TENSOR_GRAD_OUTPUT], &spec->grad_output, 0, rows, &size))
            return status_fail(
                OTT_ERR_CONFIG,
                "%s: with distributed.tp = %d a rank's part of the weight is %lld x %lld, which splits "
                "scale blocks of %lld; use fewer ranks, or a recipe without blocks",
                l->name, l->ranks.group->size, (long long)rows, (long long)l->in, (long long)size);
    }
    return OTT_OK;
}

/* Checks the dimensions of this rank's shard of the weight; convert_judge has checked the full weight's. */
static ott_status check_rank_part(const convert_options *o, const linear *l, const linear_spec *spec) {
    if (!spec->fp8 || convert_takes_dimensions(o, l->in, l->out)) return check_scale_blocks(l, spec);
    return status_fail(
        OTT_ERR_CONFIG,
        "%s: with distributed.tp = %d a rank's part of the weight is %lld x %lld, but FP8 requires multiples "
        "of %d: use fewer ranks or float8.pad_inner_dim = true, or list it in float8.filter_fqns",
        l->name, l->ranks.group->size, (long long)l->out, (long long)l->in, CONVERT_DIMENSION_MULTIPLE);
}

/* If *spec is FP8, moves it to l->grouped, for grouped GEMMs, and sets *spec to high precision. */
static ott_status convert_expert_weights(conversion *c, linear *l, linear_spec *spec) {
    const char *why;
    l->grouped = (linear_spec){0};
    if (!spec->fp8) return OTT_OK;
    if (!grouped_supports(spec, &why))
        return status_fail(OTT_ERR_CONFIG,
                           "float8.moe_experts: recipe %s does not work for experts (%s): %s; use rowwise, "
                           "rowwise_with_gw_hp, block or mxfp8",
                           l->recipe_name, l->name, why);
    l->grouped = *spec;
    recipe_compile(convert_high_precision(c->options, c->m->activation), c->m->activation, spec);
    return OTT_OK;
}

static void note_head(conversion *c, const model_module *e, const convert_verdict *v) {
    if (e->role == ROLE_HEAD)
        c->summary.has_fp8_head = !*v->reason && recipe_gemm_is_fp8(v->recipe, GEMM_OUTPUT);
}

static ott_status convert_linear(conversion *c, const model_module *e) {
    const convert_options *o = c->options;
    linear *l = e->linear;
    convert_verdict v;
    linear_spec spec;
    TRY(convert_judge(o, e, c->m->options.layers, c->m->activation, &v));
    if (*v.reason) c->summary.kept[v.by]++;
    note_head(c, e, &v);
    if (!(o->by_call && l->spec.fp8 && *v.reason && v.by != CONVERT_KEPT_FALLBACK)) {
        TRY(note_verdict(c, l, &v));
        recipe_compile(v.recipe, c->m->activation, &spec);
        if (e->role == ROLE_ROUTER) recipe_compile(recipe_high_precision(OTT_F32), OTT_F32, &spec);
        TRY(e->of_experts ? convert_expert_weights(c, l, &spec) : check_rank_part(o, l, &spec));
        l->source.requantizes = c->m->store.options.regather_for_backward;
        TRY(linear_set_spec(l, c->m->device, &spec));
    }
    linear_delayed_requests(l, c->wanted + (int64_t)c->summary.linears++ * TENSOR_COUNT);
    return OTT_OK;
}

static ott_status convert_all(conversion *c) {
    const module_list *all = &c->m->modules;
    for (int i = 0; i < all->count; i++)
        if (all->items[i].kind == MODULE_LINEAR) TRY(convert_linear(c, &all->items[i]));
    return delayed_store_set(&c->m->delayed, c->m->device, c->wanted, c->summary.linears * TENSOR_COUNT);
}

/* Logs how layers of other pipeline stages are converted, and adds them to the counts of layers. */
static ott_status judge_other_stages(conversion *c) {
    const module_list *all = &c->m->all_modules;
    convert_verdict v;
    for (int i = 0; i < all->count; i++) {
        const model_module *e = &all->items[i];
        if (e->kind != MODULE_LINEAR || e->linear) continue;
        TRY(convert_judge(c->options, e, c->m->options.layers, c->m->activation, &v));
        log_verdict(c->options, e->name, &v);
        note_head(c, e, &v);
        c->summary.linears++;
        if (*v.reason)
            c->summary.kept[v.by]++;
        else
            c->summary.converted += recipe_gemm_is_fp8(c->options->recipe, GEMM_COUNT);
    }
    return OTT_OK;
}

/* With SmoothQuant each micro-batch casts the full master again. So this rank must have all of it. */
static ott_status check_smooth(const linear *down) {
    static const char text[] =
        "float8.smooth_swiglu casts %s again for each micro-batch, which is not supported for %s: "
        "leave it out, or %s";
    if (down->weight->shard.rows_per_rank)
        return status_fail(OTT_ERR_CONFIG, text, down->name, "sharded weights",
                           "use distributed.dp_replicate instead of dp_shard");
    if (down->lora || down->weight->codes)
        return status_fail(OTT_ERR_CONFIG, text, down->name, "adapters and weights that are stored in FP8",
                           "train all weights");
    return OTT_OK;
}

static ott_status set_smooth(model *m, bool smooth) {
    for (int64_t i = 0; i < m->options.layers; i++) {
        block *b = &m->blocks[i];
        if (!b->ffn) continue;
        if (smooth && b->ffn != &ffn_mlp)
            return status_fail(
                OTT_ERR_CONFIG,
                "float8.smooth_swiglu is not supported for mixtures of experts, and layer %lld "
                "is one: leave it out",
                (long long)i);
        if (smooth) TRY(check_smooth(&b->mlp.down));
        if (b->ffn == &ffn_mlp) b->mlp.smooths = smooth;
    }
    return OTT_OK;
}

static ott_status check_recipe(const model *m, const recipe *r) {
    TRY(recipe_check(r));
    return backend_check_recipe(m->device->can, r);
}

static ott_status check_recipes(const model *m, const convert_options *o) {
    TRY(check_recipe(m, o->recipe));
    if (o->bf16) TRY(check_recipe(m, o->bf16));
    for (int i = 0; i < o->rule_count; i++) TRY(check_recipe(m, o->rules[i].recipe));
    return OTT_OK;
}

/* A filter that matches no layer is an error: it may have a typo, and its layer would then be converted. */
static ott_status check_filter_names(const model *m, const convert_options *o) {
    if (o->by_call || !recipe_gemm_is_fp8(o->recipe, GEMM_COUNT)) return OTT_OK;
    for (int i = 0; i < o->filter_count; i++) {
        if (strcmp(o->filter[i], CONVERT_FILTER_SMALL) != 0)
            TRY(names_check_filter(&m->all_modules, o->filter[i], o->log));
        else if (o->reduced)
            log_info(o->log, "%s has no effect: model.reduce makes every layer small", o->filter[i]);
    }
    for (int i = 0; i < o->rule_count; i++) TRY(names_check_rule(&m->all_modules, o->rules[i].match));
    return OTT_OK;
}

/* Writes how many layers each option keeps in high precision: "float8.filter_fqns keeps 28, ...". */
static void list_kept(const convert_summary *s, char *out, size_t size) {
    static const char *const by[CONVERT_KEPT_COUNT] = {
        [CONVERT_KEPT_EXPERTS] = "mixtures of experts have",
        [CONVERT_KEPT_FILTER] = "float8.filter_fqns keeps",
        [CONVERT_KEPT_RULE] = "float8.module keeps",
        [CONVERT_KEPT_END] = "float8.keep_first_layers and keep_last_layers keep",
        [CONVERT_KEPT_DIMENSIONS] =
            "dimensions that are not multiples of 16 (without float8.pad_inner_dim) keep",
        [CONVERT_KEPT_SMALL] = CONVERT_FILTER_SMALL " finds too small",
    };
    size_t length = 0;
    out[0] = '\0';
    for (int i = 0; i < CONVERT_KEPT_COUNT && length < size; i++)
        if (s->kept[i])
            length += (size_t)snprintf(out + length, size - length, "%s%s %d", length ? ", " : "", by[i],
                                       s->kept[i]);
}

/* Fails if an FP8 recipe converts no layer. This is no error if float8.fallback moved layers to bf16. */
static ott_status check_reach(const convert_options *o, const convert_summary *s) {
    char kept[320];
    bool reaches = s->converted > 0 || s->kept[CONVERT_KEPT_FALLBACK] > 0;
    if (reaches || o->by_call || !recipe_gemm_is_fp8(o->recipe, GEMM_COUNT)) return OTT_OK;
    list_kept(s, kept, sizeof kept);
    return status_fail(OTT_ERR_CONFIG,
                       "FP8 recipe %s would convert none of the %d linear layers: %s; change these options "
                       "or the precision (train.mixed_precision = \"bf16\")",
                       o->recipe->name, s->linears, kept);
}

static bool is_matched(const module_list *list, const char *text) {
    for (int i = 0; i < list->count; i++)
        if (list->items[i].kind == MODULE_LINEAR && names_any(&list->items[i], names_contain, text))
            return true;
    return false;
}

void convert_warn_unmatched(const convert_options *o, const module_list *list, const convert_summary *s) {
    for (int i = 0; i < o->filter_count; i++)
        if (strcmp(o->filter[i], CONVERT_FILTER_SMALL) != 0 && !is_matched(list, o->filter[i]))
            log_warning(o->log,
                        "filter_fqns has \"%s\", which is in the name of no linear layer of this module",
                        str_show(o->filter[i]).text);
    if (s->converted == 0)
        log_warning(o->log, "Nothing was converted to Float8: none of the %d linear layers", s->linears);
}

ott_status model_convert(model *m, const convert_options *o, convert_summary *out) {
    mem *account = m->device->account;
    conversion c = {.options = o, .m = m};
    int64_t most = (int64_t)m->modules.count * TENSOR_COUNT;
    if (m->packed)
        return status_fail(
            OTT_ERR_ARGUMENT,
            "the model cannot be converted to %s: it was packed for inference, which frees its "
            "fp32 weights; open it again and convert it before packing",
            o->recipe->name);
    TRY(check_recipes(m, o));
    TRY(check_filter_names(m, o));
    TRY(mem_alloc_array(account, MEM_OTHER, most, sizeof *c.wanted, "states of delayed scaling", &c.wanted));
    if (!o->by_call) m->activation = o->recipe->activation;
    ott_status status = convert_all(&c);
    mem_free(account, c.wanted);
    if (status == OTT_OK) status = judge_other_stages(&c);
    for (int64_t i = 0; i < m->options.layers; i++)
        if (m->blocks[i].ffn) m->blocks[i].ffn->store_inputs(block_ffn(&m->blocks[i]), o->store_mlp_inputs);
    if (status == OTT_OK) status = set_smooth(m, o->smooth_mlp);
    if (out) *out = c.summary;
    if (status == OTT_OK) status = check_reach(o, &c.summary);
    if (status == OTT_OK) status = store_set(&m->store, m->device, m->activation);
    return status == OTT_OK ? model_connect(m) : status;
}
