/* api/module/sequential: runs modules one after the other. */
#include "api/module/module.h"
#include <stdio.h>

static ott_status sequential_forward(exec *cx, ott_module *m, module_value *x, const tensor *y) {
    module_value at = *x, next;
    int last = m->child_count - 1;
    for (int i = 0; i < last; i++) {
        ott_module *part = m->children[i];
        next = (module_value){0};
        TRY(exec_open(cx, "module output", m->dtype, at.t.rows, part->out, &next.t, &next.buffer));
        TRY(part->table->forward(cx, part, &at, &next.t));
        at = next;
    }
    return m->children[last]->table->forward(cx, m->children[last], &at, y);
}

static ott_status sequential_backward(exec *cx, ott_module *m, module_value *dy, const tensor *dx) {
    module_value at = *dy, next;
    for (int i = m->child_count - 1; i > 0; i--) {
        ott_module *part = m->children[i];
        next = (module_value){0};
        TRY(exec_open(cx, "module input gradient", m->dtype, at.t.rows, part->in, &next.t, &next.buffer));
        TRY(part->table->backward(cx, part, &at, &next.t));
        at = next;
    }
    return m->children[0]->table->backward(cx, m->children[0], &at, dx);
}

static const module_table module_sequential = {
    .kind = "sequential", .forward = sequential_forward, .backward = sequential_backward};

static ott_status check_child(ott_context *context, ott_module *const *modules, int i, const char *function) {
    char argument[32];
    snprintf(argument, sizeof argument, "modules[%d]", i);
    TRY(handle_check_in(modules[i], HANDLE_MODULE, context, function, argument));
    if (modules[i]->table->is_model)
        return status_fail(OTT_ERR_ARGUMENT, "%s: %s is a model, which cannot be part of another module",
                           function, argument);
    if (modules[i]->parent)
        return status_fail(OTT_ERR_ARGUMENT, "%s: %s is part of another module already", function, argument);
    for (int j = 0; j < i; j++)
        if (modules[j] == modules[i])
            return status_fail(OTT_ERR_ARGUMENT, "%s: modules[%d] and modules[%d] are the same module",
                               function, j, i);
    if (i == 0) return OTT_OK;
    if (modules[i - 1]->out != modules[i]->in)
        return status_fail(OTT_ERR_SHAPE, "%s: modules[%d] gives [M, %lld], but modules[%d] needs [M, %lld]",
                           function, i - 1, (long long)modules[i - 1]->out, i, (long long)modules[i]->in);
    if (modules[i - 1]->dtype == modules[i]->dtype) return OTT_OK;
    return status_fail(OTT_ERR_DTYPE, "%s: modules[%d] gives %s, but modules[%d] needs %s", function, i - 1,
                       dtype_name(modules[i - 1]->dtype), i, dtype_name(modules[i]->dtype));
}

static ott_status adopt_child(ott_module *m, ott_module *const *modules, int count) {
    char label[16];
    for (int i = 0; i < count; i++) {
        snprintf(label, sizeof label, "%d", i);
        TRY(module_add_child(m, label, modules[i]));
    }
    return OTT_OK;
}

/* After a failure: makes each module a separate module again, which the caller owns. */
static void release_parts(ott_module *m) {
    for (int i = 0; i < m->child_count; i++) {
        m->children[i]->parent = NULL;
        m->children[i]->label[0] = '\0';
        (void)module_rename(m->children[i]);
    }
    m->child_count = 0;
}

static void drop_plan(ott_module *m) {
    plan_destroy(m->plan);
    m->plan = NULL;
    m->no_forward_reason = "no forward ran yet";
}

static ott_status open_sequential(ott_context *context, ott_module *const *modules, int count,
                                  ott_module **out) {
    ott_module *m;
    TRY(module_make(context, &module_sequential, modules[0]->in, modules[count - 1]->out, modules[0]->dtype,
                    0, &m));
    for (int i = 0; i < count; i++) drop_plan(modules[i]);
    ott_status status = adopt_child(m, modules, count);
    if (status == OTT_OK) status = module_rename(m);
    if (status == OTT_OK) return *out = m, OTT_OK;
    release_parts(m);
    module_close_tree(m);
    return status;
}

ott_status ott_sequential_open(ott_context *context, ott_module *const *modules, int count,
                               ott_module **out) {
    API_REQUIRE_BOTH(context, modules);
    API_REQUIRE(out);
    *out = NULL;
    if (count < 1)
        return status_fail(OTT_ERR_ARGUMENT, "%s: count = %d: give at least one module", __func__, count);
    for (int i = 0; i < count; i++) TRY(check_child(context, modules, i, __func__));
    return MODULE_INSIDE(context, open_sequential(context, modules, count, out));
}
