/* fp8/granularity: which elements of a tensor share a scale. */
#ifndef FP8_GRANULARITY_H
#define FP8_GRANULARITY_H

#include <stdbool.h>
#include <stdint.h>

/* Each use of a tensor is a GEMM's operand: MN (M of operand A, N of operand B) by K, the contraction. Its MN are rows in
   the rowwise use, columns in the columnwise one. X(constant, name, mn, k), the block that shares a scale; 0: all of them. */
#define GRANULARITY_MAP(X)                                                                                   \
    X(TENSOR, "tensor", 0, 0)                                                                                \
    X(ROW, "row", 1, 0)                                                                                      \
    X(1X128, "1x128", 1, 128)                                                                                \
    X(128X128, "128x128", 128, 128)                                                                          \
    X(1X32, "1x32", 1, 32)

typedef enum granularity {
#define X(constant, name, mn, k) GRANULARITY_##constant,
    GRANULARITY_MAP(X)
#undef X
        GRANULARITY_COUNT
} granularity;

/* The elements that share a scale; INT64_MAX for all of them. */
typedef struct scale_block {
    int64_t mn, k;
} scale_block;

scale_block granularity_block(granularity g);
const char *granularity_name(granularity g); /* "1x128" */
/* Is K cut into blocks? */
bool granularity_is_block(granularity g);
/* How many blocks there are along MN. */
int64_t granularity_mn_groups(granularity g, int64_t mn);
/* How many scales a use of mn x k elements has. */
int64_t granularity_groups(granularity g, int64_t mn, int64_t k);

#endif
