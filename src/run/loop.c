/* run/loop: runs the steps of a training run: validates, saves, stops, and writes the summary. */
#include "run/loop.h"
#include "run/parts.h"
#include "base/clock.h"
#include "data/phases.h"
#include "report/report.h"
#include "run/freezing.h"
#include "run/run_log.h"
#include "run/save_hf.h"
#include "train/schedule.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Cancellation callback: true if a stop was requested. With several ranks it is false as soon as the first
   step starts, because all ranks must end after the same step. */
static bool has_stop_request(void *user) {
    run *r = user;
    if (r->process_group.size > 1 && r->in_steps) return false;
    if (!r->stopping) r->stopping = r->hooks->stop && r->hooks->stop(r->hooks->stop_user);
    return r->stopping;
}

/* Called between steps. A stop request on any rank becomes a stop request on all ranks. */
static ott_status share_stop_request(run *r) {
    r->stopping = r->stopping || (r->hooks->stop && r->hooks->stop(r->hooks->stop_user));
    return process_group_any(&r->process_group, &r->stopping);
}

/* ---- the steps ---- */

static void note_memory(run *r) {
    int64_t *peak = &r->progress.history.peak_memory_bytes, resident = progress_peak_resident();
    if (resident > *peak) *peak = resident;
}

static ott_status save_weights(run *r) {
    if (!process_group_saves_checkpoints(&r->process_group))
        return r->saved_step = r->trainer->run.step, OTT_OK;
    if (r->progress.metrics && metrics_sync(r->progress.metrics) != OTT_OK)
        log_warning(r->log, "%s", status_text());
    note_memory(r);
    TRY(checkpoint_writer_save(r->writer, r->trainer->recipe->name, &r->trainer->run, &r->progress.history));
    r->saved_step = r->trainer->run.step;
    if (!save_hf_is_requested(r->cfg, r->saved_step)) return OTT_OK;
    TRY(checkpoint_writer_wait(r->writer)); /* hf/ needs the checkpoint's folder */
    return save_hf(r->trainer->m, r->log, r->cfg, r->process_group.savers, r->folder.checkpoints,
                   r->saved_step);
}

static ott_status save(run *r) {
    if (r->saved_step == r->trainer->run.step) return OTT_OK;
    TRY(trainer_use_average(r->trainer, true));
    TRY(save_weights(r));
    return trainer_use_average(r->trainer, false);
}

/* Saves the last checkpoint and waits until it is written. */
static ott_status save_last(run *r) {
    TRY(save(r));
    return checkpoint_writer_wait(r->writer);
}

/* Ends the run on a stop request. Saves even if periodic checkpoints are off. */
static ott_status save_and_stop(run *r) {
    long long step = (long long)r->trainer->run.step;
    bool there = r->saved_step == step || (r->start.checkpoint && step == r->start.step);
    r->stopped = true;
    if (there)
        log_info(r->log, "Shutdown requested at step %lld: its checkpoint is already saved", step);
    else
        log_info(r->log, "Shutdown requested at step %lld — saving emergency checkpoint", step);
    if (!there) TRY(save(r));
    TRY(checkpoint_writer_wait(r->writer));
    str command = {.account = r->account};
    resume_command(&r->folder, &command);
    ott_status status = str_finish(&command);
    if (status == OTT_OK) log_info(r->log, "Resume with: %s", command.text);
    str_free(&command);
    return status;
}

static ott_status validate(run *r) {
    if (!r->validation_data) return OTT_OK;
    evaluation e;
    double started = clock_seconds();
    TRY(trainer_evaluate(r->trainer, r->cfg->eval.steps, &e));
    return progress_validation(&r->progress, r->trainer, &e, clock_seconds() - started);
}

/* Logs a step that was skipped because of a non-finite value, as KempnerForge does. For a finite loss, names
   where the gradient is not finite. Too many such steps in a row end the run. */
static ott_status handle_nonfinite(run *r, const step_result *s) {
    char where[224], gradient[160];
    const run_state *state = &r->trainer->run;
    const run_history *h = &r->progress.history;
    TRY(trainer_find_gradient(r->trainer, gradient));
    TRY(trainer_find_nonfinite(r->trainer, where));
    if (!where[0])
        snprintf(where, sizeof where, "%s%s",
                 *gradient           ? "gradient of "
                 : isfinite(s->loss) ? "the gradient norm (every module is finite)"
                                     : "the loss (every module is finite)",
                 gradient);
    if (isfinite(s->loss))
        log_warning(r->log,
                    "NaN/Inf gradient%s%s at step %lld (consecutive=%lld, loss=%.4f): step skipped, first "
                    "non-finite value: %s",
                    *gradient ? " of " : " norm", gradient, (long long)state->step,
                    (long long)state->nan_steps, s->loss, where);
    else
        log_warning(r->log,
                    "NaN/Inf loss at step %lld (consecutive=%lld, last_good_loss=%.4f at step %lld): step "
                    "skipped, first non-finite value: %s",
                    (long long)state->step, (long long)state->nan_steps, h->last_good_loss,
                    (long long)h->last_good_step, where);
    if (state->nan_steps < r->cfg->train.max_consecutive_nan) return OTT_OK;
    double loss = fabs(s->loss); /* avoids the text -nan */
    return status_fail(
        OTT_ERR_DIVERGED,
        "too many consecutive NaNs: %lld steps in a row (loss %g at step %lld, first non-finite value: %s); "
        "lower optimizer.lr, lengthen scheduler.warmup_steps, or continue from an earlier checkpoint",
        (long long)state->nan_steps, loss, (long long)state->step, where);
}

static void report_progress(const run *r, const step_result *s, double learning_rate) {
    if (!r->hooks->progress || !process_group_is_leader(&r->process_group)) return;
    double rate = progress_tokens_per_second(&r->progress);
    int64_t left = r->cfg->train.max_steps - r->trainer->run.step;
    const live_model own = {r->cfg, r->trainer->m, r->trainer, r->trainer->run.step},
                     *before = r->hooks->live ? *r->hooks->live : NULL;
    if (r->hooks->live) *r->hooks->live = &own;
    r->hooks->progress(r->hooks->user,
                       &(ott_progress){.step = r->trainer->run.step,
                                       .max_steps = r->cfg->train.max_steps,
                                       .loss = s->loss,
                                       .validation_loss = r->progress.history.val_loss,
                                       .learning_rate = learning_rate,
                                       .grad_norm = s->grad_norm,
                                       .tokens_per_second = rate,
                                       .seconds_left = rate > 0 ? (double)(left * s->tokens) / rate : NAN});
    if (r->hooks->live) *r->hooks->live = before;
}

static void report_micro_batch(void *user, int64_t done, int64_t total) {
    const run *r = user;
    double elapsed = clock_seconds() - r->progress.step_started;
    r->hooks->work(r->hooks->user,
                   &(ott_work){.done = done,
                               .total = total,
                               .seconds_left = elapsed / (double)done * (double)(total - done)});
}

/* Converts the model if the precision schedule changes the recipe at this step. */
static ott_status follow_schedule(run *r) {
    const recipe *now = precision_at(&r->precision, r->trainer->run.step);
    if (now == r->trainer->recipe) return OTT_OK;
    log_info(r->log, "Precision schedule: from step %lld on in %s (was %s)",
             (long long)r->trainer->run.step + 1, now->name, r->trainer->recipe->name);
    TRY(trainer_convert(r->trainer, now));
    run_log_write_conversion(r->log, r->trainer);
    return OTT_OK;
}

/* Applies the entry of train.freeze_schedule that is in effect from this step on. */
static ott_status follow_freezing(run *r) {
    int64_t step = r->trainer->run.step;
    int entry = freezing_at(r->cfg, step), frozen_count;
    if (entry == r->freezing) return OTT_OK;
    TRY(freezing_apply(r->cfg, r->trainer, entry, &frozen_count));
    r->freezing = entry;
    log_info(r->log, "Freeze schedule: from step %lld on, %d parameters are frozen", (long long)step + 1,
             frozen_count);
    return OTT_OK;
}

static void log_phase(const run *r) {
    int64_t step = r->trainer->run.step;
    int number = phases_begin_at(r->cfg, step);
    if (number < 0) return;
    log_info(r->log, "Phase transition at step %lld: phase=%d, lr_scale=%g", (long long)step, number,
             phases_lr_scale(r->cfg, step));
}

static ott_status one_step(run *r) {
    step_result s;
    TRY(checkpoint_writer_poll(r->writer));
    TRY(follow_schedule(r));
    TRY(follow_freezing(r));
    log_phase(r);
    const run_state *at = &r->trainer->run;
    double learning_rate = schedule_rate(r->cfg, at->step, at->schedule_start);
    r->trainer->balance_factor = schedule_balance(r->cfg, r->trainer->run.step, r->cfg->train.max_steps);
    progress_begin_step(&r->progress, r->trainer);
    health_begin_step(r->health);
    TRY(profile_begin_step(r->profile));
    TRY(trainer_step(r->trainer, learning_rate, &s));
    TRY(profile_end_step(r->profile));
    TRY(run_keep_folder(r));
    TRY(progress_end_step(&r->progress, r->trainer, &s, learning_rate));
    TRY(health_end_step(r->health, process_group_is_leader(&r->process_group) ? r->progress.metrics : NULL));
    if (s.skipped) TRY(handle_nonfinite(r, &s));
    int64_t step = r->trainer->run.step;
    /* Validates before saving: the metrics up to a step must be written before its checkpoint. */
    if (step % r->cfg->eval.interval == 0 || step == r->cfg->train.max_steps) TRY(validate(r));
    report_progress(r, &s, learning_rate);
    bool due = r->cfg->checkpoint.interval > 0 && step % r->cfg->checkpoint.interval == 0;
    TRY(share_stop_request(r));
    if (due && !r->stopping) TRY(save(r)); /* on a stop request, save_and_stop saves */
    return OTT_OK;
}

/* After an error, saves the last complete step. Does not save a diverged run, because its older checkpoints
   are better. Does not save a run of several ranks: a failed rank cannot help to save. Returns `code`. */
static ott_status save_after(run *r, ott_status code) {
    long long step = (long long)r->trainer->run.step;
    if (r->process_group.size > 1) return code;
    if (code == OTT_ERR_DIVERGED || !r->trainer->is_consistent || step == r->first_step) return code;
    str reason = {.account = r->account};
    str_append(&reason, status_text());
    if (str_finish(&reason) != OTT_OK) return str_free(&reason), code;
    ott_status saved = save_last(r);
    if (saved == OTT_OK)
        status_fail(code, "%s; the run was saved at step %lld", reason.text, step);
    else {
        log_error(r->log, "Saving step %lld failed, too: %s", step, status_text());
        status_fail(code, "%s", reason.text);
    }
    str_free(&reason);
    return code;
}

static ott_status run_steps(run *r) {
    if (r->trainer->run.step >= r->cfg->train.max_steps) {
        log_info(r->log, "Nothing left to do: step %lld of train.max_steps = %lld is done",
                 (long long)r->trainer->run.step, (long long)r->cfg->train.max_steps);
        return OTT_OK;
    }
    r->first_step = r->trainer->run.step;
    if (r->hooks->work && r->cfg->train.grad_accum_steps > 1 && process_group_is_leader(&r->process_group)) {
        r->trainer->micro_batch_done = report_micro_batch;
        r->trainer->micro_batch_user = r;
    }
    r->in_steps = true;
    TRY(share_stop_request(r));
    while (r->trainer->run.step < r->cfg->train.max_steps) {
        if (r->stopping) return save_and_stop(r);
        ott_status status = one_step(r);
        if (status == OTT_ERR_STOPPED) continue; /* the step was undone */
        if (status != OTT_OK) return save_after(r, status);
    }
    ott_status status = run_keep_folder(r);
    if (status != OTT_OK) return save_after(r, status);
    return r->cfg->checkpoint.interval > 0 ? save_last(r) : OTT_OK;
}

/* ---- the end ---- */

static ott_status write_run_summary(run *r) {
    const char *slash = strrchr(r->folder.path, '/'); /* reports name a run by the last part of its folder */
    run_history *h = &r->progress.history;
    report_phase sum = run_history_sum(h);
    const trainer *t = r->trainer;
    if (!process_group_is_leader(&r->process_group)) return OTT_OK;
    if (r->progress.run_tokens == 0 && !r->history_known) return OTT_OK; /* keep the old summary */
    note_memory(r);
    TRY(run_keep_folder(r));
    return report_summary_write(r->account, r->folder.path,
                                &(report_summary){.label = slash && slash[1] ? slash + 1 : r->folder.path,
                                                  .precision = config_word(r->cfg, "train.mixed_precision"),
                                                  .recipe = r->cfg->train.mixed_precision == PRECISION_FP8
                                                                ? r->precision.fp8.name
                                                                : "",
                                                  .steps = t->run.step,
                                                  .tokens = t->run.tokens,
                                                  .parameters = model_parameter_count(t->m),
                                                  .train_loss = run_history_loss(h),
                                                  .val_loss = h->val_loss,
                                                  .tokens_per_second = run_history_speed(h),
                                                  .seconds = sum.seconds,
                                                  .peak_memory_bytes = h->peak_memory_bytes,
                                                  .fp8_gemms = sum.fp8_gemms,
                                                  .gemms = sum.gemms,
                                                  .phase_count = h->phase_count,
                                                  .phases = h->phases});
}

ott_status run_loop(mem *account, const logger *log, config *cfg, const train_hooks *hooks) {
    run r = {.account = account,
             .log = log,
             .cfg = cfg,
             .hooks = hooks,
             .saved_step = -1,
             .freezing = FREEZING_NONE};
    ott_status status = OTT_OK;
    TRY_OUT(process_group_join(account, log, cfg, &r.process_group));
    r.log = &r.process_group.log;
    r.cancellation = (cancellation){.log = r.log, .stop = has_stop_request, .user = &r};
    TRY_OUT(run_open(&r));
    run_log_write_start(&r);
    TRY_OUT(run_steps(&r));
    TRY_OUT(profile_finish(r.profile));
    TRY_OUT(write_run_summary(&r));
    if (!r.stopped) run_log_write_end(&r);
    TRY_OUT(process_group_barrier(&r.process_group)); /* no rank ends before the last checkpoint is written */
out:
    if (status != OTT_OK) process_group_abort(&r.process_group, status);
    run_close(&r);
    return status;
}
