/* base/fmath: the bits of a float, and Ottava's own exp, tanh and log. The results of libm differ between
   versions. These functions consist of single IEEE operations (fmaf, multiply, round), so scalar code and all
   vector units give the same bits. */
#ifndef BASE_FMATH_H
#define BASE_FMATH_H

#include "base/anywhere.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

#define FMATH_LOG2E   1.44269504f
#define FMATH_LN2_HI  0.693359375f
#define FMATH_LN2_LO  (-2.12194440e-4f)
#define FMATH_EXP_MIN (-104.0f) /* for smaller x, exp(x) is 0 */
#define FMATH_EXP_MAX 128.0f    /* for this x and larger x, exp(x) is infinite */
/* Cephes expf coefficients, highest degree first: exp(r) = 1 + r + r^2 * P(r) for |r| <= ln2/2. */
#define FMATH_EXP_P0 1.9875691500e-4f
#define FMATH_EXP_P1 1.3981999507e-3f
#define FMATH_EXP_P2 8.3334519073e-3f
#define FMATH_EXP_P3 4.1665795894e-2f
#define FMATH_EXP_P4 1.6666665459e-1f
#define FMATH_EXP_P5 5.0000001201e-1f

/* Convert a float to its bits, and bits to a float. */
ANYWHERE uint32_t fmath_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
ANYWHERE float fmath_from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* 2^n for n in [-126, 127]. */
ANYWHERE float fmath_power_of_two(int n) {
    return fmath_from_bits((uint32_t)(n + 127) << 23);
}

/* exp(r) for |r| <= ln2/2. */
ANYWHERE float fmath_exp_near_zero(float r) {
    float p = FMATH_EXP_P0;
    p = fmaf(p, r, FMATH_EXP_P1);
    p = fmaf(p, r, FMATH_EXP_P2);
    p = fmaf(p, r, FMATH_EXP_P3);
    p = fmaf(p, r, FMATH_EXP_P4);
    p = fmaf(p, r, FMATH_EXP_P5);
    return fmaf(p, r * r, r) + 1.0f;
}

/* exp(x); the error is at most 1 ulp for x in [-87, 88]. x is clamped to [FMATH_EXP_MIN, FMATH_EXP_MAX]; NaN
   gives NaN. exp(x) = p 2^n: multiplies p by two powers of two, and only the second product can round. */
ANYWHERE float fmath_exp(float x) {
    float given = x;
    x = x > FMATH_EXP_MIN ? x : FMATH_EXP_MIN; /* also of NaN; no branch, which would slow a GPU down */
    x = x < FMATH_EXP_MAX ? x : FMATH_EXP_MAX;
    float n = rintf(x * FMATH_LOG2E);
    float r = fmaf(-n, FMATH_LN2_HI, x);
    r = fmaf(-n, FMATH_LN2_LO, r);
    float p = fmath_exp_near_zero(r);
    int n_int = (int)n;
    int first = n_int >> 1; /* n / 2, rounded down */
    float result = (p * fmath_power_of_two(first)) * fmath_power_of_two(n_int - first);
    return given == given ? result : given;
}

/* fmath_exp(x) for x <= 40 and for NaN, with the same bits, in fewer instructions of a GPU: adding and
   subtracting 3 * 2^22 + 64 rounds to an integer like rintf, and leaves n + 64 in the lowest bits of
   `shifted`. exp(x) = (p 2^(n + 64)) 2^-64, where only the second product can round. */
ANYWHERE float fmath_exp_small(float x) {
    const float bias = 12582976.0f;
    float t = fmaxf(x, FMATH_EXP_MIN), shifted = t * FMATH_LOG2E + bias, n = shifted - bias;
    float r = fmaf(-n, FMATH_LN2_HI, t);
    r = fmaf(-n, FMATH_LN2_LO, r);
    uint32_t bits = fmath_bits(fmath_exp_near_zero(r)) + (fmath_bits(shifted) << 23);
    return x == x ? fmath_from_bits(bits) * 0x1p-64f : x;
}

/* tanh from exp; the absolute error is about 1e-7. */
ANYWHERE float fmath_tanh(float x) {
    return 1.0f - 2.0f / (fmath_exp(2.0f * x) + 1.0f);
}

/* Returns log(m) for m in [sqrt(1/2), sqrt(2)): the series 2 * (f + f^3/3 + f^5/5 + ... + f^21/21) of f = (m
   - 1) / (m + 1). |f| < 0.172, so the first omitted term is less than 1e-18 times f. */
ANYWHERE double fmath_log_near_one(double m) {
    double f = (m - 1.0) / (m + 1.0), square = f * f, sum = 0.0;
    for (int odd = 21; odd >= 3; odd -= 2) sum = square * (sum + 1.0 / odd);
    return 2.0 * (f + f * sum);
}

/* Natural logarithm of a positive, finite x, computed in double and rounded once to float. No operation is
   fused, so all compilers and machines give the same bits. No branch, so that compilers can vectorize it. */
ANYWHERE float fmath_log_of_positive(float x) {
    const double ln2 = 0.69314718055994531, sqrt2 = 1.4142135623730951;
    double wide = (double)x; /* a normal double even if x is subnormal */
    uint64_t u;
    memcpy(&u, &wide, 8);
    int exponent = (int)(u >> 52) - 1023;
    u = (u & 0x000fffffffffffffu) | ((uint64_t)1023 << 52);
    memcpy(&wide, &u, 8);
    exponent += wide > sqrt2;
    wide = wide > sqrt2 ? wide * 0.5 : wide;
    return (float)(exponent * ln2 + fmath_log_near_one(wide));
}

/* Natural logarithm: -infinity of 0, NaN of negative numbers and of NaN. */
ANYWHERE float fmath_log(float x) {
    if (!(x > 0.0f && x < INFINITY)) return x == 0.0f ? -INFINITY : x < 0.0f ? NAN : x;
    return fmath_log_of_positive(x);
}

#endif
