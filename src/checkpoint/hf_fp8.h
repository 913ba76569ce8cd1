/*
 * checkpoint/hf_fp8: weights in FP8 as serving programs read them (vLLM, SGLang, transformers): codes and
 * scales of the matrices inside the blocks, and the quantization_config that says so. Internal to this floor.
 *
 * A scale multiplies on the way back: weight = code * scale. The serving rule is scale = amax / 448, code =
 * weight / scale, both rounded once, from the fp32 masters; amax is at least 1e-12, as in vLLM and torchao.
 * Under one scale a tensor, q, k and v share theirs, and so do gate and up: serving programs join these
 * matrices, and would otherwise quantize them again to the largest scale.
 */
#ifndef CHECKPOINT_HF_FP8_H
#define CHECKPOINT_HF_FP8_H

#include "checkpoint/hf_places.h"
#include "checkpoint/hf_save.h"

typedef struct hf_fp8_options {
    hf_method method;
    hf_scales granularity;
} hf_fp8_options;

/* How the layer of a place casts its weight in training; of a format that is not FP8: the weight stays as it is. */
typedef struct hf_fp8_cast {
    int32_t is_known; /* by the ranks that were asked */
    /* there is no master, and no adapter to merge: codes and scales stay what they are (nn/frozen.h) */
    int32_t keeps_codes;
    cast_spec spec;
} hf_fp8_cast;

/* A matrix of the folder that becomes codes and scales. */
typedef struct hf_fp8_matrix {
    const char *name;  /* of the tensor, "model.layers.0.mlp.up_proj.weight"; borrowed from the places */
    const char *fused; /* matrices with the same one share the scale of a tensor */
    int first;         /* the place it begins with */
    int64_t rows, columns;
    int64_t block_rows, block_columns; /* elements that share a scale */
    int64_t scale_rows, scale_columns;
    /* [scale_rows, scale_columns]: amax, then the scale: what codes are multiplied by on the way back or,
       trained, what weights are multiplied by on the way there. */
    float *scale;
    const cast_spec *trained; /* the cast of training, for HF_SCALE_AS_TRAINED; else NULL */
    /* as hf_fp8_cast: `scale` is what codes are multiplied by, and elements are streamed as codes */
    bool keeps_codes;
} hf_fp8_matrix;

typedef struct hf_fp8 {
    hf_fp8_options options; /* with AS_TRAINED resolved to the granularity of the run's recipe */
    const hf_places *places;
    arena *memory;
    hf_fp8_cast *casts;      /* of each place, with AS_TRAINED; else NULL */
    hf_fp8_matrix *matrices; /* in the order of the places */
    int64_t count;
    const char **unquantized; /* [kept_count] modules inside blocks that stay in high precision */
    int64_t unquantized_count;
} hf_fp8;

/*
 * Decides which matrices become FP8. AS_TRAINED takes the specs of the model's linear layers (model_convert),
 * each of the ranks that have it, and is OTT_ERR_UNSUPPORTED when the file cannot hold exactly what they cast to.
 * `places` is borrowed. All ranks have the same error.
 */
ott_status hf_fp8_open(const hf_places *places, const checkpoint_ranks *ranks, const hf_fp8_options *o,
                       hf_fp8 *out);
void hf_fp8_close(hf_fp8 *f);
/* Of the tensor that begins with place i; NULL: it stays as it is. */
hf_fp8_matrix *hf_fp8_find(const hf_fp8 *f, int i);
/* Reads all matrices and makes their scales, with all ranks, which have them between them; buffer[HF_BUFFER]. A NaN or an
   infinity is an error that names the tensor: no scale can hold it. */
ott_status hf_fp8_measure(hf_fp8 *f, const checkpoint_ranks *ranks, float *buffer);
/* How the scales stand in the folder. */
ott_status hf_fp8_declare(const hf_fp8 *f, const hf_fp8_matrix *x, arena *names, const char **name, int *rank,
                          int64_t shape[2]);
float hf_fp8_file_scale(const hf_fp8_matrix *x, int64_t index);
/* Codes of elements [first, first + count), or of their values where they are kept, with the rows laid end to end. */
void hf_fp8_encode(const hf_fp8_matrix *x, int64_t first, int64_t count, const float *values, uint8_t *codes);
/* Appends the quantization_config. */
void hf_fp8_describe(const hf_fp8 *f, str *json);

#endif
