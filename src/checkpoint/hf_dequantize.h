/*
 * checkpoint/hf_dequantize: weights of a Hugging Face folder that are FP8 codes with scales, back to fp32:
 * weight = code * scale, rounded once. Read are the layouts that checkpoint/hf_fp8 writes: a scale for the
 * tensor, for each row, or for each block of 128x128, under NAME_scale or NAME_scale_inv. Internal to this
 * floor.
 */
#ifndef CHECKPOINT_HF_DEQUANTIZE_H
#define CHECKPOINT_HF_DEQUANTIZE_H

#include "formats/shards.h"

enum { HF_BLOCK = 128, HF_NAME_MOST = 256 };

typedef struct hf_dequantize {
    mem *account;
    float *scale;                                     /* [rows of blocks, scale_columns] */
    int64_t columns;                                  /* of the weight */
    int64_t block_rows, block_columns, scale_columns; /* elements that share a scale; blocks in a row */
} hf_dequantize;

/* The scales of a weight. Errors name it and its scale: OTT_ERR_FORMAT when there is none, there are two, or
   one of them is no finite number of 0 or above; OTT_ERR_SHAPE; OTT_ERR_DTYPE (not F32, BF16 or F16). */
ott_status hf_dequantize_open(mem *account, shards *s, const shard_tensor *weight, hf_dequantize *out);
void hf_dequantize_close(hf_dequantize *d);
/* Elements [first, first + count) of the weight, in row-major order: codes before, values after. */
void hf_dequantize_apply(const hf_dequantize *d, int64_t first, int64_t count, float *values);

/* The weight that a tensor of this name would belong to: by its scale, or the scale of the layer's input. */
bool hf_dequantize_weight_of(const char *name, char weight[HF_NAME_MOST]);

#endif
