/* run/loop: opens everything that a run needs, runs its steps, validates, saves, closes everything. */
#include "run/loop.h"
#include "backend/backend.h"
#include "base/clock.h"
#include "base/file/file.h"
#include "folders/hf/model.h"
#include "folders/peft.h"
#include "checkpoint/writer.h"
#include "data/data.h"
#include "formats/hf/hub_name.h"
#include "report/report.h"
#include "run/auto_keys.h"
#include "run/memory/check.h"
#include "run/run_log.h"
#include "monitor/health.h"
#include "monitor/profile.h"
#include "monitor/progress.h"
#include "run/resume.h"
#include "run/resume_rows.h"
#include "run/run.h"
#include "data/phases.h"
#include "run/freezing.h"
#include "run/save_hf.h"
#include "train/schedule.h"
#include "run/folder/shared_folder.h"
#include "run/folder/sources.h"
#include "run/process_group.h"
#include <stdio.h>
#include <string.h>

/* Everything that a run owns; closed by close_run. */
typedef struct run {
    mem *account;
    const logger *log; /* logger of this rank */
    config *cfg;
    const train_hooks *hooks;
    process_group process_group;
    config asked; /* cfg before model_options_resolve */
    model_options shape;
    hf_model_notes notes; /* values of model.hf_path's config.json that have no key */
    memory_need need;
    memory_check_fp8 need_fp8; /* set only on rank 0 */
    precision_plan precision;
    run_folder folder;
    resume_point start;
    device *device;
    dataset *train_data, *validation_data;
    trainer *trainer;
    checkpoint_writer *writer;
    int freezing; /* current entry of train.freeze_schedule, or FREEZING_NONE */
    health *health;
    profile *profile; /* NULL if profiling.enable is false */
    progress progress;
    run_sources files;  /* data and tokenizer files of the run */
    str sources;        /* text of sources.json for the checkpoints */
    bool history_known; /* true if the run is new, or if the history of its earlier processes was read */
    int64_t first_step; /* steps that were done when this process began */
    int64_t saved_step; /* step of the newest saved checkpoint; -1: none */
    cancellation cancellation;
    bool in_steps;          /* the first step has started */
    bool stopping, stopped; /* stopping: a stop was requested; stopped: the request has ended the run */
} run;

/* ---- opening ---- */

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

static ott_status write_config(const run *r) {
    char path[PATH_MAX];
    str text = {.account = r->account};
    TRY(file_join(r->folder.path, "config.toml", path));
    ott_status status = config_write_toml(r->cfg, &text);
    if (status == OTT_OK) status = file_write_atomic(path, text.text, text.length);
    str_free(&text);
    return status;
}

/* Loads or initializes the weights, unless the weights come from a checkpoint. */
static ott_status load_start(run *r) {
    const char *folder = r->cfg->model.hf_path, *quantization = r->notes.quantization;
    if (r->start.checkpoint && !r->start.exclusions.no_model) return OTT_OK;
    TRY(run_load_initial_weights(r->trainer->m, r->cfg, r->process_group.threads));
    if (*folder && !r->cfg->model.reduce)
        log_info(r->log, "Loaded the weights of %s%s%s%s", folder,
                 *quantization ? ", dequantized from FP8 (" : "", quantization, *quantization ? ")" : "");
    return OTT_OK;
}

static ott_status decide_memory_check(run *r) {
    const memory_check a = {.account = r->account,
                            .device = r->device,
                            .cfg = r->cfg,
                            .asked = &r->asked,
                            .shape = &r->shape,
                            .step = r->start.step,
                            .train_data = r->train_data,
                            .validation_data = r->validation_data};
    TRY(memory_check_decide(&a, &r->need));
    return process_group_is_leader(&r->process_group)
               ? memory_check_compare_fp8(&a, r->need.total, &r->need_fp8)
               : OTT_OK;
}

/* Checks that all ranks have the same files. If not, the run ends before its folder is created. */
static ott_status check_files(run *r) {
    str lines = {.account = r->account};
    r->files.account = r->account;
    ott_status status = sources_collect(r->cfg, &r->files);
    if (status == OTT_OK) status = sources_describe(&r->files, &lines);
    if (status == OTT_OK) status = process_group_check_files(&r->process_group, lines.text ? lines.text : "");
    str_free(&lines);
    return status;
}

static ott_status open_sources(run *r) {
    r->sources.account = r->account;
    TRY(sources_open(&r->files, r->log, r->start.checkpoint, &r->sources));
    checkpoint_writer_keep_sources(r->writer, r->sources.text);
    return OTT_OK;
}

/* Rank 0 looks for the checkpoint and broadcasts the resume point. */
static ott_status find_start(run *r) {
    str path = {.account = r->account};
    if (process_group_is_leader(&r->process_group)) TRY(resume_find(r->log, r->cfg, &r->folder, &r->start));
    if (r->process_group.size == 1) return OTT_OK;
    str_append(&path, r->start.checkpoint ? r->start.checkpoint : "");
    ott_status status = str_finish(&path);
    if (status == OTT_OK) status = process_group_broadcast_text(&r->process_group, &path);
    if (status == OTT_OK && !process_group_is_leader(&r->process_group)) {
        r->start = (resume_point){.metrics = -1};
        if (path.length > 0) status = mem_strdup(r->account, path.text, &r->start.checkpoint);
    }
    str_free(&path);
    TRY(status);
    TRY(process_group_broadcast(&r->process_group, &r->start.exclusions, sizeof r->start.exclusions));
    TRY(process_group_broadcast(&r->process_group, &r->start.rows, sizeof r->start.rows));
    TRY(process_group_broadcast(&r->process_group, &r->start.step_rows, sizeof r->start.step_rows));
    return process_group_broadcast(&r->process_group, &r->start.step, sizeof r->start.step);
}

/* Adjusts grad_accum_steps and max_steps of a resumed run to its number of ranks, which may have changed. */
static ott_status fit_rows(run *r) {
    if (!*r->cfg->checkpoint.load_path) return OTT_OK;
    TRY(resume_fit_rows(r->log, r->account, r->cfg, &r->start, r->train_data));
    r->asked.train.grad_accum_steps = r->cfg->train.grad_accum_steps;
    r->asked.train.max_steps = r->cfg->train.max_steps;
    return precision_plan_read(r->cfg, &r->precision); /* the phases depend on train.max_steps */
}

static ott_status open_trainer(run *r) {
    trainer_options options;
    TRY(find_start(r));
    TRY(fit_rows(r));
    TRY(run_trainer_options(r->cfg, &r->precision, r->start.step, &options));
    options.run_group = r->process_group.all;
    options.data_group = r->process_group.data;
    options.replica_group = r->process_group.replicate;
    process_group_set_model(&r->process_group, r->cfg, &r->shape);
    TRY(decide_memory_check(r));
    TRY(trainer_open(r->account, r->log, r->device, &r->shape, &options, r->train_data, r->validation_data,
                     &r->trainer));
    TRY(freezing_check_names(r->cfg, r->trainer->m));
    r->trainer->cx.cancellation = r->trainer->m->cancellation = &r->cancellation;
    TRY(checkpoint_writer_open(r->trainer->m, r->log, r->cfg, r->folder.checkpoints, r->process_group.savers,
                               &r->writer));
    TRY(load_start(r));
    return resume_load(r->trainer, r->cfg, &r->start);
}

/* Opens rank 0's metrics file, and one per rank if metrics.save_for_all_ranks. */
static ott_status open_metrics(run *r) {
    char path[PATH_MAX], name[48] = "metrics.jsonl";
    if (!process_group_is_leader(&r->process_group)) {
        if (!r->cfg->metrics.save_for_all_ranks) return OTT_OK;
        snprintf(name, sizeof name, "metrics-rank%d.jsonl", r->process_group.rank);
    }
    TRY(file_join(r->folder.path, name, path));
    return metrics_open(r->account, r->log, path, r->start.metrics, &r->progress.metrics);
}

/* Reads the history of the run's earlier processes from the checkpoint. A failure causes only a warning. */
static ott_status open_history(run *r) {
    run_history *h = &r->progress.history;
    const run_state *state = &r->trainer->run;
    run_history_begin(h);
    r->history_known = true;
    if (!r->start.checkpoint || r->start.exclusions.no_counters) return OTT_OK;
    ott_status status =
        run_history_read(r->account, r->start.checkpoint, state->step, state->tokens, h, &r->history_known);
    if (status == OTT_ERR_MEMORY || r->history_known) return status;
    log_warning(r->log, "%s: times and GEMMs are counted from step %lld on",
                status == OTT_OK ? "The checkpoint has no history of its run" : status_text(),
                (long long)state->step);
    return OTT_OK;
}

static ott_status open_tensorboard(run *r) {
    if (!r->cfg->metrics.enable_tensorboard || !process_group_is_leader(&r->process_group)) return OTT_OK;
    bool before = r->folder.attempted || r->trainer->run.step > 0;
    return progress_open_tensorboard(&r->progress, r->folder.path, r->cfg->metrics.tensorboard_dir,
                                     before ? r->trainer->run.step + 1 : 0);
}

/* Returns the operand format of most GEMMs. */
static ott_dtype product_format(const run *r) {
    return r->cfg->train.mixed_precision == PRECISION_FP8 ? OTT_E4M3 : r->trainer->m->activation;
}

static ott_status open_progress(run *r) {
    device_memory memory;
    device_read_memory(r->device, &memory);
    r->progress = (progress){.log = r->log,
                             .account = r->account,
                             .style = r->cfg->metrics.log_style,
                             .interval = r->cfg->metrics.log_interval,
                             .max_steps = r->cfg->train.max_steps,
                             .flops_per_token = model_flops_per_token(r->trainer->m, r->cfg->train.seq_len),
                             .ranks = r->process_group.size,
                             .peak_flops = r->cfg->metrics.peak_tflops * 1e12,
                             .memory_total = (double)memory.total};
    loss_monitor_open(&r->progress.loss, r->shape.vocab);
    if (r->cfg->metrics.peak_tflops == 0) progress_measure_peak(&r->progress, r->device, product_format(r));
    TRY(open_history(r));
    TRY(open_metrics(r));
    return open_tensorboard(r);
}

static ott_status open_health(run *r) {
    bool falls_back = r->cfg->float8.fallback_sqnr_db > 0;
    if (falls_back && r->cfg->float8.health_interval == 0)
        return status_fail(
            OTT_ERR_CONFIG,
            "float8.fallback_sqnr_db = %g needs measurements, but float8.health_interval = 0 turns them "
            "off: set float8.health_interval",
            r->cfg->float8.fallback_sqnr_db);
    return health_open(r->trainer,
                       &(health_options){.interval = r->cfg->float8.health_interval,
                                         .bound_db = r->cfg->float8.fallback_sqnr_db,
                                         .window = falls_back ? r->cfg->float8.fallback_window : 0},
                       &r->health);
}

/* Recreates the run folder if it was removed or renamed while running. */
static ott_status keep_folder(run *r) {
    if (!process_group_is_leader(&r->process_group)) return OTT_OK;
    if (metrics_path_is_current(r->progress.metrics)) return OTT_OK;
    log_warning(r->log, "%s/metrics.jsonl was removed, renamed or replaced at step %lld: creating it again",
                r->folder.path, (long long)r->trainer->run.step);
    TRY(run_folder_restore(&r->folder, r->log, r->cfg));
    TRY(metrics_restore(r->progress.metrics));
    TRY(write_config(r));
    r->saved_step = -1; /* the newest checkpoint may be lost with the folder */
    return open_tensorboard(r);
}

/* ---- the loop ---- */

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

static ott_status log_command(const run *r) {
    str command = {.account = r->account};
    resume_command(&r->folder, &command);
    ott_status status = str_finish(&command);
    if (status == OTT_OK) log_info(r->log, "Resume with: %s", command.text);
    str_free(&command);
    return status;
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
    return log_command(r);
}

static ott_status validate(run *r) {
    if (!r->validation_data) return OTT_OK;
    evaluation e;
    double started = clock_seconds();
    TRY(trainer_evaluate(r->trainer, r->cfg->eval.steps, &e));
    return progress_validation(&r->progress, r->trainer, &e, clock_seconds() - started);
}

/* Logs a skipped step as KempnerForge does. For a finite loss, names where the gradient is not finite. */
static void log_nonfinite(const run *r, const step_result *s, const char *gradient, const char *where) {
    const run_state *state = &r->trainer->run;
    const run_history *h = &r->progress.history;
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
}

/* Logs a step that was skipped because of a non-finite value. Too many such steps in a row end the run. */
static ott_status handle_nonfinite(run *r, const step_result *s) {
    char where[224], gradient[160];
    const run_state *state = &r->trainer->run;
    TRY(trainer_find_gradient(r->trainer, gradient));
    TRY(trainer_find_nonfinite(r->trainer, where));
    if (!where[0])
        snprintf(where, sizeof where, "%s%s",
                 *gradient ? "gradient of " : "the gradient norm (every module is finite)", gradient);
    log_nonfinite(r, s, gradient, where);
    if (state->nan_steps < r->cfg->train.max_consecutive_nan) return OTT_OK;
    double loss = fabs(s->loss); /* avoids the text -nan */
    return status_fail(
        OTT_ERR_DIVERGED,
        "too many consecutive NaNs: %lld steps in a row (loss %g at step %lld, first non-finite value: %s); "
        "lower "
        "optimizer.lr, lengthen scheduler.warmup_steps, or continue from an earlier checkpoint",
        (long long)state->nan_steps, loss, (long long)state->step, where);
}

static void report_progress(const run *r, const step_result *s, double learning_rate) {
    if (!r->hooks->progress || !process_group_is_leader(&r->process_group)) return;
    double rate = progress_tokens_per_second(&r->progress);
    int64_t left = r->cfg->train.max_steps - r->trainer->run.step;
    r->hooks->progress(r->hooks->user,
                       &(ott_progress){.step = r->trainer->run.step,
                                       .max_steps = r->cfg->train.max_steps,
                                       .loss = s->loss,
                                       .validation_loss = r->progress.history.val_loss,
                                       .learning_rate = learning_rate,
                                       .grad_norm = s->grad_norm,
                                       .tokens_per_second = rate,
                                       .seconds_left = rate > 0 ? (double)(left * s->tokens) / rate : NAN});
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
    TRY(keep_folder(r));
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
    ott_status status = keep_folder(r);
    if (status != OTT_OK) return save_after(r, status);
    return r->cfg->checkpoint.interval > 0 ? save_last(r) : OTT_OK;
}

/* ---- the end ---- */

/* Name of the run in reports: the last part of its folder's path. */
static const char *run_label(const run *r) {
    const char *slash = strrchr(r->folder.path, '/');
    return slash && slash[1] ? slash + 1 : r->folder.path;
}

static ott_status write_summary(run *r) {
    run_history *h = &r->progress.history;
    report_phase sum = run_history_sum(h);
    const trainer *t = r->trainer;
    if (!process_group_is_leader(&r->process_group)) return OTT_OK;
    if (r->progress.run_tokens == 0 && !r->history_known) return OTT_OK; /* keep the old summary */
    note_memory(r);
    TRY(keep_folder(r));
    return report_summary_write(r->account, r->folder.path,
                                &(report_summary){.label = run_label(r),
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

static ott_status open_device(run *r) {
    const config *cfg = r->cfg;
    TRY(precision_read_recipe(cfg, &r->precision));
    const backend_choice choice = {.name = cfg->train.device,
                                   .threads = r->process_group.threads,
                                   .recipe = &r->precision.fp8,
                                   .emulates = cfg->float8.emulate,
                                   .local_rank = r->process_group.local_rank,
                                   .local_ranks = r->process_group.local_ranks,
                                   .log = r->log};
    return status_context(backend_open(&choice, r->account, &r->device), "%s",
                          config_where(cfg, "train.device"));
}

/* Rank 0 creates and locks the run folder and broadcasts its path. */
static ott_status open_folder(run *r) {
    str path = {.account = r->account}, checkpoints = {.account = r->account};
    ott_status status = OTT_OK;
    if (process_group_is_leader(&r->process_group))
        TRY(run_folder_open(r->account, r->log, r->cfg, &r->folder));
    if (r->process_group.size == 1) return OTT_OK;
    str_append(&path, r->folder.path ? r->folder.path : "");
    str_append(&checkpoints, r->folder.checkpoints ? r->folder.checkpoints : "");
    TRY_OUT(process_group_broadcast_text(&r->process_group, &path));
    TRY_OUT(process_group_broadcast_text(&r->process_group, &checkpoints));
    if (process_group_is_leader(&r->process_group)) goto out;
    r->folder = (run_folder){.account = r->account, .lock = -1};
    TRY_OUT(config_set(r->cfg, "run.dir", path.text));
    TRY_OUT(mem_strdup(r->account, path.text, &r->folder.path));
    TRY_OUT(mem_strdup(r->account, checkpoints.text, &r->folder.checkpoints));
out:
    str_free(&path);
    str_free(&checkpoints);
    return status;
}

static ott_status collect_errors(run *r) {
    TRY(process_group_make_mesh(&r->process_group, r->cfg));
    TRY(peft_configure(r->account, r->cfg)); /* may set model.hf_path */
    TRY(config_collect(r->cfg, run_check_described(r->cfg)));
    TRY(config_collect(r->cfg, hub_name_check(r->cfg, "model.hf_path", r->cfg->model.hf_path)));
    return config_collect(r->cfg, hub_name_check(r->cfg, "data.tokenizer_path", r->cfg->data.tokenizer_path));
}

/* Checks that all ranks see the run folder, and the checkpoint folder if it is outside the run folder. */
static ott_status check_folder(run *r) {
    TRY(shared_folder_check(&r->process_group, r->folder.path, "run.dir"));
    if (file_is_inside(r->folder.checkpoints, r->folder.path)) return OTT_OK;
    return shared_folder_check(&r->process_group, r->folder.checkpoints, "checkpoint.dir");
}

static ott_status open_run(run *r) {
    TRY(open_device(r));
    config_collect_begin(r->cfg); /* collects all errors, before data or weights are read */
    ott_status status = collect_errors(r), collected = config_collect_end(r->cfg);
    TRY(status == OTT_OK ? collected : status);
    TRY(process_group_open(&r->process_group, r->device, r->cfg));
    TRY(process_group_check_config(&r->process_group, r->cfg));
    TRY(freezing_check(r->cfg));
    TRY(hf_model_configure(r->account, r->cfg, &r->notes));
    r->asked = *r->cfg;
    TRY(model_options_resolve(r->cfg, &r->shape));
    TRY(auto_keys_choose(r->account, &r->process_group, r->device, r->cfg));
    TRY(data_open(r->account, &r->cancellation, r->cfg, &r->shape.vocab, &r->train_data,
                  &r->validation_data));
    TRY(precision_plan_read(r->cfg, &r->precision)); /* max_steps, maybe set by data_open, sets the phases */
    TRY(check_files(r));
    TRY(open_folder(r));
    TRY(check_folder(r));
    TRY(open_trainer(r));
    TRY(open_sources(r));
    if (process_group_is_leader(&r->process_group)) TRY(resume_finalize(r->log, &r->folder, &r->start));
    TRY(open_progress(r));
    TRY(open_health(r));
    TRY(profile_open(r->trainer, r->cfg, r->folder.path, r->process_group.rank, &r->profile));
    return process_group_is_leader(&r->process_group) ? write_config(r) : OTT_OK;
}

static void close_run(run *r) {
    progress_close(&r->progress);
    checkpoint_writer_close(r->writer);
    if (r->sources.account) str_free(&r->sources);
    run_sources_free(&r->files);
    profile_close(r->profile);
    health_close(r->health);
    trainer_close(r->trainer);
    process_group_close(&r->process_group);
    device_close(r->device);
    dataset_close(r->train_data);
    dataset_close(r->validation_data);
    resume_close(r->account, &r->start);
    run_folder_close(&r->folder); /* last: closing releases the lock */
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
    TRY_OUT(open_run(&r));
    run_log_write_start(&(run_log_start){.log = r.log,
                                         .mesh = &r.process_group.mesh,
                                         .cfg = cfg,
                                         .precision = &r.precision,
                                         .notes = &r.notes,
                                         .trainer = r.trainer,
                                         .need = &r.need,
                                         .need_fp8 = &r.need_fp8,
                                         .peak_flops = r.progress.peak_flops,
                                         .peak_unit = backend_peak_unit(r.device, product_format(&r))});
    TRY_OUT(run_steps(&r));
    TRY_OUT(profile_finish(r.profile));
    TRY_OUT(write_summary(&r));
    if (!r.stopped)
        run_log_write_end(&(run_log_end){.log = r.log,
                                         .cfg = cfg,
                                         .trainer = r.trainer,
                                         .history = &r.progress.history,
                                         .planned_bytes = r.need.total,
                                         .shard_ranks = r.process_group.shard->size,
                                         .has_saved = r.saved_step >= 0});
    TRY_OUT(process_group_barrier(&r.process_group)); /* no rank ends before the last checkpoint is written */
out:
    if (status != OTT_OK) process_group_abort(&r.process_group, status);
    close_run(&r);
    return status;
}
