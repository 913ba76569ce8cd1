/*
 * folders/hf/dequantize: dequantizes FP8 weights of a Hugging Face folder to fp32: weight = code * scale,
 * rounded once. Reads the layouts that folders/hf/fp8 writes: one scale per tensor, per row or per 128x128
 * block, stored as NAME_scale or NAME_scale_inv. Internal to src/folders.
 */
#ifndef FOLDERS_HF_DEQUANTIZE_H
#define FOLDERS_HF_DEQUANTIZE_H

#include "formats/safetensors/shards.h"

enum { HF_BLOCK = 128, HF_NAME_MOST = 256 };

typedef struct hf_dequantize {
    mem *account;
    float *scale;    /* scales, one row for each row of blocks */
    int64_t columns; /* columns of the weight */
    /* elements that share a scale: block_rows x block_columns; scale_columns: scales in a row of blocks */
    int64_t block_rows, block_columns, scale_columns;
} hf_dequantize;

/* Reads the scales of a weight. Errors name the weight and the scale tensor. OTT_ERR_FORMAT if there is no
   scale, if there are two, or if a value is negative or not finite; OTT_ERR_SHAPE if the scales do not fit
   the weight; OTT_ERR_DTYPE if the scales are not F32, BF16 or F16. */
ott_status hf_dequantize_open(mem *account, shards *s, const shard_tensor *weight, hf_dequantize *out);
void hf_dequantize_close(hf_dequantize *d);
/* Multiplies elements [first, first + count) of the weight by their scales. values: decoded codes. */
void hf_dequantize_apply(const hf_dequantize *d, int64_t first, int64_t count, float *values);

/* True if `name` is the name of a weight scale or an input scale; stores the name of its weight. */
bool hf_dequantize_weight_of(const char *name, char weight[HF_NAME_MOST]);

#endif
