/* api/module/module: visits, builds, names and closes the tree of nodes of a module; draws its initial
   weights; and drops the state that a forward saved for backward. */
#include "api/module/module.h"
#include "base/rng.h"
#include "comm/self.h"
#include <stdio.h>
#include <string.h>

/* ---- visiting ---- */

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

static ott_module *root_of(ott_module *m) {
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
    ott_module *m;
    *made = NULL;
    TRY(api_device(context, &d));
    TRY(handle_open(context, HANDLE_MODULE, sizeof(ott_module), &m));
    m->table = table;
    m->in = in;
    m->out = out;
    m->dtype = dtype;
    m->training = true;
    m->micro_batch = -1;
    m->no_forward_reason = "no forward ran yet";
    ott_status status = mem_alloc(context->account, MEM_OTHER, body_bytes, table->kind, &m->body);
    if (status == OTT_OK) status = mem_strdup(context->account, "", &m->label);
    if (status == OTT_OK) status = mem_strdup(context->account, "", &m->name);
    if (status != OTT_OK) {
        mem_free(context->account, m->body);
        mem_free(context->account, m->label);
        handle_close(&m->handle);
        return status;
    }
    return *made = m, OTT_OK;
}

ott_status module_add_child(ott_module *m, const char *label, ott_module *child) {
    mem *account = m->handle.context->account;
    char *text;
    TRY(mem_grow(account, MEM_OTHER, (m->child_count + 1) * (int64_t)sizeof *m->children, "parts of a module",
                 &m->children));
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
    TRY(api_device(m->handle.context, &d));
    module_parameter *made = &m->parameters[m->parameter_count];
    *made = (module_parameter){.local = local};
    parameter *p = made->p = &made->own;
    *p = rows ? parameter_of_shape(2, (int64_t[]){rows, columns}) : parameter_of_shape(1, &columns);
    p->value = p->grad = tensor_matrix(NULL, OTT_F32, p->rows, p->columns);
    m->parameter_count++;
    TRY(device_allocate(d, MEM_PARAM, tensor_bytes(p->value), local, &p->value.data));
    TRY(device_allocate(d, MEM_GRAD, tensor_bytes(p->grad), "gradients", &p->grad.data));
    p->shard = (parameter_shard){.value = p->value, .grad = p->grad};
    return *out = p, OTT_OK;
}

/* Replaces *out by "prefix.label", without the dot if one is empty. */
static ott_status join_names(mem *account, const char *prefix, const char *label, char **out) {
    str text = {.account = account};
    char *joined = NULL;
    str_printf(&text, "%s%s%s", prefix, *prefix && *label ? "." : "", label);
    ott_status status = str_finish(&text);
    if (status == OTT_OK) status = mem_strdup(account, text.text ? text.text : "", &joined);
    str_free(&text);
    if (status != OTT_OK) return status;
    mem_free(account, *out);
    return *out = joined, OTT_OK;
}

static ott_status name_tree(ott_module *m, const char *prefix) {
    mem *account = m->handle.context->account;
    TRY(join_names(account, prefix, m->label, &m->name));
    for (int i = 0; i < m->parameter_count; i++) {
        char *name = (char *)m->parameters[i].own.name;
        ott_status status = join_names(account, m->name, m->parameters[i].local, &name);
        m->parameters[i].own.name = name;
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

/* Describes how to draw the initial weights. Norm weights are 1, and biases stay 0. */
static void describe_weights(ott_module *root, double deviation, uint64_t seed) {
    module_parameter *made;
    int64_t ordinal = root->handle.context->modules++;
    for (int i = 0; (made = module_parameter_at(root, i)); i++) {
        made->drawn = strcmp(made->local, "bias") == 0;
        made->start = made->p->rank == 1 ? (draw_distribution){.constant = 1.0f}
                                         : (draw_distribution){.deviation = deviation};
        made->seed = seed;
        made->stream = stream_of(made->p, seed, ordinal);
    }
}

static ott_status draw_parameters(draw *w, ott_module *root) {
    module_parameter *made;
    for (int i = 0; (made = module_parameter_at(root, i)); i++) {
        if (made->drawn) continue;
        TRY(draw_rows(w, made->start, made->seed, made->stream, made->p, 0, made->p->rows));
        made->drawn = true;
    }
    return OTT_OK;
}

static ott_status draw_weights(ott_module *root) {
    ott_context *context = root->handle.context;
    const module_parameter *made;
    int64_t total = 0;
    draw w;
    for (int i = 0; (made = module_parameter_at(root, i)); i++)
        if (!made->drawn) total += parameter_count(made->p);
    if (total == 0) return OTT_OK;
    ott_status status = draw_open(&w, context->device, NULL, total, context->threads);
    if (status == OTT_OK) status = draw_parameters(&w, root);
    draw_close(&w);
    return status;
}

ott_status module_make_weights(ott_module *m) {
    m = root_of(m);
    if (m->has_weights) return OTT_OK;
    TRY(m->table->make_weights ? m->table->make_weights(m) : draw_weights(m));
    m->has_weights = true;
    return OTT_OK;
}

void module_mark_weights_set(ott_module *root) {
    module_parameter *made;
    for (int i = 0; (made = module_parameter_at(root, i)); i++) made->drawn = true;
    root->has_weights = true;
}

ott_status module_finish(ott_module *root, double deviation, uint64_t seed, ott_status built,
                         ott_module **out) {
    if (built == OTT_OK) built = module_rename(root);
    if (built == OTT_OK) describe_weights(root, deviation, seed);
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
    close_view(made->value, &made->p->value);
    close_view(made->gradient, &made->p->grad);
    device_release(d, made->own.value.data);
    device_release(d, made->own.grad.data);
    mem_free(account, (void *)(uintptr_t)made->own.name);
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
    api_leave(context);
}

/* ---- options ---- */

ott_status module_option_positive(int64_t value, const char *name, const char *function) {
    if (value >= 1 && value <= INT32_MAX) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: %s = %lld: give a number from 1 to %d", function, name,
                       (long long)value, INT32_MAX);
}

ott_status module_option_dtype(ott_dtype value, const char *function) {
    if (value == OTT_BF16 || value == OTT_F32) return OTT_OK;
    return status_fail(OTT_ERR_DTYPE, "%s: dtype is %s: activations are OTT_BF16 or OTT_F32", function,
                       value < OTT_DTYPE_COUNT ? dtype_name(value) : "no number format");
}

ott_status module_option_deviation(double value, const char *function) {
    if (value >= 0 && value <= 1e6) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: init_std = %g: give a number from 0 to 1e6", function, value);
}

ott_status module_option_epsilon(double value, const char *name, const char *function) {
    if (value > 0 && value <= 1) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: %s = %g: give a number above 0, up to 1", function, name,
                       value);
}

/* ---- the saved forward ---- */

void module_drop_forward(ott_module *m, const char *because) {
    m = root_of(m);
    if (m->plan) plan_immediate(m->plan);
    m->no_forward_reason = because;
}

ott_status module_own_input(exec *cx, module_value *x) {
    tensor own;
    if (x->buffer.id != 0) return OTT_OK;
    TRY(exec_open(cx, "module input", x->t.dtype, x->t.rows, x->t.columns, &own, &x->buffer));
    TRY(op_convert(cx, &(convert_args){.x = &x->t, .y = &own}));
    x->t = own;
    return OTT_OK;
}

static ott_status connect_node(ott_module *m) {
    if (m->table->connect) return m->table->connect(m);
    for (int i = 0; i < m->child_count; i++) TRY(connect_node(m->children[i]));
    return OTT_OK;
}

/* Connects all layers of the tree that m is in. */
ott_status module_connect(ott_module *m) {
    return connect_node(root_of(m));
}

static ott_status forget_compute(void *user, ott_module *m) {
    (void)user;
    weight_changed(&module_linear_body(m)->layer->source);
    return OTT_OK;
}

void module_weights_changed(ott_module *m) {
    (void)module_visit_linears(m, forget_compute, NULL);
}

ott_status module_exec(ott_module *m, exec *cx) {
    ott_context *context = m->handle.context;
    TRY(api_exec(context, cx));
    if (!m->plan) {
        TRY(plan_create(cx->device, &m->plan));
        plan_immediate(m->plan);
    }
    cx->plan = m->plan;
    cx->data_group = comm_self();
    return OTT_OK;
}

ott_status module_enter(ott_context *context, const char *function) {
    TRY(api_enter(context, function));
    if (context->depth == 1) return OTT_OK;
    api_leave(context);
    return status_fail(OTT_ERR_ARGUMENT, "%s: cannot be called from a callback of another call", function);
}
