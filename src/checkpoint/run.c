/* checkpoint/run: claims folders of checkpoints, and sets checkpoints aside. */
#include "checkpoint/run.h"
#include "base/file/file.h"
#include "checkpoint/folder.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

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

/* ---- owner of a folder ---- */

static bool is_inside(const char *folder, const char *path) {
    char outer[PATH_MAX], inner[PATH_MAX];
    if (!realpath(folder, outer) || !realpath(path, inner)) return false;
    return file_is_inside(inner, outer);
}

/* *out = run and branch of the newest checkpoint in a folder without run.json. *any = whether it has one. */
static ott_status newest_mark(mem *account, const char *folder, run_mark *out, bool *any) {
    step_list list;
    char path[PATH_MAX];
    *out = (run_mark){.branch = 1};
    TRY(checkpoint_list(account, folder, &list));
    *any = list.count > 0;
    int64_t newest = *any ? list.steps[list.count - 1] : 0;
    mem_free(account, list.steps);
    if (!*any) return OTT_OK;
    TRY(file_path(path, "%s/step-%" PRId64, folder, newest));
    return checkpoint_mark(account, path, out);
}

ott_status checkpoint_run_home(mem *account, const char *run_folder, const char *folder, char **home) {
    run_record run, owner;
    TRY(run_record_read(account, run_folder, &run));
    TRY(run_record_read(account, folder, &owner));
    bool ours = !*owner.mark.run || !*run.mark.run || strcmp(owner.mark.run, run.mark.run) == 0;
    return ours ? mem_strdup(account, folder, home)
                : str_format(account, home, "%s/run-%s", folder, run.mark.run);
}

/* Sets *copy to true if run_folder is a copy of another run folder: run.json in the checkpoint folder
   (`owner`) names that other folder, and it still exists with the same run id. */
static ott_status is_copy(mem *account, const char *run_folder, const char *folder, const run_record *owner,
                          bool *copy) {
    run_record other;
    *copy = false;
    if (!*owner->folder || file_is_same(owner->folder, run_folder) || is_inside(run_folder, folder))
        return OTT_OK;
    TRY(run_record_read(account, owner->folder, &other));
    return *copy = strcmp(other.mark.run, owner->mark.run) == 0, OTT_OK;
}

/* Sets *ours to true if the checkpoint folder belongs to the run. owner: run.json in the checkpoint folder.
   If run_folder is a copy of the owner's run folder, gives the run a new id and sets *ours to false. */
static ott_status decide_ownership(mem *account, const char *run_folder, const char *folder, bool adopts,
                                   run_record *r, const run_record *owner, bool *ours) {
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

/* Writes run.json unless another process has written it: *won is false then. Creating a hard link is atomic,
   so only one process wins. If the file system has no hard links, overwrites the file. */
static ott_status write_first(mem *account, const char *folder, const run_record *r, bool *won) {
    char aside[PATH_MAX], from[PATH_MAX], to[PATH_MAX];
    ott_status status;
    *won = false;
    TRY(file_path(aside, "%s/claim-%s", folder, r->mark.run));
    TRY(file_join(aside, RUN_RECORD_NAME, from));
    TRY(file_join(folder, RUN_RECORD_NAME, to));
    TRY_OUT(file_make_folder(aside));
    TRY_OUT(run_record_write(account, aside, r));
    *won = link(from, to) == 0;
    if (!*won && errno != EEXIST) {
        TRY_OUT(run_record_write(account, folder, r));
        *won = true;
    }
out:
    if (status == OTT_OK) (void)file_remove_tree(aside);
    return status;
}

/* *out = next free branch number in a folder without a record. */
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

/* Updates the record if the run folder was moved. */
static ott_status follow_move(mem *account, const char *run_folder, const char *folder, run_record *owner) {
    if (!*owner->folder || file_is_same(owner->folder, run_folder)) return OTT_OK;
    if (is_inside(run_folder, folder) || !realpath(run_folder, owner->folder)) *owner->folder = '\0';
    return run_record_write(account, folder, owner);
}

static ott_status finish_rewind(mem *account, const logger *log, const char *home);

ott_status checkpoint_run_claim(mem *account, const logger *log, const char *run_folder, const char *folder,
                                bool adopts, run_record *r, char **home) {
    run_record owner;
    bool ours, won = true;
    *home = NULL;
    TRY(run_record_read(account, folder, &owner));
    TRY(decide_ownership(account, run_folder, folder, adopts, r, &owner, &ours));
    if (ours && !*owner.mark.run) TRY(make_own(account, run_folder, folder, r, &won));
    if (!ours || !won) {
        char *own;
        TRY(str_format(account, &own, "%s/run-%s", folder, r->mark.run));
        log_info(log, "%s has checkpoints of another run: this run uses %s", folder, own);
        ott_status status = checkpoint_run_claim(account, log, run_folder, own, true, r, home);
        mem_free(account, own);
        return status;
    }
    if (*owner.mark.run) TRY(follow_move(account, run_folder, folder, &owner));
    TRY(finish_rewind(account, log, folder));
    return mem_strdup(account, folder, home);
}

ott_status checkpoint_run_relation(mem *account, const char *home, const char *path,
                                   checkpoint_relation *out) {
    run_record owner;
    checkpoint_state s;
    char own[PATH_MAX];
    TRY(run_record_read(account, home, &owner));
    TRY(checkpoint_verify(account, path, false, NULL, &s));
    TRY(file_path(own, "%s/step-%" PRId64, home, s.run.step));
    bool there = file_is_same(own, path);
    bool same = strcmp(s.mark.run, owner.mark.run) == 0, nobodys = !*s.mark.run;
    *out = there && (same || nobodys)                               ? CHECKPOINT_OWN
           : same && !nobodys && s.mark.branch == owner.mark.branch ? CHECKPOINT_COPY
                                                                    : CHECKPOINT_FOREIGN;
    return OTT_OK;
}

/* ---- rewinding ---- */

/* Renames the checkpoints that the record declares abandoned. */
static ott_status finish_rewind(mem *account, const logger *log, const char *home) {
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
        if (list.steps[i] > after) {
            char from[PATH_MAX], to[PATH_MAX];
            count++;
            status = file_path(from, "%s/step-%" PRId64, home, list.steps[i]);
            if (status == OTT_OK)
                status = file_path(to, "%s/abandoned-%" PRId64 "-step-%" PRId64, home, left, list.steps[i]);
            if (status == OTT_OK) status = file_rename(from, to);
        }
    mem_free(account, list.steps);
    if (status == OTT_OK) status = run_record_write(account, home, &r);
    if (status == OTT_OK && count > 0)
        log_info(log,
                 "Renamed in %s: %" PRId64 " checkpoints after step %" PRId64 ", to abandoned-%" PRId64
                 "-step-N",
                 home, count, after < 0 ? 0 : after, left);
    return status;
}

ott_status checkpoint_run_branch_to_abandon(mem *account, const char *home, int64_t step, int64_t *branch) {
    run_record r;
    step_list list;
    TRY(run_record_read(account, home, &r));
    TRY(checkpoint_list_of(account, home, &r, &list));
    *branch = list.count > 0 && list.steps[list.count - 1] > step ? r.mark.branch : 0;
    mem_free(account, list.steps);
    return OTT_OK;
}

ott_status checkpoint_run_rewind(mem *account, const logger *log, const char *home, int64_t step) {
    run_record r;
    TRY(run_record_read(account, home, &r));
    r.mark.branch++;
    r.after = step;
    TRY(run_record_write(account, home, &r));
    return finish_rewind(account, log, home);
}
