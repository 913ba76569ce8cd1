/*
 * formats/gguf_write: a model as one file, for llama.cpp and what is built on it: GGUF version 3, little endian: metadata,
 * which say what the model is, names and shapes of the tensors, and their data. The writer streams: metadata and tensors are
 * declared first, then the data follow in the order they were declared in.
 */
#ifndef FORMATS_GGUF_WRITE_H
#define FORMATS_GGUF_WRITE_H

#include "base/str.h"

/* ---- metadata ---- */

/* Keys with values. Zero-initialise with {.bytes = {.account = m}}; free with gguf_metadata_free. A value that its type does not
   hold, and memory that is not to be had, are the error of gguf_writer_open. */
typedef struct gguf_metadata {
    str bytes; /* as in the file */
    int64_t count;
    int64_t list_remaining; /* elements that the last list still lacks */
    char bad_key[80];       /* the key of the first value that does not fit; empty: none */
} gguf_metadata;

typedef enum gguf_list { GGUF_LIST_INTEGERS, GGUF_LIST_REALS, GGUF_LIST_TEXTS } gguf_list;

void gguf_metadata_free(gguf_metadata *m);
void gguf_metadata_count(gguf_metadata *m, const char *key, int64_t value); /* in [0, 2^32) */
void gguf_metadata_real(gguf_metadata *m, const char *key, double value);   /* becomes fp32 */
void gguf_metadata_bool(gguf_metadata *m, const char *key, bool value);
void gguf_metadata_text(gguf_metadata *m, const char *key, const char *text, int64_t bytes);
/* So many elements, which follow one by one. */
void gguf_metadata_list(gguf_metadata *m, const char *key, gguf_list kind, int64_t count);
void gguf_metadata_add_integer(gguf_metadata *m, int32_t value);
void gguf_metadata_add_real(gguf_metadata *m, float value);
void gguf_metadata_add_text(gguf_metadata *m, const char *text, int64_t bytes);

/* ---- tensors ---- */

/* How elements lie in the file, by the number that the format has for it. Q8_0: 32 elements of a row share a scale s = amax / 127,
   rounded to f16; the codes are round(x / s), ties away from zero, as in ggml's reference quantizer. */
typedef enum gguf_type { GGUF_F32 = 0, GGUF_F16 = 1, GGUF_Q8_0 = 8, GGUF_BF16 = 30 } gguf_type;

enum {
    GGUF_MAX_RANK = 4,
    GGUF_NAME_BYTES = 64, /* of a tensor's name, its end included */
    GGUF_BLOCK = 32       /* elements of Q8_0 that share a scale */
};

typedef struct gguf_tensor {
    char name[GGUF_NAME_BYTES];
    gguf_type type;
    int rank;                     /* from 1 on */
    int64_t shape[GGUF_MAX_RANK]; /* elements of a row last, of which Q8_0 wants multiples of GGUF_BLOCK */
} gguf_tensor;

/* What its data take. OTT_ERR_ARGUMENT when no file can hold it. */
ott_status gguf_tensor_bytes(const gguf_tensor *t, int64_t *bytes);

typedef struct gguf_writer gguf_writer;

/* Writes the header under a staging name: nothing is visible at `path` before the commit. The tensors are borrowed until the
   writer is closed, the metadata only for the call. */
ott_status gguf_writer_open(mem *account, const char *path, const gguf_metadata *m,
                            const gguf_tensor *tensors, int64_t count, gguf_writer **out);
/* Index of the tensor that the next element belongs to, or -1 when all data are there. */
int64_t gguf_writer_next(const gguf_writer *w);
/* Appends elements of that tensor, converted to its type: any number of them, of Q8_0 whole blocks. OTT_ERR_FORMAT: a NaN or an
   infinity in Q8_0, which cannot hold it. */
ott_status gguf_writer_append(gguf_writer *w, const float *values, int64_t count);
ott_status gguf_writer_commit(gguf_writer *w); /* closes w whatever happens */
void gguf_writer_abandon(gguf_writer *w);      /* removes what was written; NULL is allowed */

#endif
