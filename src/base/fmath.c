/* base/fmath: the logarithm. Double operations without fused ones, so every compiler and machine gives the
 * same bits. */
#include "base/fmath.h"

/* log(m) for m in [sqrt(1/2), sqrt(2)): with f = (m - 1) / (m + 1), 2 * (f + f^3/3 + f^5/5 + ... + f^21/21).
   |f| < 0.172, so the first term left out is below 1e-18 of the first. */
static double log_near_one(double m) {
    double f = (m - 1.0) / (m + 1.0), square = f * f, sum = 0.0;
    for (int odd = 21; odd >= 3; odd -= 2) sum = square * (sum + 1.0 / odd);
    return 2.0 * (f + f * sum);
}

float fmath_log(float x) {
    const double ln2 = 0.69314718055994531, sqrt2 = 1.4142135623730951;
    if (!(x > 0.0f && x < INFINITY)) return x == 0.0f ? -INFINITY : x < 0.0f ? NAN : x;
    double wide = (double)x; /* a normal double even where x is subnormal */
    uint64_t u;
    memcpy(&u, &wide, 8);
    int exponent = (int)(u >> 52) - 1023;
    u = (u & 0x000fffffffffffffu) | ((uint64_t)1023 << 52);
    memcpy(&wide, &u, 8);
    if (wide > sqrt2) {
        wide *= 0.5;
        exponent++;
    }
    return (float)(exponent * ln2 + log_near_one(wide));
}
