/*
 * formats/safetensors: tensors in a file, as Hugging Face stores them: 8 bytes of header length, a JSON header,
 * the data. The writer streams: names and shapes are declared first, then the data follow in the order the
 * writer asks for. The reader trusts nothing: a file that opens has tensors that tile its data exactly, so no
 * later read can go wrong.
 */
#ifndef FORMATS_SAFETENSORS_H
#define FORMATS_SAFETENSORS_H

#include "base/mem.h"
#include <stdbool.h>

#define SAFETENSORS_MAX_RANK   8
#define SAFETENSORS_MAX_HEADER 100000000 /* bytes, the format's own limit */

/* ---- reading ---- */

typedef struct safetensors_entry {
    const char *name;
    const char *format; /* element format as the file names it: "BF16", "F8_E4M3", "F64", ... */
    ott_dtype dtype;    /* the same, or OTT_DTYPE_COUNT when it is none of ours (BOOL, F64, ...) */
    int rank;           /* 0: a scalar */
    int64_t shape[SAFETENSORS_MAX_RANK];
    int64_t begin, bytes; /* where the tensor lies, counted from the start of the data */
} safetensors_entry;

typedef struct safetensors_pair {
    const char *key, *value; /* UTF-8 */
} safetensors_pair;

typedef struct safetensors safetensors;

/* Reads and checks the header. Errors (OTT_ERR_FORMAT) name the file, the tensor and what is wrong with it.
 */
ott_status safetensors_open(mem *account, const char *path, safetensors **out);
void safetensors_close(safetensors *f); /* NULL is allowed */
const char *safetensors_path(const safetensors *f);
/* Tensors in the order of their data. Entries live until safetensors_close. */
int64_t safetensors_count(const safetensors *f);
const safetensors_entry *safetensors_at(const safetensors *f, int64_t index);
const safetensors_entry *safetensors_find(const safetensors *f, const char *name); /* NULL: absent */
/* Finds `name` and checks format and shape: OTT_ERR_NOT_FOUND (with the nearest name), OTT_ERR_DTYPE or
 * OTT_ERR_SHAPE. */
ott_status safetensors_expect(const safetensors *f, const char *name, ott_dtype dtype, int rank,
                              const int64_t *shape, const safetensors_entry **out);
/* OTT_ERR_SHAPE when an entry of f has another shape. */
ott_status safetensors_check_shape(const safetensors *f, const safetensors_entry *e, int rank,
                                   const int64_t *shape);
int64_t safetensors_elements(const safetensors_entry *e);
/* A value of __metadata__, or NULL. */
const char *safetensors_metadata(const safetensors *f, const char *key);
const safetensors_pair *safetensors_metadata_pairs(const safetensors *f, int64_t *count);
/* Closes the file and keeps what its header says; reading needs safetensors_reopen first, which opens it again
 * unless it is open. OTT_ERR_IO when another file has taken its place. */
void safetensors_suspend(safetensors *f);
ott_status safetensors_reopen(safetensors *f);
/* Bytes [offset, offset + bytes) of a tensor; the data of an entry need no alignment in the file. */
ott_status safetensors_read(const safetensors *f, const safetensors_entry *e, int64_t offset, int64_t bytes,
                            void *out);

/* ---- writing ---- */

typedef struct safetensors_tensor {
    const char *name; /* UTF-8 */
    ott_dtype dtype;
    int rank;
    int64_t shape[SAFETENSORS_MAX_RANK];
} safetensors_tensor;

typedef struct safetensors_writer safetensors_writer;

/*
 * Declares all tensors and writes the header under a staging name: nothing is visible at `path` before the commit.
 * `metadata` joins
 * {"format": "pt"} in __metadata__ (transformers refuses files without it). Nothing passed in is kept.
 */
ott_status safetensors_writer_open(mem *account, const char *path, const safetensors_tensor *tensors,
                                   int64_t count, const safetensors_pair *metadata, int64_t metadata_count,
                                   safetensors_writer **out);
/* The same for one of `size` processes that write the file together, at `path` itself, in a folder that is staged: each
   declares all tensors, appends its own bytes and skips what others append; rank 0 writes the header. */
ott_status safetensors_writer_join(mem *account, const char *path, const safetensors_tensor *tensors,
                                   int64_t count, const safetensors_pair *metadata, int64_t metadata_count,
                                   int rank, int size, safetensors_writer **out);
/* Index into `tensors` of the one the next byte belongs to, or -1 when all data are there. Tensors without
   elements are passed over. The order is the reference writer's: widest element format first, then by name.
 */
int64_t safetensors_writer_next(const safetensors_writer *w);
/* Appends bytes of that tensor; it may come in any number of pieces, none reaching into the next tensor. */
ott_status safetensors_writer_append(safetensors_writer *w, const void *data, int64_t bytes);
ott_status safetensors_writer_skip(safetensors_writer *w, int64_t bytes);
ott_status safetensors_writer_commit(safetensors_writer *w); /* closes w whatever happens */
void safetensors_writer_abandon(safetensors_writer *w);      /* removes what was written; NULL is allowed */

#endif
