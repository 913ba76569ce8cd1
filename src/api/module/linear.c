/* api/module/linear: the linear and norm modules, separate or as parts of composite modules. */
#include "api/fp8/autocast.h"
#include "api/module/module.h"
#include "nn/norm.h"
#include <stdio.h>

/* ---- linear ---- */

static ott_status linear_module_forward(exec *cx, ott_module *m, module_value *x, const tensor *y) {
    linear_body *b = m->body;
    if (cx->phase == PHASE_TRAIN && b->input_specs.columnwise_high_precision) TRY(module_own_input(cx, x));
    TRY(activation_adopt(cx, "linear input", x->t, &x->buffer, &b->input_specs, &b->x));
    TRY(activation_quantize(cx, &b->x));
    TRY(linear_forward(cx, b->layer, &b->x, y));
    if (cx->phase == PHASE_TRAIN) return activation_keep_for_backward(cx, &b->x, &b->input_specs, false);
    return activation_close(cx, &b->x);
}

static ott_status linear_module_backward(exec *cx, ott_module *m, module_value *dy, const tensor *dx) {
    linear_body *b = m->body;
    activation g;
    TRY(activation_adopt(cx, "linear output gradient", dy->t, &dy->buffer, &b->grad_specs, &g));
    TRY(activation_quantize(cx, &g));
    if (dx) TRY(linear_grad_input(cx, b->layer, &g, dx, false));
    TRY(linear_grad_weight(cx, b->layer, &b->x, &g));
    TRY(activation_close(cx, &g));
    return activation_close(cx, &b->x);
}

static ott_status linear_module_connect(ott_module *m) {
    linear_body *b = m->body;
    b->input_specs = b->grad_specs = (activation_specs){0};
    return linear_connect(b->layer, &b->input_specs, &b->grad_specs);
}

static void linear_module_rename(ott_module *m) {
    linear *l = module_linear_body(m)->layer;
    l->name = l->source.name = *m->name ? m->name : m->table->kind;
}

static void linear_module_release(ott_module *m, device *d) {
    linear_body *b = m->body;
    autocast_unregister(m);
    if (b->layer) weight_release(&b->layer->source, d);
    delayed_store_release(&b->store, d);
    mem_free(d->account, b->skip_reason);
}

static const module_table module_linear = {.kind = "linear",
                                           .is_linear = true,
                                           .forward = linear_module_forward,
                                           .backward = linear_module_backward,
                                           .connect = linear_module_connect,
                                           .rename = linear_module_rename,
                                           .release = linear_module_release};

static ott_status build_linear(ott_module *m, bool bias) {
    const parameter *weight, *own_bias;
    linear_body *b = m->body;
    linear_spec spec;
    TRY(module_add_parameter(m, "weight", m->out, m->in, &weight));
    b->layer->weight = (parameter *)(uintptr_t)weight;
    if (bias) {
        TRY(module_add_parameter(m, "bias", 0, m->out, &own_bias));
        b->layer->bias = (parameter *)(uintptr_t)own_bias;
    }
    recipe_compile(recipe_high_precision(m->dtype), m->dtype, &spec);
    return linear_set_spec(b->layer, m->handle.context->device, &spec);
}

ott_status module_make_linear(ott_context *context, linear *layer, int64_t in, int64_t out, bool bias,
                              ott_dtype dtype, ott_module **made) {
    TRY(module_make(context, &module_linear, in, out, dtype, sizeof(linear_body), made));
    linear_body *b = (*made)->body;
    b->layer = layer ? layer : &b->own;
    *b->layer = (linear){.name = "linear", .in = in, .out = out, .input_copy = -1, .grad_copy = -1};
    ott_status status = build_linear(*made, bias);
    if (status != OTT_OK) module_close_tree(*made), *made = NULL;
    return status;
}

void(ott_linear_options_init)(ott_linear_options *options, size_t size) {
    API_INIT(options, size, .bias = 1, .dtype = OTT_BF16, .init_std = 0.02);
}

static ott_status open_linear(ott_context *context, const ott_linear_options *o, ott_module **out) {
    ott_module *m;
    TRY(module_make_linear(context, NULL, o->in_features, o->out_features, o->bias != 0, o->dtype, &m));
    return module_finish(m, o->init_std, o->seed, OTT_OK, out);
}

ott_status ott_linear_open(ott_context *context, const ott_linear_options *options, ott_module **out) {
    ott_linear_options o;
    API_REQUIRE_BOTH(context, options);
    API_REQUIRE(out);
    *out = NULL;
    ott_linear_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_linear_options"));
    TRY(module_option_positive(o.in_features, "in_features", __func__));
    TRY(module_option_positive(o.out_features, "out_features", __func__));
    TRY(module_option_dtype(o.dtype, __func__));
    TRY(module_option_deviation(o.init_std, __func__));
    return API_INSIDE(context, open_linear(context, &o, out));
}

/* ---- norm ---- */

typedef struct norm_body {
    norm own;
    norm *layer; /* the layer: `own`, or the norm in the body of a transformer layer */
    module_value h;
    tensor rstd;
    plan_buffer rstd_buffer;
} norm_body;

static ott_status norm_module_forward(exec *cx, ott_module *m, module_value *x, const tensor *y) {
    norm_body *b = m->body;
    const activation out = {.t = *y};
    if (cx->phase == PHASE_TRAIN) TRY(module_own_input(cx, x));
    b->h = *x;
    TRY(exec_open(cx, "norm rstd", OTT_F32, 1, x->t.rows, &b->rstd, &b->rstd_buffer));
    TRY(norm_forward(cx, b->layer, &x->t, NULL, NULL, &out, &b->rstd));
    if (cx->phase == PHASE_TRAIN) return OTT_OK;
    TRY(plan_close(cx->plan, &b->rstd_buffer));
    return plan_close(cx->plan, &b->h.buffer);
}

static ott_status norm_module_backward(exec *cx, ott_module *m, module_value *dy, const tensor *dx) {
    norm_body *b = m->body;
    activation out = {0};
    if (dx)
        out.t = *dx;
    else
        TRY(exec_open(cx, "norm input gradient", m->dtype, dy->t.rows, m->in, &out.t, &out.buffer));
    TRY(norm_backward(cx, b->layer, &dy->t, &b->h.t, &b->rstd, NULL, &out));
    TRY(activation_close(cx, &out));
    TRY(plan_close(cx->plan, &dy->buffer));
    TRY(plan_close(cx->plan, &b->rstd_buffer));
    return plan_close(cx->plan, &b->h.buffer);
}

static void norm_module_rename(ott_module *m) {
    ((norm_body *)m->body)->layer->name = *m->name ? m->name : m->table->kind;
}

static const module_table module_norm = {.kind = "norm",
                                         .forward = norm_module_forward,
                                         .backward = norm_module_backward,
                                         .rename = norm_module_rename};

ott_status module_make_norm(ott_context *context, norm *layer, int64_t dim, double epsilon, ott_dtype dtype,
                            ott_module **made) {
    const parameter *weight;
    TRY(module_make(context, &module_norm, dim, dim, dtype, sizeof(norm_body), made));
    norm_body *b = (*made)->body;
    b->layer = layer ? layer : &b->own;
    ott_status status = module_add_parameter(*made, "weight", 0, dim, &weight);
    *b->layer = (norm){.name = "norm", .weight = (parameter *)(uintptr_t)weight, .epsilon = (float)epsilon};
    if (status != OTT_OK) module_close_tree(*made), *made = NULL;
    return status;
}

void(ott_norm_options_init)(ott_norm_options *options, size_t size) {
    API_INIT(options, size, .epsilon = 1e-5, .dtype = OTT_BF16);
}

static ott_status open_norm(ott_context *context, const ott_norm_options *o, ott_module **out) {
    ott_module *m;
    TRY(module_make_norm(context, NULL, o->dim, o->epsilon, o->dtype, &m));
    return module_finish(m, 0.0, 0, OTT_OK, out);
}

ott_status ott_norm_open(ott_context *context, const ott_norm_options *options, ott_module **out) {
    ott_norm_options o;
    API_REQUIRE_BOTH(context, options);
    API_REQUIRE(out);
    *out = NULL;
    ott_norm_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_norm_options"));
    TRY(module_option_positive(o.dim, "dim", __func__));
    TRY(module_option_epsilon(o.epsilon, "epsilon", __func__));
    TRY(module_option_dtype(o.dtype, __func__));
    return API_INSIDE(context, open_norm(context, &o, out));
}
