/*
 * tensor/rules/statistics: the output of the op quantize_statistics for one use of a quantized tensor: a row
 * with a float for each statistic.
 */
#ifndef TENSOR_RULES_STATISTICS_H
#define TENSOR_RULES_STATISTICS_H

/* x is an element in high precision, s is its scale, and q is the value of its FP8 code. Sums are over all
   elements in row order: each block of REDUCE_BLOCK elements is a SUM16 (tensor/ops.def), the block sums are
   added in order in double, and the result is rounded to fp32. Shares are exact counts, divided in double by
   the number of elements and rounded to fp32. Numbers above 464 (E4M3), or from 61440 on (E5M2), round beyond
   the largest value. */
#define STATISTICS_MAP(X)                                                                                    \
    X(SATURATED)   /* share of infinite x, and of x for which |x * s| rounds beyond the largest value */     \
    X(UNDERFLOWED) /* share of elements with x != 0 and q = 0 */                                             \
    X(SIGNAL)      /* sum of x * x: fmaf(x, x, lane) */                                                      \
    X(NOISE)       /* sum of d * d, with d = q * (1 / s) - x: fmaf(d, d, lane) */                            \
    X(AMAX)        /* largest amax of all scale blocks; NaN if one is NaN */                                 \
    X(SCALE_MIN)   /* smallest scale of all scale blocks */                                                  \
    X(SCALE_MAX)   /* largest scale of all scale blocks */

enum statistics {
#define X(name) STATISTICS_##name,
    STATISTICS_MAP(X)
#undef X
        STATISTICS_COUNT
};

#endif
