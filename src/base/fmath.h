/*
 * base/fmath: a float's bits; exp and log as Ottava defines them. libm's differ in the last bit from version to version;
 * these are made of single IEEE operations (fmaf, multiply, round), so that scalar code and every vector unit
 * agree bit for bit.
 */
#ifndef BASE_FMATH_H
#define BASE_FMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define FMATH_LOG2E   1.44269504f
#define FMATH_LN2_HI  0.693359375f
#define FMATH_LN2_LO  (-2.12194440e-4f)
#define FMATH_EXP_MIN (-104.0f) /* below this the result is 0 */
#define FMATH_EXP_MAX 128.0f    /* at this and above the result is infinite */
/* Cephes expf coefficients, highest degree first: exp(r) = 1 + r + r^2 * P(r) for |r| <= ln2/2. */
#define FMATH_EXP_P0 1.9875691500e-4f
#define FMATH_EXP_P1 1.3981999507e-3f
#define FMATH_EXP_P2 8.3334519073e-3f
#define FMATH_EXP_P3 4.1665795894e-2f
#define FMATH_EXP_P4 1.6666665459e-1f
#define FMATH_EXP_P5 5.0000001201e-1f

/* The bits of a float, and back. */
static inline uint32_t fmath_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
static inline float fmath_from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* 2^n for n in [-126, 127]. */
static inline float fmath_power_of_two(int n) {
    return fmath_from_bits((uint32_t)(n + 127) << 23);
}

/* exp(x), at most 1 ulp off on [-87, 88]. x is first clamped to [FMATH_EXP_MIN, FMATH_EXP_MAX]; NaN gives
   NaN. The scaling by 2^n is one multiplication by each half of n, so that only the last one can round. */
static inline float fmath_exp(float x) {
    if (x != x) return x;
    x = x < FMATH_EXP_MIN ? FMATH_EXP_MIN : x;
    x = x > FMATH_EXP_MAX ? FMATH_EXP_MAX : x;
    float n = rintf(x * FMATH_LOG2E);
    float r = fmaf(-n, FMATH_LN2_HI, x);
    r = fmaf(-n, FMATH_LN2_LO, r);
    float p = FMATH_EXP_P0;
    p = fmaf(p, r, FMATH_EXP_P1);
    p = fmaf(p, r, FMATH_EXP_P2);
    p = fmaf(p, r, FMATH_EXP_P3);
    p = fmaf(p, r, FMATH_EXP_P4);
    p = fmaf(p, r, FMATH_EXP_P5);
    p = fmaf(p, r * r, r) + 1.0f;
    int whole = (int)n;
    int first = whole >> 1; /* floor */
    return (p * fmath_power_of_two(first)) * fmath_power_of_two(whole - first);
}

/* Natural logarithm of a positive, finite, normal x, in double operations rounded once to float; NaN gives
 * NaN. */
float fmath_log(float x);

#endif
