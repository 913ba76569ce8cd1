/*
 * folders/hf/save: writes a model as a Hugging Face folder that transformers, vLLM and hf_model_load read:
 * weights, config.json and the other files (tokenizer, ...) of the original folder.
 */
#ifndef FOLDERS_HF_SAVE_H
#define FOLDERS_HF_SAVE_H

#include "base/log.h"
#include "model/model.h"

/* quantization_config.quant_method of an FP8 folder: "fp8" or "compressed-tensors". */
typedef enum hf_method { HF_METHOD_FP8, HF_METHOD_COMPRESSED } hf_method;

/* The elements that share a scale. TENSOR: a matrix, and the matrices that serving programs fuse with it.
   CHANNEL: an output channel. BLOCK: 128x128 elements. AS_TRAINED: the same elements as in training. */
typedef enum hf_scales { HF_SCALE_TENSOR, HF_SCALE_CHANNEL, HF_SCALE_BLOCK, HF_SCALE_AS_TRAINED } hf_scales;

typedef struct hf_save_options {
    /* Folder of the original model, or NULL. Its other files and unknown keys of config.json are copied. */
    const char *original;
    ott_dtype dtype; /* format of tensors that are not FP8: F32, BF16 or F16 */
    bool fp8;
    hf_method method;      /* method and granularity are used only with fp8 (hf_fp8.h) */
    hf_scales granularity; /* HF_SCALE_AS_TRAINED needs a converted model (model_convert) */
    const logger *log;
    group *ranks; /* the ranks of the model, which all call hf_model_save; NULL: one rank */
} hf_save_options;

typedef struct hf_save_summary {
    const char *family; /* family that the folder was written for */
    /* numbers of all tensors, FP8 matrices, other matrices of blocks, files copied from the original */
    int64_t tensors, matrices, kept, copied;
    int64_t bytes;         /* bytes of all tensors */
    hf_scales granularity; /* the granularity that HF_SCALE_AS_TRAINED meant */
    const char *readers;   /* programs that can read the FP8 folder; NULL without FP8 */
} hf_save_summary;

/* Finds the family whose config.json describes the model: the configuration's family if possible, else the
   first other one. Families differ in biases, QK norms and windows. OTT_ERR_UNSUPPORTED if there is none. */
ott_status hf_save_family(const model_options *o, const family **out);

/*
 * Writes the model to `folder`, which must not hold a model yet. Adapters are merged: W + scale B A, rounded
 * once. After a failure the folder is not loadable. Collective over o->ranks: each rank writes its shards, so
 * they need a shared file system. All ranks return the same error. No rank gathers a full tensor.
 */
ott_status hf_model_save(model *m, const hf_save_options *o, const char *folder, hf_save_summary *out);

#endif
