/* api/module/run: forward and backward of a root module, with their checks, and its settings. */
#include "api/fp8/autocast.h"
#include "api/module/module.h"
#include <stdio.h>

/* ---- checks ---- */

static ott_status check_runnable(const ott_module *m, const char *function) {
    char shown[96];
    if (!m->parent) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: module is %s, a part of another module: run the whole module",
                       function, module_show(m, shown));
}

static ott_status check_argument_tensor(const ott_module *m, const ott_tensor *t, const char *argument,
                                        int64_t rows, int64_t columns, const char *function) {
    char shown[96], wanted_rows[24];
    snprintf(wanted_rows, sizeof wanted_rows, rows < 0 ? "M" : "%lld", (long long)rows);
    if (t->t.dtype != m->dtype)
        return status_fail(OTT_ERR_DTYPE, "%s: %s is %s, but the activations of %s are %s", function,
                           argument, dtype_name(t->t.dtype), module_show(m, shown), dtype_name(m->dtype));
    if (t->t.columns == columns && (rows < 0 ? t->t.rows >= 1 : t->t.rows == rows)) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE, "%s: %s is [%lld, %lld], but %s needs [%s, %lld]", function, argument,
                       (long long)t->t.rows, (long long)t->t.columns, module_show(m, shown), wanted_rows,
                       (long long)columns);
}

static ott_status check_input(const ott_module *m, const ott_tensor *x, const char *function) {
    if (m->table->check_input) return m->table->check_input(m, x, function);
    return check_argument_tensor(m, x, "x", -1, m->in, function);
}

/* Returns the rows of y. A model's x has a row for each sequence, its y a row for each token. */
static int64_t output_rows(const ott_module *m, const ott_tensor *x) {
    return m->table->is_model ? tensor_count(x->t) : x->t.rows;
}

/* ---- forward and backward ---- */

static ott_status prepare_node(void *user, ott_module *m) {
    return m->table->prepare ? m->table->prepare(m, *(const int64_t *)user) : OTT_OK;
}

static ott_status run_forward(ott_module *m, const ott_tensor *x, const ott_tensor *y) {
    exec cx;
    int64_t rows = output_rows(m, x);
    module_value value = {.t = x->t};
    TRY(module_exec(m, &cx));
    TRY(module_make_weights(m));
    TRY(module_visit(m, prepare_node, &rows));
    module_drop_forward(m, "the last forward failed");
    TRY(autocast_before_forward(m));
    cx.phase = m->training ? PHASE_TRAIN : PHASE_EVALUATE;
    cx.is_first_microbatch = m->micro_batch <= 0;
    if (cx.is_first_microbatch) module_weights_changed(m);
    ott_status status = m->table->forward(&cx, m, &value, &y->t);
    if (status == OTT_OK && m->training) status = autocast_after_forward(m);
    if (status != OTT_OK || !m->training) {
        module_drop_forward(m, status == OTT_OK ? "the last forward was an evaluation"
                                                : "the last forward failed");
        return status;
    }
    m->no_forward_reason = NULL;
    m->kept_rows = rows;
    m->kept_step = cx.step;
    m->kept_first = cx.is_first_microbatch;
    return OTT_OK;
}

ott_status ott_module_forward(ott_module *module, const ott_tensor *x, ott_tensor *y) {
    API_HANDLE(module, MODULE);
    API_HANDLE_IN(x, TENSOR, module->handle.context);
    API_HANDLE_IN(y, TENSOR, module->handle.context);
    TRY(check_runnable(module, __func__));
    TRY(check_input(module, x, __func__));
    TRY(check_argument_tensor(module, y, "y", output_rows(module, x), module->out, __func__));
    TRY(tensor_check_apart(&x->t, "x", &y->t, "y", __func__));
    return MODULE_INSIDE(module->handle.context, run_forward(module, x, y));
}

static ott_status run_backward(ott_module *m, const ott_tensor *dy, const ott_tensor *dx) {
    exec cx;
    module_value value = {.t = dy->t};
    TRY(module_exec(m, &cx));
    cx.phase = PHASE_TRAIN;
    cx.step = m->kept_step;
    cx.is_first_microbatch = m->kept_first;
    ott_status status = m->table->backward(&cx, m, &value, dx ? &dx->t : NULL);
    module_drop_forward(m, status == OTT_OK ? "a backward already used it" : "the last backward failed");
    return status == OTT_OK ? autocast_after_backward(m) : status;
}

ott_status ott_module_backward(ott_module *module, const ott_tensor *dy, ott_tensor *dx) {
    char shown[96];
    API_HANDLE(module, MODULE);
    API_HANDLE_IN(dy, TENSOR, module->handle.context);
    if (dx) API_HANDLE_IN(dx, TENSOR, module->handle.context);
    TRY(check_runnable(module, __func__));
    if (module->no_forward_reason)
        return status_fail(OTT_ERR_ARGUMENT, "%s: %s has no saved forward: %s", __func__,
                           module_show(module, shown), module->no_forward_reason);
    TRY(check_argument_tensor(module, dy, "dy", module->kept_rows, module->out, __func__));
    if (dx && module->table->is_model)
        return status_fail(OTT_ERR_ARGUMENT, "%s: tokens have no gradient: give NULL for dx", __func__);
    if (dx) TRY(check_argument_tensor(module, dx, "dx", module->kept_rows, module->in, __func__));
    if (dx) TRY(tensor_check_apart(&dy->t, "dy", &dx->t, "dx", __func__));
    return MODULE_INSIDE(module->handle.context, run_backward(module, dy, dx));
}

/* ---- settings ---- */

static ott_status set_training(void *user, ott_module *m) {
    m->training = *(const bool *)user;
    return OTT_OK;
}

ott_status ott_module_set_training(ott_module *module, int training) {
    bool value = training != 0;
    API_HANDLE(module, MODULE);
    TRY(check_runnable(module, __func__));
    return MODULE_INSIDE(module->handle.context, module_visit(module, set_training, &value));
}

static ott_status set_micro_batch(void *user, ott_module *m) {
    m->micro_batch = *(const int *)user;
    return OTT_OK;
}

ott_status ott_module_set_micro_batch(ott_module *module, int index) {
    API_HANDLE(module, MODULE);
    TRY(check_runnable(module, __func__));
    if (index < -1)
        return status_fail(OTT_ERR_ARGUMENT, "%s: index = %d: give -1, or 0 or more", __func__, index);
    return MODULE_INSIDE(module->handle.context, module_visit(module, set_micro_batch, &index));
}

typedef struct sequences {
    const int64_t *start;
    int count;
} sequences;

static ott_status set_sequences(void *user, ott_module *m) {
    const sequences *s = user;
    return m->table->set_sequences ? m->table->set_sequences(m, s->start, s->count) : OTT_OK;
}

ott_status ott_module_set_sequences(ott_module *module, const int64_t *start, int count) {
    API_HANDLE(module, MODULE);
    TRY(check_runnable(module, __func__));
    if (count < 0) return status_fail(OTT_ERR_ARGUMENT, "%s: count = %d: give 0 or more", __func__, count);
    if (count > 0) API_REQUIRE(start);
    for (int i = 0; i < count; i++)
        if (i == 0 ? start[0] != 0 : start[i] <= start[i - 1])
            return status_fail(OTT_ERR_ARGUMENT, "%s: start[%d] = %lld: sequences begin at 0 and ascend",
                               __func__, i, (long long)start[i]);
    sequences s = {start, count};
    return MODULE_INSIDE(module->handle.context, module_visit(module, set_sequences, &s));
}
