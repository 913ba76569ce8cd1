/* base/file: files and folders. Everything written is complete or absent (base/staging.h). Every failure
   names the path and the system's reason. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/mem.h"
#include <limits.h>
#include <stdbool.h>

/* What an error ends with when this process has too many files open: then no disk is full. */
#define FILE_LIMIT_HINT "; raise the limit: ulimit -n"

bool file_exists(const char *path);
bool file_is_folder(const char *path);
bool file_is_in(const char *folder, const char *name); /* file_exists of FOLDER/NAME */
/* FOLDER/NAME. OTT_ERR_ARGUMENT when that is too long. */
ott_status file_join(const char *folder, const char *name, char out[PATH_MAX]);
/* PATH if that is absolute or folder is empty, else FOLDER/PATH, without double and trailing slashes; owned by the caller
   (mem_free). */
ott_status file_resolve(mem *account, const char *folder, const char *path, char **out);
/* Size in bytes of a regular file. */
ott_status file_size(const char *path, int64_t *bytes);
/* Reads a whole regular file; `*data` gets one extra NUL byte and is owned by the caller (mem_free). Refuses
 * more than `limit` bytes. */
ott_status file_read(mem *account, const char *path, int64_t limit, char **data, int64_t *bytes);
/* Makes a folder and its parents. */
ott_status file_make_folder(const char *path);
/* Removes a folder and all in it; nothing when absent. Does not follow links. */
ott_status file_remove_tree(const char *path);
ott_status file_rename(const char *from, const char *to); /* and syncs the folder of `to` */
/* Names in a folder, sorted, without . and ..; owned by the caller (file_list_free). */
typedef struct file_list {
    mem *account;
    char **names;
    int64_t count;
} file_list;
ott_status file_list_folder(mem *account, const char *path, file_list *out);
void file_list_free(file_list *list);
/* Writes `bytes` of data to path: under its staging name, fsync, rename, fsync of the folder. OTT_ERR_ARGUMENT if
   path is a symbolic link, a folder or a device. */
ott_status file_write_atomic(const char *path, const void *data, int64_t bytes);
/* The same for a path that the user named as the output: a symbolic link stays and its target is replaced; a device or
   a pipe is written in place. */
ott_status file_write_output(const char *path, const void *data, int64_t bytes);

/* Opens (or makes) a file that is written in place, with the further flags of open(2). OTT_ERR_ARGUMENT if path is a
   symbolic link or no regular file. The caller closes the descriptor; it is -1 after an error. */
ott_status file_open_own(const char *path, int flags, int *descriptor);
/* OTT_OK if path is absent or a regular file, OTT_ERR_ARGUMENT if file_open_own would refuse it. */
ott_status file_check_own(const char *path);
/* Do both paths name the same file or folder? Compares device and inode, so links count. */
bool file_is_same(const char *a, const char *b);
/* OTT_ERR_ARGUMENT if `output` is the same file as `input`, which would be lost. */
ott_status file_check_output(const char *output, const char *input);
/* OTT_ERR_UNSUPPORTED if path is a GGUF file, by its name or its first bytes. */
ott_status file_refuse_gguf(const char *path);

/* A file being written under its staging name. Appends are buffered; nothing is visible at `path` before
   file_writer_commit. */
typedef struct file_writer file_writer;
ott_status file_writer_open(mem *account, const char *path, file_writer **out); /* as file_write_atomic */
ott_status file_writer_open_output(mem *account, const char *path,
                                   file_writer **out); /* as file_write_output */
ott_status file_writer_append(file_writer *w, const void *data, int64_t bytes);
/* One of several processes that write the file together, each its own bytes: at `path` itself, in a folder that is
   staged. What is skipped is another's. An abandoned one leaves the file to the folder's end. */
ott_status file_writer_join(mem *account, const char *path, file_writer **out);
ott_status file_writer_skip(file_writer *w, int64_t bytes);
/* Replaces bytes that were appended before. */
ott_status file_writer_patch(file_writer *w, int64_t offset, const void *data, int64_t bytes);
ott_status file_writer_commit(file_writer *w); /* flush, fsync, rename; closes w whatever happens */
void file_writer_abandon(file_writer *w);      /* removes what was written; NULL is allowed */
/* Syncs every file of a folder and the folder itself. */
ott_status file_sync_folder(const char *path);
/* Makes a rename durable: syncs the folder that holds `path`. */
ott_status file_sync_parent(const char *path);

/* PATH.ottava-tmp-PROCESS, where a file or a folder is written that will be `path`. */
#define FILE_STAGING_MARK ".ottava-tmp-"
#define FILE_STAGING_NAME (PATH_MAX + 48)
void file_staging_name(const char *path, char out[FILE_STAGING_NAME]);

/* Positioned reads of a file that is too large to hold. */
typedef struct file_reader {
    int descriptor;
    int64_t bytes;
    const char *path;
} file_reader; /* path: borrowed */
ott_status file_reader_open(const char *path, file_reader *out);
ott_status file_reader_read(const file_reader *r, int64_t offset, void *data,
                            int64_t bytes); /* short reads are errors */
void file_reader_close(file_reader *r);
/* Writes all that `from` holds to path, as a file_writer does. */
ott_status file_copy(mem *account, const file_reader *from, const char *path);

/* CRC-32C (Castagnoli), continuing from `crc` (0 at the start). */
uint32_t file_crc32c(uint32_t crc, const void *data, int64_t bytes);
/* What a piece with this CRC adds to the CRC of a file in which `bytes` follow it: the file's is the xor of what all its
   pieces add, in any order. */
uint32_t file_crc32c_before(uint32_t crc, int64_t bytes);

/* What tells whether a file is still the one it was: its size, and a hash of all of it; above 16 MiB, of 64
   pieces of 64 KiB that lie evenly from its first byte to its last. */
typedef struct file_mark {
    int64_t bytes;
    uint64_t hash;
} file_mark;
ott_status file_mark_of(const char *path, file_mark *out);

#endif
