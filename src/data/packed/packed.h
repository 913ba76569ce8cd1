/* data/packed/packed: reads a text file from its start to its end. Decompresses gzip and Zstandard data,
   which it knows by their first bytes. Memory holds a part of the file. Positions count bytes of the text. */
#ifndef DATA_PACKED_PACKED_H
#define DATA_PACKED_PACKED_H

#include "base/mem.h"
#include "base/cancellation.h"
#include <limits.h>
#include <stdbool.h>

typedef struct packed_file packed_file;

/* path: borrowed until packed_close. */
ott_status packed_open(mem *account, const char *path, packed_file **out);
/* Reads up to `bytes` bytes. *got is smaller only at the end of the file. OTT_ERR_FORMAT: the compressed data
   is damaged or incomplete; the message names the file and the position in the compressed file. */
ott_status packed_read(packed_file *f, void *data, int64_t bytes, int64_t *got);
/* Skips up to `bytes` bytes. *skipped is smaller only at the end of the file. */
ott_status packed_skip(packed_file *f, const cancellation *w, int64_t bytes, int64_t *skipped);
int64_t packed_size(const packed_file *f); /* bytes of the file as it is stored */
int64_t packed_used(const packed_file *f); /* bytes of the stored file that are read */
bool packed_is_plain(const packed_file *f);
void packed_close(packed_file *f); /* does nothing for NULL */

/* Sets *bytes to the size of a file's text. A compressed file is read to its end for it. */
ott_status packed_text_bytes(mem *account, const char *path, const cancellation *w, int64_t *bytes);
/* Copies the path without its ".gz" or ".zst": the name that shows the format of the text. Returns `out`. */
const char *packed_text_name(const char *path, char out[PATH_MAX]);

#endif
