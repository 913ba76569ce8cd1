/* base/file/file: reads files; makes, lists, syncs and removes folders. Paths are resolved in
   arrays of PATH_MAX bytes, because most of these functions have no memory account (base/mem). */
#include "base/file/file.h"
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

ott_status file_fail_call(const char *path, const char *what, const char *name) {
    int reason = errno;
    return status_fail(status_from_errno(reason), "%s: cannot %s%s%s: %s%s", path, what, *name ? " " : "",
                       name, strerror(reason), reason == EMFILE ? FILE_LIMIT_HINT : "");
}

static ott_status fail_long(const char *path, size_t length) {
    return status_fail(OTT_ERR_ARGUMENT, "%.60s...: the path is %zu bytes long; the system takes %d", path,
                       length, PATH_MAX - 1);
}

ott_status file_copy_path(const char *path, char out[PATH_MAX]) {
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
    if (stat(path, &info) != 0) return file_fail_call(path, "read", "");
    TRY(require_regular(path, &info));
    return *bytes = info.st_size, OTT_OK;
}

/* ---- reading ---- */

ott_status file_reader_open(const char *path, file_reader *out) {
    struct stat info;
    *out = (file_reader){.descriptor = -1, .path = path};
    int descriptor =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: opening a pipe must not wait */
    if (descriptor < 0) return file_fail_call(path, "open", "");
    ott_status status =
        fstat(descriptor, &info) == 0 ? require_regular(path, &info) : file_fail_call(path, "read", "");
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
        if (got < 0) return file_fail_call(r->path, "read", "");
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
    return file_fail_call(path, "make the folder", "");
}

ott_status file_make_folder(const char *path) {
    char partial[PATH_MAX];
    TRY(file_copy_path(path, partial));
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
        ott_status status = file_fail_call(root, "list", name);
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
        return errno == ENOENT ? OTT_OK : file_fail_call(root, "remove", name);
    bool is_folder = S_ISDIR(info.st_mode);
    if (is_folder) TRY(each_entry(folder, name, root, remove_entry));
    if (unlinkat(folder, name, is_folder ? AT_REMOVEDIR : 0) != 0 && errno != ENOENT)
        return file_fail_call(root, "remove", name);
    return OTT_OK;
}

ott_status file_remove_tree(const char *path) {
    char name[PATH_MAX];
    TRY(file_copy_path(path, name));
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
    if (!entries) return file_fail_call(path, "list", "");
    ott_status status = OTT_OK;
    struct dirent *entry;
    while (errno = 0, status == OTT_OK && (entry = readdir(entries)))
        if (!is_dots(entry->d_name)) status = add_file_name(out, entry->d_name);
    if (status == OTT_OK && errno != 0) status = file_fail_call(path, "list", "");
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

ott_status file_sync_descriptor(int descriptor, const char *path) {
    while (fsync(descriptor) != 0) {
        if (errno == EINVAL || errno == ENOTSUP || errno == EROFS) return OTT_OK;
        if (errno != EINTR) return file_fail_call(path, "sync", "");
    }
    return OTT_OK;
}

static ott_status sync_entry(int folder, const char *name, const char *root) {
    struct stat info;
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return file_fail_call(root, "sync", name);
    if (S_ISDIR(info.st_mode)) TRY(each_entry(folder, name, root, sync_entry));
    if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)) return OTT_OK;
    int descriptor = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor < 0) return errno == ELOOP ? OTT_OK : file_fail_call(root, "sync", name);
    ott_status status = file_sync_descriptor(descriptor, name);
    close(descriptor);
    return status_context(status, "%s", root);
}

ott_status file_sync_folder(const char *path) {
    char resolved[PATH_MAX]; /* the parent folder may be a link */
    if (!realpath(path, resolved)) return file_fail_call(path, "sync", "");
    if (!file_is_folder(resolved)) return status_fail(OTT_ERR_ARGUMENT, "%s: is not a folder", path);
    return sync_entry(AT_FDCWD, resolved, path);
}

ott_status file_sync_parent(const char *path) {
    char folder[PATH_MAX];
    TRY(file_copy_path(path, folder));
    char *slash = strrchr(folder, '/');
    if (!slash)
        strcpy(folder, ".");
    else
        slash[slash == folder] = '\0'; /* keeps the slash of "/" */
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return file_fail_call(folder, "sync the folder", "");
    ott_status status = file_sync_descriptor(descriptor, folder);
    close(descriptor);
    return status;
}

ott_status file_rename(const char *from, const char *to) {
    return rename(from, to) == 0 ? file_sync_parent(to) : file_fail_call(from, "rename to", to);
}
