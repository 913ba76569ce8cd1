/* formats/safetensors/shards: a model's weights: model.safetensors, or several shards with
   model.safetensors.index.json, or a GGUF file. The reader checks all headers against the index, and keeps
   only a few files open. Tensors are read in pieces, so any model needs only a small buffer. */
#ifndef FORMATS_SAFETENSORS_SHARDS_H
#define FORMATS_SAFETENSORS_SHARDS_H

#include "formats/safetensors/safetensors.h"

#define SHARDS_SINGLE_NAME   "model.safetensors"
#define SHARDS_INDEX_NAME    "model.safetensors.index.json"
#define SHARDS_DEFAULT_BYTES INT64_C(5000000000) /* bytes of data per shard, transformers' "5GB" */

enum { SHARDS_OPEN_MOST = 4 }; /* maximum number of open files */

/* A tensor and its file. */
typedef struct shard_tensor {
    const safetensors_entry *entry; /* name, format, shape and bytes, from the file's header */
    int64_t file;                   /* index of the file, for shards_file */
} shard_tensor;

typedef struct shards shards; /* not thread-safe */

/* Opens a folder, an index (*.index.json), one safetensors file or one GGUF file. Errors name the file, the
   tensor and the problem: OTT_ERR_NOT_FOUND (no weights, or a missing shard), OTT_ERR_FORMAT (a damaged file;
   index and shards disagree; a folder with both a single file and an index). */
ott_status shards_open(mem *account, const char *path, shards **out);
void shards_close(shards *s);             /* NULL is allowed */
const char *shards_path(const shards *s); /* the path that was passed to shards_open */
int64_t shards_file_count(const shards *s);
/* The header of a file. Read the file's data with shards_read. */
const safetensors *shards_file(const shards *s, int64_t file);
const char *shards_file_name(const shards *s, int64_t file); /* name without the folder */
/* Tensors by file, then by offset: the fastest order to read. They are valid until shards_close. */
int64_t shards_count(const shards *s);
const shard_tensor *shards_at(const shards *s, int64_t index);
const shard_tensor *shards_find(const shards *s, const char *name); /* NULL if `name` is missing */
bool shards_are_gguf(const shards *s); /* true: tensors have GGUF's names and shapes */
/* Finds a weight and checks that it is F32, BF16, F16 or a GGUF block format, and has this shape.
   OTT_ERR_NOT_FOUND (with the nearest name), OTT_ERR_SHAPE, OTT_ERR_DTYPE. */
ott_status shards_expect(const shards *s, const char *name, int rank, const int64_t *shape,
                         const shard_tensor **out);
/* Reads bytes [offset, offset + bytes) of a tensor as stored. */
ott_status shards_read(shards *s, const shard_tensor *t, int64_t offset, int64_t bytes, void *out);
/* True if shards_read_floats can read the tensor's format: F32, BF16, F16, FP8, E8M0, or GGUF's. */
bool shards_has_floats(const shard_tensor *t);
/* Reads elements [first, first + count) in row-major order as fp32; FP8 codes are decoded without scales.
   Needs no memory beyond out[count]. */
ott_status shards_read_floats(shards *s, const shard_tensor *t, int64_t first, int64_t count, float *out);

/* Receives elements [first, first + count) of a tensor. */
typedef ott_status (*shards_sink)(void *user, int64_t first, int64_t count, const float *values);
/* Reads elements [first, first + count) in pieces and passes each to `sink`. `buffer` has `capacity`
   floats. */
ott_status shards_stream(shards *s, const shard_tensor *t, int64_t first, int64_t count, float *buffer,
                         int64_t capacity, shards_sink sink, void *user);

#endif
