/* api/convert: linear layers of a module become FP8 ones (torchao's convert_to_float8_training). */
#include "model/convert.h"
#include "api/autocast.h"
#include <stdio.h>
#include <string.h>

/* What torchao's automatic filter asks of both dimensions. */
#define AUTO_FILTER_MULTIPLE 16

typedef struct api_conversion {
    const ott_convert_options *options;
    ott_module *root;
    const recipe *recipe;
    ott_convert_summary summary;
} api_conversion;

void ott_convert_options_init(ott_convert_options *options) {
    if (options) *options = (ott_convert_options){.struct_size = sizeof *options};
}

void ott_convert_summary_init(ott_convert_summary *summary) {
    if (summary) *summary = (ott_convert_summary){.struct_size = sizeof *summary};
}

/* ---- the filters: an empty reason lets the layer pass ---- */

static void apply_names(const ott_convert_options *o, const char *fqn, str *reason) {
    for (int i = 0; i < o->filter_fqn_count; i++)
        if (strstr(fqn, o->filter_fqns[i])) {
            str_printf(reason, "filter_fqns has \"%s\"", o->filter_fqns[i]);
            return;
        }
}

static ott_status apply_auto_filter(const api_conversion *c, const ott_module *m, str *reason) {
    bool worth;
    TRY(convert_is_worth(c->recipe, m->in, m->out, &worth));
    if (m->in % AUTO_FILTER_MULTIPLE != 0 || m->out % AUTO_FILTER_MULTIPLE != 0)
        str_printf(reason, "its dimensions %lld x %lld are not multiples of %d", (long long)m->out,
                   (long long)m->in, AUTO_FILTER_MULTIPLE);
    else if (!worth)
        str_printf(reason, "auto_filter finds its dimensions %lld x %lld too small to gain",
                   (long long)m->out, (long long)m->in);
    return OTT_OK;
}

static ott_status apply_filters(const api_conversion *c, const ott_module *m, const char *fqn, str *reason) {
    const ott_convert_options *o = c->options;
    apply_names(o, fqn, reason);
    if (reason->length == 0 && o->auto_filter) TRY(apply_auto_filter(c, m, reason));
    if (reason->length == 0 && o->filter && !o->filter(o->user, fqn, m))
        str_append(reason, "the filter refused it");
    return str_finish(reason);
}

/* ---- one layer ---- */

static ott_status keep(const ott_module *m, const char *fqn, const str *reason) {
    linear_body *b = m->body;
    mem *account = m->handle.context->account;
    if (b->converted) return OTT_OK; /* by an earlier call */
    mem_free(account, b->skip_reason);
    b->skip_reason = NULL;
    TRY(mem_strdup(account, reason->text, &b->skip_reason));
    log_info(&m->handle.context->log, "Not converted to Float8: %s, because %s",
             *fqn ? fqn : "the module itself", reason->text);
    return OTT_OK;
}

static ott_status take(api_conversion *c, ott_module *m) {
    linear_body *b = m->body;
    bool changed = false;
    linear_spec spec;
    recipe_compile(c->recipe, m->dtype, &spec);
    TRY(autocast_set_spec(m, &spec, c->recipe->name, &changed));
    mem_free(m->handle.context->account, b->skip_reason);
    b->skip_reason = NULL;
    b->converted = true;
    b->converted_spec = spec;
    b->converted_group = c->options->amax_group;
    snprintf(b->converted_recipe, sizeof b->converted_recipe, "%s", c->recipe->name);
    c->summary.converted++;
    return OTT_OK;
}

static ott_status convert_one(void *user, ott_module *m) {
    api_conversion *c = user;
    str reason = {.account = m->handle.context->account};
    const char *fqn = module_relative_name(c->root, m->name);
    c->summary.linears++;
    ott_status status = apply_filters(c, m, fqn, &reason);
    if (status == OTT_OK) status = reason.length > 0 ? keep(m, fqn, &reason) : take(c, m);
    str_free(&reason);
    return status;
}

/* ---- the whole ---- */

static ott_status choose_recipe(api_conversion *c, const char *function) {
    TRY(recipe_to_run(c->root->handle.context, c->options->recipe, "tensorwise", &c->recipe));
    if (recipe_gemm_is_fp8(c->recipe, GEMM_COUNT)) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: recipe is %s, under which nothing is FP8", function,
                       c->recipe->name);
}

/* ---- a request that reached nothing ---- */

typedef struct name_search {
    const ott_module *root;
    const char *text;
    bool found;
} name_search;

static ott_status look(void *user, ott_module *m) {
    name_search *s = user;
    if (strstr(module_relative_name(s->root, m->name), s->text)) s->found = true;
    return OTT_OK;
}

/* A caller may have other modules in mind, for which the same options fit: no error, but not silent. */
static ott_status warn_of_nothing(const api_conversion *c) {
    const ott_convert_options *o = c->options;
    const logger *log = &c->root->handle.context->log;
    for (int i = 0; i < o->filter_fqn_count; i++) {
        name_search s = {.root = c->root, .text = o->filter_fqns[i]};
        TRY(module_visit_linears(c->root, look, &s));
        if (!s.found)
            log_warning(log, "filter_fqns has \"%s\", which is in the name of no linear layer of this module",
                        str_show(s.text).text);
    }
    if (c->summary.converted == 0)
        log_warning(log, "Nothing was converted to Float8: none of the %d linear layers", c->summary.linears);
    return OTT_OK;
}

/* After a failure half way the layers converted so far stay converted. */
static ott_status convert(api_conversion *c, const char *function) {
    ott_module *m = c->root;
    TRY(choose_recipe(c, function));
    module_drop(m, "the module was converted since");
    ott_status status = module_visit_linears(m, convert_one, c);
    ott_status connected = module_connect(m);
    if (status != OTT_OK || connected != OTT_OK) return status != OTT_OK ? status : connected;
    log_info(&m->handle.context->log, "Applied Float8 training: recipe=%s, %d of %d linear layers converted",
             c->recipe->display, c->summary.converted, c->summary.linears);
    return warn_of_nothing(c);
}

static ott_status check_filters(const ott_convert_options *o, const char *function) {
    if (o->filter_fqn_count < 0 || (o->filter_fqn_count > 0 && !o->filter_fqns))
        return status_fail(OTT_ERR_ARGUMENT, "%s: filter_fqns is NULL or filter_fqn_count = %d negative",
                           function, o->filter_fqn_count);
    for (int i = 0; i < o->filter_fqn_count; i++)
        if (!o->filter_fqns[i])
            return status_fail(OTT_ERR_ARGUMENT, "%s: filter_fqns[%d] is NULL", function, i);
    return OTT_OK;
}

ott_status ott_convert_to_float8_training(ott_module *module, const ott_convert_options *options,
                                          ott_convert_summary *out) {
    ott_convert_options o;
    API_HANDLE(module, MODULE);
    ott_context *context = module->handle.context;
    ott_convert_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_convert_options"));
    if (o.recipe) TRY(handle_check_in(o.recipe, HANDLE_RECIPE, context, __func__, "recipe"));
    if (o.amax_group) TRY(handle_check_in(o.amax_group, HANDLE_GROUP, context, __func__, "amax_group"));
    TRY(check_filters(&o, __func__));
    TRY(api_check_struct(out, "ott_convert_summary"));
    api_conversion c = {.options = &o, .root = module, .summary.struct_size = sizeof c.summary};
    ott_status status = MODULE_INSIDE(context, convert(&c, __func__));
    if (status != OTT_OK || !out) return status;
    return api_write_struct(out, &c.summary, sizeof c.summary, "ott_convert_summary");
}
