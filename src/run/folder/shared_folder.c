/* run/folder/shared_folder: rank 0 writes a file and every rank looks for it. */
#include "run/folder/shared_folder.h"
#include "base/file/file.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { LOOKS = 100, LOOK_MS = 30 }; /* 3 s in all: a network file system may show a new file only later */

static ott_status name_token(const char *folder, uint64_t token, char path[PATH_MAX]) {
    return file_path(path, "%s/.ranks-%016" PRIx64, folder, token);
}

static ott_status write_token(const char *folder, uint64_t *token) {
    char path[PATH_MAX];
    TRY(file_make_folder(folder));
    if (getrandom(token, sizeof *token, 0) != sizeof *token)
        return status_fail(OTT_ERR_IO, "no random number from the system: %s", strerror(errno));
    TRY(name_token(folder, *token, path));
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0)
        return status_fail(status_from_errno(errno), "%s: cannot be written: %s", path, strerror(errno));
    close(file);
    return OTT_OK;
}

static bool wait_for_path(const char *path) {
    for (int i = 0; i < LOOKS; i++) {
        if (access(path, F_OK) == 0) return true;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
    }
    return false;
}

ott_status shared_folder_check(process_group *pg, const char *folder, const char *key) {
    uint64_t token = 0;
    int blind;
    char path[PATH_MAX];
    if (pg->size == 1) return OTT_OK;
    if (process_group_is_leader(pg)) TRY(write_token(folder, &token));
    TRY(process_group_broadcast(pg, &token, sizeof token));
    TRY(name_token(folder, token, path));
    TRY(process_group_first_rank(pg, !wait_for_path(path), &blind));
    if (process_group_is_leader(pg)) unlink(path);
    if (blind < 0) return OTT_OK;
    return status_fail(
        OTT_ERR_RANK,
        "rank %d does not see the folder \"%s\" of rank 0, where all ranks write: set %s to the "
        "full path of a folder on a file system that all ranks share",
        blind, folder, key);
}
