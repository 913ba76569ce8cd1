/* run/resume: finds and loads the checkpoint of a resumed run, and compares the configurations. */
#include "run/resume.h"
#include "base/file/file.h"
#include "comm/launch.h"
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Finds the newest checkpoint of this run (*is_own = true), else the checkpoint that the run started from. */
static ott_status find_latest(const logger *log, const run_folder *folder, bool automatic, char **out,
                              bool *is_own) {
    bool any;
    TRY(checkpoint_has_any(folder->account, folder->checkpoints, &any));
    *is_own = any;
    if (!any && *folder->record.origin)
        return checkpoint_find(folder->account, folder->record.origin, folder->checkpoints, out);
    if (!any && automatic) {
        log_info(log, "checkpoint.load_path = auto: %s has no checkpoint, so the run starts from scratch%s",
                 folder->checkpoints,
                 folder->attempted ? "; the metrics of the earlier attempt are replaced" : "");
        return OTT_OK;
    }
    return checkpoint_find(folder->account, "latest", folder->checkpoints, out);
}

/* ---- excluded parts ---- */

static const struct {
    const char *name; /* name of the part in checkpoint.exclude_from_loading */
    size_t left_out;  /* offset of the part's flag in checkpoint_exclusions */
} parts[] = {{"model", offsetof(checkpoint_exclusions, no_model)},
             {"optimizer", offsetof(checkpoint_exclusions, no_optimizer)},
             {"lr_scheduler", offsetof(checkpoint_exclusions, no_schedule)},
             {"dataloader", offsetof(checkpoint_exclusions, no_data)},
             {"train_state", offsetof(checkpoint_exclusions, no_counters)}};

enum { PARTS = sizeof parts / sizeof *parts };

/* The configuration can exclude parts of another run's checkpoint, but not of the run's own checkpoints. */
static checkpoint_exclusions choose_exclusions(const config *cfg, bool is_own) {
    checkpoint_exclusions exclusions = {.any_frozen = cfg->checkpoint.ignore_freeze_mismatch};
    const str_list *list = &cfg->checkpoint.exclude_from_loading;
    for (int i = 0; i < PARTS && !is_own; i++)
        for (int64_t k = 0; k < list->count; k++)
            if (strcmp(list->items[k], parts[i].name) == 0)
                *(bool *)((char *)&exclusions + parts[i].left_out) = true;
    return exclusions;
}

ott_status resume_find(const logger *log, const config *cfg, const run_folder *folder, resume_point *out) {
    const char *load = cfg->checkpoint.load_path;
    bool automatic = strcmp(load, "auto") == 0, is_own = false;
    run_state state;
    *out = (resume_point){.metrics = -1};
    if (!*load) return OTT_OK;
    if (automatic || strcmp(load, "latest") == 0)
        TRY(find_latest(log, folder, automatic, &out->checkpoint, &is_own));
    else
        TRY(checkpoint_find(folder->account, load, folder->checkpoints, &out->checkpoint));
    if (!out->checkpoint) return OTT_OK;
    TRY(checkpoint_peek(folder->account, out->checkpoint, &state));
    out->exclusions = choose_exclusions(cfg, is_own);
    out->step = out->exclusions.no_counters ? 0 : state.step;
    out->rows = out->exclusions.no_data ? 0 : state.samples;
    out->step_rows = state.step_rows;
    if (state.step_rows == 0 && state.step > 0 && state.samples % state.step == 0)
        out->step_rows = state.samples / state.step; /* an old checkpoint: all rows divided by all steps */
    return OTT_OK;
}

void resume_close(mem *account, resume_point *p) {
    mem_free(account, p->checkpoint);
    *p = (resume_point){0};
}

/* Resolves checkpoint.load_path without opening the run folder. */
static ott_status find_early(mem *account, const config *cfg, char **out) {
    char *home, folder[PATH_MAX];
    const char *load = cfg->checkpoint.load_path, *dir = cfg->checkpoint.dir;
    TRY(*dir == '/' ? file_path(folder, "%s", dir) : file_join(cfg->run.dir, dir, folder));
    TRY(checkpoint_run_home(account, cfg->run.dir, folder, &home));
    ott_status status = checkpoint_find(account, strcmp(load, "auto") == 0 ? "latest" : load, home, out);
    mem_free(account, home);
    return status;
}

ott_status resume_config(mem *account, const config *cfg, config **out) {
    char *path = NULL;
    *out = NULL;
    if (!*cfg->checkpoint.load_path) return OTT_OK;
    ott_status status = find_early(account, cfg, &path);
    if (status == OTT_OK) status = checkpoint_config(account, path, out);
    mem_free(account, path);
    return status == OTT_ERR_MEMORY ? status : OTT_OK;
}

/* ---- loading, and changed configuration keys ---- */

/* The configurations of the checkpoint and of this process. */
typedef struct comparison {
    const logger *log;
    const config *before, *now;
} comparison;

/* True if a changed [float8] key needs no log line: one run is not in FP8, or a new recipe sets the key. */
static bool is_float8_incidental(const comparison *c, const char *key) {
    if (c->now->train.mixed_precision != PRECISION_FP8 || c->before->train.mixed_precision != PRECISION_FP8)
        return true;
    return c->now->float8.recipe_name != c->before->float8.recipe_name &&
           (strcmp(key, "float8.enable_fsdp_float8_all_gather") == 0 ||
            strcmp(key, "float8.precompute_float8_dynamic_scale_for_fsdp") == 0);
}

/* Logs a changed key, unless the key cannot affect later losses. */
static void log_difference(void *user, const char *key, const char *before, const char *now) {
    const comparison *c = user;
    static const char *const incidental[] = {
        "run.",     "checkpoint.",  "metrics.",      "profiling.",
        "compile.", "train.device", "train.threads", "train.shutdown_timeout_sec"};
    for (size_t i = 0; i < sizeof incidental / sizeof *incidental; i++)
        if (str_starts_with(key, incidental[i])) return;
    if (str_starts_with(key, "float8.") && is_float8_incidental(c, key)) return;
    log_info(c->log, "Changed on resume: %s = %s (was %s)", key, now, before);
}

static ott_status report_changes(const logger *log, mem *account, const config *now, const char *path) {
    config *before = NULL;
    ott_status status = checkpoint_config(account, path, &before);
    if (status == OTT_OK)
        status = config_differences(before, now, log_difference,
                                    &(comparison){.log = log, .before = before, .now = now});
    config_close(before);
    return status;
}

ott_status resume_load(trainer *t, const config *cfg, const resume_point *p) {
    if (!p->checkpoint) return OTT_OK;
    str left_out = {.account = t->account};
    TRY(trainer_load_part(t, p->checkpoint, &p->exclusions));
    TRY(report_changes(t->log, t->account, cfg, p->checkpoint));
    int found = 0;
    str_append(&left_out, "");
    for (int i = 0; i < PARTS; i++)
        if (*(const bool *)((const char *)&p->exclusions + parts[i].left_out))
            str_printf(&left_out, "%s%s", found++ ? ", " : ", without its ", parts[i].name);
    ott_status status = str_finish(&left_out);
    if (status == OTT_OK)
        log_info(t->log, "Resumed from %s at step %lld%s", p->checkpoint, (long long)t->run.step,
                 left_out.text);
    str_free(&left_out);
    return status;
}

/* ---- the folder, and the command to resume ---- */

/* Abandons the checkpoints after `step` (-1: all). First copies metrics.jsonl, whose curve begins at step 1,
   to a file for the abandoned branch, so that a crash loses no metrics. */
static ott_status leave_branch(const logger *log, const run_folder *f, int64_t step) {
    char from[PATH_MAX], to[PATH_MAX];
    file_reader reader;
    int64_t branch;
    TRY(checkpoint_run_branch_to_abandon(f->account, f->checkpoints, step, &branch));
    if (branch == 0) return OTT_OK;
    TRY(file_join(f->path, "metrics.jsonl", from));
    TRY(file_path(to, "%s/metrics-abandoned-%" PRId64 ".jsonl", f->path, branch));
    if (file_exists(from)) {
        TRY(file_reader_open(from, &reader));
        ott_status status = file_copy(f->account, &reader, to);
        file_reader_close(&reader);
        TRY(status);
        log_info(log, "The metrics of the abandoned branch are in %s", to);
    }
    return checkpoint_run_rewind(f->account, log, f->checkpoints, step);
}

/* Records from which checkpoint of another run this run starts (NULL: none). If the run stops before it saves
   a checkpoint, the next process starts from the recorded checkpoint. */
static ott_status keep_origin(run_folder *f, const char *checkpoint) {
    char path[PATH_MAX] = "";
    if (checkpoint && !realpath(checkpoint, path)) snprintf(path, sizeof path, "%s", checkpoint);
    TRY(run_record_read(f->account, f->path, &f->record));
    if (strcmp(path, f->record.origin) == 0) return OTT_OK;
    strcpy(f->record.origin, path);
    return run_record_write(f->account, f->path, &f->record);
}

ott_status resume_finalize(const logger *log, run_folder *f, resume_point *p) {
    checkpoint_relation relation;
    if (!p->checkpoint) return keep_origin(f, NULL);
    TRY(checkpoint_run_relation(f->account, f->checkpoints, p->checkpoint, &relation));
    p->metrics = relation == CHECKPOINT_FOREIGN ? -1 : p->step;
    TRY(leave_branch(log, f, p->metrics));
    return relation == CHECKPOINT_OWN ? OTT_OK : keep_origin(f, p->checkpoint);
}

/* The command that resumes a run needs only config.toml, which also has the keys of the command line. */
void resume_command(const run_folder *folder, str *out) {
    char path[PATH_MAX];
    const char *prefix =
        folder->path[0] == '-' ? "./" : ""; /* so that the path does not look like an option */
    launch_append_command(out);
    str_append(out, " train ");
    if (file_path(path, "%s%s/config.toml", prefix, folder->path) == OTT_OK) launch_append_word(out, path);
    str_append(out, " --checkpoint.load_path=latest");
}
