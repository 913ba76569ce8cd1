/* data/text_file/text_file: reads a text file from its start to its end. Decompresses gzip and Zstandard
   data, which it recognizes by their first bytes. Memory holds a part of the file. */
#ifndef DATA_TEXT_FILE_TEXT_FILE_H
#define DATA_TEXT_FILE_TEXT_FILE_H

#include "base/mem.h"
#include "base/cancellation.h"
#include <limits.h>
#include <stdbool.h>

typedef struct text_file text_file;

/* path: borrowed until text_file_close. */
ott_status text_file_open(mem *account, const char *path, text_file **out);
/* Reads up to `bytes` bytes. *got is smaller only at the end of the file. OTT_ERR_FORMAT: the compressed data
   is damaged or incomplete; the message names the file and the position in the compressed file. */
ott_status text_file_read(text_file *f, void *data, int64_t bytes, int64_t *got);
/* Skips up to `bytes` bytes. *skipped is smaller only at the end of the file. */
ott_status text_file_skip(text_file *f, const cancellation *w, int64_t bytes, int64_t *skipped);
int64_t text_file_size(const text_file *f);  /* size of the file on disk */
int64_t text_file_used(const text_file *f);  /* bytes of the file on disk that have been used */
bool text_file_is_plain(const text_file *f); /* true if the file is not compressed */
void text_file_close(text_file *f);          /* does nothing for NULL */

/* Sets *bytes to the size of a file's text. Decompresses a compressed file to its end. */
ott_status text_file_bytes(mem *account, const char *path, const cancellation *w, int64_t *bytes);
/* Copies the path without its ".gz" or ".zst": the name that shows the format of the text. Returns `out`. */
const char *text_file_plain_name(const char *path, char out[PATH_MAX]);

#endif
