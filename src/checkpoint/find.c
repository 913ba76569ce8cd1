/* checkpoint/find: finds the checkpoint that a path means, and checks it. */
#include "base/file/file.h"
#include "checkpoint/folder.h"
#include "folders/json_file.h"
#include "checkpoint/run.h"
#include "checkpoint/run_history.h"
#include "checkpoint/run_sources.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A path's parent folder and last component, both without trailing slashes. */
typedef struct split_path {
    char parent[PATH_MAX], name[NAME_MAX + 1];
} split_path;

static split_path split_at_name(const char *path) {
    split_path s;
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    snprintf(s.name, sizeof s.name, "%.*s", (int)(end - begin), path + begin);
    snprintf(s.parent, sizeof s.parent, "%.*s", (int)(begin > 1 ? begin - 1 : 1), begin > 0 ? path : ".");
    return s;
}

/* out = the newest complete checkpoint in the parent folder of `path`, except `path`; "" if there is none. */
static ott_status find_complete(mem *account, const char *path, char out[PATH_MAX]) {
    split_path at = split_at_name(path);
    step_list list;
    checkpoint_state s;
    ott_status status = OTT_OK;
    bool found = false;
    TRY(checkpoint_list(account, at.parent, &list));
    for (int64_t i = list.count - 1, step; i >= 0 && status == OTT_OK && !found; i--) {
        if (checkpoint_is_step(at.name, &step) && step == list.steps[i]) continue;
        status = file_path(out, "%s/step-%" PRId64, at.parent, list.steps[i]);
        found = status == OTT_OK && checkpoint_verify(account, out, true, NULL, &s) == OTT_OK;
    }
    if (!found) *out = '\0';
    mem_free(account, list.steps);
    return status;
}

ott_status checkpoint_suggest_newest(mem *account, const char *path, ott_status code) {
    char found[PATH_MAX], *reason;           /* reason: copy of the error text, which is overwritten */
    if (code == OTT_ERR_MEMORY) return code; /* out of memory: not the checkpoint's fault */
    if (str_format(account, &reason, "%s", status_text()) != OTT_OK) return code;
    if (find_complete(account, path, found) == OTT_OK && *found)
        status_fail(code, "%s; use the newest complete checkpoint next to it: --checkpoint.load_path=%s",
                    reason, found);
    else
        status_fail(code, "%s; there is no complete checkpoint next to it", reason);
    mem_free(account, reason);
    return code;
}

/* out = FOLDER/step-N with the largest N; "" if there is none. */
static ott_status find_newest(mem *account, const char *folder, char out[PATH_MAX]) {
    step_list list;
    ott_status status = OTT_OK;
    *out = '\0';
    TRY(checkpoint_list(account, folder, &list));
    if (list.count > 0) status = file_path(out, "%s/step-%" PRId64, folder, list.steps[list.count - 1]);
    mem_free(account, list.steps);
    return status;
}

/* True if the folder is named step-N or has a state.json. */
static bool is_checkpoint(const char *path) {
    int64_t step;
    return checkpoint_is_step(split_at_name(path).name, &step) || file_is_in(path, CHECKPOINT_STATE_NAME);
}

/* Checks the checksum of an optional JSON file, if the file exists. */
static ott_status check_extra(mem *account, const char *folder, const char *name) {
    json_t *root = NULL;
    char path[PATH_MAX];
    TRY(file_join(folder, name, path));
    ott_status status = OTT_OK;
    if (file_exists(path)) status = json_file_read(account, path, INT64_C(16) << 20, &root);
    json_decref(root);
    return status;
}

/* Fails with OTT_ERR_FORMAT if the folder is named step-N but has the checkpoint of another step. */
static ott_status check_step(const char *path, int64_t step) {
    int64_t named;
    if (!checkpoint_is_step(split_at_name(path).name, &named) || named == step) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT,
                       "%s: holds the checkpoint of step %" PRId64 ", not of step %" PRId64
                       ": rename it to step-%" PRId64 ", or load another checkpoint",
                       path, step, named, step);
}

ott_status checkpoint_check(mem *account, const char *path) {
    checkpoint_state s;
    if (!is_checkpoint(path) || !file_is_folder(path)) return OTT_OK;
    TRY(checkpoint_verify(account, path, true, NULL, &s));
    TRY(check_step(path, s.run.step));
    TRY(check_extra(account, path, RUN_HISTORY_NAME));
    return check_extra(account, path, RUN_SOURCES_NAME);
}

/* *home = where the run folder `run` has its checkpoints: checkpoint.dir of its config.toml, or "checkpoints"
   if that file cannot be read. */
static ott_status find_home(mem *account, const char *run, char **home) {
    config *cfg = NULL;
    char path[PATH_MAX];
    ott_status status = checkpoint_config(account, run, &cfg);
    if (status == OTT_ERR_MEMORY) return status;
    const char *folder = status == OTT_OK ? cfg->checkpoint.dir : "checkpoints";
    status = folder[0] == '/' ? file_join("", folder + 1, path) : file_join(run, folder, path);
    config_close(cfg);
    TRY(status);
    return checkpoint_run_home(account, run, path, home);
}

/* out = the checkpoint that a path other than "latest" means; "" if there is none. */
static ott_status find_meant(mem *account, const char *path, char out[PATH_MAX]) {
    char *home;
    if (is_checkpoint(path)) return snprintf(out, PATH_MAX, "%s", path), OTT_OK;
    TRY(find_newest(account, path, out));
    if (*out) return OTT_OK;
    TRY(find_home(account, path, &home));
    ott_status status = find_newest(account, home, out);
    mem_free(account, home);
    return status;
}

/* Fails because `folder` has no checkpoint. If it is a subfolder run-ID (checkpoint_run_home), suggests the
   newest checkpoint of the other run, which owns the parent folder. */
static ott_status fail_no_latest(mem *account, const char *folder) {
    split_path at = split_at_name(folder);
    char other[PATH_MAX] = "";
    if (str_starts_with(at.name, "run-") && run_id_is_valid(at.name + strlen("run-")))
        TRY(find_newest(account, at.parent, other));
    return status_fail(OTT_ERR_NOT_FOUND,
                       "%s: there is no checkpoint (step-N) of this run to resume: use "
                       "--checkpoint.load_path=auto to start from scratch if there is none%s%s%s",
                       folder, *other ? ", --checkpoint.load_path=" : "", other,
                       *other ? " to continue another run's checkpoint" : "");
}

static ott_status fail_none(const char *load_path) {
    TRY(file_refuse_gguf(load_path));
    const char *wanted = "expected a checkpoint (step-N) or a run folder";
    if (!file_exists(load_path))
        return status_fail(OTT_ERR_NOT_FOUND, "%s: there is no such folder; %s", load_path, wanted);
    return status_fail(OTT_ERR_NOT_FOUND, "%s: holds no checkpoint; %s", load_path, wanted);
}

ott_status checkpoint_find(mem *account, const char *load_path, const char *folder, char **path) {
    bool latest = strcmp(load_path, "latest") == 0;
    char found[PATH_MAX];
    checkpoint_state s;
    *path = NULL;
    TRY(latest ? find_newest(account, folder, found) : find_meant(account, load_path, found));
    if (!*found) return latest ? fail_no_latest(account, folder) : fail_none(load_path);
    if (!file_exists(found)) return checkpoint_suggest_newest(account, found, fail_none(load_path));
    ott_status status = checkpoint_verify(account, found, false, NULL, &s);
    if (status == OTT_OK) status = check_step(found, s.run.step);
    if (status != OTT_OK) return checkpoint_suggest_newest(account, found, status);
    return mem_strdup(account, found, path);
}
