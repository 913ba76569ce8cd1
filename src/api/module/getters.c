/* api/module/getters: getters of modules, parameters and scales. */
#include "api/module/module.h"
#include "checkpoint/float8.h"
#include <math.h>
#include <string.h>

/* ---- getters ---- */

static bool is_module(const ott_module *m, const char *function) {
    return handle_check(m, HANDLE_MODULE, function, "module") == OTT_OK;
}

const char *ott_module_kind(const ott_module *module) {
    return is_module(module, __func__) ? module->table->kind : NULL;
}

int64_t ott_module_in_features(const ott_module *module) {
    return is_module(module, __func__) ? module->in : -1;
}

int64_t ott_module_out_features(const ott_module *module) {
    return is_module(module, __func__) ? module->out : -1;
}

ott_dtype ott_module_dtype(const ott_module *module) {
    return is_module(module, __func__) ? module->dtype : OTT_DTYPE_COUNT;
}

/* Returns the child whose label is the first name in fqn ("a" in "a.b"). *rest: what follows the dot. */
static ott_module *step_down(const ott_module *m, const char *fqn, const char **rest) {
    for (int i = 0; i < m->child_count; i++) {
        size_t length = strlen(m->children[i]->label);
        if (strncmp(fqn, m->children[i]->label, length) != 0) continue;
        if (fqn[length] != '.' && fqn[length] != '\0') continue;
        *rest = fqn + length + (fqn[length] == '.');
        return m->children[i];
    }
    return NULL;
}

ott_module *ott_module_child(ott_module *module, const char *fqn) {
    char shown[96];
    if (!is_module(module, __func__) || api_require(fqn, __func__, "fqn") != OTT_OK) return NULL;
    ott_module *at = module;
    for (const char *rest = fqn; at && *rest;) at = step_down(at, rest, &rest);
    if (!at)
        status_fail(OTT_ERR_NOT_FOUND, "%s: %s has no part \"%s\"", __func__, module_show(module, shown),
                    fqn);
    return at;
}

int ott_module_is_float8(const ott_module *module) {
    if (!is_module(module, __func__)) return 0;
    const linear_body *b = module_linear_body(module);
    return b && b->layer->spec.fp8;
}

const char *ott_module_skip_reason(const ott_module *module) {
    if (!is_module(module, __func__)) return NULL;
    const linear_body *b = module_linear_body(module);
    return b ? b->layer->skip_reason : NULL;
}

const char *ott_module_recipe(const ott_module *module) {
    return ott_module_is_float8(module) ? module_linear_body(module)->layer->recipe_name : NULL;
}

int ott_module_parameter_count(const ott_module *module) {
    int count = 0;
    if (!is_module(module, __func__)) return -1;
    while (module_parameter_at(module, count)) count++;
    return count;
}

const char *ott_module_parameter_name(const ott_module *module, int index) {
    if (!is_module(module, __func__)) return NULL;
    const module_parameter *p = module_parameter_at(module, index);
    if (p) return module_relative_name(module, p->p->name);
    status_fail(OTT_ERR_ARGUMENT, "%s: index = %d: there is no such parameter", __func__, index);
    return NULL;
}

int ott_module_parameter_index(const ott_module *module, const char *name) {
    char shown[96];
    const module_parameter *p;
    if (!is_module(module, __func__) || api_require(name, __func__, "name") != OTT_OK) return -1;
    for (int i = 0; (p = module_parameter_at(module, i)); i++)
        if (strcmp(module_relative_name(module, p->p->name), name) == 0) return i;
    status_fail(OTT_ERR_NOT_FOUND, "%s: %s has no parameter \"%s\"", __func__, module_show(module, shown),
                name);
    return -1;
}

/* Opens a view of t in *view. Keeps *view if it already is an open view of t. */
static ott_status open_view(ott_context *context, const tensor *t, ott_tensor **view) {
    if (handle_is_open(*view, HANDLE_TENSOR) && (*view)->t.data == t->data) return OTT_OK;
    TRY(handle_open(context, HANDLE_TENSOR, sizeof(ott_tensor), view));
    (*view)->t = *t;
    return OTT_OK;
}

static ott_status view_parameter(ott_module *m, int index, bool gradient, const char *function,
                                 ott_tensor **out) {
    module_parameter *p = module_parameter_at(m, index);
    if (!p)
        return status_fail(OTT_ERR_ARGUMENT, "%s: index = %d: the module has %d parameters", function, index,
                           ott_module_parameter_count(m));
    if (gradient && p->p->frozen)
        return status_fail(OTT_ERR_ARGUMENT, "%s: %s is frozen (train.freeze): it has no gradient", function,
                           p->p->name);
    if (!gradient) TRY(module_make_weights(m));
    ott_tensor **view = gradient ? &p->gradient : &p->value;
    TRY(open_view(m->handle.context, gradient ? &p->p->grad : &p->p->value, view));
    return *out = *view, OTT_OK;
}

ott_status ott_module_parameter_value(ott_module *module, int index, ott_tensor **out) {
    API_HANDLE(module, MODULE);
    API_REQUIRE(out);
    *out = NULL;
    return API_INSIDE(module->handle.context, view_parameter(module, index, false, __func__, out));
}

ott_status ott_module_parameter_gradient(ott_module *module, int index, ott_tensor **out) {
    API_HANDLE(module, MODULE);
    API_REQUIRE(out);
    *out = NULL;
    return API_INSIDE(module->handle.context, view_parameter(module, index, true, __func__, out));
}

/* ---- state of delayed scaling ---- */

static ott_status read_scale(const ott_module *m, const delayed_state *s, float *scale, float *amax) {
    device *d = m->handle.context->device;
    float *amax_history;
    if (scale) TRY(device_copy_out(d, scale, s->scale.data, sizeof *scale));
    if (!amax) return OTT_OK;
    TRY(mem_alloc(d->account, MEM_OTHER, tensor_bytes(s->amax_history), "amax history", &amax_history));
    ott_status status = device_copy_out(d, amax_history, s->amax_history.data, tensor_bytes(s->amax_history));
    *amax = 0.0f;
    for (int64_t i = 0; status == OTT_OK && i < s->amax_history.columns; i++)
        *amax = fmaxf(*amax, amax_history[i]);
    mem_free(d->account, amax_history);
    return status;
}

ott_status ott_module_scale(const ott_module *module, const char *which, float *scale, float *amax) {
    char shown[96];
    API_HANDLE(module, MODULE);
    API_REQUIRE(which);
    const linear_body *b = module_linear_body(module);
    for (int t = 0; b && t < TENSOR_COUNT; t++)
        if (strcmp(float8_tensor_names[t], which) == 0 && b->layer->delayed[t].seen.data)
            return API_INSIDE(module->handle.context, read_scale(module, &b->layer->delayed[t], scale, amax));
    return status_fail(OTT_ERR_NOT_FOUND, "%s: %s has no delayed scaling of \"%s\"", __func__,
                       module_show(module, shown), which);
}
