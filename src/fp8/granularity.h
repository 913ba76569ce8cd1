/* fp8/granularity: which elements of a tensor share a scale. */
#ifndef FP8_GRANULARITY_H
#define FP8_GRANULARITY_H

#include <stdbool.h>
#include <stdint.h>

/* Each use of a tensor is a GEMM operand with MN rows (M for operand A, N for B) and K columns, the
   contraction dimension. In the columnwise use the operand's rows are the tensor's columns. X(constant, name,
   mn, k): mn x k elements share a scale. mn or k is 0 for the full dimension. */
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

/* Size of a block of elements that share a scale. INT64_MAX is the full dimension. */
typedef struct scale_block {
    int64_t mn, k;
} scale_block;

scale_block granularity_block(granularity g);
const char *granularity_name(granularity g); /* name, such as "1x128" */
/* Returns how many blocks of `block` elements hold `count` elements: one if `block` is INT64_MAX. */
static inline int64_t granularity_blocks(int64_t count, int64_t block) {
    return block == INT64_MAX ? 1 : (count + block - 1) / block;
}
/* True if K is split into blocks. */
bool granularity_is_block(granularity g);
/* Returns the number of scale blocks along the `mn` rows of an operand. */
int64_t granularity_mn_groups(granularity g, int64_t mn);
/* Returns the number of scales of an operand with mn x k elements. */
int64_t granularity_groups(granularity g, int64_t mn, int64_t k);

#endif
