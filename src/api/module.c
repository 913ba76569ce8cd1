/* api/module: the tree of modules: building, naming, walking, and what the public getters say of it. */
#include "api/module.h"
#include "api/autocast.h"
#include "base/rng.h"
#include "checkpoint/float8.h"
#include "nn/draw.h"
#include <stdio.h>
#include <string.h>

/* ---- walking ---- */

ott_status module_visit(ott_module *m, module_visitor visit, void *user) {
    for (int i = 0; i < m->child_count; i++) TRY(module_visit(m->children[i], visit, user));
    return visit(user, m);
}

typedef struct linear_visit {
    module_visitor visit;
    void *user;
} linear_visit;

static ott_status visit_linear(void *user, ott_module *m) {
    const linear_visit *v = user;
    return module_linear_body(m) ? v->visit(v->user, m) : OTT_OK;
}

ott_status module_visit_linears(ott_module *m, module_visitor visit, void *user) {
    linear_visit v = {visit, user};
    return module_visit(m, visit_linear, &v);
}

ott_module *module_root(ott_module *m) {
    while (m->parent) m = m->parent;
    return m;
}

static module_parameter *find_parameter(const ott_module *m, int *index) {
    for (int i = 0; i < m->child_count; i++) {
        module_parameter *p = find_parameter(m->children[i], index);
        if (p) return p;
    }
    if (*index < m->parameter_count) return (module_parameter *)&m->parameters[*index];
    *index -= m->parameter_count;
    return NULL;
}

module_parameter *module_parameter_at(const ott_module *m, int index) {
    return index < 0 ? NULL : find_parameter(m, &index);
}

const char *module_relative_name(const ott_module *m, const char *name) {
    size_t skipped = strlen(m->name);
    if (skipped == 0) return name;
    name += skipped;
    return *name == '.' ? name + 1 : name;
}

const char *module_show(const ott_module *m, char out[96]) {
    if (*m->name)
        snprintf(out, 96, "%s \"%s\"", m->table->kind, m->name);
    else
        snprintf(out, 96, "%s", m->table->kind);
    return out;
}

/* ---- building ---- */

ott_status module_make(ott_context *context, const module_table *table, int64_t in, int64_t out,
                       ott_dtype dtype, int64_t body_bytes, ott_module **made) {
    device *d;
    void *memory;
    *made = NULL;
    TRY(context_device(context, &d));
    TRY(handle_open(context, HANDLE_MODULE, sizeof(ott_module), &memory));
    ott_module *m = memory;
    m->table = table;
    m->in = in;
    m->out = out;
    m->dtype = dtype;
    m->training = true;
    m->micro_batch = -1;
    m->not_kept = "there was none yet";
    ott_status status = mem_alloc(context->account, MEM_OTHER, body_bytes, table->kind, &m->body);
    if (status == OTT_OK) status = mem_strdup(context->account, "", &m->label);
    if (status == OTT_OK) status = mem_strdup(context->account, "", &m->name);
    if (status != OTT_OK) {
        mem_free(context->account, m->body);
        mem_free(context->account, m->label);
        handle_close(&m->handle);
        return status;
    }
    *made = m;
    return OTT_OK;
}

ott_status module_add_child(ott_module *m, const char *label, ott_module *child) {
    mem *account = m->handle.context->account;
    void *memory = m->children;
    char *text;
    TRY(mem_grow(account, MEM_OTHER, (m->child_count + 1) * (int64_t)sizeof *m->children, "parts of a module",
                 &memory));
    m->children = memory;
    TRY(mem_strdup(account, label, &text));
    mem_free(account, child->label);
    child->label = text;
    child->parent = m;
    m->children[m->child_count++] = child;
    return OTT_OK;
}

ott_status module_add_parameter(ott_module *m, const char *local, int64_t rows, int64_t columns,
                                const parameter **out) {
    device *d;
    STATUS_REQUIRE(m->parameter_count < MODULE_PARAMETERS);
    TRY(context_device(m->handle.context, &d));
    module_parameter *made = &m->parameters[m->parameter_count];
    *made = (module_parameter){.local = local};
    parameter *p = &made->p;
    p->rank = rows ? 2 : 1;
    p->rows = rows ? rows : 1;
    p->columns = columns;
    p->local = (parameter_part){.rows = p->rows, .columns = columns};
    p->decay = rows != 0;
    p->value = p->grad = tensor_matrix(NULL, OTT_F32, p->rows, p->columns);
    m->parameter_count++;
    TRY(device_allocate(d, MEM_PARAM, tensor_bytes(p->value), local, &p->value.data));
    TRY(device_allocate(d, MEM_GRAD, tensor_bytes(p->grad), "gradients", &p->grad.data));
    p->shard = (parameter_shard){.value = p->value, .grad = p->grad};
    *out = p;
    return OTT_OK;
}

/* "prefix.label", without the point where one is empty. */
static ott_status join(mem *account, const char *prefix, const char *label, char **out) {
    str text = {.account = account};
    char *joined = NULL;
    str_printf(&text, "%s%s%s", prefix, *prefix && *label ? "." : "", label);
    ott_status status = str_finish(&text);
    if (status == OTT_OK) status = mem_strdup(account, text.text ? text.text : "", &joined);
    str_free(&text);
    if (status != OTT_OK) return status;
    mem_free(account, *out);
    *out = joined;
    return OTT_OK;
}

static ott_status name_tree(ott_module *m, const char *prefix) {
    mem *account = m->handle.context->account;
    TRY(join(account, prefix, m->label, &m->name));
    for (int i = 0; i < m->parameter_count; i++) {
        char *name = (char *)m->parameters[i].p.name;
        ott_status status = join(account, m->name, m->parameters[i].local, &name);
        m->parameters[i].p.name = name;
        TRY(status);
    }
    for (int i = 0; i < m->child_count; i++) TRY(name_tree(m->children[i], m->name));
    if (m->table->rename) m->table->rename(m);
    return OTT_OK;
}

ott_status module_rename(ott_module *root) {
    return name_tree(root, "");
}

/* ---- initial weights ---- */

static uint64_t stream_of(const parameter *p, uint64_t seed, int64_t ordinal) {
    char text[160];
    if (seed != 0) return rng_stream(p->name);
    snprintf(text, sizeof text, "module %lld %s", (long long)ordinal, p->name);
    return rng_stream(text);
}

/* Biases are zero as they are. */
static ott_status draw_parameters(draw *w, ott_module *root, double deviation, uint64_t seed,
                                  int64_t ordinal) {
    const module_parameter *made;
    for (int i = 0; (made = module_parameter_at(root, i)); i++) {
        const parameter *p = &made->p;
        draw_start start =
            p->rank == 1 ? (draw_start){.constant = 1.0f} : (draw_start){.deviation = deviation};
        if (strcmp(made->local, "bias") != 0)
            TRY(draw_rows(w, start, seed, stream_of(p, seed, ordinal), p, 0, p->rows));
    }
    return OTT_OK;
}

ott_status module_initialize(ott_module *root, double deviation, uint64_t seed) {
    ott_context *context = root->handle.context;
    const module_parameter *made;
    autocast *a;
    device *d;
    draw w;
    int64_t total = 0;
    TRY(context_device(context, &d));
    TRY(autocast_of(context, &a));
    int64_t ordinal = a->modules++;
    for (int i = 0; (made = module_parameter_at(root, i)); i++) total += parameter_count(&made->p);
    ott_status status = draw_open(&w, d, NULL, total, context->threads);
    if (status == OTT_OK) status = draw_parameters(&w, root, deviation, seed, ordinal);
    draw_close(&w);
    return status;
}

ott_status module_finish(ott_module *root, double deviation, uint64_t seed, ott_status built,
                         ott_module **out) {
    if (built == OTT_OK) built = module_rename(root);
    if (built == OTT_OK) built = module_initialize(root, deviation, seed);
    if (built == OTT_OK) built = module_connect(root);
    if (built == OTT_OK)
        *out = root;
    else
        module_close_tree(root);
    return built;
}

/* ---- closing ---- */

static void close_view(ott_tensor *view, const tensor *t) {
    if (handle_is_open(view, HANDLE_TENSOR) && view->t.data == t->data) handle_close(&view->handle);
}

static void close_parameter(mem *account, device *d, module_parameter *made) {
    close_view(made->value, &made->p.value);
    close_view(made->gradient, &made->p.grad);
    device_release(d, made->p.value.data);
    device_release(d, made->p.grad.data);
    mem_free(account, (void *)(uintptr_t)made->p.name);
}

void module_close_tree(ott_module *m) {
    if (!m) return;
    ott_context *context = m->handle.context;
    mem *account = context->account;
    plan_destroy(m->plan);
    for (int i = 0; i < m->child_count; i++) module_close_tree(m->children[i]);
    if (m->table->release) m->table->release(m, context->device);
    for (int i = 0; i < m->parameter_count; i++) close_parameter(account, context->device, &m->parameters[i]);
    mem_free(account, m->children);
    mem_free(account, m->label);
    mem_free(account, m->name);
    mem_free(account, m->body);
    handle_close(&m->handle);
}

void ott_module_close(ott_module *module) {
    if (!handle_is_open(module, HANDLE_MODULE) || module->parent) return;
    ott_context *context = module->handle.context;
    if (module_enter(context, __func__) != OTT_OK) return;
    module_close_tree(module);
    context_leave(context);
}

/* ---- options ---- */

ott_status option_positive(int64_t value, const char *name, const char *function) {
    if (value >= 1 && value <= INT32_MAX) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: %s = %lld: give a number from 1 to %d", function, name,
                       (long long)value, INT32_MAX);
}

ott_status option_dtype(ott_dtype value, const char *function) {
    if (value == OTT_BF16 || value == OTT_F32) return OTT_OK;
    return status_fail(OTT_ERR_DTYPE, "%s: dtype is %s: activations are OTT_BF16 or OTT_F32", function,
                       value < OTT_DTYPE_COUNT ? dtype_name(value) : "no number format");
}

ott_status option_deviation(double value, const char *function) {
    if (value >= 0 && value <= 1e6) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: init_std = %g: give a number from 0 to 1e6", function, value);
}

ott_status option_epsilon(double value, const char *name, const char *function) {
    if (value > 0 && value <= 1) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: %s = %g: give a number above 0, up to 1", function, name,
                       value);
}

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

/* The child whose label begins fqn, up to a point or the end; *rest: what follows. */
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
    return b ? b->skip_reason : NULL;
}

const char *ott_module_recipe(const ott_module *module) {
    return ott_module_is_float8(module) ? module_linear_body(module)->fp8_recipe : NULL;
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
    if (p) return module_relative_name(module, p->p.name);
    status_fail(OTT_ERR_ARGUMENT, "%s: index = %d: there is no such parameter", __func__, index);
    return NULL;
}

int ott_module_parameter_index(const ott_module *module, const char *name) {
    char shown[96];
    const module_parameter *p;
    if (!is_module(module, __func__) || api_require(name, __func__, "name") != OTT_OK) return -1;
    for (int i = 0; (p = module_parameter_at(module, i)); i++)
        if (strcmp(module_relative_name(module, p->p.name), name) == 0) return i;
    status_fail(OTT_ERR_NOT_FOUND, "%s: %s has no parameter \"%s\"", __func__, module_show(module, shown),
                name);
    return -1;
}

/* A view once given out is given out again, unless the caller has closed it. */
static ott_status open_view(ott_context *context, const tensor *t, ott_tensor **view) {
    void *memory;
    if (handle_is_open(*view, HANDLE_TENSOR) && (*view)->t.data == t->data) return OTT_OK;
    TRY(handle_open(context, HANDLE_TENSOR, sizeof(ott_tensor), &memory));
    *view = memory;
    (*view)->t = *t;
    return OTT_OK;
}

static ott_status view_parameter(ott_module *m, int index, bool gradient, const char *function,
                                 ott_tensor **out) {
    module_parameter *p = module_parameter_at(m, index);
    if (!p)
        return status_fail(OTT_ERR_ARGUMENT, "%s: index = %d: the module has %d parameters", function, index,
                           ott_module_parameter_count(m));
    ott_tensor **view = gradient ? &p->gradient : &p->value;
    TRY(open_view(m->handle.context, gradient ? &p->p.grad : &p->p.value, view));
    *out = *view;
    return OTT_OK;
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

/* ---- the state of delayed scaling, for looking at ---- */

static ott_status read_scale(const ott_module *m, const delayed_state *s, float *scale, float *amax) {
    device *d = m->handle.context->device;
    void *memory;
    if (scale) TRY(device_copy_out(d, scale, s->scale.data, sizeof *scale));
    if (!amax) return OTT_OK;
    TRY(mem_alloc(d->account, MEM_OTHER, tensor_bytes(s->amax_history), "amax history", &memory));
    const float *amax_history = memory;
    ott_status status = device_copy_out(d, memory, s->amax_history.data, tensor_bytes(s->amax_history));
    *amax = 0.0f;
    for (int64_t i = 0; status == OTT_OK && i < s->amax_history.columns; i++)
        *amax = fmaxf(*amax, amax_history[i]);
    mem_free(d->account, memory);
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
