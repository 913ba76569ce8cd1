/*
 * checkpoint/gguf_save: a model as a GGUF file, which llama.cpp reads, adapters merged into its weights. One process writes it, and
 * has all of the model.
 */
#ifndef CHECKPOINT_GGUF_SAVE_H
#define CHECKPOINT_GGUF_SAVE_H

#include "base/log.h"
#include "formats/gguf_write.h"
#include "model/model.h"

typedef struct gguf_save_options {
    gguf_type type; /* of the matrices; vectors, norms and routers are F32 */
    /* F32, BF16 or F16: of matrices that Q8_0 does not fit, whose rows are no whole blocks */
    gguf_type fallback_type;
    const logger *log;
} gguf_save_options;

typedef struct gguf_save_summary {
    const char *architecture;
    int64_t tensors, fallback_count,
        bytes; /* in all; of them, those in `other` in place of Q8_0; of all their data */
} gguf_save_summary;

/* Adds to the metadata, which say what the tokenizer is, what the model is. OTT_ERR_UNSUPPORTED: llama.cpp has no architecture for
   it. `path` is complete, or untouched when this fails. */
ott_status gguf_model_save(model *m, const gguf_save_options *o, gguf_metadata *metadata, const char *path,
                           gguf_save_summary *out);

#endif
