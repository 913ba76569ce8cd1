/*
 * formats/shards: a model's weights as Hugging Face stores them: one model.safetensors, or
 * model.safetensors.index.json with its shards. The reader checks all headers when it opens, the index
 * against the shards and the shards against it, and then holds only a few files open: a tensor is read in
 * pieces, so that a model of any size needs one small buffer. The writer splits as transformers does.
 */
#ifndef FORMATS_SHARDS_H
#define FORMATS_SHARDS_H

#include "formats/safetensors.h"

#define SHARDS_SINGLE_NAME   "model.safetensors"
#define SHARDS_INDEX_NAME    "model.safetensors.index.json"
#define SHARDS_DEFAULT_BYTES INT64_C(5000000000) /* data of one shard; transformers' "5GB" */

enum { SHARDS_OPEN_MOST = 4 }; /* files open at once */

/* ---- reading ---- */

/* A tensor and the file it lies in. */
typedef struct shard_tensor {
    const safetensors_entry *entry; /* name, format, shape and bytes, as its file's header gives them */
    int64_t file;                   /* for shards_file */
} shard_tensor;

typedef struct shards shards; /* not for several threads at once */

/*
 * `path`: a folder, an index (*.index.json) or one safetensors file. Errors name the file, the tensor and
 * what is wrong: OTT_ERR_NOT_FOUND (no weights, or a shard is missing), OTT_ERR_FORMAT (a damaged file; an
 * index and shards that disagree; a folder that holds both kinds).
 */
ott_status shards_open(mem *account, const char *path, shards **out);
void shards_close(shards *s);             /* NULL is allowed */
const char *shards_path(const shards *s); /* as it was given */
int64_t shards_file_count(const shards *s);
/* Its header; the data are read with shards_read. */
const safetensors *shards_file(const shards *s, int64_t file);
const char *shards_file_name(const shards *s, int64_t file); /* without the folder */
/* Tensors by file, then in the order of their data: the order to read them in. They live until
 * shards_close. */
int64_t shards_count(const shards *s);
const shard_tensor *shards_at(const shards *s, int64_t index);
const shard_tensor *shards_find(const shards *s, const char *name); /* NULL: absent */
/* Finds a weight and checks its shape, and that it is F32, BF16 or F16. OTT_ERR_NOT_FOUND (with the nearest
 * name), OTT_ERR_SHAPE, OTT_ERR_DTYPE. */
ott_status shards_expect(const shards *s, const char *name, int rank, const int64_t *shape,
                         const shard_tensor **out);
/* Bytes [offset, offset + bytes) of a tensor as they are stored. */
ott_status shards_read(shards *s, const shard_tensor *t, int64_t offset, int64_t bytes, void *out);
/* Can shards_read_floats read it? F32, BF16, F16 and the FP8 formats, whose codes are decoded without scale.
 */
bool shards_has_floats(const shard_tensor *t);
/* Elements [first, first + count), counted in row-major order, as fp32: of a tensor [rows, columns], row r
 * begins at r * columns. Needs no memory beside `out` [count]. */
ott_status shards_read_floats(shards *s, const shard_tensor *t, int64_t first, int64_t count, float *out);

/* Receives elements [first, first + count). */
typedef ott_status (*shards_sink)(void *user, int64_t first, int64_t count, const float *values);
/* Hands elements [first, first + count) to `sink` in pieces of at most `capacity` = floats in `buffer`. */
ott_status shards_stream(shards *s, const shard_tensor *t, int64_t first, int64_t count, float *buffer,
                         int64_t capacity, shards_sink sink, void *user);

/* ---- writing ---- */

typedef struct shards_writer shards_writer;

/*
 * Declares all tensors of a folder (made if absent). They are split, in the order given, into files of at
 * most max_bytes of data (0: the default; a larger tensor gets a file of its own). A folder that already
 * holds weights is refused: two models must not mix. Files appear one by one and the index last, so that a
 * folder cut short does not open; to replace a model, write into a staging folder (base/staging.h). Nothing passed in is
 * kept.
 */
ott_status shards_writer_open(mem *account, const char *folder, const safetensors_tensor *tensors,
                              int64_t count, int64_t max_bytes, const safetensors_pair *metadata,
                              int64_t metadata_count, shards_writer **out);
/* The same for one of `size` processes that write the folder together (safetensors_writer_join). Rank 0 opens it before
   the others do and commits after them. */
ott_status shards_writer_join(mem *account, const char *folder, const safetensors_tensor *tensors,
                              int64_t count, int64_t max_bytes, const safetensors_pair *metadata,
                              int64_t metadata_count, int rank, int size, shards_writer **out);
/* As of safetensors_writer: index into `tensors` of the one the next byte belongs to, or -1. */
int64_t shards_writer_next(const shards_writer *w);
ott_status shards_writer_append(shards_writer *w, const void *data, int64_t bytes);
ott_status shards_writer_skip(shards_writer *w, int64_t bytes);
/* Appends elements, converted to that tensor's format (F32, BF16 or F16, nearest even). */
ott_status shards_writer_append_floats(shards_writer *w, const float *values, int64_t count);
ott_status shards_writer_commit(shards_writer *w); /* closes w whatever happens */
void shards_writer_abandon(shards_writer *w);      /* removes what was written; NULL is allowed */

#endif
