/* train/trainer_step: one training step: micro-batches, reductions over ranks, update. */
#include "train/trainer_parts.h"
#include <string.h>

/* ---- GEMM counts ---- */

/* more[0] = number of FP8 GEMMs of this rank since the last call; more[1] = number of all its GEMMs. */
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

ott_status trainer_count_gemms(trainer *t) {
    int64_t more[2];
    take_gemms(t, more);
    TRY(trainer_sum_counts(t, t->options.run_group, more, 2));
    for (int i = 0; i < 2; i++) t->gemms[i] += more[i];
    return OTT_OK;
}

/* All steps run the same GEMMs until the model is converted again. So ranks exchange counts only once. */
static ott_status count_step_gemms(trainer *t) {
    step_gemms *s = &t->step_gemms;
    int64_t own[2];
    take_gemms(t, own);
    if (!s->known) {
        memcpy(s->own, own, sizeof own);
        memcpy(s->all, own, sizeof own);
        TRY(trainer_sum_counts(t, t->options.run_group, s->all, 2));
        s->known = true;
    }
    for (int i = 0; i < 2; i++) t->gemms[i] += s->all[i];
    if (memcmp(s->own, own, sizeof own) == 0) return OTT_OK;
    return status_fail(OTT_ERR_INTERNAL,
                       "step %lld ran %lld GEMMs, %lld in FP8; earlier steps ran %lld and %lld",
                       (long long)t->run.step, (long long)own[1], (long long)own[0], (long long)s->own[1],
                       (long long)s->own[0]);
}

void trainer_gemms(const trainer *t, int64_t *fp8, int64_t *all) {
    *fp8 = t->gemms[0];
    *all = t->gemms[1];
}

/* ---- micro-batches ---- */

int64_t trainer_pass_count(const trainer *t) {
    return t->options.grad_accum / t->resident;
}

/* Begins the graph of a pass (train/replay.h). The graph of a step's first pass must quantize all weights
   that the optimizer does not quantize, even if an evaluation has quantized them. So all weights are marked
   as stale first. Weights that the optimizer should quantize, but has not in this step, are quantized before
   the graph. A replay marks all as fresh. */
static ott_status begin_pass(trainer *t, replay_part part, bool *must_run) {
    if (part == REPLAY_FIRST && t->replay.enabled) TRY(model_prepare_replay(&t->cx, t->m));
    TRY(cancellation_check(t->cx.cancellation));
    TRY(replay_begin(&t->replay, &t->cx, part, must_run));
    if (!*must_run) model_weights_made(t->m, t->cx.step);
    return OTT_OK;
}

/* Ends the graph of a pass that has run. Updates delayed scaling's scales, unless a pipeline stage has. */
static ott_status end_pass(trainer *t, replay_part part, ott_status status) {
    if (status == OTT_OK && !t->stage) status = model_update_scales(&t->cx, t->m, t->cx.data_group);
    return replay_end(&t->replay, &t->cx, part, status);
}

ott_status trainer_run_micro_batches(trainer *t, int64_t index, const hook *p, bool in_step) {
    replay_part part = index == 0 ? REPLAY_FIRST : REPLAY_LATER;
    bool must_run = true;
    for (int64_t i = 0; i < t->resident; i++)
        TRY(feed_send(&t->feed, t->set, index * t->resident + i, &t->batches[i]));
    t->cx.hook = p;
    t->cx.is_first_microbatch = index == 0;
    ott_status status = in_step ? begin_pass(t, part, &must_run) : OTT_OK;
    if (status == OTT_OK && must_run) {
        t->cx.plan = t->train_plan;
        plan_replay(t->train_plan);
        status = trainer_train_pass(t);
        if (in_step) status = end_pass(t, part, status);
    }
    t->cx.hook = NULL;
    return status;
}

/* Only fp16 uses a loss scale. Other runs keep run.loss_scale unchanged, for a later resume in fp16. */
static float loss_scale(const trainer *t) {
    return t->options.fp16_scaling ? t->run.loss_scale : 1.0f;
}

/* Sums *labels, the number of tokens with a target, over the ranks. OTT_ERR_CONFIG if the sum is 0. */
static ott_status add_labels(trainer *t, int64_t *labels) {
    TRY(trainer_sum_counts(t, t->cx.data_group, labels, 1));
    if (*labels > 0) return OTT_OK;
    return status_fail(
        OTT_ERR_CONFIG,
        "%s: no token of step %lld has a label, so there is no loss to train on: use more rows "
        "per step (train.batch_size, train.grad_accum_steps) or check the data",
        dataset_name(t->train_data), (long long)t->run.step + 1);
}

/* Number of micro-batches of a step on all data-parallel ranks. */
static int64_t micro_batches_of_step(const trainer *t) {
    return t->options.grad_accum * t->cx.data_group->size;
}

static ott_status write_state(trainer *t, double learning_rate, int64_t labels) {
    TRY(device_event_wait(t->device, t->state_sent)); /* an abandoned step may still be copying */
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

ott_status trainer_sum_same_rows(trainer *t, const tensor *sum) {
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

/* Runs all micro-batches. Sums their losses into STEP_LOSS and STEP_Z_LOSS and their gradients into the
   parameters' grad. Then sums losses and gradients over the ranks that contribute to them. */
static ott_status accumulate_gradients(trainer *t) {
    tensor loss = tensor_columns(t->state, STEP_LOSS, 2); /* loss and z-loss */
    TRY(device_zero(t->device, t->m->grads, t->m->trained_bytes));
    TRY(store_zero_gradients(&t->m->store, t->device));
    TRY(balance_begin(t->m));
    for (int64_t i = 0; i < trainer_pass_count(t); i++) {
        TRY(trainer_run_micro_batches(t, i, i == 0 ? t->hook : NULL, true));
        if (t->micro_batch_done)
            t->micro_batch_done(t->micro_batch_user, (i + 1) * t->resident, t->options.grad_accum);
    }
    plan_replay(t->reduce_plan);
    TRY(trainer_reduce(t));
    TRY(group_all_reduce(t->cx.data_group, &t->cx, &loss, REDUCE_SUM));
    TRY(trainer_sum_same_rows(t, &loss));
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
    t->run.step_rows = rows_of_step(t);
    t->run.tokens += out->tokens;
    t->cx.step = t->run.step;
}

ott_status trainer_copy_delayed(trainer *t, void *from, void *to) {
    return t->delayed_before ? device_copy(t->device, to, from, t->m->delayed.block_bytes) : OTT_OK;
}

/* Restores the FP8 state and the GEMM counts of before a step that was stopped. */
static ott_status abandon_step(trainer *t, int64_t gemms[GEMM_COUNT][2]) {
    memcpy(t->cx.gemms, gemms, sizeof t->cx.gemms);
    TRY(trainer_copy_delayed(t, t->delayed_before, t->m->delayed.block));
    t->is_consistent = true;
    return status_fail(OTT_ERR_STOPPED, "step %lld is abandoned", (long long)t->run.step + 1);
}

static ott_status run_update(trainer *t) {
    bool must_run;
    TRY(replay_begin(&t->replay, &t->cx, REPLAY_UPDATE, &must_run));
    return must_run ? replay_end(&t->replay, &t->cx, REPLAY_UPDATE, trainer_run_update(t)) : OTT_OK;
}

/* The loss is a mean over the labels of all micro-batches, so labels are counted before the first backward.
   On one rank, the host waits for the device only at the end. */
ott_status trainer_step(trainer *t, double learning_rate, step_result *out) {
    int64_t gemms[GEMM_COUNT][2];
    t->set = (int)(t->run.step % FEED_STEPS);
    TRY(feed_step(&t->feed, t->set, t->run.samples));
    TRY(trainer_plan_documents(t));
    out->labels = t->feed.sets[t->set].labels;
    TRY(add_labels(t, &out->labels));
    TRY(write_state(t, learning_rate, out->labels));
    t->is_consistent = false;
    t->cx.part = PART_NONE;
    memcpy(gemms, t->cx.gemms, sizeof gemms);
    TRY(trainer_copy_delayed(t, t->m->delayed.block, t->delayed_before));
    ott_status status = accumulate_gradients(t);
    if (status == OTT_ERR_STOPPED) return abandon_step(t, gemms);
    TRY(status);
    TRY(run_update(t));
    model_mark_quantized(t->m, t->run.step + 1);
    /* Fills the next step's micro-batches while the device runs this step. An error is ignored here: the next
       step fails again and reports it. */
    (void)feed_step(&t->feed, !t->set, t->run.samples + rows_of_step(t));
    TRY(device_copy_out(t->device, t->host_state, t->state.data, tensor_bytes(t->state)));
    TRY(balance_read(t->m, micro_batches_of_step(t), &out->balance));
    finish_step(t, out);
    t->is_consistent = true;
    return count_step_gemms(t);
}
