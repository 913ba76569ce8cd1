/* checkpoint/run: run.json, whose a folder of checkpoints is, and setting checkpoints aside. */
#define _GNU_SOURCE /* getrandom, realpath, link */
#include "checkpoint/run.h"
#include "base/file.h"
#include "base/json_member.h"
#include "base/json_write.h"
#include "base/json_text.h"
#include "checkpoint/folder.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_NAME  "run.json"
#define RECORD_LIMIT (3 * PATH_MAX) /* bytes */

static ott_status path_of(mem *account, const char *folder, const char *name, str *out) {
    out->account = account;
    out->length = 0;
    str_printf(out, "%s/%s", folder, name);
    return str_finish(out);
}

/* ---- run.json ---- */

bool run_id_is_valid(const char *text) {
    return strlen(text) == RUN_ID_LENGTH && strspn(text, "0123456789abcdef") == RUN_ID_LENGTH;
}

static ott_status take_text(json_t *root, const char *key, char out[PATH_MAX]) {
    const char *text = "";
    TRY(json_member_text(root, key, JSON_OPTIONAL, &text));
    if (strlen(text) >= PATH_MAX) return status_fail(OTT_ERR_FORMAT, "%s is too long for a path", key);
    strcpy(out, text);
    return OTT_OK;
}

static ott_status take_record(json_t *root, run_record *out) {
    const char *id = json_string_value(json_object_get(root, "run"));
    if (!id || !run_id_is_valid(id)) return status_fail(OTT_ERR_FORMAT, "run is not the id of a run");
    strcpy(out->mark.run, id);
    TRY(json_member_integer(root, "branch", JSON_OPTIONAL, 1, INT64_MAX, &out->mark.branch));
    TRY(json_member_integer(root, "after", JSON_OPTIONAL, -1, INT64_MAX, &out->after));
    TRY(take_text(root, "origin", out->origin));
    return take_text(root, "folder", out->folder);
}

static ott_status parse_record(const char *text, int64_t bytes, run_record *out) {
    json_error_t error;
    json_t *root;
    TRY(json_text_parse(text, bytes, JSON_REJECT_DUPLICATES, &root, &error));
    if (!root) return status_fail(OTT_ERR_FORMAT, "is not JSON: %s", error.text);
    ott_status status = take_record(root, out);
    json_decref(root);
    return status;
}

ott_status run_record_read(mem *account, const char *folder, run_record *out) {
    char *text = NULL;
    int64_t bytes;
    str path = {0};
    ott_status status;
    *out = (run_record){.mark.branch = 1, .after = INT64_MAX};
    TRY_OUT(path_of(account, folder, RECORD_NAME, &path));
    if (!file_exists(path.text)) goto out;
    TRY_OUT(file_read(account, path.text, RECORD_LIMIT, &text, &bytes));
    status = parse_record(text, bytes, out);
    if (status == OTT_ERR_FORMAT)
        status = status_fail(status, "%s: %s; remove it, and the next training run of %s makes it anew",
                             path.text, status_text(), folder);
out:
    mem_free(account, text);
    str_free(&path);
    return status;
}

ott_status run_record_write(mem *account, const char *folder, const run_record *r) {
    str path = {0}, text = {.account = account};
    ott_status status;
    str_append(&text, "{");
    json_write_text(&text, "run", r->mark.run);
    if (r->mark.branch > 1) json_write_integer(&text, "branch", r->mark.branch);
    if (r->after != INT64_MAX) json_write_integer(&text, "after", r->after);
    if (*r->origin) json_write_text(&text, "origin", r->origin);
    if (*r->folder) json_write_text(&text, "folder", r->folder);
    str_append(&text, "}\n");
    TRY_OUT(str_finish(&text));
    TRY_OUT(path_of(account, folder, RECORD_NAME, &path));
    TRY_OUT(file_write_atomic(path.text, text.text, text.length));
out:
    str_free(&path);
    str_free(&text);
    return status;
}

/* ---- a run's id ---- */

static ott_status draw_id(char id[RUN_ID_LENGTH + 1]) {
    uint64_t bits;
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits)
        return status_fail(OTT_ERR_IO, "cannot draw a random id for the run: %s", strerror(errno));
    snprintf(id, RUN_ID_LENGTH + 1, "%016" PRIx64, bits);
    return OTT_OK;
}

ott_status checkpoint_run_begin(mem *account, const char *run_folder, run_record *out) {
    TRY(run_record_read(account, run_folder, out));
    if (*out->mark.run) return OTT_OK;
    TRY(draw_id(out->mark.run));
    return run_record_write(account, run_folder, out);
}

/* ---- whose a folder is ---- */

static bool is_same_folder(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static bool is_inside(const char *folder, const char *path) {
    char outer[PATH_MAX], inner[PATH_MAX];
    if (!realpath(folder, outer) || !realpath(path, inner)) return false;
    return str_starts_with(inner, outer) && (inner[strlen(outer)] == '/' || inner[strlen(outer)] == '\0');
}

/* Whose the newest checkpoint of a folder without a record is; *any: there is one. */
static ott_status newest_mark(mem *account, const char *folder, run_mark *out, bool *any) {
    step_list list;
    str path = {.account = account};
    *out = (run_mark){.branch = 1};
    TRY(checkpoint_list(account, folder, &list));
    *any = list.count > 0;
    if (*any) str_printf(&path, "%s/step-%" PRId64, folder, list.steps[list.count - 1]);
    mem_free(account, list.steps);
    ott_status status = str_finish(&path);
    if (status == OTT_OK && *any) status = checkpoint_mark(account, path.text, out);
    str_free(&path);
    return status;
}

static ott_status name_own(mem *account, const char *folder, const char *id, char **home) {
    str path = {.account = account};
    str_printf(&path, "%s/run-%s", folder, id);
    ott_status status = str_finish(&path);
    if (status == OTT_OK) status = mem_strdup(account, path.text, home);
    str_free(&path);
    return status;
}

ott_status checkpoint_run_home(mem *account, const char *run_folder, const char *folder, char **home) {
    run_record run, owner;
    TRY(run_record_read(account, run_folder, &run));
    TRY(run_record_read(account, folder, &owner));
    bool ours = !*owner.mark.run || !*run.mark.run || strcmp(owner.mark.run, run.mark.run) == 0;
    return ours ? mem_strdup(account, folder, home) : name_own(account, folder, run.mark.run, home);
}

/* Both use the checkpoints outside of them that name the other as their run: r's folder is a copy of it. */
static ott_status is_copy(mem *account, const char *run_folder, const char *folder, const run_record *owner,
                          bool *copy) {
    run_record other;
    *copy = false;
    if (!*owner->folder || is_same_folder(owner->folder, run_folder) || is_inside(run_folder, folder))
        return OTT_OK;
    TRY(run_record_read(account, owner->folder, &other));
    *copy = strcmp(other.mark.run, owner->mark.run) == 0;
    return OTT_OK;
}

/* Whether the run may have `folder`, whose record is `owner`; a copy's id changes here. */
static ott_status judge(mem *account, const char *run_folder, const char *folder, bool adopts, run_record *r,
                        const run_record *owner, bool *ours) {
    run_mark newest;
    bool copy, any;
    if (!*owner->mark.run) {
        TRY(newest_mark(account, folder, &newest, &any));
        *ours = !any || (*newest.run ? strcmp(newest.run, r->mark.run) == 0 : adopts);
        return OTT_OK;
    }
    *ours = strcmp(owner->mark.run, r->mark.run) == 0;
    if (!*ours) return OTT_OK;
    TRY(is_copy(account, run_folder, folder, owner, &copy));
    if (!copy) return OTT_OK;
    *ours = false;
    TRY(draw_id(r->mark.run));
    return run_record_write(account, run_folder, r);
}

/* Puts the record in place only when none is there; *won: it is. Without hard links there is no such thing.
 */
static ott_status write_first(mem *account, const char *folder, const run_record *r, bool *won) {
    char aside[PATH_MAX];
    str from = {0}, to = {0};
    ott_status status;
    *won = false;
    snprintf(aside, sizeof aside, "claim-%s", r->mark.run);
    TRY_OUT(path_of(account, folder, aside, &from));
    TRY_OUT(file_make_folder(from.text));
    TRY_OUT(run_record_write(account, from.text, r));
    str_append(&from, "/" RECORD_NAME);
    TRY_OUT(str_finish(&from));
    TRY_OUT(path_of(account, folder, RECORD_NAME, &to));
    *won = link(from.text, to.text) == 0;
    if (!*won && errno != EEXIST) {
        TRY_OUT(run_record_write(account, folder, r));
        *won = true;
    }
out:
    if (from.text && status == OTT_OK) {
        from.text[from.length - (int64_t)strlen("/" RECORD_NAME)] = '\0';
        (void)file_remove_tree(from.text);
    }
    str_free(&from);
    str_free(&to);
    return status;
}

/* The number of the next branch in a folder that has lost its record, or never had one. */
static ott_status next_branch(mem *account, const char *folder, int64_t *out) {
    run_mark newest;
    file_list names;
    bool any;
    int64_t branch;
    TRY(newest_mark(account, folder, &newest, &any));
    *out = newest.branch;
    TRY(file_list_folder(account, folder, &names));
    for (int64_t i = 0; i < names.count; i++)
        if (checkpoint_is_abandoned(names.names[i], &branch) && branch >= *out) *out = branch + 1;
    file_list_free(&names);
    return OTT_OK;
}

static ott_status make_own(mem *account, const char *run_folder, const char *folder, const run_record *r,
                           bool *won) {
    run_record owner = {.mark = r->mark, .after = INT64_MAX};
    TRY(file_make_folder(folder));
    TRY(next_branch(account, folder, &owner.mark.branch));
    if (!is_inside(run_folder, folder) && !realpath(run_folder, owner.folder)) *owner.folder = '\0';
    return write_first(account, folder, &owner, won);
}

/* A run folder that was moved is where it is now. */
static ott_status follow_move(mem *account, const char *run_folder, const char *folder, run_record *owner) {
    if (!*owner->folder || is_same_folder(owner->folder, run_folder)) return OTT_OK;
    if (is_inside(run_folder, folder) || !realpath(run_folder, owner->folder)) *owner->folder = '\0';
    return run_record_write(account, folder, owner);
}

static ott_status finalize(mem *account, const logger *log, const char *home);

ott_status checkpoint_run_claim(mem *account, const logger *log, const char *run_folder, const char *folder,
                                bool adopts, run_record *r, char **home) {
    run_record owner;
    bool ours, won = true;
    *home = NULL;
    TRY(run_record_read(account, folder, &owner));
    TRY(judge(account, run_folder, folder, adopts, r, &owner, &ours));
    if (ours && !*owner.mark.run) TRY(make_own(account, run_folder, folder, r, &won));
    if (!ours || !won) {
        char *own;
        TRY(name_own(account, folder, r->mark.run, &own));
        log_info(log, "%s has checkpoints of another run: this run's are in %s", folder, own);
        ott_status status = checkpoint_run_claim(account, log, run_folder, own, true, r, home);
        mem_free(account, own);
        return status;
    }
    if (*owner.mark.run) TRY(follow_move(account, run_folder, folder, &owner));
    TRY(finalize(account, log, folder));
    return mem_strdup(account, folder, home);
}

ott_status checkpoint_run_relation(mem *account, const char *home, const char *path,
                                   checkpoint_relation *out) {
    run_record owner;
    checkpoint_state s;
    str own = {.account = account};
    TRY(run_record_read(account, home, &owner));
    TRY(checkpoint_verify(account, path, false, NULL, &s));
    str_printf(&own, "%s/step-%" PRId64, home, s.run.step);
    ott_status status = str_finish(&own);
    bool there = status == OTT_OK && is_same_folder(own.text, path);
    bool same = strcmp(s.mark.run, owner.mark.run) == 0, nobodys = !*s.mark.run;
    *out = there && (same || nobodys)                               ? CHECKPOINT_OWN
           : same && !nobodys && s.mark.branch == owner.mark.branch ? CHECKPOINT_COPY
                                                                    : CHECKPOINT_FOREIGN;
    str_free(&own);
    return status;
}

/* ---- setting aside ---- */

static ott_status set_aside(mem *account, const char *home, int64_t branch, int64_t step) {
    str from = {.account = account}, to = {.account = account};
    str_printf(&from, "%s/step-%" PRId64, home, step);
    str_printf(&to, "%s/abandoned-%" PRId64 "-step-%" PRId64, home, branch, step);
    ott_status status = str_finish(from.failed ? &from : &to);
    if (status == OTT_OK) status = file_rename(from.text, to.text);
    str_free(&from);
    str_free(&to);
    return status;
}

/* The later checkpoints, of which the record says that they are set aside, get their names. */
static ott_status finalize(mem *account, const logger *log, const char *home) {
    run_record r;
    step_list list;
    int64_t count = 0;
    ott_status status = OTT_OK;
    TRY(run_record_read(account, home, &r));
    if (r.after == INT64_MAX) return OTT_OK;
    int64_t after = r.after, left = r.mark.branch - 1;
    r.after = INT64_MAX;
    TRY(checkpoint_list_of(account, home, &r, &list));
    for (int64_t i = 0; i < list.count && status == OTT_OK; i++)
        if (list.steps[i] > after) count++, status = set_aside(account, home, left, list.steps[i]);
    mem_free(account, list.steps);
    if (status == OTT_OK) status = run_record_write(account, home, &r);
    if (status == OTT_OK && count > 0)
        log_info(log,
                 "Set aside in %s: %" PRId64 " checkpoints after step %" PRId64 ", as abandoned-%" PRId64
                 "-step-N",
                 home, count, after < 0 ? 0 : after, left);
    return status;
}

ott_status checkpoint_run_later(mem *account, const char *home, int64_t step, int64_t *branch) {
    run_record r;
    step_list list;
    TRY(run_record_read(account, home, &r));
    TRY(checkpoint_list_of(account, home, &r, &list));
    *branch = list.count > 0 && list.steps[list.count - 1] > step ? r.mark.branch : 0;
    mem_free(account, list.steps);
    return OTT_OK;
}

ott_status checkpoint_run_go_back(mem *account, const logger *log, const char *home, int64_t step) {
    run_record r;
    TRY(run_record_read(account, home, &r));
    r.mark.branch++;
    r.after = step;
    TRY(run_record_write(account, home, &r));
    return finalize(account, log, home);
}
