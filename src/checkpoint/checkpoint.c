/* checkpoint/checkpoint: writes a checkpoint and removes old ones. Only rank 0 changes folders. */
#include "checkpoint/checkpoint.h"
#include "base/file/file.h"
#include "base/staging.h"
#include "checkpoint/folder.h"
#include "checkpoint/snapshot.h"
#include <inttypes.h>
#include <string.h>

typedef struct saver {
    mem *account;
    const checkpoint_snapshot *from;
    const char *folder; /* folder of checkpoints */
    int64_t step;
    run_mark mark;        /* run and branch of the folder */
    char final[PATH_MAX]; /* final path of this checkpoint */
} saver;

/* If the final path is a checkpoint of another run, renames that one, so that it is not overwritten. */
static ott_status rename_foreign(saver *s) {
    run_mark there;
    char path[PATH_MAX];
    if (!*s->mark.run || !file_is_folder(s->final)) return OTT_OK;
    TRY(checkpoint_mark(s->account, s->final, &there));
    if (!*there.run || strcmp(there.run, s->mark.run) == 0) return OTT_OK;
    TRY(file_path(path, "%s/run-%s-step-%" PRId64, s->folder, there.run, s->step));
    return file_rename(s->final, path);
}

/* Renames the folder before it removes the files, so that an interruption leaves no incomplete step-N. */
static ott_status remove_step(saver *s, int64_t step) {
    char path[PATH_MAX], stale[FILE_STAGING_NAME];
    TRY(file_path(path, "%s/step-%" PRId64, s->folder, step));
    file_staging_name(path, stale);
    TRY(file_rename(path, stale));
    return file_remove_tree(stale);
}

static ott_status remove_old(saver *s, int64_t keep) {
    step_list list;
    ott_status status = OTT_OK;
    if (keep == 0) return OTT_OK;
    TRY(checkpoint_list(s->account, s->folder, &list));
    int64_t surplus = list.count - keep;
    for (int64_t i = 0; status == OTT_OK && i < list.count && surplus > 0; i++) {
        if (list.steps[i] == s->step) continue;
        status = remove_step(s, list.steps[i]);
        surplus--;
    }
    mem_free(s->account, list.steps);
    return status;
}

static ott_status prepare_folder(saver *s) {
    TRY(file_make_folder(s->folder));
    /* The checkpoint gets the run and branch of its folder. */
    run_record r;
    TRY(run_record_read(s->account, s->folder, &r));
    s->mark = r.mark;
    return staging_remove_stale_in(s->account, s->folder);
}

static ott_status fill_folder(void *user, const char *folder) {
    saver *s = user;
    TRY(checkpoint_snapshot_fill(s->from, &s->mark, folder));
    return ranks_own_rank(&s->from->ranks) == 0 ? rename_foreign(s) : OTT_OK;
}

static ott_status explain_failure(const saver *s, ott_status code) {
    bool is_disk = code == OTT_ERR_IO || code == OTT_ERR_NOT_FOUND || code == OTT_ERR_ARGUMENT;
    if (strstr(status_text(), FILE_LIMIT_HINT)) is_disk = false;
    return status_fail(code, "cannot save the checkpoint of step %" PRId64 ": %s%s", s->step, status_text(),
                       is_disk ? "; free disk space or set checkpoint.dir to another folder" : "");
}

ott_status checkpoint_snapshot_write(const checkpoint_snapshot *from, const char *folder, int64_t keep,
                                     checkpoint_written *out) {
    saver s = {.account = from->account, .from = from, .folder = folder, .step = from->state.run.step};
    bool leads = ranks_own_rank(&from->ranks) == 0;
    ott_status status;
    *out = (checkpoint_written){.account = s.account};
    TRY_OUT(file_path(s.final, "%s/step-%" PRId64, folder, s.step));
    TRY_OUT(mem_strdup(s.account, s.final, &out->path));
    status = ranks_write_folder(&from->ranks, leads ? prepare_folder(&s) : OTT_OK, s.final, fill_folder, &s);
    if (status != OTT_OK) TRY_OUT(explain_failure(&s, status));
    if (leads) status = remove_old(&s, keep);
    if (status != OTT_OK && status != OTT_ERR_MEMORY) /* saving succeeds even if removing fails */
        status = mem_strdup(s.account, status_text(), &out->left);
out:
    if (status != OTT_OK) checkpoint_written_free(out);
    return status;
}

void checkpoint_written_log(const checkpoint_written *w, const logger *log) {
    log_info(log, "Saved %s", w->path);
    if (w->left) log_warning(log, "Cannot remove an old checkpoint: %s", w->left);
}

void checkpoint_written_free(checkpoint_written *w) {
    if (!w->account) return;
    mem_free(w->account, w->path);
    mem_free(w->account, w->left);
    *w = (checkpoint_written){0};
}

ott_status checkpoint_save(const model *m, const config *cfg, const char *recipe_name, const run_state *state,
                           group *ranks, const char *folder, int64_t keep, char **path) {
    checkpoint_snapshot snapshot;
    checkpoint_written written = {0};
    if (path) *path = NULL;
    STATUS_REQUIRE(m->options.optimizer && state->step >= 0 && keep >= 0);
    ott_status status = checkpoint_snapshot_take(m, cfg, recipe_name, state, ranks, &snapshot);
    if (status == OTT_OK) status = checkpoint_snapshot_write(&snapshot, folder, keep, &written);
    checkpoint_snapshot_close(&snapshot);
    if (path) {
        *path = written.path;
        written.path = NULL;
    }
    checkpoint_written_free(&written);
    return status;
}
