/* api/module/block: the composite modules: attention, mlp, transformer layer. */
#include "api/sequence_layout.h"
#include "model/block.h"
#include "model/modules.h"
#include <stddef.h>
#include <string.h>

/* ---- parts ---- */

static ott_status add_child(ott_module *m, const char *label, ott_module *part) {
    ott_status status = module_add_child(m, label, part);
    if (status != OTT_OK) module_close_tree(part);
    return status;
}

/* Adds child nodes for the layers of roles `from` to `to`, with the names that they have in a model. part:
   the struct with the layers. It is a block (offset 0), or a member at byte `offset` of a block. */
static ott_status add_roles(ott_module *m, const model_options *o, module_role from, module_role to,
                            void *part, size_t offset) {
    ott_context *context = m->handle.context;
    for (module_role role = from; role <= to; role++) {
        if (!modules_has(o, 0, role)) continue;
        char name[MODULES_NAME_BYTES];
        ott_module *made;
        void *layer = (char *)part + (modules_offset(o, 0, role) - (int64_t)offset);
        const model_module e = modules_describe(o, role, 0);
        TRY(e.kind == MODULE_NORM
                ? module_make_norm(context, layer, e.shape[0], (double)o->norm_epsilon, m->dtype, &made)
                : module_make_linear(context, layer, e.shape[1], e.shape[0], e.has_bias, m->dtype, &made));
        modules_name(NULL, role, NAMING_HUGGING_FACE, 0, name);
        TRY(add_child(m, strrchr(name, '.') + 1, made));
    }
    return OTT_OK;
}

/* Opens a buffer for dx if dx is NULL, because backward always writes it. */
static ott_status open_input_gradient(exec *cx, const ott_module *m, const tensor *dx, int64_t rows,
                                      module_value *out) {
    *out = (module_value){0};
    if (dx) {
        out->t = *dx;
        return OTT_OK;
    }
    return exec_open(cx, "module input gradient", m->dtype, rows, m->in, &out->t, &out->buffer);
}

/* ---- attention ---- */

typedef struct attention_body {
    attention own;
    attention *layer; /* the layer: `own`, or the attention in the body of a transformer layer */
    activation_specs input_specs, grad_specs;
    rope rope; /* rope and `sequences` are used only if `layer` points to `own` */
    sequence_layout sequences;
    activation x;
    attention_saved saved;
} attention_body;

static ott_status attention_module_forward(exec *cx, ott_module *m, module_value *x, const tensor *y) {
    attention_body *b = m->body;
    if (cx->phase == PHASE_TRAIN && b->input_specs.columnwise_high_precision) TRY(module_own_input(cx, x));
    TRY(activation_adopt(cx, "attention input", x->t, &x->buffer, &b->input_specs, &b->x));
    TRY(activation_quantize(cx, &b->x));
    TRY(attention_forward(cx, b->layer, &b->sequences.at, &b->x, &b->saved));
    TRY(attention_core_project(cx, &b->layer->core, &b->saved.core, y));
    if (cx->phase == PHASE_TRAIN) {
        TRY(attention_core_keep(cx, &b->saved.core));
        return activation_keep_for_backward(cx, &b->x, &b->input_specs, false);
    }
    TRY(attention_discard(cx, &b->saved));
    return activation_close(cx, &b->x);
}

static ott_status attention_module_backward(exec *cx, ott_module *m, module_value *dy, const tensor *dx) {
    attention_body *b = m->body;
    activation g;
    module_value out;
    TRY(open_input_gradient(cx, m, dx, dy->t.rows, &out));
    TRY(activation_adopt(cx, "attention output gradient", dy->t, &dy->buffer, &b->grad_specs, &g));
    TRY(activation_quantize(cx, &g));
    TRY(attention_backward(cx, b->layer, &b->sequences.at, &b->saved, &b->x, &g, &out.t));
    TRY(activation_close(cx, &g));
    TRY(plan_close(cx->plan, &out.buffer));
    return activation_close(cx, &b->x);
}

static ott_status attention_module_connect(ott_module *m) {
    attention_body *b = m->body;
    b->input_specs = b->grad_specs = (activation_specs){0};
    return attention_connect(b->layer, &b->input_specs, &b->grad_specs);
}

static ott_status attention_module_prepare(ott_module *m, int64_t rows) {
    attention_body *b = m->body;
    if (b->layer != &b->own) return OTT_OK;
    return sequence_layout_update(&b->sequences, m->handle.context->device, rows, rows);
}

static ott_status attention_module_set_sequences(ott_module *m, const int64_t *start, int count) {
    attention_body *b = m->body;
    if (b->layer != &b->own) return OTT_OK;
    return sequence_layout_set(&b->sequences, m->handle.context->account, start, count);
}

static void attention_module_release(ott_module *m, device *d) {
    attention_body *b = m->body;
    rope_release(&b->rope, d);
    sequence_layout_release(&b->sequences, d);
}

static const module_table module_attention = {.kind = "attention",
                                              .forward = attention_module_forward,
                                              .backward = attention_module_backward,
                                              .connect = attention_module_connect,
                                              .prepare = attention_module_prepare,
                                              .set_sequences = attention_module_set_sequences,
                                              .release = attention_module_release};

static ott_status open_positions(rope *tables, sequence_layout *p, device *d,
                                 const ott_attention_options *o) {
    p->max_positions = o->max_positions;
    p->limit = "max_positions";
    return rope_build(tables, d, &(rope_options){.kind = ROPE_PLAIN, .theta = o->rope_theta}, o->head_dim,
                      o->max_positions);
}

/* layer, tables: a transformer layer's attention and rope tables; NULL: those of the made module's body. */
static ott_status make_attention(ott_context *context, attention *layer, const rope *tables,
                                 const ott_attention_options *o, ott_module **made) {
    const model_options shape = {
        .dim = o->dim, .heads = o->heads, .kv_heads = o->kv_heads, .head_dim = o->head_dim};
    TRY(module_make(context, &module_attention, o->dim, o->dim, o->dtype, sizeof(attention_body), made));
    ott_module *m = *made;
    attention_body *b = m->body;
    attention *a = b->layer = layer ? layer : &b->own;
    *a = (attention){.core = {.heads = o->heads,
                              .kv_heads = o->kv_heads,
                              .head_dim = o->head_dim,
                              .window = o->window,
                              .rope = tables ? tables : &b->rope}};
    ott_status status = OTT_OK;
    if (!tables) status = open_positions(&b->rope, &b->sequences, context->device, o);
    if (status == OTT_OK) status = add_roles(m, &shape, ROLE_QKV, ROLE_O, a, offsetof(block, attention));
    if (status != OTT_OK) module_close_tree(m);
    return status;
}

void(ott_attention_options_init)(ott_attention_options *options, size_t size) {
    API_INIT(options, size, .rope_theta = 10000.0, .max_positions = 2048, .dtype = OTT_BF16,
             .init_std = 0.02);
}

/* Checks dim and the heads. Sets kv_heads and head_dim if they are 0. */
static ott_status check_heads(ott_attention_options *o, const char *function) {
    TRY(module_option_positive(o->dim, "dim", function));
    TRY(module_option_positive(o->heads, "heads", function));
    if (o->kv_heads == 0) o->kv_heads = o->heads;
    TRY(module_option_positive(o->kv_heads, "kv_heads", function));
    if (o->heads % o->kv_heads != 0)
        return status_fail(OTT_ERR_ARGUMENT, "%s: heads = %lld is not a multiple of kv_heads = %lld",
                           function, (long long)o->heads, (long long)o->kv_heads);
    if (o->head_dim == 0 && o->dim % o->heads != 0)
        return status_fail(OTT_ERR_ARGUMENT,
                           "%s: dim = %lld is not a multiple of heads = %lld: give head_dim", function,
                           (long long)o->dim, (long long)o->heads);
    if (o->head_dim == 0) o->head_dim = o->dim / o->heads;
    TRY(module_option_positive(o->head_dim, "head_dim", function));
    if (o->head_dim % 2 == 0)
        return module_option_positive(o->heads * o->head_dim, "heads * head_dim", function);
    return status_fail(OTT_ERR_ARGUMENT,
                       "%s: head_dim = %lld must be even: rotary embedding rotates pairs of columns",
                       function, (long long)o->head_dim);
}

static ott_status check_attention(ott_attention_options *o, const char *function) {
    TRY(check_heads(o, function));
    if (o->window < 0)
        return status_fail(OTT_ERR_ARGUMENT, "%s: window = %lld: give 0 (all keys) or more", function,
                           (long long)o->window);
    if (!(o->rope_theta > 0 && o->rope_theta <= 1e30))
        return status_fail(OTT_ERR_ARGUMENT, "%s: rope_theta = %g: give a number above 0", function,
                           o->rope_theta);
    TRY(module_option_positive(o->max_positions, "max_positions", function));
    TRY(module_option_dtype(o->dtype, function));
    return module_option_deviation(o->init_std, function);
}

static ott_status open_attention(ott_context *context, const ott_attention_options *o, ott_module **out) {
    ott_module *m;
    device *d;
    TRY(api_device(context, &d));
    TRY(make_attention(context, NULL, NULL, o, &m));
    return module_finish(m, o->init_std, o->seed, OTT_OK, out);
}

ott_status ott_attention_open(ott_context *context, const ott_attention_options *options, ott_module **out) {
    ott_attention_options o;
    API_REQUIRE_BOTH(context, options);
    API_REQUIRE(out);
    *out = NULL;
    ott_attention_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_attention_options"));
    TRY(check_attention(&o, __func__));
    return API_INSIDE(context, open_attention(context, &o, out));
}

/* ---- mlp ---- */

typedef struct mlp_body {
    mlp own;
    mlp *layer; /* the layer: `own`, or the mlp in the body of a transformer layer */
    activation_specs input_specs, grad_specs;
    activation x;
    mlp_saved saved;
} mlp_body;

static ott_status mlp_module_forward(exec *cx, ott_module *m, module_value *x, const tensor *y) {
    mlp_body *b = m->body;
    if (cx->phase == PHASE_TRAIN && b->input_specs.columnwise_high_precision) TRY(module_own_input(cx, x));
    TRY(activation_adopt(cx, "mlp input", x->t, &x->buffer, &b->input_specs, &b->x));
    TRY(activation_quantize(cx, &b->x));
    TRY(mlp_forward(cx, b->layer, &b->x, &b->saved));
    TRY(mlp_activate(cx, b->layer, &b->saved));
    TRY(mlp_project(cx, b->layer, &b->saved, y));
    if (cx->phase == PHASE_TRAIN) {
        TRY(mlp_keep(cx, b->layer, &b->saved));
        return activation_keep_for_backward(cx, &b->x, &b->input_specs, false);
    }
    TRY(mlp_discard(cx, &b->saved));
    return activation_close(cx, &b->x);
}

static ott_status mlp_module_backward(exec *cx, ott_module *m, module_value *dy, const tensor *dx) {
    mlp_body *b = m->body;
    activation g;
    module_value out;
    TRY(open_input_gradient(cx, m, dx, dy->t.rows, &out));
    TRY(activation_adopt(cx, "mlp output gradient", dy->t, &dy->buffer, &b->grad_specs, &g));
    TRY(activation_quantize(cx, &g));
    TRY(mlp_backward(cx, b->layer, &b->saved, &b->x, &g, &out.t));
    TRY(activation_close(cx, &g));
    TRY(plan_close(cx->plan, &out.buffer));
    return activation_close(cx, &b->x);
}

static ott_status mlp_module_connect(ott_module *m) {
    mlp_body *b = m->body;
    b->input_specs = b->grad_specs = (activation_specs){0};
    return mlp_connect(b->layer, &b->input_specs, &b->grad_specs);
}

static const module_table module_mlp = {.kind = "mlp",
                                        .forward = mlp_module_forward,
                                        .backward = mlp_module_backward,
                                        .connect = mlp_module_connect};

static ott_status make_mlp(ott_context *context, mlp *layer, const ott_mlp_options *o, ott_module **made) {
    TRY(module_make(context, &module_mlp, o->dim, o->dim, o->dtype, sizeof(mlp_body), made));
    ott_module *m = *made;
    mlp_body *b = m->body;
    b->layer = layer ? layer : &b->own;
    const model_options shape = {.dim = o->dim, .hidden = o->hidden};
    ott_status status = add_roles(m, &shape, ROLE_GATE_UP, ROLE_DOWN, b->layer, offsetof(block, mlp));
    if (status != OTT_OK) module_close_tree(m);
    return status;
}

void(ott_mlp_options_init)(ott_mlp_options *options, size_t size) {
    API_INIT(options, size, .dtype = OTT_BF16, .init_std = 0.02);
}

static ott_status open_mlp(ott_context *context, const ott_mlp_options *o, ott_module **out) {
    ott_module *m;
    TRY(make_mlp(context, NULL, o, &m));
    return module_finish(m, o->init_std, o->seed, OTT_OK, out);
}

ott_status ott_mlp_open(ott_context *context, const ott_mlp_options *options, ott_module **out) {
    ott_mlp_options o;
    API_REQUIRE_BOTH(context, options);
    API_REQUIRE(out);
    *out = NULL;
    ott_mlp_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_mlp_options"));
    TRY(module_option_positive(o.dim, "dim", __func__));
    TRY(module_option_positive(o.hidden, "hidden", __func__));
    TRY(module_option_dtype(o.dtype, __func__));
    TRY(module_option_deviation(o.init_std, __func__));
    return API_INSIDE(context, open_mlp(context, &o, out));
}

/* ---- transformer layer ---- */

typedef struct layer_body {
    block block;
    rope rope;
    sequence_layout sequences;
    block_saved saved;
} layer_body;

/* saved.h2 is the residual after attention; y = h2 + mlp(...). */
static ott_status layer_module_forward(exec *cx, ott_module *m, module_value *x, const tensor *y) {
    layer_body *b = m->body;
    tensor delta;
    plan_buffer delta_buffer;
    if (cx->phase == PHASE_TRAIN) TRY(module_own_input(cx, x)); /* the block saves x as the residual */
    TRY(block_enter(cx, &b->block, &x->t, &x->buffer, NULL, &b->saved));
    TRY(block_run(cx, &b->block, &b->sequences.at, &b->saved, &delta, &delta_buffer));
    TRY(op_add(cx, &(add_args){.x = &b->saved.h2, .delta = &delta, .y = y}));
    TRY(plan_close(cx->plan, &delta_buffer));
    return block_finalize(cx, &b->block, &b->saved);
}

static ott_status layer_module_backward(exec *cx, ott_module *m, module_value *dy, const tensor *dx) {
    layer_body *b = m->body;
    activation g, out;
    TRY(activation_adopt(cx, "layer output gradient", dy->t, &dy->buffer, &b->block.grad_output, &g));
    TRY(activation_quantize(cx, &g));
    TRY(block_backward(cx, &b->block, &b->sequences.at, &b->saved, &g, NULL, &out));
    if (dx) TRY(op_convert(cx, &(convert_args){.x = &out.t, .y = dx}));
    return activation_close(cx, &out);
}

static ott_status layer_module_connect(ott_module *m) {
    return block_connect(&((layer_body *)m->body)->block);
}

static ott_status layer_module_prepare(ott_module *m, int64_t rows) {
    return sequence_layout_update(&((layer_body *)m->body)->sequences, m->handle.context->device, rows, rows);
}

static ott_status layer_module_set_sequences(ott_module *m, const int64_t *start, int count) {
    return sequence_layout_set(&((layer_body *)m->body)->sequences, m->handle.context->account, start, count);
}

static void layer_module_release(ott_module *m, device *d) {
    layer_body *b = m->body;
    rope_release(&b->rope, d);
    sequence_layout_release(&b->sequences, d);
}

static const module_table module_transformer_layer = {.kind = "transformer_layer",
                                                      .forward = layer_module_forward,
                                                      .backward = layer_module_backward,
                                                      .connect = layer_module_connect,
                                                      .prepare = layer_module_prepare,
                                                      .set_sequences = layer_module_set_sequences,
                                                      .release = layer_module_release};

void(ott_transformer_layer_options_init)(ott_transformer_layer_options *options, size_t size) {
    API_INIT(options, size, .rope_theta = 10000.0, .max_positions = 2048, .norm_epsilon = 1e-5,
             .dtype = OTT_BF16, .init_std = 0.02);
}

static ott_status build_layer(ott_module *m, const ott_transformer_layer_options *o,
                              const ott_attention_options *a) {
    ott_context *context = m->handle.context;
    layer_body *b = m->body;
    ott_module *part;
    const model_options shape = {.dim = o->dim, .norm_epsilon = (float)o->norm_epsilon};
    const ott_mlp_options f = {
        .struct_size = sizeof f, .dim = o->dim, .hidden = o->hidden, .dtype = o->dtype};
    b->block.checkpointing = CHECKPOINT_NONE;
    b->block.mixer = &mixer_attention;
    b->block.ffn = &ffn_mlp;
    TRY(open_positions(&b->rope, &b->sequences, context->device, a));
    TRY(add_roles(m, &shape, ROLE_ATTENTION_NORM, ROLE_ATTENTION_NORM, &b->block, 0));
    TRY(make_attention(context, &b->block.attention, &b->rope, a, &part));
    TRY(add_child(m, "self_attn", part));
    TRY(add_roles(m, &shape, ROLE_MLP_NORM, ROLE_MLP_NORM, &b->block, 0));
    TRY(make_mlp(context, &b->block.mlp, &f, &part));
    return add_child(m, "mlp", part);
}

static ott_status open_layer(ott_context *context, const ott_transformer_layer_options *o,
                             const ott_attention_options *a, ott_module **out) {
    ott_module *m;
    TRY(module_make(context, &module_transformer_layer, o->dim, o->dim, o->dtype, sizeof(layer_body), &m));
    return module_finish(m, o->init_std, o->seed, build_layer(m, o, a), out);
}

ott_status ott_transformer_layer_open(ott_context *context, const ott_transformer_layer_options *options,
                                      ott_module **out) {
    ott_transformer_layer_options o;
    API_REQUIRE_BOTH(context, options);
    API_REQUIRE(out);
    *out = NULL;
    ott_transformer_layer_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_transformer_layer_options"));
    ott_attention_options a = (ott_attention_options){.struct_size = sizeof(ott_attention_options),
                                                      .dim = o.dim,
                                                      .heads = o.heads,
                                                      .kv_heads = o.kv_heads,
                                                      .head_dim = o.head_dim,
                                                      .window = o.window,
                                                      .rope_theta = o.rope_theta,
                                                      .max_positions = o.max_positions,
                                                      .dtype = o.dtype,
                                                      .init_std = o.init_std};
    TRY(check_attention(&a, __func__));
    TRY(module_option_positive(o.hidden, "hidden", __func__));
    TRY(module_option_epsilon(o.norm_epsilon, "norm_epsilon", __func__));
    return API_INSIDE(context, open_layer(context, &o, &a, out));
}
