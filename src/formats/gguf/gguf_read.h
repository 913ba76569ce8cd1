/* formats/gguf/gguf_read: reads the header of a GGUF file (versions 2 and 3, little endian): metadata and the
   table of tensors. All counts, lengths and offsets are checked, so later reads stay in the file. Source:
   docs/gguf.md of ggml. */
#ifndef FORMATS_GGUF_GGUF_READ_H
#define FORMATS_GGUF_GGUF_READ_H

#include "base/arena.h"
#include "formats/safetensors/safetensors.h"
#include <jansson.h>

typedef struct gguf_file {
    mem *account;
    const char *path;
    json_t *metadata;           /* object: a number, truth value, text or list for each key */
    arena *texts;               /* owns path and names */
    safetensors_entry *tensors; /* [count], sorted by offset, with the row length last in `shape` */
    int64_t count;
    int64_t data_begin; /* offset of the first tensor in the file */
} gguf_file;

/* OTT_ERR_FORMAT and OTT_ERR_UNSUPPORTED name the file, the key or tensor, and the problem. *out needs
   gguf_close also after an error. */
ott_status gguf_open(mem *account, const char *path, gguf_file *out);
void gguf_close(gguf_file *f);
const safetensors_entry *gguf_find(const gguf_file *f, const char *name); /* NULL: unknown name */

#endif
