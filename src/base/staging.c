/* base/staging: writes a folder under a temporary name, and removes temporary files of killed processes. */
#include "base/staging.h"
#include "base/file/file.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EXCHANGE = 2 }; /* RENAME_EXCHANGE. musl has neither this name nor renameat2 */

/* True if `name` is the temporary file of a process that has ended: BASE.ottava-tmp-PID, maybe with "-" and a
   number after it. base NULL: any base. This process's own PID counts as ended: this process has not written
   yet, so an earlier process with the same PID left the file. */
static bool is_stale_name(const char *name, const char *base) {
    if (base && !str_starts_with(name, base)) return false;
    const char *mark = base ? name + strlen(base) : strstr(name, FILE_STAGING_MARK);
    if (!mark || !str_starts_with(mark, FILE_STAGING_MARK)) return false;
    const char *digits = mark + strlen(FILE_STAGING_MARK);
    size_t count = strspn(digits, "0123456789");
    const char *rest = digits + count;
    if (count == 0 || count > 9) return false;
    if (*rest && (*rest != '-' || strspn(rest + 1, "0123456789") != strlen(rest + 1))) return false;
    long process = strtol(digits, NULL, 10);
    return process == getpid() || (kill((pid_t)process, 0) != 0 && errno == ESRCH);
}

static ott_status remove_stale(mem *account, const char *folder, const char *base) {
    file_list names;
    char path[PATH_MAX];
    ott_status status = file_list_folder(account, folder, &names);
    if (status != OTT_OK) return status == OTT_ERR_MEMORY ? status : OTT_OK;
    for (int64_t i = 0; i < names.count; i++) {
        int length = snprintf(path, sizeof path, "%s/%s", folder, names.names[i]);
        if (length < PATH_MAX && is_stale_name(names.names[i], base)) (void)file_remove_tree(path);
    }
    file_list_free(&names);
    return OTT_OK;
}

ott_status staging_remove_stale_in(mem *account, const char *folder) {
    return remove_stale(account, folder, NULL);
}

ott_status staging_remove_stale(mem *account, const char *path) {
    char target[PATH_MAX];
    if (strlen(path) >= PATH_MAX) return OTT_OK;
    if (!realpath(path, target)) strcpy(target, path); /* resolves links as a writer of `path` does */
    size_t length = strlen(target);
    while (length > 1 && target[length - 1] == '/') target[--length] = '\0';
    char *slash = strrchr(target, '/');
    if (!slash) return remove_stale(account, ".", target);
    if (!slash[1]) return OTT_OK;
    *slash = '\0';
    return remove_stale(account, slash == target ? "/" : target, slash + 1);
}

static void staging_close(staging *s) {
    str_free(&s->path);
    str_free(&s->goal);
}

static ott_status make_staging_folder(const staging *s) {
    TRY(str_finish(&s->path));
    TRY(str_finish(&s->goal));
    TRY(staging_remove_stale(s->goal.account, s->goal.text));
    return file_make_folder(s->path.text);
}

ott_status staging_open(mem *account, const char *goal, staging *out) {
    char name[FILE_STAGING_NAME];
    *out = (staging){.path.account = account, .goal.account = account};
    file_staging_name(goal, name);
    str_append(&out->path, name);
    str_append(&out->goal, goal);
    while (out->goal.length > 1 && goal[out->goal.length - 1] == '/')
        out->goal.text[--out->goal.length] = '\0';
    ott_status status = make_staging_folder(out);
    if (status != OTT_OK) staging_close(out);
    return status;
}

/* Exchanges the new and old folder atomically if the file system can. Otherwise the target is absent briefly,
   but never incomplete. If the old folder cannot be removed, staging_remove_stale does it later. */
static ott_status replace_old(const staging *s) {
    char old[FILE_STAGING_NAME];
    const char *path = s->path.text, *goal = s->goal.text;
    bool swapped = syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, goal, EXCHANGE) == 0;
    snprintf(old, sizeof old, swapped ? "%s" : "%s-0", path);
    if (swapped) {
        TRY(file_sync_parent(goal));
    } else {
        TRY(file_rename(goal, old));
        TRY(file_rename(path, goal));
    }
    (void)file_remove_tree(old);
    return OTT_OK;
}

static ott_status put_in_place(const staging *s) {
    TRY(file_sync_folder(s->path.text));
    if (!file_exists(s->goal.text)) return file_rename(s->path.text, s->goal.text);
    if (file_is_folder(s->goal.text)) return replace_old(s);
    return status_fail(OTT_ERR_ARGUMENT, "%s: a file has the folder's name: move the file away",
                       s->goal.text);
}

/* Keeps the text of the earlier error, because removing may fail too. */
static void remove_written(const staging *s, ott_status code) {
    str reason = {.account = s->path.account};
    str_append(&reason, status_text());
    bool removed = file_remove_tree(s->path.text) == OTT_OK;
    if (!reason.failed)
        status_fail(code, "%s%s%s%s", reason.text, removed ? "" : "; ", removed ? "" : s->path.text,
                    removed ? "" : " could not be removed");
    str_free(&reason);
}

ott_status staging_end(staging *s, ott_status status) {
    if (status == OTT_OK) status = put_in_place(s);
    if (status != OTT_OK) remove_written(s, status);
    staging_close(s);
    return status;
}
