/* fp8/granularity: which elements of a tensor share a scale, and how the scales are stored. */
#ifndef FP8_GRANULARITY_H
#define FP8_GRANULARITY_H

#include "fp8/scale_tiles.h"

/* Each use of a tensor is a GEMM operand with MN rows (M for operand A, N for B) and K columns, the
   contraction dimension. In the columnwise use the operand's rows are the tensor's columns. X(constant, name,
   mn, k, scale, levels): mn x k elements share a scale. mn or k is 0 for the full dimension. scale: the
   format in which scale_inv is stored: F32, or a format of 8 bits in tiles. levels: 1, or 2 if one fp32
   number multiplies all scales of the tensor. */
#define GRANULARITY_MAP(X)                                                                                   \
    X(TENSOR, "tensor", 0, 0, F32, 1)                                                                        \
    X(ROW, "row", 1, 0, F32, 1)                                                                              \
    X(1X128, "1x128", 1, 128, F32, 1)                                                                        \
    X(128X128, "128x128", 128, 128, F32, 1)                                                                  \
    X(1X32, "1x32", 1, 32, E8M0, 1)

typedef enum granularity {
#define X(constant, name, mn, k, scale, levels) GRANULARITY_##constant,
    GRANULARITY_MAP(X)
#undef X
        GRANULARITY_COUNT
} granularity;

/* Size of a block of elements that share a scale. INT64_MAX is the full dimension. */
typedef struct scale_block {
    int64_t mn, k;
} scale_block;

scale_block granularity_block(granularity g);
const char *granularity_name(granularity g);       /* name, such as "1x128" */
ott_dtype granularity_scale_format(granularity g); /* format of the stored decode scales */
/* Returns how many blocks of `block` elements hold `count` elements: one if `block` is INT64_MAX. */
static inline int64_t granularity_blocks(int64_t count, int64_t block) {
    return block == INT64_MAX ? 1 : (count + block - 1) / block;
}
/* True if K is split into blocks. */
bool granularity_is_block(granularity g);
/* True if one number scales the full tensor: the only scale, or the second level. */
bool granularity_spans_tensor(granularity g);

/* The numbers of scales of an operand along MN and along K. */
typedef struct scale_grid {
    int64_t mn, k;
} scale_grid;

/* Returns the numbers of scales of an operand with mn x k elements. */
scale_grid granularity_grid(granularity g, int64_t mn, int64_t k);
/* Returns grid.mn, which depends only on the operand's `mn` rows. */
int64_t granularity_mn_groups(granularity g, int64_t mn);
/* Returns the number of all scales of an operand with mn x k elements. */
int64_t granularity_groups(granularity g, int64_t mn, int64_t k);
/* Returns the bytes of the decode scales of an operand, including padding (fp8/scale_tiles.h). */
int64_t granularity_scale_bytes(granularity g, scale_grid grid);
/* Returns how the decode scales of a full operand, not a view, are stored. */
scale_tiles granularity_tiles(granularity g, scale_grid grid);

#endif
