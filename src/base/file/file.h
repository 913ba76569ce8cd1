/* base/file/file: files and folders. A written file is complete or absent (base/staging.h). Every error names
   the path and the system's reason. */
#ifndef BASE_FILE_FILE_H
#define BASE_FILE_FILE_H

#include "base/mem.h"
#include <limits.h>
#include <stdbool.h>

/* Appended to errors if this process has too many open files. */
#define FILE_LIMIT_HINT "; raise the limit: ulimit -n"

bool file_exists(const char *path);
bool file_is_folder(const char *path);
/* True if `path` is `folder` or inside it. Compares only the two texts: the files need not exist. */
bool file_is_inside(const char *path, const char *folder);
bool file_is_in(const char *folder, const char *name); /* true if FOLDER/NAME exists */
/* Writes FOLDER/NAME to out, without double slashes. OTT_ERR_ARGUMENT if the result is too long. */
ott_status file_join(const char *folder, const char *name, char out[PATH_MAX]);
/* Formats a path. OTT_ERR_ARGUMENT if the result is too long. */
ott_status file_path(char out[PATH_MAX], const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sets *out to PATH if PATH is absolute or FOLDER is empty, else to FOLDER/PATH, without double and trailing
   slashes. Free *out with mem_free. */
ott_status file_resolve(mem *account, const char *folder, const char *path, char **out);
/* Sets *bytes to the size of a regular file. */
ott_status file_size(const char *path, int64_t *bytes);
/* Reads a regular file of at most `limit` bytes and adds a NUL. Free *data with mem_free. */
ott_status file_read(mem *account, const char *path, int64_t limit, char **data, int64_t *bytes);
/* Creates a folder and its parents. No error if the folder exists. */
ott_status file_make_folder(const char *path);
/* Removes a folder and its contents, without following links. No error if the folder is absent. */
ott_status file_remove_tree(const char *path);
ott_status file_rename(const char *from, const char *to); /* also syncs `to`'s folder */
/* The sorted names in a folder, without "." and "..". Free the list with file_list_free. */
typedef struct file_list {
    mem *account;
    char **names;
    int64_t count, capacity;
} file_list;
ott_status file_list_folder(mem *account, const char *path, file_list *out);
void file_list_free(file_list *list);
/* Writes data to a temporary file, syncs it, renames it to path and syncs the folder. OTT_ERR_ARGUMENT if
   path is a symbolic link, a folder or a device. */
ott_status file_write_atomic(const char *path, const void *data, int64_t bytes);
/* Like file_write_atomic, for an output path from the user. If path is a symbolic link, replaces its target.
   Writes to a device or pipe directly. */
ott_status file_write_output(const char *path, const void *data, int64_t bytes);

/* Opens or creates a file that is written in place. `flags`: further flags for open(2). OTT_ERR_ARGUMENT if
   path is a symbolic link or not a regular file. The caller closes *descriptor; it is -1 on error. */
ott_status file_open_own(const char *path, int flags, int *descriptor);
/* OTT_OK if path is absent or a regular file. Anything else, also a symbolic link, is OTT_ERR_ARGUMENT. */
ott_status file_check_own(const char *path);
/* True if both paths are the same file or folder (same device and inode). */
bool file_is_same(const char *a, const char *b);
/* OTT_ERR_ARGUMENT if `output` and `input` are the same file, because writing would destroy the input. */
ott_status file_check_output(const char *output, const char *input);
/* True if path is a GGUF file, by its name or first bytes. */
bool file_is_gguf(const char *path);
/* OTT_ERR_UNSUPPORTED if path is a GGUF file, for readers of data and settings. */
ott_status file_refuse_gguf(const char *path);

/* Writes a file under a temporary name, with buffering. file_writer_commit gives it the name `path`. */
typedef struct file_writer file_writer;
/* file_writer_open works as file_write_atomic does, file_writer_open_output as file_write_output. */
ott_status file_writer_open(mem *account, const char *path, file_writer **out);
ott_status file_writer_open_output(mem *account, const char *path, file_writer **out);
ott_status file_writer_append(file_writer *w, const void *data, int64_t bytes);
/* Opens a file that several processes write at the same time; its folder has a temporary name
   (base/staging.h). Each process appends its own bytes, and calls file_writer_skip for the bytes of other
   processes. file_writer_abandon does not remove the file: it is removed with its folder. */
ott_status file_writer_join(mem *account, const char *path, file_writer **out);
ott_status file_writer_skip(file_writer *w, int64_t bytes);
/* Overwrites bytes that were appended earlier. */
ott_status file_writer_patch(file_writer *w, int64_t offset, const void *data, int64_t bytes);
ott_status file_writer_commit(file_writer *w); /* flushes, syncs, renames; closes w even on error */
void file_writer_abandon(file_writer *w);      /* closes w and removes the temporary file; NULL is allowed */
/* Syncs the files in a folder and the folder itself. */
ott_status file_sync_folder(const char *path);
/* Syncs the folder that contains `path`, which makes a rename durable. */
ott_status file_sync_parent(const char *path);

/* The temporary name of a file or folder: PATH.ottava-tmp-PID. */
#define FILE_STAGING_MARK ".ottava-tmp-"
#define FILE_STAGING_NAME (PATH_MAX + 48)
void file_staging_name(const char *path, char out[FILE_STAGING_NAME]);

/* Reads parts of a large file, at any offset. */
typedef struct file_reader {
    int descriptor;
    int64_t bytes;
    const char *path; /* borrowed from the caller of file_reader_open */
} file_reader;
ott_status file_reader_open(const char *path, file_reader *out);
/* Reads `bytes` bytes at `offset`. Fails if the file ends earlier. */
ott_status file_reader_read(const file_reader *r, int64_t offset, void *data, int64_t bytes);
void file_reader_close(file_reader *r);
/* Copies the open file `from` to a file at path, with a file_writer. */
ott_status file_copy(mem *account, const file_reader *from, const char *path);

/* CRC-32C (Castagnoli) of data, continuing from `crc` (0 at the start). */
uint32_t file_crc32c(uint32_t crc, const void *data, int64_t bytes);
/* Returns the contribution of a piece of a file to the CRC of the file. crc: CRC of the piece. bytes: how
   many bytes of the file follow the piece. The xor of all contributions is the CRC of the file. */
uint32_t file_crc32c_before(uint32_t crc, int64_t bytes);

/* A file's size and a hash, to detect changes. Above 16 MiB, only 64 pieces of 64 KiB are hashed, evenly
   spaced. */
typedef struct file_mark {
    int64_t bytes;
    uint64_t hash;
} file_mark;
ott_status file_mark_of(const char *path, file_mark *out);

/* ---- for the files of this folder ---- */

/* Fails with "PATH: cannot open: No such file or directory", or "PATH: cannot remove NAME: ..." if `name` is
   not "". Call right after the system call that failed. */
ott_status file_fail_call(const char *path, const char *what, const char *name);
/* Copies a path. OTT_ERR_ARGUMENT if it is empty or does not fit. */
ott_status file_copy_path(const char *path, char out[PATH_MAX]);
/* Ignores EINVAL: fsync returns it for devices, pipes and files on some network file systems. */
ott_status file_sync_descriptor(int descriptor, const char *path);

#endif
