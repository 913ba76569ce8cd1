/* formats/gguf/gguf_write: writes GGUF version 3 files (little endian), the model format of llama.cpp:
   metadata, tensor names and shapes, tensor data. The writer streams: first declare metadata and tensors,
   then append the data in the order of declaration. */
#ifndef FORMATS_GGUF_GGUF_WRITE_H
#define FORMATS_GGUF_GGUF_WRITE_H

#include "base/text/str.h"
#include "formats/gguf/gguf_constants.h"
#include <string.h>

/* ---- metadata ---- */

/* Metadata as key-value pairs. Zero-initialize with {.bytes = {.account = m}}; free with gguf_metadata_free.
   gguf_writer_open reports values out of range and failed allocations. */
typedef struct gguf_metadata {
    str bytes; /* the pairs, encoded as in the file */
    int64_t count;
    int64_t list_remaining; /* elements of the last list that are not added yet */
    char bad_key[80];       /* first key with a value out of range, and the value; "" if none */
} gguf_metadata;

typedef enum gguf_list { GGUF_LIST_INTEGERS, GGUF_LIST_REALS, GGUF_LIST_TEXTS } gguf_list;

void gguf_metadata_free(gguf_metadata *m);
void gguf_metadata_count(gguf_metadata *m, const char *key, int64_t value); /* value in [0, 2^32) */
void gguf_metadata_real(gguf_metadata *m, const char *key, double value);   /* stored as fp32 */
void gguf_metadata_bool(gguf_metadata *m, const char *key, bool value);
void gguf_metadata_text(gguf_metadata *m, const char *key, const char *text, int64_t bytes);
static inline void gguf_metadata_string(gguf_metadata *m, const char *key, const char *text) {
    gguf_metadata_text(m, key, text, (int64_t)strlen(text));
}
/* Begins a list of `count` elements. Then call the function below for the list's kind once per element. */
void gguf_metadata_list(gguf_metadata *m, const char *key, gguf_list kind, int64_t count);
void gguf_metadata_add_integer(gguf_metadata *m, int32_t value);
void gguf_metadata_add_real(gguf_metadata *m, float value);
void gguf_metadata_add_text(gguf_metadata *m, const char *text, int64_t bytes);

/* ---- tensors ---- */

/* Q8_0: 32 elements of a row share a scale s = amax / 127, rounded to f16. The codes are round(x / s), ties
   away from zero, as in ggml's reference quantizer. */
enum {
    GGUF_NAME_BYTES = 64, /* maximum length of a tensor name, including the NUL */
    GGUF_BLOCK = 32       /* elements that share a Q8_0 scale */
};

typedef struct gguf_tensor {
    char name[GGUF_NAME_BYTES];
    gguf_type type;               /* F32, F16, BF16 or Q8_0 */
    int rank;                     /* number of dimensions, at least 1 */
    int64_t shape[GGUF_MAX_RANK]; /* row length last, for Q8_0 a multiple of GGUF_BLOCK */
} gguf_tensor;

/* Bytes of the tensor's data. OTT_ERR_ARGUMENT if the shape is invalid for its type. */
ott_status gguf_tensor_bytes(const gguf_tensor *t, int64_t *bytes);

typedef struct gguf_writer gguf_writer;

/* Writes the header to a temporary file, which gguf_writer_commit renames to `path`. The tensors must live
   until the writer is closed. The metadata is not used after this call. */
ott_status gguf_writer_open(mem *account, const char *path, const gguf_metadata *m,
                            const gguf_tensor *tensors, int64_t count, gguf_writer **out);
/* Returns the index of the tensor whose data gguf_writer_append appends next; -1 if all data is written. */
int64_t gguf_writer_next(const gguf_writer *w);
/* Appends `count` elements to the tensor that gguf_writer_next returns, and converts them to its type. For
   Q8_0, `count` must be a multiple of GGUF_BLOCK. OTT_ERR_FORMAT for a NaN or an infinity in Q8_0. */
ott_status gguf_writer_append(gguf_writer *w, const float *values, int64_t count);
ott_status gguf_writer_commit(gguf_writer *w); /* closes w, also after an error */
void gguf_writer_abandon(gguf_writer *w);      /* deletes the temporary file; NULL is allowed */

#endif
