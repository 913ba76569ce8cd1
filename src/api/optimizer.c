/* api/optimizer: an optimizer for all parameters of a module. */
#include "api/optimizer.h"
#include "api/fp8/autocast.h"
#include "api/module/model.h"

/* ---- options ---- */

void(ott_adamw_options_init)(ott_adamw_options *options, size_t size) {
    API_INIT(options, size, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01);
}

void(ott_step_info_init)(ott_step_info *info, size_t size) {
    API_INIT(info, size, 0);
}

static ott_status check_between(double value, double low, double high, bool open, const char *name,
                                const char *function) {
    if (value >= low && (open ? value < high : value <= high)) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: %s = %g: give a number in [%g, %g%c", function, name, value,
                       low, high, open ? ')' : ']');
}

/* ---- opening and closing ---- */

static int64_t padded_floats(const ott_optimizer *o, int64_t floats) {
    int64_t size = (int64_t)sizeof(float);
    return backend_align(o->handle.context->device->can, floats * size) / size;
}

static void release_optimizer(ott_optimizer *o) {
    ott_context *context = o->handle.context;
    plan_destroy(o->plan);
    device_release(context->device, o->block);
    mem_free(context->account, o->parameters);
    handle_close(&o->handle);
}

/* Assigns the memory at `base` (NULL: none) to optimizer and step state. Returns their size in floats. */
static int64_t lay_out_state(ott_optimizer *o, float *base) {
    int64_t at = 0;
    for (int i = 0; i < o->count; i++) {
        parameter *p = &o->parameters[i];
        for (int j = 0; j < optimizer_slots(o->rule, p) && !p->frozen; j++) {
            p->shard.slot[j] = tensor_matrix(base ? base + at : NULL, OTT_F32, p->rows, p->columns);
            at += padded_floats(o, parameter_count(p));
        }
    }
    o->state = tensor_vector(base ? base + at : NULL, OTT_F32, STEP_STATE_COUNT);
    return at + padded_floats(o, STEP_STATE_COUNT);
}

static ott_status build_optimizer(ott_optimizer *o) {
    ott_context *context = o->handle.context;
    o->count = ott_module_parameter_count(o->module);
    TRY(mem_alloc_array(context->account, MEM_OTHER, o->count, sizeof *o->parameters, "an optimizer",
                        &o->parameters));
    for (int i = 0; i < o->count; i++) {
        o->parameters[i] = *module_parameter_at(o->module, i)->p;
        o->parameters[i].name = NULL; /* a name changes when its module becomes part of another */
    }
    int64_t floats = lay_out_state(o, NULL);
    TRY(device_allocate(context->device, MEM_OPTIMIZER, floats * (int64_t)sizeof(float), "optimizer state",
                        &o->block));
    lay_out_state(o, o->block);
    TRY(plan_create(context->device, &o->plan));
    plan_immediate(o->plan);
    return OTT_OK;
}

static ott_status open_optimizer(ott_module *module, const optimizer_rule *rule,
                                 const optimizer_options *options, ott_optimizer **out) {
    ott_optimizer *o;
    TRY(handle_open(module->handle.context, HANDLE_OPTIMIZER, sizeof(ott_optimizer), &o));
    o->module = module;
    o->rule = rule;
    o->options = *options;
    ott_status status = build_optimizer(o);
    if (status == OTT_OK)
        *out = o;
    else
        release_optimizer(o);
    return status;
}

static ott_status open_adamw(ott_module *module, const ott_adamw_options *given, ott_optimizer **out) {
    const optimizer_options options = {.beta1 = (float)given->beta1,
                                       .beta2 = (float)given->beta2,
                                       .epsilon = (float)given->epsilon,
                                       .weight_decay = (float)given->weight_decay,
                                       .max_norm = (float)given->max_norm};
    TRY(open_optimizer(module, optimizer_find("adamw"), &options, out));
    (*out)->lr = given->lr;
    return OTT_OK;
}

ott_status ott_adamw_open(ott_context *context, ott_module *module, const ott_adamw_options *options,
                          ott_optimizer **out) {
    ott_adamw_options o;
    API_REQUIRE(context);
    API_HANDLE_IN(module, MODULE, context);
    API_REQUIRE(out);
    *out = NULL;
    ott_adamw_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_adamw_options"));
    TRY(check_between(o.lr, 0, 1e6, false, "lr", __func__));
    TRY(check_between(o.beta1, 0, 1, true, "beta1", __func__));
    TRY(check_between(o.beta2, 0, 1, true, "beta2", __func__));
    TRY(module_option_epsilon(o.epsilon, "epsilon", __func__));
    TRY(check_between(o.weight_decay, 0, 1e6, false, "weight_decay", __func__));
    TRY(check_between(o.max_norm, 0, 1e30, false, "max_norm", __func__));
    return MODULE_INSIDE(context, open_adamw(module, &o, out));
}

/* Opens the optimizer of the model's configuration, with its schedule until a learning rate is set. */
static ott_status open_configured(ott_module *m, ott_optimizer **out) {
    const model_body *b = module_model_body(m);
    if (b->rule->use_average) /* a rule that evaluates and saves averaged weights */
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "ott_model_optimizer_open: only ott_train has optimizer.name = \"%s\"",
                           b->rule->name);
    TRY(open_optimizer(m, b->rule, &b->options.optimizer, out));
    (*out)->scheduled = true;
    return OTT_OK;
}

ott_status ott_model_optimizer_open(ott_module *m, ott_optimizer **out) {
    TRY(module_model_check(m, __func__, "model"));
    API_REQUIRE(out);
    *out = NULL;
    return MODULE_INSIDE(m->handle.context, open_configured(m, out));
}

void ott_optimizer_close(ott_optimizer *optimizer) {
    if (!handle_is_open(optimizer, HANDLE_OPTIMIZER)) return;
    ott_context *context = optimizer->handle.context;
    if (module_enter(context, __func__) != OTT_OK) return;
    release_optimizer(optimizer);
    api_leave(context);
}

ott_status optimizer_check(const ott_optimizer *o, const char *function) {
    TRY(handle_check(o, HANDLE_OPTIMIZER, function, "optimizer"));
    return handle_check(o->module, HANDLE_MODULE, function, "the optimizer's module");
}

/* ---- steps ---- */

ott_status ott_optimizer_set_lr(ott_optimizer *optimizer, double lr) {
    TRY(optimizer_check(optimizer, __func__));
    TRY(check_between(lr, 0, 1e6, false, "lr", __func__));
    optimizer->lr = lr;
    optimizer->scheduled = false;
    return OTT_OK;
}

static ott_status run_optimizer_step(ott_optimizer *o, ott_step_info *info) {
    ott_context *context = o->handle.context;
    float host[STEP_STATE_COUNT] = {[STEP_LOSS_SCALE] = 1.0f};
    exec cx;
    TRY(module_make_weights(o->module));
    model_body *b = module_model_body(o->module);
    if (o->scheduled) o->lr = module_model_learning_rate(b);
    TRY(api_exec(context, &cx));
    cx.plan = o->plan;
    optimizer_schedule(o->rule, &o->options, o->lr, o->updates + 1, host);
    TRY(device_copy_in(cx.device, o->state.data, host, sizeof host));
    module_drop_forward(o->module, "an optimizer step ran after it");
    TRY(optimizer_update(&cx, o->rule, &o->options, o->parameters, o->count, NULL, &o->state));
    TRY(device_copy_out(cx.device, host, o->state.data, sizeof host));
    context->step++;
    info->skipped = host[STEP_SKIP] != 0.0f;
    o->updates += !info->skipped;
    info->updates = o->updates;
    if (b) module_model_count_step(b, o->updates, info->skipped);
    info->grad_norm = (double)host[STEP_GRAD_NORM];
    return autocast_after_step(o->module);
}

ott_status ott_optimizer_step(ott_optimizer *optimizer, ott_step_info *out) {
    ott_step_info info;
    TRY(optimizer_check(optimizer, __func__));
    TRY(api_check_struct(out, "ott_step_info"));
    ott_step_info_init(&info);
    ott_status status = MODULE_INSIDE(optimizer->handle.context, run_optimizer_step(optimizer, &info));
    if (status != OTT_OK || !out) return status;
    return api_write_struct(out, &info, sizeof info, "ott_step_info");
}

static ott_status zero_gradients(ott_optimizer *o) {
    for (int i = 0; i < o->count; i++)
        if (!o->parameters[i].frozen)
            TRY(device_zero(o->handle.context->device, o->parameters[i].grad.data,
                            tensor_bytes(o->parameters[i].grad)));
    return OTT_OK;
}

ott_status ott_optimizer_zero_grad(ott_optimizer *optimizer) {
    TRY(optimizer_check(optimizer, __func__));
    return MODULE_INSIDE(optimizer->handle.context, zero_gradients(optimizer));
}
