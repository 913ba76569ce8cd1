/* base/file/own: checks which files a program may overwrite, and compares files by device and inode. */
#include "base/file/file.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ott_status fail_kind(const char *path, mode_t mode) {
    if (S_ISLNK(mode))
        return status_fail(OTT_ERR_ARGUMENT,
                           "%s: is a symbolic link, and writing would change its target: remove the link",
                           path);
    return status_fail(OTT_ERR_ARGUMENT, "%s: is %s, not a file: remove it", path,
                       S_ISDIR(mode) ? "a folder" : "a device or a pipe");
}

ott_status file_check_own(const char *path) {
    struct stat info;
    if (lstat(path, &info) != 0 || S_ISREG(info.st_mode)) return OTT_OK;
    return fail_kind(path, info.st_mode);
}

/* O_NONBLOCK: opening a pipe must not wait. O_NOFOLLOW: the name may have become a link after the check. */
ott_status file_open_own(const char *path, int flags, int *descriptor) {
    struct stat info;
    *descriptor = -1;
    TRY(file_check_own(path));
    int opened = open(path, flags | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0666);
    if (opened < 0 && errno == ELOOP) return fail_kind(path, S_IFLNK);
    if (opened < 0 || fstat(opened, &info) != 0) {
        ott_status status = file_fail_call(path, "write", "");
        if (opened >= 0) close(opened);
        return status;
    }
    if (!S_ISREG(info.st_mode)) {
        close(opened);
        return fail_kind(path, info.st_mode);
    }
    return *descriptor = opened, OTT_OK;
}

bool file_is_same(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

ott_status file_check_output(const char *output, const char *input) {
    struct stat info;
    if (stat(output, &info) != 0 || !S_ISREG(info.st_mode) || !file_is_same(output, input)) return OTT_OK;
    bool same_name = strcmp(output, input) == 0;
    return status_fail(OTT_ERR_ARGUMENT,
                       "%s: is an input too%s%s: writing it would destroy that file; name another output",
                       output, same_name ? "" : ", as ", same_name ? "" : input);
}
