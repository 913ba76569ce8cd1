/*
 * checkpoint/hf_save: a model to a Hugging Face folder, which transformers, vLLM and hf_model_load read:
 * weights, config.json, and, with the folder the model came from, its other files.
 */
#ifndef CHECKPOINT_HF_SAVE_H
#define CHECKPOINT_HF_SAVE_H

#include "base/log.h"
#include "model/model.h"

/* quantization_config.quant_method of an FP8 folder: "fp8" or "compressed-tensors". */
typedef enum hf_method { HF_METHOD_FP8, HF_METHOD_COMPRESSED } hf_method;

/* What shares a scale: a matrix (joined ones share theirs), an output channel, 128x128 elements; or as the
   recipes of the model's linear layers say. */
typedef enum hf_scales { HF_SCALE_TENSOR, HF_SCALE_CHANNEL, HF_SCALE_BLOCK, HF_SCALE_AS_TRAINED } hf_scales;

typedef struct hf_save_options {
    /* The folder the model came from: its config.json is taken, with unknown keys kept, and every other file
       of it copied as it is. NULL: none. */
    const char *original;
    ott_dtype dtype; /* of what does not become FP8: F32, BF16 or F16 */
    bool fp8;
    hf_method method;      /* only with fp8; hf_fp8.h says what is done */
    hf_scales granularity; /* AS_TRAINED: the model is converted (model_convert) */
    const logger *log;
    group *ranks; /* that have the model between them and all call this; NULL: one */
} hf_save_options;

typedef struct hf_save_summary {
    const char *family;                      /* under which the model was written */
    int64_t tensors, matrices, kept, copied; /* in all; in FP8; of the blocks, not in FP8; files copied */
    int64_t bytes;                           /* of all tensors */
    hf_scales granularity;                   /* AS_TRAINED resolved */
    const char *readers;                     /* programs that read an FP8 folder */
} hf_save_summary;

/* The family a model is written under: that of its configuration, or, if config.json cannot say under it what the model has
   (biases of q, k, v; norms of heads; a window), the first that can; OTT_ERR_UNSUPPORTED when there is none. */
ott_status hf_save_family(const model_options *o, const family **out);

/*
 * Adapters are merged into the weights: W + scale B A, rounded once. `folder` must not hold a model yet; what is there after a
 * failure is no model. Of several ranks each writes its parts of the files, on a file system that all see, and all have the
 * same error; none ever has more of a tensor than its own.
 */
ott_status hf_model_save(model *m, const hf_save_options *o, const char *folder, hf_save_summary *out);

#endif
