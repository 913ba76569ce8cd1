/* base/file/writer: writes files, most of them under a temporary name, which is then renamed. */
#include "base/file/file.h"
#include "base/text/size.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void file_staging_name(const char *path, char out[FILE_STAGING_NAME]) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    snprintf(out, FILE_STAGING_NAME, "%.*s" FILE_STAGING_MARK "%ld", (int)length, path, (long)getpid());
}

typedef struct staged {
    char path[PATH_MAX];               /* path as the caller passed it, for messages */
    char target[PATH_MAX];             /* the file to replace; output_open resolves links */
    char temporary[FILE_STAGING_NAME]; /* "" for a device or pipe, which is written directly */
    int descriptor;
} staged;

/* Opens TARGET.ottava-tmp-PID. Adds "-1", "-2", ... if another process left a file of this name. */
static int open_unique(staged *a) {
    int descriptor = -1;
    errno = EEXIST;
    for (int attempt = 0; attempt < 100 && descriptor < 0 && errno == EEXIST; attempt++) {
        file_staging_name(a->target, a->temporary);
        size_t length = strlen(a->temporary);
        if (attempt > 0) snprintf(a->temporary + length, sizeof a->temporary - length, "-%d", attempt);
        descriptor = open(a->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    return descriptor;
}

static ott_status staged_open(staged *a, const char *path) {
    TRY(file_copy_path(path, a->path));
    TRY(file_check_own(path));
    memcpy(a->target, a->path, sizeof a->path);
    a->descriptor = open_unique(a);
    return a->descriptor < 0 ? file_fail_call(path, "write", "") : OTT_OK;
}

static ott_status output_open(staged *a, const char *path) {
    struct stat info;
    TRY(file_copy_path(path, a->path));
    if (!realpath(path, a->target)) memcpy(a->target, a->path, sizeof a->path);
    bool exists = stat(a->target, &info) == 0;
    if (exists && S_ISDIR(info.st_mode))
        return status_fail(OTT_ERR_ARGUMENT, "%s: is a folder, not a file", path);
    if (exists && !S_ISREG(info.st_mode)) {
        a->temporary[0] = '\0';
        a->descriptor = open(a->target, O_WRONLY | O_NOCTTY | O_CLOEXEC);
    } else {
        a->descriptor = open_unique(a);
    }
    return a->descriptor < 0 ? file_fail_call(path, "write", "") : OTT_OK;
}

/* Opens a file that several processes write in place. The first process creates it. */
static ott_status shared_open(staged *a, const char *path) {
    TRY(file_copy_path(path, a->path));
    memcpy(a->target, a->path, sizeof a->path);
    a->temporary[0] = '\0';
    return file_open_own(path, O_WRONLY, &a->descriptor);
}

/* Writes at `offset`; -1: after the last write. */
static ott_status staged_write(staged *a, const void *data, int64_t bytes, int64_t offset) {
    int64_t done = 0;
    while (done < bytes) {
        const char *from = (const char *)data + done;
        size_t left = (size_t)(bytes - done);
        ssize_t written = offset < 0 ? write(a->descriptor, from, left)
                                     : pwrite(a->descriptor, from, left, (off_t)(offset + done));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return file_fail_call(a->path, "write", "");
        done += written;
    }
    return OTT_OK;
}

/* Closes and removes the temporary file. Keeps the error text of the earlier failure. */
static void staged_abandon(staged *a) {
    if (a->descriptor >= 0) close(a->descriptor);
    a->descriptor = -1;
    if (a->temporary[0]) unlink(a->temporary);
}

/* Closes the temporary file and renames it to the target. On failure removes it. */
static ott_status staged_commit(staged *a) {
    ott_status status;
    TRY_OUT(file_sync_descriptor(a->descriptor, a->path));
    int failed = close(a->descriptor); /* a network file system may report a full disk only in close */
    a->descriptor = -1;
    if (failed) TRY_OUT(file_fail_call(a->path, "write", ""));
    if (a->temporary[0] && rename(a->temporary, a->target) != 0)
        TRY_OUT(file_fail_call(a->path, "replace", ""));
out:
    if (status != OTT_OK)
        staged_abandon(a);
    else if (a->temporary[0])
        status = file_sync_parent(a->target);
    return status;
}

typedef ott_status (*opener)(staged *a, const char *path);

static ott_status write_new_file(opener open_file, const char *path, const void *data, int64_t bytes) {
    staged a;
    TRY(open_file(&a, path));
    ott_status status = staged_write(&a, data, bytes, -1);
    if (status == OTT_OK) return staged_commit(&a);
    staged_abandon(&a);
    return status;
}

ott_status file_write_atomic(const char *path, const void *data, int64_t bytes) {
    return write_new_file(staged_open, path, data, bytes);
}

ott_status file_write_output(const char *path, const void *data, int64_t bytes) {
    return write_new_file(output_open, path, data, bytes);
}

enum { WRITER_BUFFER = 256 * 1024 };

struct file_writer {
    mem *account;
    staged file;
    ott_status failed; /* error of the first failed append; file_writer_commit returns it */
    int64_t used;
    char buffer[WRITER_BUFFER];
};

static ott_status writer_open(mem *account, const char *path, opener open_file, file_writer **out) {
    file_writer *w;
    *out = NULL;
    TRY(mem_alloc(account, MEM_OTHER, sizeof(file_writer), "a file's write buffer", &w));
    w->account = account;
    ott_status status = open_file(&w->file, path);
    if (status != OTT_OK) return mem_free(account, w), status;
    return *out = w, OTT_OK;
}

ott_status file_writer_open(mem *account, const char *path, file_writer **out) {
    return writer_open(account, path, staged_open, out);
}

ott_status file_writer_open_output(mem *account, const char *path, file_writer **out) {
    return writer_open(account, path, output_open, out);
}

ott_status file_writer_join(mem *account, const char *path, file_writer **out) {
    return writer_open(account, path, shared_open, out);
}

static ott_status flush_buffer(file_writer *w) {
    w->failed = staged_write(&w->file, w->buffer, w->used, -1);
    w->used = 0;
    return w->failed;
}

ott_status file_writer_append(file_writer *w, const void *data, int64_t bytes) {
    if (w->failed != OTT_OK)
        return status_fail(w->failed, "%s: cannot write: an earlier write failed", w->file.path);
    if (bytes > WRITER_BUFFER - w->used) TRY(flush_buffer(w));
    if (bytes > WRITER_BUFFER) return w->failed = staged_write(&w->file, data, bytes, -1);
    if (bytes > 0) memcpy(w->buffer + w->used, data, (size_t)bytes);
    w->used += bytes;
    return OTT_OK;
}

ott_status file_writer_skip(file_writer *w, int64_t bytes) {
    TRY(file_writer_append(w, NULL, 0)); /* fails if an earlier append failed */
    if (bytes == 0) return OTT_OK;
    TRY(flush_buffer(w));
    if (lseek(w->file.descriptor, (off_t)bytes, SEEK_CUR) < 0)
        w->failed = file_fail_call(w->file.path, "write", "");
    return w->failed;
}

ott_status file_writer_patch(file_writer *w, int64_t offset, const void *data, int64_t bytes) {
    if (w->failed == OTT_OK) TRY(flush_buffer(w));
    if (w->failed != OTT_OK) return file_writer_append(w, NULL, 0);
    return w->failed = staged_write(&w->file, data, bytes, offset);
}

ott_status file_writer_commit(file_writer *w) {
    ott_status status = file_writer_append(w, NULL, 0); /* fails if an earlier append failed */
    if (status == OTT_OK) status = flush_buffer(w);
    if (status != OTT_OK) return file_writer_abandon(w), status;
    status = staged_commit(&w->file);
    mem_free(w->account, w);
    return status;
}

void file_writer_abandon(file_writer *w) {
    if (!w) return;
    staged_abandon(&w->file);
    mem_free(w->account, w);
}

ott_status file_copy(mem *account, const file_reader *from, const char *path) {
    file_writer *to = NULL;
    void *buffer;
    ott_status status;
    TRY(mem_alloc(account, MEM_OTHER, WRITER_BUFFER, "copy buffer", &buffer));
    TRY_OUT(file_writer_open(account, path, &to));
    for (int64_t at = 0, piece; at < from->bytes; at += piece) {
        piece = size_min(from->bytes - at, WRITER_BUFFER);
        TRY_OUT(file_reader_read(from, at, buffer, piece));
        TRY_OUT(file_writer_append(to, buffer, piece));
    }
    status = file_writer_commit(to);
    to = NULL;
out:
    file_writer_abandon(to);
    mem_free(account, buffer);
    return status;
}
