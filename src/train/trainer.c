/* train/trainer: opening a trainer, and its step. */
#include "train/trainer.h"
#include "comm/self.h"
#include "train/budget.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- buffers ---- */

static int64_t tokens_of(const trainer *t) {
    return t->options.batch_size * t->options.seq_len;
}

static int64_t evaluation_tokens(const trainer *t) {
    return t->options.evaluation_batch * t->options.evaluation_length;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static ott_status open_resident(trainer *t) {
    void *memory;
    t->resident = t->stage ? t->options.grad_accum : 1;
    TRY(mem_alloc_array(t->account, MEM_OTHER, t->resident, sizeof *t->batches, "batches of a step",
                        &memory));
    t->batches = memory;
    TRY(mem_alloc_array(t->account, MEM_OTHER, t->resident, sizeof *t->losses, "losses of a step", &memory));
    t->losses = memory;
    return OTT_OK;
}

/* What a step begins with, as it goes to the device: the step's state, then the gradients' scale. */
enum { GRAD_SCALE = STEP_STATE_COUNT, PASS_SCALE, SENT_WORDS };

static ott_status open_host_state(trainer *t) {
    void *memory;
    TRY(device_allocate_host(t->device, MEM_DATA, SENT_WORDS * (int64_t)sizeof *t->host_state, "step state",
                             &memory));
    t->host_state = memory;
    return device_event_open(t->device, &t->state_sent);
}

static int64_t loss_bytes(const trainer *t, int64_t tokens) {
    return backend_align(t->device->can, 4 * tokens);
}

/* Bytes of the micro-batches that are on the device at once, and of their losses, or of a batch of evaluation. */
static int64_t batch_bytes(const trainer *t) {
    const feed *f = &t->feed;
    int64_t training = feed_batch_bytes(f, &f->training) + loss_bytes(t, tokens_of(t));
    int64_t evaluated = feed_batch_bytes(f, &f->evaluation) + loss_bytes(t, evaluation_tokens(t));
    return larger(t->resident * training, evaluated);
}

static void place_batches(trainer *t) {
    const feed *f = &t->feed;
    int64_t tokens = tokens_of(t);
    char *at = t->device_block, *losses = at + feed_batch_bytes(f, &f->evaluation);
    t->evaluation_batch = feed_batch_at(f, &f->evaluation, at);
    t->evaluation_losses = tensor_vector(losses, OTT_F32, evaluation_tokens(t));
    for (int64_t i = 0; i < t->resident; i++, at += feed_batch_bytes(f, &f->training))
        t->batches[i] = feed_batch_at(f, &f->training, at);
    for (int64_t i = 0; i < t->resident; i++, at += loss_bytes(t, tokens))
        t->losses[i] = tensor_vector(at, OTT_F32, tokens);
}

static ott_status open_buffers(trainer *t) {
    enum { TOLD_WORDS = 256, WORDS = SENT_WORDS + 1 };
    int64_t told = larger(t->options.data_group->size, t->options.run_group->size),
            head = backend_align(t->device->can, 4 * WORDS);
    if (told < TOLD_WORDS) told = TOLD_WORDS;
    TRY(feed_open(&t->feed, t->device,
                  &(feed_options){.train_data = t->train_data,
                                  .validation_data = t->validation_data,
                                  .seed = t->options.data_seed,
                                  .ranks = t->options.data_group,
                                  .batch_size = t->options.batch_size,
                                  .seq_len = t->options.seq_len,
                                  .grad_accum = t->options.grad_accum,
                                  .evaluation_rows = t->options.evaluation_batch,
                                  .evaluation_length = t->options.evaluation_length}));
    TRY(open_resident(t));
    TRY(open_host_state(t));
    TRY(device_allocate(t->device, MEM_DATA, batch_bytes(t) + head + 4 * told, "batch and step state",
                        &t->device_block));
    place_batches(t);
    char *at = (char *)t->device_block + batch_bytes(t);
    float *words = (float *)(void *)at;
    t->state = tensor_vector(words, OTT_F32, STEP_STATE_COUNT);
    t->grad_scale = tensor_vector(words + GRAD_SCALE, OTT_F32, 1);
    t->pass_scale = tensor_vector(words + PASS_SCALE, OTT_F32, 1);
    t->nonfinite = tensor_vector(words + SENT_WORDS, OTT_I32, 1);
    if (t->options.z_weight > 0) t->m->loss.z = tensor_columns(t->state, STEP_Z_LOSS, 1);
    t->told = (group_host){.device = t->device, .buffer = at + head, .bytes = 4 * told};
    return OTT_OK;
}

/* ---- memory plan ---- */

static tensor state_slot(const trainer *t, enum step_state slot) {
    return tensor_columns(t->state, slot, 1);
}

/* Adds the losses of what a pass ran to STEP_LOSS; the last stage of a pipeline has them. */
static ott_status sum_losses(trainer *t, const tensor *losses, int64_t count) {
    tensor sum = state_slot(t, STEP_LOSS);
    for (int64_t i = 0; i < count && pipeline_is_last(t->m->options.stage); i++) {
        tensor own = model_own_tokens(t->m, losses[i]);
        TRY(op_sum(&t->cx, &(sum_args){.x = &own, .sum = &sum}));
    }
    return OTT_OK;
}

/* What is on the device: a micro-batch, or all of a step on a stage of a pipeline. */
static ott_status train_pass(trainer *t) {
    TRY(t->stage ? stage_train(&t->cx, t->stage, t->batches, &t->grad_scale, t->losses)
                 : model_run(&t->cx, t->m, t->slot, t->batches, &t->grad_scale, t->losses));
    return sum_losses(t, t->losses, t->resident);
}

static ott_status evaluate_pass(trainer *t) {
    const batch *b = &t->evaluation_batch;
    const tensor *losses = &t->evaluation_losses;
    TRY(t->stage ? stage_evaluate(&t->cx, t->stage, b, losses)
                 : model_run(&t->cx, t->m, t->slot, b, NULL, losses));
    return sum_losses(t, losses, 1);
}

static ott_status dry_run(trainer *t, plan *p, ott_status (*pass)(trainer *t)) {
    plan_record(p);
    t->cx.plan = p;
    TRY(pass(t));
    return plan_seal(p);
}

/* The step that ends what the micro-batches began. */
static ott_status update(trainer *t) {
    const optimizer_ranks ranks = {.shard = t->m->store.ranks,
                                   .tensor = t->m->options.tensor_ranks,
                                   .experts = t->m->options.expert_ranks,
                                   .stages = t->m->options.stage_ranks,
                                   .trained = t->m->trained_count};
    t->cx.plan = t->update_plan;
    TRY(optimizer_update(&t->cx, t->m->options.optimizer, &t->options.optimizer, t->m->parameters,
                         t->m->parameter_count, &ranks, &t->state));
    return balance_update(&t->cx, t->m, &t->state);
}

ott_status trainer_show_average(trainer *t, bool average) {
    const optimizer_rule *rule = t->m->options.optimizer;
    if (!rule->show || t->run.updates == 0) return OTT_OK;
    for (int i = 0; i < t->m->parameter_count; i++)
        if (!t->m->parameters[i].frozen)
            TRY(rule->show(&t->cx, &t->options.optimizer, &t->m->parameters[i], average));
    model_weights_changed(t->m);
    return OTT_OK;
}

static ott_status run_update(void *user) {
    trainer *t = user;
    plan_replay(t->update_plan);
    return update(t);
}

static ott_status dry_run_update(trainer *t) {
    plan_record(t->update_plan);
    TRY(update(t));
    return plan_seal(t->update_plan);
}

/* The gradients of all micro-batches, where they travel together; then a tied head's. */
static ott_status reduce(trainer *t) {
    t->cx.plan = t->reduce_plan;
    t->cx.part = PART_REDUCTION;
    TRY(store_reduce_once(&t->cx, &t->m->store));
    return t->stage ? stage_share_gradients(&t->cx, t->stage) : OTT_OK;
}

static ott_status dry_run_reduce(trainer *t) {
    plan_record(t->reduce_plan);
    TRY(reduce(t));
    return plan_seal(t->reduce_plan);
}

static ott_status plan_memory(trainer *t) {
    enum { PLANS = 4 };
    replay_forget(&t->replay, t->device); /* the arena may move */
    TRY(dry_run(t, t->train_plan, train_pass));
    TRY(dry_run(t, t->evaluate_plan, evaluate_pass));
    TRY(dry_run_reduce(t));
    TRY(dry_run_update(t));
    plan *plans[PLANS] = {t->train_plan, t->evaluate_plan, t->reduce_plan, t->update_plan};
    int64_t bytes = 0;
    for (int i = 0; i < PLANS; i++)
        if (plan_bytes(plans[i]) > bytes) bytes = plan_bytes(plans[i]);
    device_release(t->device, t->arena);
    t->arena = NULL;
    int64_t planned = device_taken(t->device).now + bytes;
    if (planned > t->planned_bytes) t->planned_bytes = planned;
    TRY(device_allocate(t->device, MEM_STEP, bytes, "activations and workspace of a step", &t->arena));
    for (int i = 0; i < PLANS; i++) plan_bind(plans[i], t->arena);
    return OTT_OK;
}

static ott_status measure_step(void *user, int64_t *bytes) {
    trainer *t = user;
    TRY(dry_run(t, t->train_plan, train_pass));
    *bytes = plan_bytes(t->train_plan);
    return OTT_OK;
}

/* All ranks do, before they plan memory. */
static ott_status fit_budget(trainer *t) {
    if (!t->options.budgeted) return OTT_OK;
    t->told.group = t->options.run_group;
    return budget_fit(&(budget){.share = t->options.memory_budget,
                                .measure = measure_step,
                                .user = t,
                                .told = t->device->dry_run ? NULL : &t->told,
                                .log = t->log},
                      t->m);
}

/* Plans anew where rows have more documents than any before them: a backend's attention may be planned for so many. */
static ott_status plan_documents(trainer *t) {
    int64_t training = t->feed.training.places + 1, evaluated = t->feed.evaluation.places + 1;
    if (t->batches[0].at.cu_seqlens.columns == training &&
        t->evaluation_batch.at.cu_seqlens.columns == evaluated)
        return OTT_OK;
    for (int64_t i = 0; i < t->resident; i++) t->batches[i].at.cu_seqlens.columns = training;
    t->evaluation_batch.at.cu_seqlens.columns = evaluated;
    return plan_memory(t);
}

/* ---- open and close ---- */

void trainer_set_checkpointing(const trainer_options *o, model *m) {
    for (int64_t i = 0; i < m->options.layers; i++)
        m->blocks[i].checkpointing = i % o->checkpoint_every == 0 ? o->checkpointing : CHECKPOINT_NONE;
}

/* Delayed scaling moves on with every micro-batch, so a step that is abandoned needs what it began with. */
static ott_status reserve_delayed(trainer *t) {
    int64_t bytes = t->m->delayed.block_bytes;
    device_release(t->device, t->delayed_before);
    t->delayed_before = NULL;
    if (!t->m->delayed.block) return OTT_OK;
    return device_allocate(t->device, MEM_WEIGHT, bytes, "amax histories before a step", &t->delayed_before);
}

static ott_status convert(trainer *t, const recipe *r) {
    convert_options o = t->options.convert;
    o.recipe = t->recipe = r;
    o.log = t->log;
    t->step_gemms.known = false;
    TRY(model_convert(t->m, &o, &t->converted));
    model_leave_forms(t->m);
    return reserve_delayed(t);
}

ott_status trainer_convert(trainer *t, const recipe *r) {
    t->whole = false;
    TRY(convert(t, r));
    TRY(fit_budget(t));
    TRY(plan_memory(t));
    t->whole = true;
    return OTT_OK;
}

static ott_status build(trainer *t, const model_options *shape) {
    model_options own = *shape;
    own.frozen_convert = &t->options.convert;
    TRY(model_open(t->device, &own, MODEL_TRAINING, larger(t->options.seq_len, t->options.evaluation_length),
                   &t->m));
    t->m->store.options = t->options.store;
    t->m->store.micro_batches = t->options.grad_accum > 1;
    TRY(convert(t, t->options.convert.recipe));
    t->m->loss.chunk = t->options.chunk;
    t->m->loss.z_weight = t->options.z_weight;
    if (!t->options.run_group) t->options.run_group = comm_self();
    if (!t->options.data_group) t->options.data_group = comm_self();
    if (!t->options.replica_group) t->options.replica_group = comm_self();
    t->replay.wanted = t->options.graphs && t->options.run_group->size == 1;
    trainer_set_checkpointing(&t->options, t->m);
    TRY(shape->stage ? stage_open(t->m, t->options.grad_accum, &t->stage) : model_slot_open(t->m, &t->slot));
    TRY(open_buffers(t));
    t->cx = (exec){.device = t->device,
                   .is_first_microbatch = true,
                   .data_group = t->options.data_group,
                   .pass_scale = &t->pass_scale,
                   .log = t->log};
    TRY(plan_create(t->device, &t->train_plan));
    TRY(plan_create(t->device, &t->evaluate_plan));
    TRY(plan_create(t->device, &t->reduce_plan));
    TRY(plan_create(t->device, &t->update_plan));
    TRY(fit_budget(t));
    return plan_memory(t);
}

ott_status trainer_open(mem *account, const logger *log, device *d, const model_options *shape,
                        const trainer_options *o, const dataset *train_data, const dataset *validation_data,
                        trainer **out) {
    void *memory;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(trainer), "trainer", &memory));
    trainer *t = memory;
    *t = (trainer){.options = *o,
                   .log = log,
                   .account = account,
                   .device = d,
                   .train_data = train_data,
                   .validation_data = validation_data,
                   .whole = true,
                   .balance_factor = 1.0,
                   .run.loss_scale = STEP_LOSS_SCALE_START};
    ott_status status = build(t, shape);
    if (status != OTT_OK) {
        trainer_close(t);
        return status;
    }
    *out = t;
    return OTT_OK;
}

void trainer_close(trainer *t) {
    if (!t) return;
    replay_forget(&t->replay, t->device);
    if (t->m) model_slot_close(t->m, t->slot);
    stage_close(t->stage);
    plan_destroy(t->train_plan);
    plan_destroy(t->evaluate_plan);
    plan_destroy(t->reduce_plan);
    plan_destroy(t->update_plan);
    device_release(t->device, t->arena);
    device_release(t->device, t->device_block);
    device_release(t->device, t->delayed_before);
    device_event_close(t->device, t->state_sent);
    device_release_host(t->device, t->host_state);
    feed_close(&t->feed);
    mem_free(t->account, t->batches);
    mem_free(t->account, t->losses);
    model_close(t->m);
    mem_free(t->account, t);
}

ott_status trainer_share_fallen(trainer *t) {
    const module_list *all = &t->m->whole;
    float fallen[all->count];
    for (int i = 0; i < all->count; i++) {
        const model_module *e = &all->of[i];
        bool here = e->kind == MODULE_LINEAR && e->linear && e->linear->below == LINEAR_FALLEN;
        fallen[i] = e->fallen || here ? 1.0f : 0.0f;
    }
    t->told.group = t->options.run_group;
    if (t->told.group->size > 1) TRY(group_host_reduce(&t->told, fallen, all->count, REDUCE_MAX));
    for (int i = 0; i < all->count; i++) all->of[i].fallen = fallen[i] != 0;
    return OTT_OK;
}

ott_status trainer_load(trainer *t, const char *path) {
    return trainer_load_part(t, path, &(checkpoint_choice){0});
}

ott_status trainer_load_part(trainer *t, const char *path, const checkpoint_choice *choice) {
    bool fallen;
    TRY(checkpoint_load_part(t->m, t->log, t->options.run_group, path, choice, &t->run, &fallen));
    t->cx.step = t->run.step;
    model_weights_changed(t->m);
    TRY(trainer_show_average(t, false)); /* what was saved is the average */
    TRY(trainer_share_fallen(t));
    for (int i = 0; i < t->m->whole.count; i++) fallen |= t->m->whole.of[i].fallen;
    return fallen ? trainer_convert(t, t->recipe) : OTT_OK;
}

/* ---- one step ---- */

/* Of all ranks of the group. */
static ott_status sum_counts(trainer *t, group *g, int64_t *values, int64_t count) {
    t->told.group = g;
    return g->size == 1 ? OTT_OK : group_host_count(&t->told, values, count);
}

/* This rank's matrix products since the last call. */
static void take_gemms(trainer *t, int64_t more[2]) {
    int64_t own[2] = {0, 0};
    for (int role = 0; role < GEMM_COUNT; role++) {
        own[0] += t->cx.gemms[role][1];
        own[1] += t->cx.gemms[role][0] + t->cx.gemms[role][1];
    }
    for (int i = 0; i < 2; i++) {
        more[i] = own[i] - t->counted[i];
        t->counted[i] = own[i];
    }
}

static ott_status count_gemms(trainer *t) {
    int64_t more[2];
    take_gemms(t, more);
    TRY(sum_counts(t, t->options.run_group, more, 2));
    for (int i = 0; i < 2; i++) t->gemms[i] += more[i];
    return OTT_OK;
}

/* Every step between two conversions runs the same products: the ranks tell each other of the first one's. */
static ott_status count_step_gemms(trainer *t) {
    step_gemms *s = &t->step_gemms;
    int64_t own[2];
    take_gemms(t, own);
    if (!s->known) {
        memcpy(s->own, own, sizeof own);
        memcpy(s->all, own, sizeof own);
        TRY(sum_counts(t, t->options.run_group, s->all, 2));
        s->known = true;
    }
    for (int i = 0; i < 2; i++) t->gemms[i] += s->all[i];
    if (memcmp(s->own, own, sizeof own) == 0) return OTT_OK;
    return status_fail(
        OTT_ERR_INTERNAL,
        "step %lld ran %lld matrix products, %lld of them in FP8, where those before it ran %lld "
        "and %lld",
        (long long)t->run.step, (long long)own[1], (long long)own[0], (long long)s->own[1],
        (long long)s->own[0]);
}

void trainer_gemms(const trainer *t, int64_t *fp8, int64_t *all) {
    *fp8 = t->gemms[0];
    *all = t->gemms[1];
}

/* A step's passes: one for as many micro-batches as are on the device at once. */
static int64_t pass_count(const trainer *t) {
    return t->options.grad_accum / t->resident;
}

static ott_status run_training_pass(trainer *t) {
    t->cx.plan = t->train_plan;
    plan_replay(t->train_plan);
    return train_pass(t);
}

/* With what follows it in a step; a stage does that itself. */
static ott_status run_whole_pass(void *user) {
    trainer *t = user;
    TRY(run_training_pass(t));
    return t->stage ? OTT_OK : model_update_scales(&t->cx, t->m, t->cx.data_group);
}

/* A pass that casts the weights must do so when it is recorded, though an evaluation may have; one that is replayed does it
   unseen. What the optimizer casts no pass may, though the weights are new. */
static ott_status replay_pass(trainer *t) {
    bool first = t->cx.is_first_microbatch, replayed;
    if (first && t->replay.wanted) {
        model_weights_made(t->m, -1);
        TRY(model_make_forms(&t->cx, t->m));
    }
    TRY(replay_run(&t->replay, &t->cx, first ? REPLAY_FIRST : REPLAY_LATER, run_whole_pass, t, &replayed));
    if (replayed) model_weights_made(t->m, t->cx.step);
    return OTT_OK;
}

/* Those of a pass, in a step or only to be looked at. */
static ott_status run_micro_batches(trainer *t, int64_t index, const hook *p, bool in_step) {
    for (int64_t i = 0; i < t->resident; i++)
        TRY(feed_send(&t->feed, t->set, index * t->resident + i, &t->batches[i]));
    t->cx.hook = p;
    t->cx.is_first_microbatch = index == 0;
    ott_status status = in_step ? replay_pass(t) : run_training_pass(t);
    t->cx.hook = NULL;
    return status;
}

/* Only fp16 scales its loss; a run in another precision carries the scale along for an fp16 part after it. */
static float loss_scale(const trainer *t) {
    return t->options.fp16_scaling ? t->run.loss_scale : 1.0f;
}

/* Labels of all ranks' micro-batches. */
static ott_status add_labels(trainer *t, int64_t *labels) {
    TRY(sum_counts(t, t->cx.data_group, labels, 1));
    if (*labels > 0) return OTT_OK;
    return status_fail(
        OTT_ERR_CONFIG,
        "%s: no token of step %lld has a label, so there is no loss to train on: take more rows "
        "a step (train.batch_size, train.grad_accum_steps) or look at the data",
        dataset_name(t->train_data), (long long)t->run.step + 1);
}

/* Of all ranks. */
static int64_t micro_batches_of_step(const trainer *t) {
    return t->options.grad_accum * t->cx.data_group->size;
}

static ott_status write_state(trainer *t, double learning_rate, int64_t labels) {
    TRY(device_event_wait(t->device, t->state_sent)); /* a step may have been abandoned */
    optimizer_schedule(t->m->options.optimizer, &t->options.optimizer, learning_rate, t->run.updates + 1,
                       t->host_state);
    t->host_state[STEP_TOKENS] = (float)labels;
    t->host_state[STEP_LOSS_SCALING] = t->options.fp16_scaling ? 1.0f : 0.0f;
    t->host_state[STEP_LOSS_SCALE] = loss_scale(t);
    t->host_state[STEP_GOOD_STEPS] = t->run.good_steps;
    t->host_state[STEP_LOSS] = t->host_state[STEP_Z_LOSS] = 0.0f;
    t->host_state[STEP_BALANCE] = (float)t->balance_factor;
    t->host_state[GRAD_SCALE] = loss_scale(t) / (float)labels;
    t->host_state[PASS_SCALE] = loss_scale(t) / (float)micro_batches_of_step(t);
    TRY(device_copy_in_async(t->device, t->state.data, t->host_state,
                             SENT_WORDS * (int64_t)sizeof *t->host_state));
    return device_event_record(t->device, t->state_sent);
}

/* What ranks have of the same rows: of other tokens, or the last stage for all stages. */
static ott_status sum_of_rows(trainer *t, const tensor *sum) {
    group *parts[] = {t->m->options.context_ranks, t->m->options.stage_ranks};
    for (int i = 0; i < 2; i++)
        if (parts[i]) TRY(group_all_reduce(parts[i], &t->cx, sum, REDUCE_SUM));
    return OTT_OK;
}

static ott_status sum_gradients(trainer *t, group *ranks) {
    const model *m = t->m;
    tensor wide = tensor_vector(m->grads, OTT_F32, m->trained_f32_bytes / 4);
    tensor narrow = tensor_vector((char *)m->grads + m->trained_f32_bytes, OTT_BF16,
                                  (m->trained_bytes - m->trained_f32_bytes) / 2);
    TRY(group_all_reduce(ranks, &t->cx, &wide, REDUCE_SUM));
    return narrow.columns > 0 ? group_all_reduce(ranks, &t->cx, &narrow, REDUCE_SUM) : OTT_OK;
}

/* Losses of all micro-batches into STEP_LOSS and STEP_Z_LOSS, gradients of all into the parameters' grad; then over the ranks: first
   those of other rows, as micro-batches are summed before them, then those of other tokens. */
static ott_status accumulate(trainer *t) {
    tensor loss = tensor_columns(t->state, STEP_LOSS, 2); /* and the z-loss */
    TRY(device_zero(t->device, t->m->grads, t->m->trained_bytes));
    TRY(store_zero_gradients(&t->m->store, t->device));
    TRY(balance_begin(t->m));
    for (int64_t i = 0; i < pass_count(t); i++) {
        TRY(run_micro_batches(t, i, i == 0 ? t->hook : NULL, true));
        if (t->micro_batch_done)
            t->micro_batch_done(t->micro_batch_user, (i + 1) * t->resident, t->options.grad_accum);
    }
    plan_replay(t->reduce_plan);
    TRY(reduce(t));
    TRY(group_all_reduce(t->cx.data_group, &t->cx, &loss, REDUCE_SUM));
    TRY(sum_of_rows(t, &loss));
    TRY(balance_reduce(&t->cx, t->m, t->cx.data_group));
    TRY(sum_gradients(t, t->options.replica_group));
    return t->m->options.context_ranks ? sum_gradients(t, t->m->options.context_ranks) : OTT_OK;
}

static int64_t rows_of_step(const trainer *t) {
    return t->options.batch_size * micro_batches_of_step(t);
}

static void finish_step(trainer *t, step_result *out) {
    out->tokens = rows_of_step(t) * t->options.seq_len;
    out->loss = (double)t->host_state[STEP_LOSS] / (double)out->labels;
    out->z_loss = (double)t->options.z_weight * (double)t->host_state[STEP_Z_LOSS] / (double)out->labels;
    out->grad_norm = t->host_state[STEP_GRAD_NORM];
    out->skipped = t->host_state[STEP_SKIP] != 0.0f;
    if (t->options.fp16_scaling) {
        t->run.loss_scale = t->host_state[STEP_LOSS_SCALE];
        t->run.good_steps = t->host_state[STEP_GOOD_STEPS];
    }
    t->run.nan_steps = out->skipped ? t->run.nan_steps + 1 : 0;
    t->run.step++;
    t->run.updates += !out->skipped;
    t->run.samples += rows_of_step(t);
    t->run.tokens += out->tokens;
    t->cx.step = t->run.step;
}

/* What a step changes before its update, which is all that an abandoned one has to put back. */
static ott_status copy_delayed(trainer *t, void *from, void *to) {
    return t->delayed_before ? device_copy(t->device, to, from, t->m->delayed.block_bytes) : OTT_OK;
}

/* Gradients of all micro-batches; when the watch ends it, as if it had not begun. */
static ott_status accumulate_or_abandon(trainer *t) {
    int64_t gemms[GEMM_COUNT][2];
    memcpy(gemms, t->cx.gemms, sizeof gemms);
    TRY(copy_delayed(t, t->m->delayed.block, t->delayed_before));
    ott_status status = accumulate(t);
    if (status != OTT_ERR_STOPPED) return status;
    memcpy(t->cx.gemms, gemms, sizeof gemms);
    TRY(copy_delayed(t, t->delayed_before, t->m->delayed.block));
    t->whole = true;
    return status_fail(status, "step %lld is abandoned", (long long)t->run.step + 1);
}

/* While the device works on this step. What fails here fails again when that one begins, and is told then. */
static void prepare_next(trainer *t) {
    (void)feed_step(&t->feed, !t->set, t->run.samples + rows_of_step(t));
}

/* The loss is a mean over the labels of all micro-batches: they are counted before the first backward. The host waits once,
   for the state at the end. */
ott_status trainer_step(trainer *t, double learning_rate, step_result *out) {
    t->set = (int)(t->run.step % FEED_STEPS);
    TRY(feed_step(&t->feed, t->set, t->run.samples));
    TRY(plan_documents(t));
    out->labels = t->feed.sets[t->set].labels;
    TRY(add_labels(t, &out->labels));
    TRY(write_state(t, learning_rate, out->labels));
    t->whole = false;
    t->cx.part = PART_NONE;
    TRY(accumulate_or_abandon(t));
    bool replayed;
    TRY(replay_run(&t->replay, &t->cx, REPLAY_UPDATE, run_update, t, &replayed));
    model_forms_made(t->m, t->run.step + 1);
    prepare_next(t);
    TRY(device_copy_out(t->device, t->host_state, t->state.data, tensor_bytes(t->state)));
    TRY(balance_read(t->m, micro_batches_of_step(t), &out->balance));
    finish_step(t, out);
    t->whole = true;
    return count_step_gemms(t);
}

/* ---- evaluation ---- */

/* What every rank of the group has, in rank order. */
static ott_status gather_values(trainer *t, group *g, float own, float *all) {
    tensor values = tensor_matrix(t->told.buffer, OTT_F32, g->size, 1),
           part = tensor_rows(values, g->rank, 1);
    TRY(device_copy_in(t->device, part.data, &own, sizeof own));
    TRY(group_run(g, &t->cx, &(collective){.kind = COLLECTIVE_ALL_GATHER, .input = part, .output = values}));
    return device_copy_out(t->device, all, values.data, g->size * (int64_t)sizeof *all);
}

/* A batch of each rank, from batch `first` of the data on, and their losses added to *total in the order of the batches,
   as on one rank. A rank for which none is left runs the last one once more, for nothing. */
static ott_status evaluate_round(trainer *t, int64_t first, evaluation *e, float *total) {
    const group *g = t->cx.data_group;
    int64_t own = first + g->rank, taken = own < e->batches ? own : e->batches - 1;
    tensor sum = state_slot(t, STEP_LOSS);
    float loss, losses[g->size];
    TRY(feed_evaluation(&t->feed, taken * t->options.evaluation_batch));
    TRY(plan_documents(t));
    TRY(feed_send(&t->feed, FEED_EVALUATION, 0, &t->evaluation_batch));
    t->cx.plan = t->evaluate_plan;
    plan_replay(t->evaluate_plan);
    TRY(device_zero(t->device, sum.data, sizeof(float)));
    TRY(evaluate_pass(t));
    TRY(sum_of_rows(t, &sum));
    TRY(device_copy_out(t->device, &loss, sum.data, sizeof loss));
    if (taken == own) e->labels += t->feed.sets[FEED_EVALUATION].labels;
    TRY(gather_values(t, t->cx.data_group, loss, losses));
    for (int64_t i = 0; i < g->size && first + i < e->batches; i++) *total += losses[i];
    return OTT_OK;
}

static ott_status evaluate(trainer *t, int64_t batches, evaluation *out) {
    int64_t available = dataset_rows(t->validation_data) / t->options.evaluation_batch;
    float total = 0;
    *out = (evaluation){.batches = available < batches ? available : batches};
    for (int64_t i = 0; i < out->batches; i += t->cx.data_group->size) TRY(evaluate_round(t, i, out, &total));
    TRY(sum_counts(t, t->cx.data_group, &out->labels, 1));
    out->tokens = out->batches * evaluation_tokens(t);
    if (out->labels == 0)
        return status_fail(OTT_ERR_CONFIG, "%s: no token of the first %lld batches has a label to evaluate",
                           dataset_name(t->validation_data), (long long)out->batches);
    out->loss = (double)total / (double)out->labels;
    return count_gemms(t);
}

/* A run that is stopped meanwhile may still save what trains. */
ott_status trainer_evaluate(trainer *t, int64_t batches, evaluation *out) {
    TRY(trainer_show_average(t, true));
    ott_status status = evaluate(t, batches, out);
    TRY(trainer_show_average(t, false));
    return status;
}

/* ---- where did the NaN come from ---- */

enum { FOUND_BYTES = 160 };

typedef struct search {
    trainer *t;
    char *found; /* [FOUND_BYTES] */
    float place; /* of it in a pass, forward and back again; INFINITY: nothing was found */
} search;

static float place_of(const model *m, const char *module, const char *what) {
    int i = 0;
    while (i < m->whole.count && strcmp(m->whole.of[i].name, module) != 0) i++;
    return (float)(strcmp(what, "output") == 0 ? i : 2 * m->whole.count - i);
}

static ott_status see(void *user, exec *cx, const char *module, const char *what, const tensor *x) {
    search *s = user;
    if (s->found[0]) return OTT_OK;
    int32_t count;
    TRY(op_count_nonfinite(cx, &(count_nonfinite_args){.x = x, .count = &s->t->nonfinite}));
    TRY(device_copy_out(cx->device, &count, s->t->nonfinite.data, sizeof count));
    if (count == 0) return OTT_OK;
    snprintf(s->found, FOUND_BYTES, "%s of %s", what, module);
    s->place = place_of(s->t->m, module, what);
    return OTT_OK;
}

static void add_rank(const trainer *t, char found[FOUND_BYTES]) {
    size_t length = strlen(found);
    int room = (int)(FOUND_BYTES - length);
    if (t->stage)
        snprintf(found + length, (size_t)room, " on rank %d, stage %d", t->options.run_group->rank,
                 t->m->options.stage->rank);
    else
        snprintf(found + length, (size_t)room, " on rank %d", t->options.run_group->rank);
}

/* On one rank that is enough: the ranks search together, and what comes first in a pass is what all say. */
static ott_status found_anywhere(trainer *t, search *s, bool *found) {
    group *g = t->options.run_group;
    float all[g->size];
    int first = 0;
    *found = s->found[0] != 0;
    if (g->size == 1) return OTT_OK;
    TRY(gather_values(t, g, s->place, all));
    for (int r = 1; r < g->size; r++)
        if (all[r] < all[first]) first = r;
    *found = isfinite(all[first]);
    if (!*found) return OTT_OK;
    if (first == g->rank) add_rank(t, s->found);
    t->told.group = g;
    return group_host_broadcast(&t->told, s->found, FOUND_BYTES, first);
}

static ott_status search_passes(trainer *t, search *s) {
    const hook p = {.see = see, .user = s};
    bool found = false;
    for (int64_t i = 0; i < pass_count(t) && !found; i++) {
        TRY(run_micro_batches(t, i, &p, false)); /* their rows are still on the host */
        TRY(found_anywhere(t, s, &found));
    }
    return OTT_OK;
}

/* It is no step: what that would move on stays. */
ott_status trainer_find_nonfinite(trainer *t, char out[160]) {
    search s = {.t = t, .found = out, .place = INFINITY};
    int64_t gemms[GEMM_COUNT][2];
    memcpy(gemms, t->cx.gemms, sizeof gemms);
    memset(out, 0, FOUND_BYTES);
    TRY(plan_documents(t));
    TRY(copy_delayed(t, t->m->delayed.block, t->delayed_before));
    ott_status status = search_passes(t, &s);
    if (status == OTT_OK) status = copy_delayed(t, t->delayed_before, t->m->delayed.block);
    memcpy(t->cx.gemms, gemms, sizeof gemms);
    return status;
}
