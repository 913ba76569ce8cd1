/* train/trainer: opening a trainer, and its step. */
#include "train/trainer.h"
#include "comm/self.h"
#include "model/init.h"
#include <stdio.h>
#include <string.h>

/* ---- buffers ---- */

static int64_t tokens_of(const trainer *t) {
    return t->options.batch_size * t->options.seq_len;
}

/* The staging block and its copy on the device: token[T], target[T], position[T], start[count + 1]. */
static int64_t batch_ints(const trainer *t) {
    return 3 * tokens_of(t) + t->options.batch_size + 1;
}

static void lay_out_batch(trainer *t, int32_t *data) {
    int64_t tokens = tokens_of(t), count = t->options.batch_size;
    t->batch = (batch){.count = count,
                       .length = t->options.seq_len,
                       .token = tensor_vector(data, OTT_I32, tokens),
                       .target = tensor_vector(data + tokens, OTT_I32, tokens),
                       .at = {.position = tensor_vector(data + 2 * tokens, OTT_I32, tokens),
                              .start = tensor_vector(data + 3 * tokens, OTT_I32, count + 1)}};
}

static void fill_placement(trainer *t) {
    int64_t tokens = tokens_of(t), length = t->options.seq_len;
    int32_t *position = t->host_batch + 2 * tokens, *start = position + tokens;
    for (int64_t i = 0; i < tokens; i++) position[i] = (int32_t)(i % length);
    for (int64_t b = 0; b <= t->options.batch_size; b++) start[b] = (int32_t)(b * length);
}

static ott_status open_buffers(trainer *t) {
    int64_t tokens = tokens_of(t), parameters = t->m->parameter_count;
    int64_t words = tokens + parameters + 2 + STEP_STATE_COUNT;
    void *memory;
    TRY(mem_take_array(t->account, MEM_DATA, batch_ints(t), sizeof(int32_t), "batch", &memory));
    t->host_batch = memory;
    TRY(device_allocate(t->device, MEM_DATA, 4 * (batch_ints(t) + words), "batch and step state",
                        &t->device_block));
    lay_out_batch(t, t->device_block);
    float *f = (float *)((int32_t *)t->device_block + batch_ints(t));
    t->losses = tensor_vector(f, OTT_F32, tokens);
    t->norms = tensor_vector(f + tokens, OTT_F32, parameters);
    t->grad_scale = tensor_vector(f + tokens + parameters, OTT_F32, 1);
    t->nonfinite = tensor_vector(f + tokens + parameters + 1, OTT_I32, 1);
    t->state = tensor_vector(f + tokens + parameters + 2, OTT_F32, STEP_STATE_COUNT);
    fill_placement(t);
    return OTT_OK;
}

/* ---- memory plan ---- */

static ott_status rehearse(trainer *t, plan *p, const tensor *grad_scale) {
    plan_record(p);
    t->cx.plan = p;
    TRY(model_run(&t->cx, t->m, t->slot, &t->batch, grad_scale, &t->losses));
    return plan_seal(p);
}

static ott_status plan_memory(trainer *t) {
    TRY(rehearse(t, t->train_plan, &t->grad_scale));
    TRY(rehearse(t, t->evaluate_plan, NULL));
    int64_t bytes = plan_bytes(t->train_plan);
    if (plan_bytes(t->evaluate_plan) > bytes) bytes = plan_bytes(t->evaluate_plan);
    device_release(t->device, t->arena);
    t->arena = NULL;
    int64_t planned = mem_read(t->account).now + bytes;
    if (planned > t->planned_bytes) t->planned_bytes = planned;
    TRY(device_allocate(t->device, MEM_STEP, bytes, "activations and workspace of a step", &t->arena));
    plan_bind(t->train_plan, t->arena);
    plan_bind(t->evaluate_plan, t->arena);
    return OTT_OK;
}

/* ---- open and close ---- */

static void set_checkpointing(trainer *t) {
    int64_t every = t->options.checkpoint_every;
    for (int64_t i = 0; i < t->m->options.layers; i++)
        t->m->blocks[i].checkpointing = i % every == 0 ? t->options.checkpointing : CHECKPOINT_NONE;
}

static ott_status convert(trainer *t, const recipe *r) {
    convert_options o = t->options.convert;
    o.recipe = t->recipe = r;
    o.log = t->log;
    return model_convert(t->m, &o, &t->converted);
}

ott_status trainer_convert(trainer *t, const recipe *r) {
    TRY(convert(t, r));
    return plan_memory(t);
}

static ott_status build(trainer *t, const model_options *shape, uint64_t seed) {
    TRY(model_open(t->device, shape, MODEL_TRAINING, t->options.seq_len, &t->m));
    TRY(model_initialize(t->m, seed));
    TRY(convert(t, t->options.convert.recipe));
    t->m->loss.chunk = t->options.chunk;
    set_checkpointing(t);
    TRY(model_slot_open(t->m, &t->slot));
    TRY(open_buffers(t));
    t->cx = (exec){.device = t->device, .data_group = group_self(), .log = t->log};
    TRY(plan_create(t->account, &t->train_plan));
    TRY(plan_create(t->account, &t->evaluate_plan));
    return plan_memory(t);
}

ott_status trainer_open(mem *account, const logger *log, device *d, const model_options *shape,
                        const trainer_options *o, const dataset *train_data, const dataset *validation_data,
                        uint64_t seed, trainer **out) {
    void *memory;
    TRY(mem_take(account, MEM_OTHER, sizeof(trainer), "trainer", &memory));
    trainer *t = memory;
    *t = (trainer){.options = *o,
                   .log = log,
                   .account = account,
                   .device = d,
                   .train_data = train_data,
                   .validation_data = validation_data,
                   .run.loss_scale = STEP_LOSS_SCALE_START};
    ott_status status = build(t, shape, seed);
    if (status != OTT_OK) {
        trainer_close(t);
        return status;
    }
    *out = t;
    return OTT_OK;
}

void trainer_close(trainer *t) {
    if (!t) return;
    if (t->m) model_slot_close(t->m, t->slot);
    plan_destroy(t->train_plan);
    plan_destroy(t->evaluate_plan);
    device_release(t->device, t->arena);
    device_release(t->device, t->device_block);
    mem_give(t->account, t->host_batch);
    model_close(t->m);
    mem_give(t->account, t);
}

ott_status trainer_load(trainer *t, const char *path) {
    bool fallen;
    TRY(checkpoint_load(t->m, t->log, path, &t->run, &fallen));
    t->cx.step = t->run.step;
    model_weights_changed(t->m);
    return fallen ? trainer_convert(t, t->recipe) : OTT_OK;
}

/* ---- one step ---- */

/* The batch's rows come from samples first, first + 1, ... of the run. */
static ott_status feed_training(trainer *t, int64_t first) {
    int64_t tokens = tokens_of(t), length = t->options.seq_len;
    for (int64_t b = 0; b < t->options.batch_size; b++)
        TRY(loader_sample(t->train_data, t->options.data_seed, length, first + b, t->host_batch + b * length,
                          t->host_batch + tokens + b * length));
    return device_copy_in(t->device, t->device_block, t->host_batch, 4 * batch_ints(t));
}

static tensor state_slot(const trainer *t, enum step_state slot) {
    return tensor_columns(t->state, slot, 1);
}

static ott_status run_micro_batch(trainer *t, int64_t index, const probe *p) {
    TRY(feed_training(t, t->run.samples + index * t->options.batch_size));
    t->cx.plan = t->train_plan;
    t->cx.probe = p;
    t->cx.later_micro_batch = index > 0;
    plan_replay(t->train_plan);
    ott_status status = model_run(&t->cx, t->m, t->slot, &t->batch, &t->grad_scale, &t->losses);
    t->cx.probe = NULL;
    return status;
}

/* Only fp16 scales its loss; a run in another precision carries the scale along for an fp16 part after it. */
static float loss_scale(const trainer *t) {
    return t->options.fp16_scaling ? t->run.loss_scale : 1.0f;
}

static ott_status write_state(trainer *t, double learning_rate) {
    optimizer_schedule(&t->options.optimizer, learning_rate, t->run.updates + 1, t->host_state);
    int64_t tokens = tokens_of(t) * t->options.grad_accum * t->cx.data_group->size;
    t->host_state[STEP_TOKENS] = (float)tokens;
    t->host_state[STEP_LOSS_SCALING] = t->options.fp16_scaling ? 1.0f : 0.0f;
    t->host_state[STEP_LOSS_SCALE] = loss_scale(t);
    t->host_state[STEP_GOOD_STEPS] = t->run.good_steps;
    t->host_state[STEP_LOSS] = 0.0f;
    float grad_scale = loss_scale(t) / (float)tokens;
    TRY(device_copy_in(t->device, t->grad_scale.data, &grad_scale, sizeof grad_scale));
    return device_copy_in(t->device, t->state.data, t->host_state, sizeof t->host_state);
}

/* Losses of all micro-batches into STEP_LOSS, gradients of all into the parameters' grad; then over the
 * ranks. */
static ott_status accumulate(trainer *t) {
    tensor loss = state_slot(t, STEP_LOSS);
    TRY(device_zero(t->device, t->m->grads, t->m->block_bytes));
    for (int64_t i = 0; i < t->options.grad_accum; i++) {
        TRY(run_micro_batch(t, i, i == 0 ? t->probe : NULL));
        TRY(model_update_scales(&t->cx, t->m, t->cx.data_group));
        TRY(op_sum(&t->cx, &(sum_args){.x = &t->losses, .sum = &loss}));
    }
    tensor grads = tensor_vector(t->m->grads, OTT_F32, t->m->block_bytes / 4);
    TRY(group_all_reduce(t->cx.data_group, &t->cx, &loss, REDUCE_SUM));
    return group_all_reduce(t->cx.data_group, &t->cx, &grads, REDUCE_SUM);
}

static void finish_step(trainer *t, step_result *out) {
    int64_t sequences = t->options.batch_size * t->options.grad_accum * t->cx.data_group->size;
    out->tokens = sequences * t->options.seq_len;
    out->loss = (double)t->host_state[STEP_LOSS] / (double)out->tokens;
    out->grad_norm = t->host_state[STEP_GRAD_NORM];
    out->skipped = t->host_state[STEP_SKIP] != 0.0f;
    if (t->options.fp16_scaling) {
        t->run.loss_scale = t->host_state[STEP_LOSS_SCALE];
        t->run.good_steps = t->host_state[STEP_GOOD_STEPS];
    }
    t->run.nan_steps = out->skipped ? t->run.nan_steps + 1 : 0;
    t->run.step++;
    t->run.updates += !out->skipped;
    t->run.samples += sequences;
    t->run.tokens += out->tokens;
    t->cx.step = t->run.step;
}

ott_status trainer_step(trainer *t, double learning_rate, step_result *out) {
    TRY(write_state(t, learning_rate));
    TRY(accumulate(t));
    TRY(optimizer_update(&t->cx, t->m, &t->options.optimizer, &t->norms, &t->state));
    TRY(device_copy_out(t->device, t->host_state, t->state.data, sizeof t->host_state));
    finish_step(t, out);
    return OTT_OK;
}

/* ---- evaluation ---- */

static ott_status feed_validation(trainer *t, int64_t first) {
    int64_t tokens = tokens_of(t), length = t->options.seq_len;
    for (int64_t b = 0; b < t->options.batch_size; b++)
        TRY(dataset_window(t->validation_data, length, first + b, t->host_batch + b * length,
                           t->host_batch + tokens + b * length));
    return device_copy_in(t->device, t->device_block, t->host_batch, 4 * batch_ints(t));
}

ott_status trainer_evaluate(trainer *t, int64_t batches, double *loss) {
    int64_t available = dataset_windows(t->validation_data, t->options.seq_len) / t->options.batch_size;
    if (available < batches) batches = available;
    tensor sum = state_slot(t, STEP_LOSS);
    TRY(device_zero(t->device, sum.data, sizeof(float)));
    t->cx.plan = t->evaluate_plan;
    for (int64_t i = 0; i < batches; i++) {
        TRY(feed_validation(t, i * t->options.batch_size));
        plan_replay(t->evaluate_plan);
        TRY(model_run(&t->cx, t->m, t->slot, &t->batch, NULL, &t->losses));
        TRY(op_sum(&t->cx, &(sum_args){.x = &t->losses, .sum = &sum}));
    }
    float total;
    TRY(device_copy_out(t->device, &total, sum.data, sizeof total));
    *loss = (double)total / (double)(batches * tokens_of(t));
    return OTT_OK;
}

/* ---- where did the NaN come from ---- */

typedef struct search {
    trainer *t;
    char *found;
} search;

static ott_status see(void *user, exec *cx, const char *module, const char *what, const tensor *x) {
    search *s = user;
    if (s->found[0]) return OTT_OK;
    int32_t count;
    TRY(op_count_nonfinite(cx, &(count_nonfinite_args){.x = x, .count = &s->t->nonfinite}));
    TRY(device_copy_out(cx->device, &count, s->t->nonfinite.data, sizeof count));
    if (count > 0) snprintf(s->found, 160, "%s of %s", what, module);
    return OTT_OK;
}

ott_status trainer_find_nonfinite(trainer *t, char out[160]) {
    search s = {.t = t, .found = out};
    probe p = {.see = see, .user = &s};
    int64_t gemms[GEMM_COUNT][2], samples = t->run.samples;
    memcpy(gemms, t->cx.gemms, sizeof gemms);
    out[0] = 0;
    t->run.samples -= t->options.batch_size * t->options.grad_accum * t->cx.data_group->size;
    ott_status status = OTT_OK;
    for (int64_t i = 0; i < t->options.grad_accum && status == OTT_OK && !out[0]; i++)
        status = run_micro_batch(t, i, &p);
    t->run.samples = samples;
    if (status == OTT_OK) status = delayed_forget(&t->m->delayed, t->device); /* it was no step */
    memcpy(t->cx.gemms, gemms, sizeof gemms);
    return status;
}

void trainer_gemms(const trainer *t, int64_t *fp8, int64_t *all) {
    *fp8 = *all = 0;
    for (int role = 0; role < GEMM_COUNT; role++) {
        *fp8 += t->cx.gemms[role][1];
        *all += t->cx.gemms[role][0] + t->cx.gemms[role][1];
    }
}
