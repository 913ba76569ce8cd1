/* base/rng: distributions from Philox4x32-10. Normal numbers use Ottava's own polynomials for log, sin and
   cos, made of + - * / and sqrt, because C libraries differ in the last bits. */
#include "base/rng.h"
#include <math.h>
#include <stdbool.h>

uint32_t rng_u32(uint64_t seed, uint64_t stream, uint64_t index) {
    return rng_philox(seed, stream, index / 4).word[index % 4];
}

float rng_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
    return (float)(rng_u32(seed, stream, index) >> 8) * 0x1p-24f;
}

/* Returns c[0] + c[1] x + ... + c[count-1] x^(count-1). */
static double polynomial(const double *c, int count, double x) {
    double sum = c[count - 1];
    for (int i = count - 2; i >= 0; i--) sum = sum * x + c[i];
    return sum;
}
#define POLYNOMIAL(c, x) polynomial(c, (int)(sizeof(c) / sizeof *(c)), x)

/* log x for x > 0 that is not subnormal. If x = m 2^e, then log x = 2 artanh((m-1)/(m+1)) + e log 2. */
static double portable_log(double x) {
    static const double artanh[] = {1,        1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9, 1.0 / 11,
                                    1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
    int e;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1);
    return 2 * s * POLYNOMIAL(artanh, s * s) + e * 0.69314718055994531;
}

/* sin a for a in [-pi/4, pi/4], by a Taylor series. portable_cos does this for cos a. */
static double portable_sin(double a) {
    static const double taylor[] = {1,
                                    -1.0 / 6,
                                    1.0 / 120,
                                    -1.0 / 5040,
                                    1.0 / 362880,
                                    -1.0 / 39916800,
                                    1.0 / 6227020800,
                                    -1.0 / 1307674368000};
    return a * POLYNOMIAL(taylor, a * a);
}

static double portable_cos(double a) {
    static const double taylor[] = {1,
                                    -1.0 / 2,
                                    1.0 / 24,
                                    -1.0 / 720,
                                    1.0 / 40320,
                                    -1.0 / 3628800,
                                    1.0 / 479001600,
                                    -1.0 / 87178291200,
                                    1.0 / 20922789888000};
    return POLYNOMIAL(taylor, a * a);
}

/* Returns cos(2 pi turn) for turn in [0, 2). First subtracts the nearest quarter turn, which is exact, so the
   polynomials get an angle of at most pi/4. */
static double cos_turn(double turn) {
    int quarter = (int)(turn * 4 + 0.5);
    double a = (turn - quarter * 0.25) * 6.2831853071795865;
    switch (quarter % 4) {
    case 0: return portable_cos(a);
    case 1: return -portable_sin(a);
    case 2: return -portable_cos(a);
    default: return portable_sin(a);
    }
}

/* 53 random bits as a double in [0, 1). */
static double unit_double(uint32_t high, uint32_t low) {
    return (double)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}

/* One random block gives two normal numbers: radius * cos(2 pi turn) and radius * sin(2 pi turn). */
typedef struct normal_pair {
    double radius, turn;
} normal_pair;

static normal_pair draw_pair(uint64_t seed, uint64_t stream, uint64_t block) {
    rng_block b = rng_philox(seed, stream, block);
    double u = unit_double(b.word[0], b.word[1]) + 0x1p-53; /* in (0, 1], so that the logarithm is finite */
    return (normal_pair){.radius = sqrt(-2 * portable_log(u)), .turn = unit_double(b.word[2], b.word[3])};
}

static float one_of(normal_pair p, bool second) {
    return (float)(p.radius * cos_turn(second ? p.turn + 0.75 : p.turn));
}

float rng_normal(uint64_t seed, uint64_t stream, uint64_t index) {
    return one_of(draw_pair(seed, stream, index / 2), index % 2);
}

void rng_normals(uint64_t seed, uint64_t stream, uint64_t first, int64_t count, float *out) {
    normal_pair p = draw_pair(seed, stream, first / 2);
    for (int64_t i = 0; i < count; i++) {
        uint64_t index = first + (uint64_t)i;
        if (i > 0 && index % 2 == 0) p = draw_pair(seed, stream, index / 2);
        out[i] = one_of(p, index % 2);
    }
}

/* Permutes the integers below 2^(2*half) by a Feistel network of 8 rounds, keyed by (seed, stream). */
static uint64_t feistel(uint64_t seed, uint64_t stream, uint64_t x, int half) {
    uint32_t mask = (uint32_t)((UINT64_C(1) << half) - 1);
    uint32_t left = (uint32_t)(x >> half) & mask, right = (uint32_t)x & mask;
    for (uint64_t round = 0; round < 8; round++) {
        uint32_t mixed = rng_philox(seed, stream, round << 32 | right).word[0] & mask;
        uint32_t next = left ^ mixed;
        left = right;
        right = next;
    }
    return (uint64_t)left << half | right;
}

uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t index, uint64_t count) {
    if (index >= count) return index; /* not in [0, count): the loop below might not end */
    int half = 1;
    while (half < 32 && (UINT64_C(1) << 2 * half) < count) half++;
    do index = feistel(seed, stream, index, half);
    while (index >= count);
    return index;
}

uint64_t rng_stream(const char *name) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash;
}
