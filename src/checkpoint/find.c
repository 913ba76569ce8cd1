/* checkpoint/find: which checkpoint a path means, and whether it is whole. */
#include "checkpoint/find.h"
#include "base/file.h"
#include "checkpoint/folder.h"
#include "checkpoint/json.h"
#include "checkpoint/run.h"
#include "checkpoint/run_history.h"
#include "checkpoint/run_sources.h"
#include <inttypes.h>
#include <string.h>

/* The folder a path lies in, and the path's last name; both without slashes at their end. */
static void split_path(const char *path, str *parent, str *name) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    str_append_bytes(name, path + begin, (int64_t)(end - begin));
    if (begin == 0) str_append(parent, ".");
    str_append_bytes(parent, path, begin > 1 ? (int64_t)begin - 1 : (int64_t)begin);
}

/* Puts the newest checkpoint of `folder` that is whole, and is not the one named `except`, into `out`;
   nothing when there is none. */
static ott_status find_complete(mem *account, const char *folder, const char *except, str *out) {
    step_list list;
    checkpoint_state s;
    TRY(checkpoint_list(account, folder, &list));
    for (int64_t i = list.count - 1, step; i >= 0; i--) {
        if (checkpoint_is_step(except, &step) && step == list.steps[i]) continue;
        out->length = 0;
        str_printf(out, "%s/step-%" PRId64, folder, list.steps[i]);
        if (out->failed || checkpoint_verify(account, out->text, true, NULL, &s) == OTT_OK) break;
        out->length = 0;
    }
    mem_free(account, list.steps);
    return str_finish(out);
}

ott_status checkpoint_advise(mem *account, const char *path, ott_status code) {
    if (code == OTT_ERR_MEMORY) return code; /* which says nothing about the checkpoint */
    str reason = {.account = account}, parent = {.account = account}, name = {.account = account},
        found = {.account = account};
    str_append(&reason, status_text()); /* looking around fails too, and says so */
    split_path(path, &parent, &name);
    bool ok = str_finish(&reason) == OTT_OK && str_finish(&parent) == OTT_OK && str_finish(&name) == OTT_OK;
    if (ok) ok = find_complete(account, parent.text, name.text, &found) == OTT_OK;
    if (reason.text && ok && found.length > 0)
        status_fail(code, "%s; the newest complete checkpoint beside it: use --checkpoint.load_path=%s",
                    reason.text, found.text);
    else if (reason.text)
        status_fail(code, "%s; no complete checkpoint lies beside it", reason.text);
    str_free(&reason);
    str_free(&parent);
    str_free(&name);
    str_free(&found);
    return code;
}

/* Appends FOLDER/step-N with the greatest N; nothing when there is none. */
static ott_status append_newest(mem *account, const char *folder, str *out) {
    step_list list;
    TRY(checkpoint_list(account, folder, &list));
    if (list.count > 0) str_printf(out, "%s/step-%" PRId64, folder, list.steps[list.count - 1]);
    mem_free(account, list.steps);
    return str_finish(out);
}

/* Is the folder a checkpoint by its name, or because it holds a state? */
static ott_status is_checkpoint(mem *account, const char *path, bool *is) {
    str parent = {.account = account}, name = {.account = account}, state = {.account = account};
    int64_t step;
    split_path(path, &parent, &name);
    str_printf(&state, "%s/%s", path, CHECKPOINT_STATE_NAME);
    ott_status status = name.failed || state.failed ? str_finish(name.failed ? &name : &state) : OTT_OK;
    *is =
        status == OTT_OK && ((name.text && checkpoint_is_step(name.text, &step)) || file_exists(state.text));
    str_free(&parent);
    str_free(&name);
    str_free(&state);
    return status;
}

/* Of a file that training does not need, where there is one. */
static ott_status check_extra(mem *account, const char *folder, const char *name) {
    json_t *root = NULL;
    str path = {.account = account};
    str_printf(&path, "%s/%s", folder, name);
    ott_status status = str_finish(&path);
    if (status == OTT_OK && file_exists(path.text))
        status = checkpoint_json_read(account, path.text, INT64_C(16) << 20, &root);
    json_decref(root);
    str_free(&path);
    return status;
}

ott_status checkpoint_check(mem *account, const char *path) {
    checkpoint_state s;
    bool is;
    TRY(is_checkpoint(account, path, &is));
    if (!is || !file_is_folder(path)) return OTT_OK;
    TRY(checkpoint_verify(account, path, true, NULL, &s));
    TRY(check_extra(account, path, RUN_HISTORY_NAME));
    return check_extra(account, path, RUN_SOURCES_NAME);
}

/* Where a run has its checkpoints: its configuration says it; without one, in "checkpoints". */
static ott_status append_folder(mem *account, const char *run, str *out) {
    config *cfg = NULL;
    ott_status status = checkpoint_config(account, run, &cfg);
    if (status == OTT_ERR_MEMORY) return status;
    const char *folder = status == OTT_OK ? cfg->checkpoint.dir : "checkpoints";
    char *home = NULL;
    if (folder[0] != '/') str_printf(out, "%s/", run);
    str_append(out, folder);
    config_close(cfg);
    TRY(str_finish(out));
    TRY(checkpoint_run_home(account, run, out->text, &home));
    out->length = 0;
    str_append(out, home);
    mem_free(account, home);
    return str_finish(out);
}

/* What a path that is not "latest" means; nothing when it holds no checkpoint. */
static ott_status append_meant(mem *account, const char *path, str *out) {
    bool is;
    str inside = {.account = account};
    TRY(is_checkpoint(account, path, &is));
    if (is) str_append(out, path);
    if (!is) TRY(append_newest(account, path, out));
    if (out->length > 0) return str_finish(out);
    ott_status status = append_folder(account, path, &inside);
    if (status == OTT_OK) status = append_newest(account, inside.text, out);
    str_free(&inside);
    return status;
}

/* The newest checkpoint of the run whose folder this one lies in, as another's do (checkpoint_run_home). */
static ott_status append_neighbour(mem *account, const char *folder, str *out) {
    str parent = {.account = account}, name = {.account = account};
    split_path(folder, &parent, &name);
    ott_status status = str_finish(parent.failed ? &parent : &name);
    if (status == OTT_OK && str_starts_with(name.text, "run-") && run_id_is_valid(name.text + strlen("run-")))
        status = append_newest(account, parent.text, out);
    str_free(&parent);
    str_free(&name);
    return status;
}

static ott_status fail_no_latest(mem *account, const char *folder) {
    str other = {.account = account};
    ott_status status = append_neighbour(account, folder, &other);
    if (status == OTT_OK)
        status = status_fail(OTT_ERR_NOT_FOUND,
                             "%s: there is no checkpoint (step-N) of this run to continue from: "
                             "--checkpoint.load_path=auto starts anew where there is none%s%s%s",
                             folder, other.length > 0 ? ", --checkpoint.load_path=" : "",
                             other.length > 0 ? other.text : "",
                             other.length > 0 ? " goes on from the other run's that lies beside" : "");
    str_free(&other);
    return status;
}

static ott_status fail_none(const char *load_path) {
    const char *wanted = "a checkpoint (step-N) or the folder of a run is wanted";
    if (!file_exists(load_path))
        return status_fail(OTT_ERR_NOT_FOUND, "%s: there is no such folder; %s", load_path, wanted);
    return status_fail(OTT_ERR_NOT_FOUND, "%s: holds no checkpoint; %s", load_path, wanted);
}

ott_status checkpoint_find(mem *account, const char *load_path, const char *folder, char **path) {
    bool latest = strcmp(load_path, "latest") == 0;
    str found = {.account = account};
    checkpoint_state s;
    ott_status status;
    *path = NULL;
    TRY_OUT(latest ? append_newest(account, folder, &found) : append_meant(account, load_path, &found));
    if (found.length == 0) TRY_OUT(latest ? fail_no_latest(account, folder) : fail_none(load_path));
    if (!file_exists(found.text)) TRY_OUT(checkpoint_advise(account, found.text, fail_none(load_path)));
    status = checkpoint_verify(account, found.text, false, NULL, &s);
    if (status != OTT_OK) TRY_OUT(checkpoint_advise(account, found.text, status));
    TRY_OUT(mem_strdup(account, found.text, path));
out:
    str_free(&found);
    return status;
}
