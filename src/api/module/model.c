/* api/module/model: opens and runs a whole model, and counts its progress. */
#include "api/module/model.h"
#include "api/fp8/autocast.h"
#include "api/loss.h"
#include "folders/hf/model.h"
#include "folders/peft.h"
#include "comm/self.h"
#include "resolve/options.h"
#include "run/run.h"
#include "train/schedule.h"

ott_status module_model_check(const ott_module *m, const char *function, const char *argument) {
    char shown[96];
    TRY(handle_check(m, HANDLE_MODULE, function, argument));
    if (m->table->is_model) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: %s is %s; give a model (ott_model_open)", function, argument,
                       module_show(m, shown));
}

/* ---- tokens ---- */

static ott_status check_row_tensor(const ott_tensor *x, const char *argument, const char *function) {
    int64_t rows = x->t.rows, length = x->t.columns;
    if (x->t.dtype != OTT_I32)
        return status_fail(OTT_ERR_DTYPE, "%s: %s is %s; a model takes token ids, OTT_I32", function,
                           argument, dtype_name(x->t.dtype));
    if (rows >= 1 && length >= 1 && length < INT32_MAX / rows) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE,
                       "%s: %s is [%lld, %lld]; a model takes [sequences, tokens per sequence], with fewer "
                       "than %d tokens in total",
                       function, argument, (long long)rows, (long long)length, INT32_MAX);
}

static ott_status check_id_range(const int32_t *id, int64_t count, int64_t vocab, const char *function) {
    for (int64_t i = 0; i < count; i++)
        if (id[i] < 0 || id[i] >= vocab)
            return status_fail(OTT_ERR_ARGUMENT, "%s: token %lld is %d; ids are 0 to %lld", function,
                               (long long)i, (int)id[i], (long long)vocab - 1);
    return OTT_OK;
}

static ott_status check_token_ids(const ott_tensor *x, int64_t vocab, const char *function) {
    void *host;
    const ott_context *context = x->handle.context;
    int64_t bytes = tensor_bytes(x->t);
    TRY(mem_alloc(context->account, MEM_OTHER, bytes, "tokens", &host));
    ott_status status = device_copy_out(context->device, host, x->t.data, bytes);
    if (status == OTT_OK) status = check_id_range(host, tensor_count(x->t), vocab, function);
    mem_free(context->account, host);
    return status;
}

static ott_status check_tokens(const ott_module *m, const ott_tensor *x, const char *function) {
    TRY(check_row_tensor(x, "x", function));
    return check_token_ids(x, m->out, function);
}

/* ---- passes ---- */

/* Makes a batch of token[sequences, length] and target, which has the same shape; NULL: no targets. */
static ott_status place_batch(ott_module *m, const tensor *token, const tensor *target, batch *out) {
    model_body *b = m->body;
    int64_t count = tensor_count(*token);
    TRY(sequence_layout_update(&b->sequences, m->handle.context->device, count, token->columns));
    *out = (batch){.count = token->rows,
                   .length = token->columns,
                   .token = tensor_vector(token->data, OTT_I32, count),
                   .at = b->sequences.at};
    if (target) out->target = tensor_vector(target->data, OTT_I32, count);
    return OTT_OK;
}

static layer_range all_layers(const model_body *b) {
    return (layer_range){0, b->m->options.layers};
}

static ott_status keep_tokens(exec *cx, model_body *b, const tensor *token) {
    module_value *own = &b->token;
    TRY(exec_open(cx, "model input", OTT_I32, token->rows, token->columns, &own->t, &own->buffer));
    return device_copy(cx->device, own->t.data, token->data, tensor_bytes(*token));
}

static ott_status model_module_forward(exec *cx, ott_module *m, module_value *x, const tensor *y) {
    model_body *b = m->body;
    model_stream stream;
    bool trains = cx->phase == PHASE_TRAIN;
    if (trains) TRY(keep_tokens(cx, b, &x->t));
    TRY(place_batch(m, trains ? &b->token.t : &x->t, NULL, &b->batch));
    TRY(model_forward(cx, b->m, b->slot, &b->batch, all_layers(b), &stream));
    return model_head(cx, b->m, b->slot, y);
}

/* Call it after a training pass: updates the counters and, as ott_train does, the delayed scales. */
static ott_status finish_pass(exec *cx, ott_module *m) {
    model_body *b = m->body;
    if (b->amax_group) TRY(handle_check(b->amax_group, HANDLE_GROUP, "delayed scaling", "amax_group"));
    TRY(model_update_scales(cx, b->m, b->amax_group ? &b->amax_group->group : comm_self()));
    b->run.samples += b->batch.count;
    b->run.tokens += b->batch.count * b->batch.length;
    return OTT_OK;
}

static ott_status run_backward(exec *cx, model_body *b, module_value *dy) {
    activation g;
    TRY(model_head_backward(cx, b->m, b->slot, &dy->t, &dy->buffer, &g));
    return model_backward(cx, b->m, b->slot, &b->batch, all_layers(b), &g);
}

static ott_status model_module_backward(exec *cx, ott_module *m, module_value *dy, const tensor *dx) {
    model_body *b = m->body;
    STATUS_REQUIRE(!dx);
    ott_status status = run_backward(cx, b, dy);
    if (status != OTT_OK) store_abandon(cx, &b->m->store, status);
    TRY(status);
    TRY(plan_close(cx->plan, &b->token.buffer));
    return finish_pass(cx, m);
}

/* ---- module table ---- */

static ott_status model_module_connect(ott_module *m) {
    return model_connect(((model_body *)m->body)->m);
}

static ott_status model_module_set_sequences(ott_module *m, const int64_t *start, int count) {
    return sequence_layout_set(&((model_body *)m->body)->sequences, m->handle.context->account, start, count);
}

static ott_status model_module_make_weights(ott_module *m) {
    const model_body *b = m->body;
    return run_load_initial_weights(b->m, b->cfg, m->handle.context->threads);
}

static void model_module_release(ott_module *m, device *d) {
    model_body *b = m->body;
    model_slot_close(d, b->slot);
    model_close(b->m);
    sequence_layout_release(&b->sequences, d);
    config_close(b->cfg);
}

static const module_table module_model = {.kind = "model",
                                          .is_model = true,
                                          .check_input = check_tokens,
                                          .forward = model_module_forward,
                                          .backward = model_module_backward,
                                          .connect = model_module_connect,
                                          .set_sequences = model_module_set_sequences,
                                          .make_weights = model_module_make_weights,
                                          .release = model_module_release};

/* Kinds of the parts of a model. They have no functions, because only the full model runs. */
static const module_table part_tables[] = {[MODULE_EMBEDDING] = {.kind = "embedding"},
                                           [MODULE_NORM] = {.kind = "norm"},
                                           [MODULE_LINEAR] = {.kind = "linear", .is_linear = true}};

/* ---- opening ---- */

static void show_parameter(ott_module *m, const char *local, parameter *p) {
    if (p) m->parameters[m->parameter_count++] = (module_parameter){.p = p, .local = local};
}

static ott_status add_node(ott_module *m, const model_module *e) {
    ott_module *part;
    bool is_table = e->kind == MODULE_EMBEDDING;
    int64_t in = is_table ? 0 : e->shape[e->rank - 1], out = is_table ? e->shape[1] : e->shape[0];
    TRY(module_make(m->handle.context, &part_tables[e->kind], in, out, m->dtype, sizeof(linear_body), &part));
    if (e->kind == MODULE_LINEAR) module_linear_body(part)->layer = e->linear;
    if (!e->tied) show_parameter(part, "weight", e->weight);
    show_parameter(part, modules_bias_name(e), e->bias);
    ott_status status = module_add_child(m, e->name, part);
    if (status != OTT_OK) module_close_tree(part);
    return status;
}

/* Fails for settings that only ott_train supports. */
static ott_status check_precision(const model_body *b) {
    if (b->precision.phase_count > 1)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "ott_model_open: float8.schedule = \"%s\" needs ott_train: leave the key out, and "
                           "change recipes with ott_convert_to_float8_training",
                           b->cfg->float8.schedule);
    if (b->cfg->train.master_dtype != STATE_FP32 || b->cfg->train.grad_dtype != STATE_FP32 ||
        b->cfg->optimizer.state_dtype != MOMENT_FP32 || b->cfg->train.frozen_dtype != FROZEN_MASTER ||
        b->cfg->train.offload != OFFLOAD_NONE)
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "ott_model_open: parameters, gradients and moments of a module are fp32, in its device's memory: "
            "leave out train.master_dtype, train.frozen_dtype, train.grad_dtype, optimizer.state_dtype and "
            "train.offload, or use ott_train");
    if (!b->options.fp16_scaling) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "ott_model_open: train.mixed_precision = \"fp16\" needs a loss scale, which only ott_train "
        "has: give bf16, fp32 or fp8");
}

/* Sets shape and b->cfg from an ott_config or from ott_model_options. */
typedef ott_status (*model_source)(ott_context *context, const void *from, model_body *b,
                                   model_options *shape);

static ott_status read_config(ott_context *context, const void *from, model_body *b, model_options *shape) {
    const ott_config *asked = from;
    if (asked->changed) TRY(config_check(asked->values)); /* ott_config_set does not check */
    TRY(config_copy(asked->values, &b->cfg));
    TRY(peft_configure(context->account, b->cfg)); /* a PEFT folder may name the base model */
    TRY(run_check_model(b->cfg));
    TRY(hf_model_configure(context->account, b->cfg, NULL));
    b->sequences.limit = "train.seq_len";
    return model_options_resolve(b->cfg, shape);
}

static ott_status read_options(ott_context *context, const void *from, model_body *b, model_options *shape) {
    ott_model_options o = *(const ott_model_options *)from;
    if (o.head_dim == 0 && o.kv_lora_rank <= 0)
        TRY(model_check_divisible("model.dim", o.dim, "model.n_heads", o.n_heads));
    TRY(options_complete(&o));
    TRY(options_describe(&o, shape));
    TRY(config_parse(context->account, NULL, 0, NULL, &b->cfg));
    TRY(options_record(&o, context->account, b->cfg));
    b->cfg->train.mixed_precision = o.dtype == OTT_F32 ? PRECISION_FP32 : PRECISION_BF16;
    b->cfg->train.seed = (int64_t)(o.seed ? o.seed : (uint64_t)++context->modules);
    b->cfg->train.batch_size = 1;
    b->cfg->train.seq_len = config_max_positions(b->cfg);
    b->sequences.limit = "max_seq_len";
    return OTT_OK;
}

/* Sets the options of training. */
static ott_status read_training(model_body *b, model_options *shape) {
    TRY(precision_plan_read(b->cfg, &b->precision));
    TRY(run_trainer_options(b->cfg, &b->precision, 0, &b->options));
    b->rule = optimizer_find(config_word(b->cfg, "optimizer.name"));
    shape->base = NULL;      /* no base weights: the caller may change any weight */
    shape->optimizer = NULL; /* ott_optimizer holds the optimizer's state */
    return check_precision(b);
}

/* Sets up the model as ott_train does. The loss is computed in chunks only if the configuration's micro-batch
   has more tokens than a chunk. */
static ott_status prepare_model(ott_context *context, model_body *b) {
    trainer_options *o = &b->options;
    convert_summary done;
    o->convert.log = &context->log;
    b->recipe_name = o->convert.recipe->name;
    TRY(model_convert(b->m, &o->convert, &done));
    if (o->chunk < o->batch_size * o->seq_len) b->m->loss.chunk = o->chunk;
    b->m->loss.z_weight = o->z_weight;
    b->m->store.micro_batches = o->grad_accum > 1;
    trainer_set_checkpointing(o, b->m);
    b->sequences.max_positions = o->seq_len;
    b->run.loss_scale = STEP_LOSS_SCALE_START;
    if (recipe_gemm_is_fp8(o->convert.recipe, GEMM_COUNT))
        log_info(&context->log, "Applied Float8 training: recipe=%s, %d of %d linear layers converted",
                 o->convert.recipe->display, done.converted, done.linears);
    return model_slot_open(b->m, &b->slot);
}

static ott_status build_model(ott_module *m, model_source read, const void *from) {
    ott_context *context = m->handle.context;
    model_body *b = m->body;
    model_options shape;
    TRY(read(context, from, b, &shape));
    TRY(read_training(b, &shape));
    TRY(model_open(context->device, &shape, MODEL_TRAINING, b->options.seq_len, &b->m));
    TRY(prepare_model(context, b));
    m->dtype = b->m->activation;
    m->out = shape.vocab;
    for (int i = 0; i < b->m->modules.count; i++) TRY(add_node(m, &b->m->modules.items[i]));
    return module_rename(m);
}

static ott_status open_module_model(ott_context *context, model_source read, const void *from,
                                    ott_module **out) {
    ott_module *m;
    TRY(module_make(context, &module_model, 0, 0, OTT_BF16, sizeof(model_body), &m));
    ott_status status = build_model(m, read, from);
    if (status == OTT_OK)
        *out = m;
    else
        module_close_tree(m);
    return status;
}

ott_status ott_model_open(ott_context *context, ott_config *configuration, ott_module **out) {
    API_REQUIRE(context);
    TRY(handle_check_in(configuration, HANDLE_CONFIG, context, __func__, "config"));
    API_REQUIRE(out);
    *out = NULL;
    return MODULE_INSIDE(context, open_module_model(context, read_config, configuration, out));
}

void(ott_model_options_init)(ott_model_options *options, size_t size) {
    API_INIT(options, size, .dtype = OTT_BF16);
}

static ott_status check_lists(const ott_model_options *o, const char *function) {
    const struct {
        const char *name;
        const void *list;
        int count;
    } lists[] = {{"full_attention_layers", o->full_attention_layers, o->full_attention_layer_count},
                 {"moe_dense_layers", o->moe_dense_layers, o->moe_dense_layer_count},
                 {"rope_short_factor", o->rope_short_factor, o->rope_short_factor_count},
                 {"rope_long_factor", o->rope_long_factor, o->rope_long_factor_count}};
    for (int i = 0; i < 4; i++)
        if (lists[i].count < 0 || (lists[i].count > 0 && !lists[i].list))
            return status_fail(OTT_ERR_ARGUMENT, "%s: %s is NULL, or its count (%d) is negative", function,
                               lists[i].name, lists[i].count);
    return OTT_OK;
}

ott_status ott_model_open_options(ott_context *context, const ott_model_options *options, ott_module **out) {
    ott_model_options o;
    API_REQUIRE_BOTH(context, options);
    API_REQUIRE(out);
    *out = NULL;
    ott_model_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_model_options"));
    TRY(module_option_positive(o.dim, "dim", __func__));
    TRY(module_option_positive(o.n_layers, "n_layers", __func__));
    TRY(module_option_positive(o.n_heads, "n_heads", __func__));
    TRY(module_option_positive(o.vocab_size, "vocab_size", __func__));
    if (o.seed > INT64_MAX)
        return status_fail(OTT_ERR_ARGUMENT, "%s: seed = %llu: give at most %lld", __func__,
                           (unsigned long long)o.seed, (long long)INT64_MAX);
    TRY(module_option_dtype(o.dtype, __func__));
    TRY(check_lists(&o, __func__));
    return MODULE_INSIDE(context,
                         status_context(open_module_model(context, read_options, &o, out), __func__));
}

/* ---- loss ---- */

/* Computes the sum of the losses on the device, divided by `labels`. */
static ott_status mean_of(exec *cx, const tensor *losses, int64_t labels, double *out) {
    tensor sum;
    plan_buffer buffer;
    float total = 0.0f;
    TRY(exec_open(cx, "a loss", OTT_F32, 1, 1, &sum, &buffer));
    TRY(device_copy_in(cx->device, sum.data, &total, sizeof total));
    TRY(op_sum(cx, &(sum_args){.x = losses, .sum = &sum}));
    TRY(device_copy_out(cx->device, &total, sum.data, sizeof total));
    *out = (double)total / (double)labels;
    return plan_close(cx->plan, &buffer);
}

static ott_status run_model_pass(exec *cx, ott_module *m, int64_t labels, double *loss) {
    model_body *b = m->body;
    tensor losses, scale;
    plan_buffer losses_buffer, scale_buffer;
    float one_of = 1.0f / (float)labels;
    TRY(exec_open(cx, "losses", OTT_F32, 1, b->batch.token.columns, &losses, &losses_buffer));
    TRY(exec_open(cx, "gradient scale", OTT_F32, 1, 1, &scale, &scale_buffer));
    TRY(device_copy_in(cx->device, scale.data, &one_of, sizeof one_of));
    TRY(model_run(cx, b->m, b->slot, &b->batch, m->training ? &scale : NULL, &losses));
    TRY(mean_of(cx, &losses, labels, loss));
    TRY(plan_close(cx->plan, &scale_buffer));
    TRY(plan_close(cx->plan, &losses_buffer));
    return m->training ? finish_pass(cx, m) : OTT_OK;
}

static ott_status run_loss(ott_module *m, const ott_tensor *tokens, const ott_tensor *targets, int64_t labels,
                           double *loss) {
    exec cx;
    double own;
    model_body *b = m->body;
    TRY(module_exec(m, &cx));
    TRY(module_make_weights(m));
    module_drop_forward(m, "the last pass failed");
    TRY(autocast_before_forward(m));
    TRY(place_batch(m, &tokens->t, &targets->t, &b->batch));
    cx.is_first_microbatch = m->micro_batch <= 0;
    if (cx.is_first_microbatch) module_weights_changed(m);
    ott_status status = run_model_pass(&cx, m, labels, loss ? loss : &own);
    module_drop_forward(m, status == OTT_OK ? "ott_model_loss ran its own backward" : "the last pass failed");
    return status;
}

/* Checks the targets. If *labels is 0, sets it to the number of targets that are not ignored (-100). */
static ott_status check_targets(const ott_module *m, const ott_tensor *tokens, const ott_tensor *targets,
                                const char *function, int64_t *labels) {
    int64_t counted;
    TRY(check_row_tensor(targets, "targets", function));
    TRY(tensor_check_shape(targets, tokens->t.rows, tokens->t.columns, "tokens are", function, "targets"));
    TRY(loss_count_targets(targets, m->out, function, &counted));
    if (*labels == 0) *labels = counted;
    if (*labels >= counted) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT,
                       "%s: labels = %lld, but this call has %lld: give the number of targets in all "
                       "micro-batches of the step, or 0",
                       function, (long long)*labels, (long long)counted);
}

static ott_status loss_of(ott_module *m, const ott_tensor *tokens, const ott_tensor *targets, int64_t labels,
                          double *loss, const char *function) {
    TRY(check_row_tensor(tokens, "tokens", function));
    TRY(check_token_ids(tokens, m->out, function));
    TRY(check_targets(m, tokens, targets, function, &labels));
    return run_loss(m, tokens, targets, labels, loss);
}

ott_status ott_model_loss(ott_module *m, const ott_tensor *tokens, const ott_tensor *targets, int64_t labels,
                          double *loss) {
    TRY(module_model_check(m, __func__, "model"));
    API_HANDLE_IN(tokens, TENSOR, m->handle.context);
    API_HANDLE_IN(targets, TENSOR, m->handle.context);
    if (labels < 0)
        return status_fail(OTT_ERR_ARGUMENT, "%s: labels = %lld: give 0 or more", __func__,
                           (long long)labels);
    return MODULE_INSIDE(m->handle.context, loss_of(m, tokens, targets, labels, loss, __func__));
}

static ott_status set_loss(ott_module *m, ott_loss_fn loss, void *user) {
    model_body *b = m->body;
    if (loss) TRY(run_check_caller_loss(b->cfg));
    b->m->loss.caller = (caller_loss){.function = loss, .user = user};
    return OTT_OK;
}

ott_status ott_model_set_loss(ott_module *m, ott_loss_fn loss, void *user) {
    TRY(module_model_check(m, __func__, "model"));
    return MODULE_INSIDE(m->handle.context, set_loss(m, loss, user));
}

/* ---- generation ---- */

ott_status module_model_live(ott_module *m, live_model *out) {
    model_body *b = m->body;
    if (m->handle.context->depth > 1)
        return status_fail(OTT_ERR_ARGUMENT,
                           "a model cannot generate in a callback of another call, which may use the model");
    TRY(module_make_weights(m));
    TRY(autocast_before_forward(m));
    if (m->micro_batch <= 0) module_weights_changed(m);
    *out = (live_model){.cfg = b->cfg, .m = b->m, .step = m->handle.context->step};
    return OTT_OK;
}

/* ---- conversion ---- */

static bool keep_all(void *user, const model_module *e) {
    (void)user, (void)e;
    return false;
}

ott_status module_model_apply_fallbacks(model_body *b) {
    return model_convert(b->m,
                         &(convert_options){.recipe = recipe_find("tensorwise"),
                                            .any_dimension = true,
                                            .store_mlp_inputs = b->options.convert.store_mlp_inputs,
                                            .smooth_mlp = b->options.convert.smooth_mlp,
                                            .by_call = true,
                                            .accepts = keep_all},
                         NULL);
}

/* ---- counters ---- */

double module_model_learning_rate(const model_body *b) {
    return schedule_rate(b->cfg, b->run.step, b->run.schedule_start);
}

void module_model_count_step(model_body *b, int64_t updates, bool skipped) {
    b->run.step++;
    b->run.updates = updates;
    b->run.nan_steps = skipped ? b->run.nan_steps + 1 : 0;
}

void(ott_model_counters_init)(ott_model_counters *counters, size_t size) {
    API_INIT(counters, size, 0);
}

ott_status ott_model_read_counters(const ott_module *m, ott_model_counters *out) {
    TRY(module_model_check(m, __func__, "model"));
    API_REQUIRE(out);
    const run_state *run = &module_model_body(m)->run;
    const ott_model_counters own = {sizeof own, run->step, run->updates, run->samples, run->tokens};
    return api_write_struct(out, &own, sizeof own, "ott_model_counters");
}
