/* base/file_stale: the names of what is being written aside, and removing what killed processes left there. */
#define _GNU_SOURCE /* realpath, kill */
#include "base/file.h"
#include "base/str.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MARK ".ottava-tmp-"

void file_aside_name(const char *path, char out[FILE_ASIDE_NAME]) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    snprintf(out, FILE_ASIDE_NAME, "%.*s" MARK "%ld", (int)length, path, (long)getpid());
}

/* Is `name` BASE.ottava-tmp-PROCESS, or that with a number behind it, and the process gone? Our own number is
   that of an earlier process: this one has not begun. */
static bool is_stale(const char *name, const char *base) {
    size_t length = strlen(base);
    if (strncmp(name, base, length) != 0 || !str_starts_with(name + length, MARK)) return false;
    const char *digits = name + length + strlen(MARK);
    size_t count = strspn(digits, "0123456789");
    const char *rest = digits + count;
    if (count == 0 || count > 9) return false;
    if (*rest && (*rest != '-' || strspn(rest + 1, "0123456789") != strlen(rest + 1))) return false;
    long process = strtol(digits, NULL, 10);
    return process == getpid() || (kill((pid_t)process, 0) != 0 && errno == ESRCH);
}

/* What cannot be looked at or removed is no reason not to write. */
static void remove_stale(mem *account, const char *folder, const char *base) {
    file_list names;
    char path[PATH_MAX];
    if (file_list_folder(account, folder, &names) != OTT_OK) return;
    for (int64_t i = 0; i < names.count; i++) {
        int length = snprintf(path, sizeof path, "%s/%s", folder, names.names[i]);
        if (length < PATH_MAX && is_stale(names.names[i], base)) (void)file_remove_tree(path);
    }
    file_list_free(&names);
}

void file_remove_stale(mem *account, const char *path) {
    char target[PATH_MAX];
    if (strlen(path) >= PATH_MAX) return;
    if (!realpath(path, target)) strcpy(target, path); /* as a writer of `path` finds its place */
    size_t length = strlen(target);
    while (length > 1 && target[length - 1] == '/') target[--length] = '\0';
    char *slash = strrchr(target, '/');
    if (!slash) {
        remove_stale(account, ".", target);
    } else if (slash[1]) {
        *slash = '\0';
        remove_stale(account, slash == target ? "/" : target, slash + 1);
    }
}
