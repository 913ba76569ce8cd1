/* formats/safetensors/safetensors: reads and writes safetensors files: 8 bytes header length, a JSON header,
   the tensor data. The writer streams: first declare names and shapes, then append the data in the order that
   the writer asks for. The reader validates the whole header when it opens a file: the tensors cover the data
   exactly, without gaps or overlaps. So later reads stay in range. */
#ifndef FORMATS_SAFETENSORS_SAFETENSORS_H
#define FORMATS_SAFETENSORS_SAFETENSORS_H

#include "base/mem.h"
#include "formats/gguf/gguf_blocks.h"
#include <stdbool.h>

#define SAFETENSORS_MAX_RANK   8
#define SAFETENSORS_MAX_HEADER 100000000 /* maximum bytes of a header, by the format */

/* ---- reading ---- */

typedef struct safetensors_entry {
    const char *name;
    const char *format; /* element format as in the file: "BF16", "F8_E4M3", "F64", ... */
    ott_dtype dtype;    /* `format` as Ottava's type; OTT_DTYPE_COUNT if there is none (BOOL, F64, ...) */
    int rank;           /* number of dimensions; 0: a scalar */
    int64_t shape[SAFETENSORS_MAX_RANK];
    /* where the tensor's data begins, counted from the start of the data section; number of bytes */
    int64_t begin, bytes;
    const gguf_format *packed; /* block format of a GGUF tensor; NULL: elements are stored separately */
} safetensors_entry;

typedef struct safetensors_pair {
    const char *key, *value; /* texts in UTF-8 */
} safetensors_pair;

typedef struct safetensors safetensors;

/* Reads and checks the header. OTT_ERR_FORMAT names the file, the tensor and the problem. */
ott_status safetensors_open(mem *account, const char *path, safetensors **out);
/* Opens a GGUF file, so that its tensors are read by the same functions. Its general.* keys are metadata. */
ott_status safetensors_open_gguf(mem *account, const char *path, safetensors **out);
bool safetensors_is_gguf(const safetensors *f);
void safetensors_close(safetensors *f); /* NULL is allowed */
const char *safetensors_path(const safetensors *f);
/* Tensors in the order of their data. Entries are valid until safetensors_close. */
int64_t safetensors_count(const safetensors *f);
const safetensors_entry *safetensors_at(const safetensors *f, int64_t index);
const safetensors_entry *safetensors_find(const safetensors *f, const char *name); /* NULL: unknown name */
/* Finds `name` and checks its format and shape. OTT_ERR_NOT_FOUND (with the nearest name), OTT_ERR_DTYPE,
   OTT_ERR_SHAPE. */
ott_status safetensors_expect(const safetensors *f, const char *name, ott_dtype dtype, int rank,
                              const int64_t *shape, const safetensors_entry **out);
/* Returns OTT_ERR_SHAPE if entry e of file f does not have this shape. */
ott_status safetensors_check_shape(const safetensors *f, const safetensors_entry *e, int rank,
                                   const int64_t *shape);
int64_t safetensors_elements(const safetensors_entry *e);
/* The value of `key` in __metadata__; NULL if the key is missing. */
const char *safetensors_metadata(const safetensors *f, const char *key);
const safetensors_pair *safetensors_metadata_pairs(const safetensors *f, int64_t *count);
/* safetensors_suspend closes the file descriptor but keeps the header. Before reading, safetensors_reopen
   opens the file again, if needed; OTT_ERR_IO if the file was replaced. */
void safetensors_suspend(safetensors *f);
ott_status safetensors_reopen(safetensors *f);
/* Reads bytes [offset, offset + bytes) of a tensor. Data in the file may be unaligned. */
ott_status safetensors_read(const safetensors *f, const safetensors_entry *e, int64_t offset, int64_t bytes,
                            void *out);

/* ---- writing ---- */

typedef struct safetensors_tensor {
    const char *name; /* text in UTF-8 */
    ott_dtype dtype;
    int rank;
    int64_t shape[SAFETENSORS_MAX_RANK];
} safetensors_tensor;

typedef struct safetensors_writer safetensors_writer;

/* Declares all tensors and writes the header to a temporary file. safetensors_writer_commit creates
   `path`. `metadata` is added to {"format": "pt"} in __metadata__, which transformers requires. No
   argument is kept. */
ott_status safetensors_writer_open(mem *account, const char *path, const safetensors_tensor *tensors,
                                   int64_t count, const safetensors_pair *metadata, int64_t metadata_count,
                                   safetensors_writer **out);
/* Opens a file that `size` processes write together. Each declares all tensors, appends its own bytes and
   skips the others' bytes; rank 0 writes the header. `path` is written directly: it must be in a staging
   folder. */
ott_status safetensors_writer_join(mem *account, const char *path, const safetensors_tensor *tensors,
                                   int64_t count, const safetensors_pair *metadata, int64_t metadata_count,
                                   int rank, int size, safetensors_writer **out);
/* Declares all tensors of a folder of shards, which is created if needed. The tensors are split, in the given
   order, into files of at most max_bytes of data (0: SHARDS_DEFAULT_BYTES). A larger tensor gets its own.
   OTT_ERR_ARGUMENT if the folder already has weights. Each file appears when it is complete, and the index
   last, so an incomplete folder cannot be opened. To replace a model, write to a staging folder
   (base/staging.h). `size` processes write the folder together, as in safetensors_writer_join. Rank 0 must
   open the writer before the other ranks and commit after them. */
ott_status safetensors_writer_join_shards(mem *account, const char *folder, const safetensors_tensor *tensors,
                                          int64_t count, int64_t max_bytes, const safetensors_pair *metadata,
                                          int64_t metadata_count, int rank, int size,
                                          safetensors_writer **out);
/* Returns the index in `tensors` of the tensor to append next; -1 if all data is written. The order in a file
   is that of Hugging Face's library: widest element format first, then by name. Empty tensors are skipped. */
int64_t safetensors_writer_next(const safetensors_writer *w);
/* Appends bytes to the tensor that safetensors_writer_next returns, but not more than it still lacks. */
ott_status safetensors_writer_append(safetensors_writer *w, const void *data, int64_t bytes);
ott_status safetensors_writer_skip(safetensors_writer *w, int64_t bytes);
/* Appends elements, converted to the tensor's format (F32, BF16 or F16, round to nearest even). */
ott_status safetensors_writer_append_floats(safetensors_writer *w, const float *values, int64_t count);
ott_status safetensors_writer_commit(safetensors_writer *w); /* closes w, also after an error */
void safetensors_writer_abandon(safetensors_writer *w);      /* also deletes shards; NULL is allowed */

#endif
