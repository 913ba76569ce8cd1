/*
 * folders/hf/fp8: exports the matrices of the blocks in FP8, as vLLM, SGLang and transformers read them:
 * codes, scales and quantization_config. Internal to src/folders.
 *
 * A scale is a dequantization factor: weight = code * scale. Serving programs use scale = amax / 448 and code
 * = weight / scale, each rounded once from the fp32 master, with amax at least 1e-12 (as vLLM and torchao).
 * With one scale per tensor, q, k and v share a scale, and so do gate and up: serving programs fuse these
 * matrices, and would otherwise requantize them to the largest scale.
 */
#ifndef FOLDERS_HF_FP8_H
#define FOLDERS_HF_FP8_H

#include "folders/hf/places.h"
#include "folders/hf/save.h"

/* How training casts some rows of a weight. If spec is not FP8, the rows are exported in high precision. */
typedef struct hf_fp8_cast {
    int32_t is_known; /* 1 if a rank has the layer, else 0 */
    /* The weight has only codes and no adapter to merge: codes and scales are copied (nn/linear/frozen.h). */
    int32_t keeps_codes;
    cast_spec spec;
} hf_fp8_cast;

/* A matrix of the folder that is written as codes and scales. */
typedef struct hf_fp8_matrix {
    const char *name;  /* tensor name, such as "model.layers.0.mlp.up_proj.weight"; borrowed from places */
    const char *fused; /* matrices with the same `fused` share one per-tensor scale */
    int first;         /* index in places->items of the matrix's first rows */
    int64_t rows, columns;
    int64_t block_rows, block_columns; /* shape of the block of elements that share a scale */
    int64_t scale_rows, scale_columns;
    /* Array [scale_rows, scale_columns]: amaxes while the matrices are measured, then scales. They are
       quantization factors if `trained` is set and keeps_codes is false, else dequantization factors. */
    float *scale;
    const cast_spec *trained; /* training's cast, for HF_SCALE_AS_TRAINED; else NULL */
    bool keeps_codes;         /* codes and scales are copied; elements are streamed as codes */
} hf_fp8_matrix;

typedef struct hf_fp8 {
    hf_method method;
    hf_scales granularity; /* AS_TRAINED is replaced by the granularity of the run's recipe */
    const hf_places *places;
    arena *memory;
    hf_fp8_cast *casts;      /* one cast for each item of places; NULL without AS_TRAINED */
    hf_fp8_matrix *matrices; /* `count` matrices in the order of places->items */
    int64_t count;
    const char **unquantized; /* names of block modules in high precision */
    int64_t unquantized_count;
} hf_fp8;

/*
 * Decides which matrices are exported in FP8. With AS_TRAINED it uses the specs of the model's linear layers
 * (call model_convert first); OTT_ERR_UNSUPPORTED if the file format cannot hold exactly what training
 * computed. `places` is borrowed. Collective; all ranks return the same error.
 */
ott_status hf_fp8_open(const hf_places *places, const checkpoint_ranks *ranks, hf_method method,
                       hf_scales scales, hf_fp8 *out);
void hf_fp8_close(hf_fp8 *f);
/* Returns the FP8 matrix that begins with the rows places->items[i]; NULL if there is none. */
hf_fp8_matrix *hf_fp8_find(const hf_fp8 *f, int i);
/* Reads all matrices and computes their scales. Collective: each rank reads its shards. buffer: HF_BUFFER
   elements. OTT_ERR_UNSUPPORTED, with the tensor's name, if a matrix has a NaN or an infinity. */
ott_status hf_fp8_measure(hf_fp8 *f, const checkpoint_ranks *ranks, float *buffer);
/* Sets the name and shape of matrix x's scale tensor in the folder. The name is allocated in `names`. */
ott_status hf_fp8_declare(const hf_fp8 *f, const hf_fp8_matrix *x, arena *names, const char **name, int *rank,
                          int64_t shape[2]);
/* Returns the dequantization factor at `index` of x's scale tensor in the folder. */
float hf_fp8_file_scale(const hf_fp8_matrix *x, int64_t index);
/* Quantizes elements [first, first + count) of matrix x. If x keeps its codes, `values` are decoded codes. */
void hf_fp8_encode(const hf_fp8_matrix *x, int64_t first, int64_t count, const float *values, uint8_t *codes);
/* Appends quantization_config as JSON. */
void hf_fp8_describe(const hf_fp8 *f, str *json);

#endif
