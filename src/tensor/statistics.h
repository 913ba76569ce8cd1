/*
 * tensor/statistics: what the op quantize_statistics measures of one use of a quantized tensor: a row of
 * floats, one slot each.
 */
#ifndef TENSOR_STATISTICS_H
#define TENSOR_STATISTICS_H

/* x: an element in high precision, s: its scale, i: its inverse scale, code: its FP8 code. Sums are over all
   elements, rows laid end to end: each block of REDUCE_BLOCK elements is a SUM16 (tensor/ops.def), the block
   sums are added in order in double, the result rounded to fp32. Counts are exact; a share is the count
   divided by the number of elements, in double, rounded to fp32. Rounds beyond: above 464 for E4M3, from 61440
   for E5M2. */
#define STATISTICS_MAP(X)                                                                                    \
    X(SATURATED)   /* share: x is infinite, or |x * s| rounds beyond the largest value */                    \
    X(UNDERFLOWED) /* share: x is not 0, its code is */                                                      \
    X(SIGNAL)      /* sum of x * x: fmaf(x, x, lane) */                                                      \
    X(NOISE)       /* sum of (value of code * i - x)^2: d = value * i - x, fmaf(d, d, lane) */               \
    X(AMAX)        /* largest of the groups' amax; NaN if one is */                                          \
    X(SCALE_MIN)   /* smallest scale of the groups */                                                        \
    X(SCALE_MAX)   /* largest */

enum statistics {
#define X(name) STATISTICS_##name,
    STATISTICS_MAP(X)
#undef X
        STATISTICS_COUNT
};

#endif
