/* cuda/kernels/quantize: functions that quantize. A quantize_use describes one use (rowwise or columnwise) of
   a quantized tensor (tensor/qtensor.h): the elements of each scale group, and the memory of the codes. */
#ifndef CUDA_KERNELS_QUANTIZE_H
#define CUDA_KERNELS_QUANTIZE_H

#include "tensor/qtensor.h"
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { QUANTIZE_SPAN_ALL = 63 }; /* row_shift of groups of all rows, column_shift of groups of all columns */

/* Codes of a tensor. Element (i, j) has its code at i * ld + j, or at j * ld + i if transposed. */
typedef struct quantize_codes {
    uint8_t *data;
    int64_t ld;
    bool transposed;
} quantize_codes;

/* Flags of the work that a pass does for one use: find amaxes, set scales, cast. A scale is computed from its
   group's amax, or in delayed scaling from the amaxes of earlier steps. */
enum { QUANTIZE_AMAX = 1, QUANTIZE_SCALE = 2, QUANTIZE_CAST = 4 };

/* Element (i, j) is in scale group (i >> row_shift) * row_step + (j >> column_shift) * column_step. This is
   the group's index in amax, scale and fp32 scale_inv. tiles: order of E8M0 scale_inv (fp8/scale_tiles.h). */
typedef struct quantize_use {
    int work;
    int row_shift, column_shift;
    int64_t row_step, column_step, groups;
    float *amax, *scale;
    void *scale_inv;
    scale_tiles tiles;
    bool columnwise; /* K is the tensor's rows */
    /* delayed scaling: the new scale, to be copied to `scale`; NULL: `scale` has it already */
    const float *next;
    bool delayed;
    ott_dtype format;
    cast_mode mode;
    scale_options options;
    int copies; /* number of entries in `codes`; codes[1] is for columnwise use */
    quantize_codes codes[2];
} quantize_use;

typedef struct quantize_uses {
    int count;
    quantize_use use[2];
} quantize_uses;

/* True if every group is inside one tile, so that one pass can find the amax and cast. */
static inline bool quantize_is_local(const quantize_use *u) {
    return u->row_shift != QUANTIZE_SPAN_ALL && u->column_shift != QUANTIZE_SPAN_ALL;
}

/* ---- quantize_uses.c: which pass does which work ---- */

quantize_uses quantize_uses_of(const qtensor *q);
/* Describes one use of q. quantize_uses_of, in contrast, may describe both uses by one quantize_use. */
quantize_use quantize_use_of(const qtensor *q, bool columnwise);

/* The quantization work that a kernel can do for the tensor that it computes. */
typedef enum quantize_producer {
    /* finds amaxes; also casts, unless the codes need amaxes of other tiles (cuda/kernels/tile.h) */
    QUANTIZE_BY_TILES,
    /* finds amaxes of rows and of the tensor; casts only for a use with one scale per row */
    QUANTIZE_BY_ROWS,
    QUANTIZE_ROW_AMAX /* finds amaxes of rows and of the tensor */
} quantize_producer;

/* For a kernel that writes a tensor tile by tile: returns the work that it does for the tensor's quantized
   copies `q`. If q has no codes, it only finds the amax. The caller must set the amaxes to 0 first. */
quantize_uses quantize_by_tiles(const qtensor *q);
/* Returns the work for q that quantize_by_tiles leaves for another pass over the tensor. count 0: none. */
quantize_uses quantize_after_tiles(const qtensor *q);
/* Sets *made to the work for q that a kernel of this `producer` type does. Queues setting q's amaxes to 0. */
cudaError_t quantize_begin(const qtensor *q, quantize_producer producer, quantize_uses *made,
                           cudaStream_t stream);
/* Call after x is in memory. Does the work of quantizing to q that quantize_begin did not put in *made. */
cudaError_t quantize_finish(const tensor *x, const qtensor *q, const quantize_uses *made,
                            cudaStream_t stream);
/* Quantizes each group of x's rows like a separate tensor. end: i32[groups], end rows of the groups; NULL:
   all groups have equally many rows. */
cudaError_t quantize_groups(const tensor *x, const tensor *end, const qtensor *q, cudaStream_t stream);
/* Does `work` (QUANTIZE_AMAX, ...) for all uses, in one pass. */
cudaError_t quantize_work(const tensor *x, const qtensor *q, int work, cudaStream_t stream);

/* ---- quantize.cu ---- */

/* Does the `work` of each use in one pass over x. If quantize_is_local is false, groups span several tiles:
   their amaxes must be 0 before QUANTIZE_AMAX, and complete before QUANTIZE_SCALE or QUANTIZE_CAST. */
cudaError_t quantize_pass(const tensor *x, const quantize_uses *uses, cudaStream_t stream);
/* Quantizes x for a use whose scale blocks have many rows. Each of the `groups` groups begins a new block. */
cudaError_t quantize_groups_launch(const tensor *x, const tensor *end, int64_t groups,
                                   const quantize_use *use, cudaStream_t stream);
/* Computes the scales of all groups of a tensor, which is not a view, from their amaxes. */
cudaError_t quantize_scales(const quantize_use *use, cudaStream_t stream);
/* y = code * scale_inv. Reads the first copy of the codes. */
cudaError_t dequantize_launch(const quantize_use *use, const tensor *y, cudaStream_t stream);

/* ---- statistics.cu ---- */

/* Bytes of workspace for statistics_launch, which measures one use of q (tensor/rules/statistics.h). */
int64_t statistics_workspace(int64_t elements);
cudaError_t statistics_launch(const tensor *x, const quantize_use *use, float *out, float *workspace,
                              cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
