/* base/file/file: reads and writes files and folders; staged writes; positioned reads. Paths are resolved in
   arrays of PATH_MAX bytes, because most of these functions have no memory account (base/mem). */
#include "base/file/file.h"
#include "base/text/size.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Fails with "PATH: cannot open: No such file or directory", or "PATH: cannot remove NAME: ..." if `name` is
   not "". Call right after the system call that failed. */
static ott_status fail_call(const char *path, const char *what, const char *name) {
    int reason = errno;
    return status_fail(status_from_errno(reason), "%s: cannot %s%s%s: %s%s", path, what, *name ? " " : "",
                       name, strerror(reason), reason == EMFILE ? FILE_LIMIT_HINT : "");
}

static ott_status fail_long(const char *path, size_t length) {
    return status_fail(OTT_ERR_ARGUMENT, "%.60s...: the path is %zu bytes long; the system takes %d", path,
                       length, PATH_MAX - 1);
}

static ott_status copy_path(const char *path, char out[PATH_MAX]) {
    size_t length = strlen(path);
    if (length == 0) return status_fail(OTT_ERR_ARGUMENT, "a path is empty");
    if (length >= PATH_MAX) return fail_long(path, length);
    memcpy(out, path, length + 1);
    return OTT_OK;
}

ott_status file_path(char out[PATH_MAX], const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(out, PATH_MAX, format, arguments);
    va_end(arguments);
    return length >= 0 && length < PATH_MAX ? OTT_OK : fail_long(out, (size_t)length);
}

/* Removes double and trailing slashes: "runs//a/" becomes "runs/a". */
static void drop_slashes(char *path) {
    char *to = path;
    for (const char *from = path; *from; from++)
        if (*from != '/' || to == path || to[-1] != '/') *to++ = *from;
    if (to > path + 1 && to[-1] == '/') to--;
    *to = '\0';
}

ott_status file_join(const char *folder, const char *name, char out[PATH_MAX]) {
    TRY(file_path(out, "%s/%s", folder, name));
    drop_slashes(out);
    return OTT_OK;
}

ott_status file_resolve(mem *account, const char *folder, const char *path, char **out) {
    bool joins = *folder && *path != '/';
    size_t length = strlen(path) + (joins ? strlen(folder) + 1 : 0);
    TRY(mem_alloc(account, MEM_OTHER, (int64_t)length + 1, "a path", out));
    snprintf(*out, length + 1, "%s%s%s", joins ? folder : "", joins ? "/" : "", path);
    drop_slashes(*out);
    return OTT_OK;
}

/* ---- paths and kinds ---- */

bool file_is_inside(const char *path, const char *folder) {
    size_t length = strlen(folder);
    if (length == 0 || strncmp(path, folder, length) != 0) return false;
    return folder[length - 1] == '/' || path[length] == '/' || path[length] == '\0';
}

bool file_is_in(const char *folder, const char *name) {
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < PATH_MAX && file_exists(path);
}

bool file_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

bool file_is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static ott_status require_regular(const char *path, const struct stat *info) {
    if (S_ISREG(info->st_mode)) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: is %s, not a file", path,
                       S_ISDIR(info->st_mode) ? "a folder" : "a device");
}

ott_status file_size(const char *path, int64_t *bytes) {
    struct stat info;
    *bytes = 0;
    if (stat(path, &info) != 0) return fail_call(path, "read", "");
    TRY(require_regular(path, &info));
    return *bytes = info.st_size, OTT_OK;
}

/* ---- reading ---- */

ott_status file_reader_open(const char *path, file_reader *out) {
    struct stat info;
    *out = (file_reader){.descriptor = -1, .path = path};
    int descriptor =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: opening a pipe must not wait */
    if (descriptor < 0) return fail_call(path, "open", "");
    ott_status status =
        fstat(descriptor, &info) == 0 ? require_regular(path, &info) : fail_call(path, "read", "");
    if (status != OTT_OK) return close(descriptor), status;
    out->descriptor = descriptor;
    out->bytes = info.st_size;
    return OTT_OK;
}

ott_status file_reader_read(const file_reader *r, int64_t offset, void *data, int64_t bytes) {
    if (offset < 0 || bytes < 0 || offset > r->bytes || bytes > r->bytes - offset)
        return status_fail(OTT_ERR_FORMAT,
                           "%s: %" PRId64 " bytes are needed at byte %" PRId64 " of a file of %" PRId64
                           " bytes: it is truncated or malformed",
                           r->path, bytes, offset, r->bytes);
    for (char *to = data; bytes > 0;) {
        ssize_t got = pread(r->descriptor, to, (size_t)bytes, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_call(r->path, "read", "");
        if (got == 0)
            return status_fail(OTT_ERR_IO, "%s: ends at byte %" PRId64 ": it shrank while it was read",
                               r->path, offset);
        to += got;
        offset += got;
        bytes -= got;
    }
    return OTT_OK;
}

void file_reader_close(file_reader *r) {
    if (r->descriptor >= 0) close(r->descriptor);
    r->descriptor = -1;
}

ott_status file_read(mem *account, const char *path, int64_t limit, char **data, int64_t *bytes) {
    file_reader r;
    ott_status status;
    *data = NULL;
    *bytes = 0;
    TRY(file_reader_open(path, &r));
    if (r.bytes > limit)
        TRY_OUT(status_fail(OTT_ERR_FORMAT, "%s: has %" PRId64 " bytes; at most %" PRId64 " are allowed here",
                            path, r.bytes, limit));
    TRY_OUT(mem_alloc(account, MEM_OTHER, r.bytes + 1, "a file's text", data));
    TRY_OUT(file_reader_read(&r, 0, *data, r.bytes));
    *bytes = r.bytes;
out:
    if (status != OTT_OK) mem_free(account, *data), *data = NULL;
    file_reader_close(&r);
    return status;
}

/* ---- folders ---- */

static ott_status make_one_folder(const char *path) {
    if (mkdir(path, 0777) == 0) return OTT_OK;
    if (errno == EEXIST && file_is_folder(path)) return OTT_OK; /* another rank made the folder first */
    if (errno == EEXIST)
        return status_fail(OTT_ERR_ARGUMENT, "%s: cannot create the folder: a file has its name", path);
    return fail_call(path, "make the folder", "");
}

ott_status file_make_folder(const char *path) {
    char partial[PATH_MAX];
    TRY(copy_path(path, partial));
    for (char *slash = strchr(partial + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (!file_is_folder(partial)) TRY(make_one_folder(partial)); /* mkdir of `/` may fail differently */
        *slash = '/';
    }
    return file_is_folder(partial) ? OTT_OK : make_one_folder(partial);
}

static bool is_dots(const char *name) {
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

typedef ott_status (*entry_visitor)(int folder, const char *name, const char *root);

/* Calls `visit` for each entry of folder `name` in `folder`. Does not follow links. */
static ott_status each_entry(int folder, const char *name, const char *root, entry_visitor visit) {
    int descriptor = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = descriptor < 0 ? NULL : fdopendir(descriptor);
    if (!entries) {
        ott_status status = fail_call(root, "list", name);
        if (descriptor >= 0) close(descriptor);
        return status;
    }
    ott_status status = OTT_OK;
    for (struct dirent *entry; status == OTT_OK && (entry = readdir(entries));)
        if (!is_dots(entry->d_name)) status = visit(descriptor, entry->d_name, root);
    closedir(entries);
    return status;
}

static ott_status remove_entry(int folder, const char *name, const char *root) {
    struct stat info;
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? OTT_OK : fail_call(root, "remove", name);
    bool is_folder = S_ISDIR(info.st_mode);
    if (is_folder) TRY(each_entry(folder, name, root, remove_entry));
    if (unlinkat(folder, name, is_folder ? AT_REMOVEDIR : 0) != 0 && errno != ENOENT)
        return fail_call(root, "remove", name);
    return OTT_OK;
}

ott_status file_remove_tree(const char *path) {
    char name[PATH_MAX];
    TRY(copy_path(path, name));
    char *end = name + strlen(name); /* a path with a slash, "link/", would mean the link's target */
    while (end > name && end[-1] == '/') *--end = '\0';
    if (end == name) return status_fail(OTT_ERR_ARGUMENT, "%s: refusing to remove the root folder", path);
    return remove_entry(AT_FDCWD, name, path);
}

static int compare_strings(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static ott_status add_file_name(file_list *list, const char *name) {
    TRY(mem_reserve(list->account, MEM_OTHER, list->count + 1, "a folder's names", &list->capacity,
                    &list->names));
    TRY(mem_strdup(list->account, name, &list->names[list->count]));
    return list->count++, OTT_OK;
}

ott_status file_list_folder(mem *account, const char *path, file_list *out) {
    *out = (file_list){.account = account};
    DIR *entries = opendir(path);
    if (!entries) return fail_call(path, "list", "");
    ott_status status = OTT_OK;
    struct dirent *entry;
    while (errno = 0, status == OTT_OK && (entry = readdir(entries)))
        if (!is_dots(entry->d_name)) status = add_file_name(out, entry->d_name);
    if (status == OTT_OK && errno != 0) status = fail_call(path, "list", "");
    closedir(entries);
    if (status != OTT_OK) file_list_free(out);
    if (out->count > 0) qsort(out->names, (size_t)out->count, sizeof(char *), compare_strings);
    return status;
}

void file_list_free(file_list *list) {
    for (int64_t i = 0; i < list->count; i++) mem_free(list->account, list->names[i]);
    mem_free(list->account, list->names);
    *list = (file_list){.account = list->account};
}

/* ---- syncing ---- */

/* Ignores EINVAL: fsync returns it for devices, pipes and files on some network file systems. */
static ott_status sync_descriptor(int descriptor, const char *path) {
    while (fsync(descriptor) != 0) {
        if (errno == EINVAL || errno == ENOTSUP || errno == EROFS) return OTT_OK;
        if (errno != EINTR) return fail_call(path, "sync", "");
    }
    return OTT_OK;
}

static ott_status sync_entry(int folder, const char *name, const char *root) {
    struct stat info;
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return fail_call(root, "sync", name);
    if (S_ISDIR(info.st_mode)) TRY(each_entry(folder, name, root, sync_entry));
    if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)) return OTT_OK;
    int descriptor = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor < 0) return errno == ELOOP ? OTT_OK : fail_call(root, "sync", name);
    ott_status status = sync_descriptor(descriptor, name);
    close(descriptor);
    return status_context(status, "%s", root);
}

ott_status file_sync_folder(const char *path) {
    char resolved[PATH_MAX]; /* the parent folder may be a link */
    if (!realpath(path, resolved)) return fail_call(path, "sync", "");
    if (!file_is_folder(resolved)) return status_fail(OTT_ERR_ARGUMENT, "%s: is not a folder", path);
    return sync_entry(AT_FDCWD, resolved, path);
}

ott_status file_sync_parent(const char *path) {
    char folder[PATH_MAX];
    TRY(copy_path(path, folder));
    char *slash = strrchr(folder, '/');
    if (!slash)
        strcpy(folder, ".");
    else
        slash[slash == folder] = '\0'; /* keeps the slash of "/" */
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return fail_call(folder, "sync the folder", "");
    ott_status status = sync_descriptor(descriptor, folder);
    close(descriptor);
    return status;
}

ott_status file_rename(const char *from, const char *to) {
    return rename(from, to) == 0 ? file_sync_parent(to) : fail_call(from, "rename to", to);
}

/* ---- writing ---- */

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
    TRY(copy_path(path, a->path));
    TRY(file_check_own(path));
    memcpy(a->target, a->path, sizeof a->path);
    a->descriptor = open_unique(a);
    return a->descriptor < 0 ? fail_call(path, "write", "") : OTT_OK;
}

static ott_status output_open(staged *a, const char *path) {
    struct stat info;
    TRY(copy_path(path, a->path));
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
    return a->descriptor < 0 ? fail_call(path, "write", "") : OTT_OK;
}

/* Opens a file that several processes write in place. The first process creates it. */
static ott_status shared_open(staged *a, const char *path) {
    TRY(copy_path(path, a->path));
    memcpy(a->target, a->path, sizeof a->path);
    a->temporary[0] = '\0';
    return file_open_own(path, O_WRONLY, &a->descriptor);
}

/* Writes at `offset`; -1: after the last write. */
static ott_status staged_write(staged *a, const void *data, int64_t bytes, int64_t offset) {
    for (int64_t done = 0, written; done<bytes; done += written> 0 ? written : 0) {
        const char *from = (const char *)data + done;
        written = offset < 0 ? write(a->descriptor, from, (size_t)(bytes - done))
                             : pwrite(a->descriptor, from, (size_t)(bytes - done), (off_t)(offset + done));
        if (written < 0 && errno != EINTR) return fail_call(a->path, "write", "");
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
    TRY_OUT(sync_descriptor(a->descriptor, a->path));
    int failed = close(a->descriptor); /* a network file system may report a full disk only in close */
    a->descriptor = -1;
    if (failed) TRY_OUT(fail_call(a->path, "write", ""));
    if (a->temporary[0] && rename(a->temporary, a->target) != 0) TRY_OUT(fail_call(a->path, "replace", ""));
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
        w->failed = fail_call(w->file.path, "write", "");
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

/* ---- copying ---- */

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
