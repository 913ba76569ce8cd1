/*
 * cuda/quantize: what the quantize family's kernels are told of a use of a quantized tensor (tensor/qtensor.h): its groups
 * as blocks of the tensor's rows and columns, the same for rowwise and columnwise, and where codes lie.
 */
#ifndef CUDA_QUANTIZE_H
#define CUDA_QUANTIZE_H

#include "tensor/qtensor.h"
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { QUANTIZE_WHOLE = 63 }; /* the shift of a group that is all rows or all columns */

/* Code (i, j) at i * ld + j, or, transposed, at j * ld + i. */
typedef struct quantize_codes {
    uint8_t *data;
    int64_t ld;
    bool transposed;
} quantize_codes;

/* What a pass does for a use. Scales follow from amax, or with delayed scaling from earlier steps. */
enum { QUANTIZE_AMAX = 1, QUANTIZE_SCALE = 2, QUANTIZE_CAST = 4 };

/* The group of element (i, j) is (i >> row_shift) * row_step + (j >> column_shift) * column_step. */
typedef struct quantize_use {
    int work;
    int row_shift, column_shift;
    int64_t row_step, column_step, groups;
    float *amax, *scale, *scale_inv;
    const float *next; /* delayed: where the scale comes from; NULL: it stands already */
    bool delayed;
    ott_dtype format;
    cast_mode mode;
    scale_options options;
    int copies; /* of the codes */
    quantize_codes codes[2];
} quantize_use;

typedef struct quantize_uses {
    int count;
    quantize_use use[2];
} quantize_uses;

/* Do all groups lie within tiles, so that one pass finds amax and casts? */
static inline bool quantize_is_local(const quantize_use *u) {
    return u->row_shift != QUANTIZE_WHOLE && u->column_shift != QUANTIZE_WHOLE;
}

/* ---- quantize_uses.c: which work is done when ---- */

quantize_uses quantize_uses_of(const qtensor *q);
/* One use of it as a whole. */
quantize_use quantize_use_of(const qtensor *q, bool columnwise);

/* What a kernel that makes a tensor can do of its quantized form. */
typedef enum quantize_producer {
    QUANTIZE_BY_TILES, /* a pass: cuda/tile.h */
    QUANTIZE_BY_ROWS,  /* amax of rows and of all; codes of rows that have a scale each */
    QUANTIZE_ROW_AMAX  /* amax of rows and of all */
} quantize_producer;

/* What a pass over tiles that make a tensor is to do of q, its form; of amax alone where no codes have a place. What it raises
   is to be cleared. */
quantize_uses quantize_by_tiles(const qtensor *q);
/* What then is left to a pass over the tensor in memory; count 0: nothing. */
quantize_uses quantize_after_tiles(const qtensor *q);
/* What the producer of a tensor is to do of q, its form: *made; clears what it raises. */
cudaError_t quantize_begin(const qtensor *q, quantize_producer producer, quantize_uses *made,
                           cudaStream_t stream);
/* What is left to do when x is in memory. made->count 0: all. */
cudaError_t quantize_finish(const tensor *x, const qtensor *q, const quantize_uses *made,
                            cudaStream_t stream);
/* Each group of x's rows as a tensor of its own; end: i32[groups], where they end, NULL: they are equally many. */
cudaError_t quantize_groups(const tensor *x, const tensor *end, const qtensor *q, cudaStream_t stream);
/* This work of all uses, in one pass. */
cudaError_t quantize_work(const tensor *x, const qtensor *q, int work, cudaStream_t stream);

/* ---- quantize.cu ---- */

/* A pass over x, which does each use's `work`. Groups that reach beyond a tile have amax 0 before it, and their scale's
   amax is whole: quantize_is_local. */
cudaError_t quantize_pass(const tensor *x, const quantize_uses *uses, cudaStream_t stream);
/* Amax, scales and codes of a use whose scale blocks are of many rows, which begin anew with each of `groups` groups of rows. */
cudaError_t quantize_groups_launch(const tensor *x, const tensor *end, int64_t groups,
                                   const quantize_use *use, cudaStream_t stream);
/* Scales of all groups from their amax. */
cudaError_t quantize_scales(const quantize_use *use, cudaStream_t stream);
/* y = code * scale_inv of copy 0. */
cudaError_t dequantize_launch(const quantize_use *use, const tensor *y, cudaStream_t stream);
cudaError_t transpose_launch(const tensor *x, const tensor *y, cudaStream_t stream);

/* ---- statistics.cu ---- */

/* Bytes of workspace, and statistics of a use of x (tensor/statistics.h) to out. */
int64_t statistics_workspace(int64_t elements);
cudaError_t statistics_launch(const tensor *x, const quantize_use *use, float *out, float *workspace,
                              cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
