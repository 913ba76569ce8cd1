/* cuda/quantize: what kernels need to know about one use (rowwise or columnwise) of a quantized tensor
   (tensor/qtensor.h): its scale groups as blocks of the tensor's rows and columns, and where to store
   codes. */
#ifndef CUDA_QUANTIZE_H
#define CUDA_QUANTIZE_H

#include "tensor/qtensor.h"
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { QUANTIZE_SPAN_ALL = 63 }; /* shift of a group that spans all rows or all columns */

/* Code (i, j) is at i * ld + j, or, transposed, at j * ld + i. */
typedef struct quantize_codes {
    uint8_t *data;
    int64_t ld;
    bool transposed;
} quantize_codes;

/* Work of a pass for one use. Scales follow from the amax, or with delayed scaling from earlier steps. */
enum { QUANTIZE_AMAX = 1, QUANTIZE_SCALE = 2, QUANTIZE_CAST = 4 };

/* The group of element (i, j) is (i >> row_shift) * row_step + (j >> column_shift) * column_step. */
typedef struct quantize_use {
    int work;
    int row_shift, column_shift;
    int64_t row_step, column_step, groups;
    float *amax, *scale, *scale_inv;
    const float *next; /* delayed: source of the scale; NULL: `scale` is set already */
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

/* True if every group is inside one tile, so that one pass computes the amax and casts. */
static inline bool quantize_is_local(const quantize_use *u) {
    return u->row_shift != QUANTIZE_SPAN_ALL && u->column_shift != QUANTIZE_SPAN_ALL;
}

/* ---- quantize_uses.c: which pass does which work ---- */

quantize_uses quantize_uses_of(const qtensor *q);
/* One use of q, not merged with the other. */
quantize_use quantize_use_of(const qtensor *q, bool columnwise);

/* The part of the quantization that a tensor's producer kernel can do. */
typedef enum quantize_producer {
    QUANTIZE_BY_TILES, /* all work that needs no scale from beyond a tile (cuda/tile.h) */
    QUANTIZE_BY_ROWS,  /* amax of rows and of the tensor; codes of uses with one scale per row */
    QUANTIZE_ROW_AMAX  /* amax of rows and of the tensor */
} quantize_producer;

/* The work of a tile pass that produces a tensor with quantized copies q; only amax if q has no codes. The
   caller clears the amaxes. */
quantize_uses quantize_by_tiles(const qtensor *q);
/* The work that remains after quantize_by_tiles, for a pass over the tensor in memory; count 0: none. */
quantize_uses quantize_after_tiles(const qtensor *q);
/* Sets *made to the work of the kernel that produces the tensor of q, and queues the clearing of its
   amaxes. */
cudaError_t quantize_begin(const qtensor *q, quantize_producer producer, quantize_uses *made,
                           cudaStream_t stream);
/* Does the rest of the work once x is in memory. made->count 0: all of it. */
cudaError_t quantize_finish(const tensor *x, const qtensor *q, const quantize_uses *made,
                            cudaStream_t stream);
/* Quantizes each group of x's rows like a separate tensor. end: i32[groups], end rows of the groups; NULL:
   equal groups. */
cudaError_t quantize_groups(const tensor *x, const tensor *end, const qtensor *q, cudaStream_t stream);
/* Does `work` for all uses, in one pass. */
cudaError_t quantize_work(const tensor *x, const qtensor *q, int work, cudaStream_t stream);

/* ---- quantize.cu ---- */

/* One pass over x that does each use's `work`. Groups that extend beyond a tile (not quantize_is_local) need
   amax 0 before QUANTIZE_AMAX, and their complete amax before QUANTIZE_SCALE or QUANTIZE_CAST. */
cudaError_t quantize_pass(const tensor *x, const quantize_uses *uses, cudaStream_t stream);
/* Amax, scales and codes of a use with scale blocks of many rows. Blocks start at each of the `groups` groups
   of rows. */
cudaError_t quantize_groups_launch(const tensor *x, const tensor *end, int64_t groups,
                                   const quantize_use *use, cudaStream_t stream);
/* Computes the scales of all groups from their amaxes. */
cudaError_t quantize_scales(const quantize_use *use, cudaStream_t stream);
/* y = code * scale_inv, from codes[0]. */
cudaError_t dequantize_launch(const quantize_use *use, const tensor *y, cudaStream_t stream);
cudaError_t transpose_launch(const tensor *x, const tensor *y, cudaStream_t stream);

/* ---- statistics.cu ---- */

/* statistics_workspace: bytes of workspace. statistics_launch: statistics of one use of x
   (tensor/statistics.h) to out. */
int64_t statistics_workspace(int64_t elements);
cudaError_t statistics_launch(const tensor *x, const quantize_use *use, float *out, float *workspace,
                              cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
