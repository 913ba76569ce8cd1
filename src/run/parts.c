/* run/parts: opens and closes the parts of a run. */
#include "run/parts.h"
#include "backend/backend.h"
#include "base/file/file.h"
#include "data/data.h"
#include "folders/peft.h"
#include "formats/hf/hub_name.h"
#include "run/auto_keys.h"
#include "run/folder/shared_folder.h"
#include "run/freezing.h"
#include "run/memory/slow_work.h"
#include "run/run.h"
#include <stdio.h>

_Static_assert((int)DETERMINISM_WARN == DEVICE_WARN && (int)DETERMINISM_NONE == DEVICE_UNORDERED,
               "train.deterministic has the same order in config and tensor");

static ott_status open_run_device(run *r) {
    const config *cfg = r->cfg;
    TRY(precision_read_recipe(cfg, &r->precision));
    const backend_choice choice = {.name = cfg->train.device,
                                   .threads = r->process_group.threads,
                                   .recipe = &r->precision.fp8,
                                   .emulates = cfg->float8.emulate,
                                   .local_rank = r->process_group.local_rank,
                                   .local_ranks = r->process_group.local_ranks,
                                   .log = r->log};
    ott_status status = backend_open(&choice, r->account, &r->device);
    if (status != OTT_OK) return status_context(status, "%s", config_where(cfg, "train.device"));
    r->device->order = (device_order)cfg->train.deterministic;
    return OTT_OK;
}

/* Sets *path on every rank to rank 0's *path, which may be NULL. */
static ott_status share_path(run *r, char **path) {
    str text = {.account = r->account};
    if (r->process_group.size == 1) return OTT_OK;
    str_append(&text, *path ? *path : "");
    ott_status status = str_finish(&text);
    if (status == OTT_OK) status = process_group_broadcast_text(&r->process_group, &text);
    if (status == OTT_OK && !process_group_is_leader(&r->process_group) && text.length > 0)
        status = mem_strdup(r->account, text.text, path);
    str_free(&text);
    return status;
}

/* Replaces a hub name by its folder, so that a resumed run reads the same commit. */
static ott_status find_in_cache(run *r, const char *key, const char *const *value) {
    const char *name = *value;
    TRY(hub_name_resolve_key(r->cfg, key, name));
    if (*value != name) log_info(r->log, "%s = %s: %s", key, name, *value);
    return OTT_OK;
}

static ott_status collect_errors(run *r) {
    TRY(process_group_make_mesh(&r->process_group, r->cfg));
    TRY(peft_configure(r->account, r->cfg)); /* may set model.hf_path */
    TRY(config_collect(r->cfg, run_check_described(r->cfg)));
    TRY(config_collect(r->cfg, find_in_cache(r, "model.hf_path", &r->cfg->model.hf_path)));
    return config_collect(r->cfg, find_in_cache(r, "data.tokenizer_path", &r->cfg->data.tokenizer_path));
}

/* Checks that the run can call the caller's loss function. */
static ott_status check_loss(const run *r) {
    const int64_t *size = r->process_group.mesh.size;
    if (!r->hooks->loss.function) return OTT_OK;
    TRY(run_check_caller_loss(r->cfg));
    if (size[MESH_TP] == 1 && size[MESH_CP] == 1) return OTT_OK;
    return status_fail(
        OTT_ERR_UNSUPPORTED,
        "distributed.tp = %lld, distributed.cp = %lld: a loss function of the caller needs the "
        "logits of the full vocabulary and of full sequences on one rank, but tp divides the "
        "vocabulary and cp the sequences: set both to 1",
        (long long)size[MESH_TP], (long long)size[MESH_CP]);
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

static ott_status decide_memory_check(run *r) {
    slow_work slow = {.device = r->device};
    const dry_run_listener listener = slow_work_listener(&slow);
    const memory_check a = {.account = r->account,
                            .device = r->device,
                            .cfg = r->cfg,
                            .asked = &r->asked,
                            .shape = &r->shape,
                            .loss = r->hooks->loss,
                            .step = r->start.step,
                            .train_data = r->train_data,
                            .validation_data = r->validation_data,
                            .listener = &listener};
    TRY(memory_check_decide(&a, &r->need));
    TRY(slow_work_check(&slow, r->cfg, r->log));
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
    /* Rank 0 looks for the checkpoint and broadcasts the resume point. */
    r->start = (resume_point){.metrics = -1};
    if (process_group_is_leader(&r->process_group)) TRY(resume_find(r->log, r->cfg, &r->folder, &r->start));
    TRY(share_path(r, &r->start.checkpoint));
    TRY(process_group_broadcast(&r->process_group, &r->start.exclusions, sizeof r->start.exclusions));
    TRY(process_group_broadcast(&r->process_group, &r->start.rows, sizeof r->start.rows));
    TRY(process_group_broadcast(&r->process_group, &r->start.step_rows, sizeof r->start.step_rows));
    TRY(process_group_broadcast(&r->process_group, &r->start.step, sizeof r->start.step));
    TRY(fit_rows(r));
    TRY(run_trainer_options(r->cfg, &r->precision, r->start.step, &options));
    options.loss = r->hooks->loss;
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
    /* Loads or initializes the weights, unless the weights come from a checkpoint. */
    const char *folder = r->cfg->model.hf_path, *quantization = r->notes.quantization;
    if (!r->start.checkpoint || r->start.exclusions.no_model) {
        TRY(run_load_initial_weights(r->trainer->m, r->cfg, r->process_group.threads));
        if (*folder && !r->cfg->model.reduce)
            log_info(r->log, "Loaded the weights of %s%s%s%s", folder,
                     *quantization ? ", dequantized from FP8 (" : "", quantization, *quantization ? ")" : "");
    }
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

ott_dtype run_product_format(const run *r) {
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
    if (r->cfg->metrics.peak_tflops == 0)
        progress_measure_peak(&r->progress, r->device, run_product_format(r));
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

ott_status run_keep_folder(run *r) {
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

ott_status run_open(run *r) {
    TRY(open_run_device(r));
    config_collect_begin(r->cfg); /* collects all errors, before data or weights are read */
    ott_status status = collect_errors(r), collected = config_collect_end(r->cfg);
    TRY(status == OTT_OK ? collected : status);
    TRY(process_group_open(&r->process_group, r->device, r->cfg));
    TRY(process_group_check_config(&r->process_group, r->cfg));
    TRY(check_loss(r));
    TRY(freezing_check(r->cfg));
    TRY(hf_model_configure(r->account, r->cfg, &r->notes));
    r->asked = *r->cfg;
    TRY(model_options_resolve(r->cfg, &r->shape));
    TRY(auto_keys_choose(r->account, &r->process_group, r->device, r->cfg));
    TRY(data_open(r->account, &r->cancellation, r->cfg, &r->shape.vocab, &r->train_data,
                  &r->validation_data));
    TRY(precision_plan_read(r->cfg, &r->precision)); /* max_steps, maybe set by data_open, sets the phases */
    TRY(check_files(r));
    /* Rank 0 creates and locks the run folder and broadcasts its path. */
    bool leads = process_group_is_leader(&r->process_group);
    if (leads)
        TRY(run_folder_open(r->account, r->log, r->cfg, &r->folder));
    else
        r->folder = (run_folder){.account = r->account, .lock = -1};
    TRY(share_path(r, &r->folder.path));
    TRY(share_path(r, &r->folder.checkpoints));
    if (!leads) TRY(config_set(r->cfg, "run.dir", r->folder.path));
    /* Checks that all ranks see the run folder, and the checkpoint folder if it is outside the run folder. */
    TRY(shared_folder_check(&r->process_group, r->folder.path, "run.dir"));
    if (!file_is_inside(r->folder.checkpoints, r->folder.path))
        TRY(shared_folder_check(&r->process_group, r->folder.checkpoints, "checkpoint.dir"));
    TRY(open_trainer(r));
    r->sources.account = r->account;
    TRY(sources_open(&r->files, r->log, r->start.checkpoint, &r->sources));
    checkpoint_writer_keep_sources(r->writer, r->sources.text);
    if (process_group_is_leader(&r->process_group)) TRY(resume_finalize(r->log, &r->folder, &r->start));
    TRY(open_progress(r));
    TRY(open_health(r));
    TRY(profile_open(r->trainer, r->cfg, r->folder.path, r->process_group.rank, &r->profile));
    return process_group_is_leader(&r->process_group) ? write_config(r) : OTT_OK;
}

void run_close(run *r) {
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
