/* api/fp8/convert: converts the linear layers of a module to FP8 (torchao's convert_to_float8_training). */
#include "model/convert.h"
#include "api/fp8/autocast.h"
#include "api/module/model.h"
#include <stdio.h>

/* State of one conversion. */
typedef struct api_conversion {
    const ott_convert_options *options;
    ott_module *root;
    const recipe *recipe;
    arena *memory;
    module_list list;   /* the linear layers, as model/convert reads them */
    ott_module **nodes; /* [list.count]: node of each linear layer */
    convert_summary summary;
} api_conversion;

void(ott_convert_options_init)(ott_convert_options *options, size_t size) {
    API_INIT(options, size, 0);
}

void(ott_convert_summary_init)(ott_convert_summary *summary, size_t size) {
    API_INIT(summary, size, 0);
}

/* ---- the linear layers ---- */

static ott_status count_linear(void *user, ott_module *m) {
    (void)m;
    ((module_list *)user)->count++;
    return OTT_OK;
}

static ott_status add_linear(void *user, ott_module *m) {
    api_conversion *c = user;
    linear *l = module_linear_body(m)->layer;
    c->nodes[c->list.count] = m;
    c->list.items[c->list.count++] = (model_module){.role = ROLE_COUNT,
                                                    .kind = MODULE_LINEAR,
                                                    .layer = MODULES_OUTSIDE,
                                                    .name = module_relative_name(c->root, m->name),
                                                    .linear = l};
    return OTT_OK;
}

static ott_status list_linears(api_conversion *c) {
    TRY(arena_open(c->root->handle.context->account, MEM_OTHER, &c->memory));
    TRY(module_visit_linears(c->root, count_linear, &c->list));
    TRY(arena_alloc(c->memory, c->list.count * (int64_t)sizeof *c->list.items, &c->list.items));
    TRY(arena_alloc(c->memory, c->list.count * (int64_t)sizeof *c->nodes, &c->nodes));
    c->list.count = 0;
    return module_visit_linears(c->root, add_linear, c);
}

/* True if the caller's filter accepts the layer. */
static bool filter_accepts(void *user, const model_module *e) {
    const api_conversion *c = user;
    const ott_convert_options *o = c->options;
    return !o->filter || o->filter(o->user, e->name, c->nodes[e - c->list.items]);
}

/* ---- one layer ---- */

static ott_status skip_layer(ott_module *m, const char *fqn, const char *reason) {
    linear_body *b = m->body;
    mem *account = m->handle.context->account;
    if (b->converted) return OTT_OK; /* an earlier call converted this layer */
    mem_free(account, b->skip_reason);
    b->layer->skip_reason = b->skip_reason = NULL;
    TRY(mem_strdup(account, reason, &b->skip_reason));
    b->layer->skip_reason = b->skip_reason;
    log_info(&m->handle.context->log, "Not converted to Float8: %s, because %s",
             *fqn ? fqn : "the module itself", reason);
    return OTT_OK;
}

static ott_status convert_layer(api_conversion *c, ott_module *m) {
    linear_body *b = m->body;
    bool changed = false;
    linear_spec spec;
    recipe_compile(c->recipe, m->dtype, &spec);
    TRY(autocast_set_spec(m, &spec, c->recipe->name, &changed));
    mem_free(m->handle.context->account, b->skip_reason);
    b->layer->skip_reason = b->skip_reason = NULL;
    b->converted = true;
    b->converted_spec = spec;
    b->converted_group = c->options->amax_group;
    snprintf(b->converted_recipe, sizeof b->converted_recipe, "%s", c->recipe->name);
    c->summary.converted++;
    return OTT_OK;
}

/* ---- all layers of a module ---- */

static ott_status convert_each(api_conversion *c, const convert_options *asked) {
    TRY(list_linears(c));
    for (int i = 0; i < c->list.count; i++) {
        const model_module *e = &c->list.items[i];
        convert_verdict v;
        c->summary.linears++;
        TRY(convert_judge(asked, e, 0, c->nodes[i]->dtype, &v));
        TRY(*v.reason ? skip_layer(c->nodes[i], e->name, v.reason) : convert_layer(c, c->nodes[i]));
    }
    return OTT_OK;
}

/* Converts a model with the same function as ott_train. */
static ott_status convert_nodes(api_conversion *c, convert_options *asked) {
    model_body *b = module_model_body(c->root);
    c->list = b->m->modules;
    c->nodes = c->root->children;
    asked->store_mlp_inputs = b->options.convert.store_mlp_inputs;
    asked->smooth_mlp = b->options.convert.smooth_mlp;
    b->amax_group = c->options->amax_group;
    b->recipe_name = c->recipe->name;
    return model_convert(b->m, asked, &c->summary);
}

/* Converts the layers one by one. After a failure, layers that were converted before it stay converted. */
static ott_status convert_module(api_conversion *c, const char *function) {
    ott_module *m = c->root;
    const ott_convert_options *o = c->options;
    const logger *log = &m->handle.context->log;
    TRY(recipe_to_run(m->handle.context, o->recipe, "tensorwise", &c->recipe));
    if (!recipe_gemm_is_fp8(c->recipe, GEMM_COUNT))
        return status_fail(OTT_ERR_ARGUMENT,
                           "%s: recipe %s keeps every layer in high precision: give an FP8 recipe", function,
                           c->recipe->name);
    convert_options asked = {.recipe = c->recipe,
                             .filter = o->filter_fqns,
                             .filter_count = o->filter_fqn_count,
                             .any_dimension = true,
                             .small = o->auto_filter != 0,
                             .log = log,
                             .by_call = true,
                             .accepts = filter_accepts,
                             .user = c};
    module_drop_forward(m, "the module was converted after it");
    ott_status status = m->table->is_model ? convert_nodes(c, &asked) : convert_each(c, &asked);
    ott_status connected = module_connect(m);
    if (status != OTT_OK || connected != OTT_OK) return status != OTT_OK ? status : connected;
    log_info(log, "Applied Float8 training: recipe=%s, %d of %d linear layers converted", c->recipe->display,
             c->summary.converted, c->summary.linears);
    convert_warn_unmatched(&asked, &c->list, &c->summary);
    return OTT_OK;
}

static ott_status convert_and_close(api_conversion *c, const char *function) {
    ott_status status = convert_module(c, function);
    arena_close(c->memory);
    return status;
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
    if (o.filter_fqn_count < 0 || (o.filter_fqn_count > 0 && !o.filter_fqns))
        return status_fail(OTT_ERR_ARGUMENT, "%s: filter_fqns is NULL or filter_fqn_count = %d negative",
                           __func__, o.filter_fqn_count);
    for (int i = 0; i < o.filter_fqn_count; i++)
        if (!o.filter_fqns[i])
            return status_fail(OTT_ERR_ARGUMENT, "%s: filter_fqns[%d] is NULL", __func__, i);
    char shown[96];
    if (module->parent && module->parent->table->is_model)
        return status_fail(OTT_ERR_ARGUMENT,
                           "%s: module is %s, a part of a model: convert the model, with a filter", __func__,
                           module_show(module, shown));
    TRY(api_check_struct(out, "ott_convert_summary"));
    api_conversion c = {.options = &o, .root = module};
    ott_status status = MODULE_INSIDE(context, convert_and_close(&c, __func__));
    if (status != OTT_OK || !out) return status;
    const ott_convert_summary s = {sizeof s, c.summary.converted, c.summary.linears};
    return api_write_struct(out, &s, sizeof s, "ott_convert_summary");
}
