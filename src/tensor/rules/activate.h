/*
 * tensor/rules/activate: activation functions other than SiLU, for host and device. GELU is x times the
 * normal distribution function of x (Hendrycks and Gimpel 2016), computed with tanh, as in Gemma and GPT-2,
 * or with erf, PyTorch's default. erf uses Abramowitz and Stegun 7.1.26, with an absolute error of about
 * 1.5e-7. For negative x, GELU is x times the tail (1 - erf(|x| / sqrt(2))) / 2, which is computed without a
 * subtraction.
 */
#ifndef TENSOR_RULES_ACTIVATE_H
#define TENSOR_RULES_ACTIVATE_H

#include "base/fmath.h"

typedef enum activate_kind { ACTIVATE_GELU_TANH, ACTIVATE_GELU_ERF, ACTIVATE_RELU } activate_kind;

#define ACTIVATE_TANH_1       1.5957691216f  /* 2 sqrt(2 / pi), coefficient of x in GELU with tanh */
#define ACTIVATE_TANH_3       0.07135481627f /* ACTIVATE_TANH_1 * 0.044715, coefficient of x^3 */
#define ACTIVATE_TANH_3_SLOPE 0.21406444881f /* 3 * ACTIVATE_TANH_3, coefficient of x^2 in the derivative */
#define ACTIVATE_ERF_T        0.231641888f   /* 0.3275911 / sqrt(2), p of formula 7.1.26 for x / sqrt(2) */
#define ACTIVATE_ERF_1        0.127414796f   /* a1 / 2 of formula 7.1.26; next lines: a2 / 2 to a5 / 2 */
#define ACTIVATE_ERF_2        (-0.142248368f)
#define ACTIVATE_ERF_3        0.7107068705f
#define ACTIVATE_ERF_4        (-0.7265760135f)
#define ACTIVATE_ERF_5        0.5307027145f
#define ACTIVATE_DENSITY      0.39894228f /* 1 / sqrt(2 pi), the normal density at 0 */

/* The value f(x) of an activation function, and the derivative of f at x. */
typedef struct activated {
    float value, slope;
} activated;

ANYWHERE activated activate_tanh(float x) {
    float square = x * x, t = x * fmaf(ACTIVATE_TANH_3, square, ACTIVATE_TANH_1);
    float share = 1.0f / (1.0f + fmath_exp(-t)), y = x * share;
    float inner = fmaf(ACTIVATE_TANH_3_SLOPE, square, ACTIVATE_TANH_1);
    activated a = {y, fmaf(y * (1.0f - share), inner, share)};
    return a;
}

ANYWHERE activated activate_erf(float x) {
    float t = 1.0f / fmaf(ACTIVATE_ERF_T, fabsf(x), 1.0f), e = fmath_exp(-0.5f * (x * x));
    float p = fmaf(ACTIVATE_ERF_5, t, ACTIVATE_ERF_4);
    p = fmaf(p, t, ACTIVATE_ERF_3);
    p = fmaf(p, t, ACTIVATE_ERF_2);
    p = fmaf(p, t, ACTIVATE_ERF_1);
    float tail = (p * t) * e, share = x < 0.0f ? tail : 1.0f - tail;
    activated a = {x * share, fmaf(x * ACTIVATE_DENSITY, e, share)};
    return a;
}

/* ReLU. A NaN gives NaN. */
ANYWHERE activated activate_relu(float x) {
    float slope = x <= 0.0f ? 0.0f : 1.0f;
    activated a = {x <= 0.0f ? 0.0f : x, slope};
    return a;
}

ANYWHERE activated activate(activate_kind kind, float x) {
    if (kind == ACTIVATE_GELU_TANH) return activate_tanh(x);
    return kind == ACTIVATE_GELU_ERF ? activate_erf(x) : activate_relu(x);
}

#endif
