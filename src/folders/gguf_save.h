/*
 * folders/gguf_save: writes a model as a GGUF file for llama.cpp, with adapters merged into the weights.
 * The calling process must hold the full model.
 */
#ifndef FOLDERS_GGUF_SAVE_H
#define FOLDERS_GGUF_SAVE_H

#include "base/log.h"
#include "formats/gguf/gguf_write.h"
#include "model/model.h"

typedef struct gguf_save_options {
    gguf_type type; /* format of matrices; vectors, norms and routers are always F32 */
    /* format of a matrix that cannot be Q8_0 because its rows are no multiple of 32 long: F32, BF16 or F16 */
    gguf_type fallback_type;
    const logger *log;
} gguf_save_options;

typedef struct gguf_save_summary {
    const char *architecture;
    /* number of all tensors; number of tensors in fallback_type, not Q8_0; bytes of all tensor data */
    int64_t tensors, fallback_count, bytes;
} gguf_save_summary;

/* Writes the model to `path`. `metadata` already describes the tokenizer; this call adds the model's keys.
   OTT_ERR_UNSUPPORTED if llama.cpp has no architecture for the model. On failure `path` is untouched. */
ott_status gguf_model_save(model *m, const gguf_save_options *o, gguf_metadata *metadata, const char *path,
                           gguf_save_summary *out);

#endif
