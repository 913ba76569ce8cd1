/*
 * simd_probe: the functions of cpu/simd/simd.h for one instruction set (ISA level), as ordinary functions
 * over arrays of 16 numbers. The test that calls them is compiled for any machine.
 */
#ifndef TESTS_CPU_SIMD_PROBE_H
#define TESTS_CPU_SIMD_PROBE_H

#include "fp8/cast.h"

typedef enum simd_unary { SIMD_EXP, SIMD_LOG, SIMD_ROUND, SIMD_ABS, SIMD_NEG, SIMD_UNARY_COUNT } simd_unary;
typedef enum simd_binary {
    SIMD_ADD,
    SIMD_SUB,
    SIMD_MUL,
    SIMD_DIV,
    SIMD_MAX,
    SIMD_MIN,
    SIMD_AMAX,
    SIMD_SELECT_LT,
    SIMD_SELECT_LE,
    SIMD_SELECT_EQ,
    SIMD_BINARY_COUNT
} simd_binary;
typedef enum simd_ternary { SIMD_FMA, SIMD_FNMA, SIMD_TERNARY_COUNT } simd_ternary;
typedef enum simd_fold { SIMD_FOLD_SUM, SIMD_FOLD_MAX, SIMD_FOLD_AMAX, SIMD_FOLD_COUNT } simd_fold;

typedef struct simd_probe {
    const char *isa;
    void (*unary)(simd_unary f, const float *x, float *y);
    void (*binary)(simd_binary f, const float *a, const float *b,
                   float *y); /* simd_select: returns a where it is smaller than b, otherwise 2*b */
    void (*ternary)(simd_ternary f, const float *a, const float *b, const float *c, float *y);
    float (*fold)(simd_fold f, const float *x);
    void (*to_int)(const float *x, int32_t *y);
    int (*count_nan)(const float *x);
    void (*transpose)(float *square); /* transposes 16 x 16 numbers in place */
    /* y[i]: the amax of row i of 16 rows; a row has 16 fp32 or 32 bf16 numbers. */
    void (*fold_rows)(const void *rows, bool bf16, float *y);
    /* load: reads n elements of any format from element `index` on into y[16], and sets the rest of y to 0.
       store: writes n elements from y; no memory after them is written. n = 16 uses the functions for full
       vectors. */
    void (*load)(const void *x, ott_dtype d, int64_t index, int64_t n, float *y);
    void (*store)(void *y, ott_dtype d, cast_mode mode, int64_t index, int64_t n, const float *x);
    void (*encode64)(uint8_t *codes, ott_dtype d, cast_mode mode, const float *x);
} simd_probe;

/* The probe of each ISA level. NULL if the level is not compiled. Call a probe's functions only if this
   machine has the level. */
extern const simd_probe *const simd_probe_scalar, *const simd_probe_avx2, *const simd_probe_avx512,
                                                                              *const simd_probe_neon;

#endif
