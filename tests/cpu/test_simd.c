/* cpu/simd/simd: compares every function of every ISA level of this machine with scalar C, bit for bit. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/fmath.h"
#include "base/rng.h"
#include "cpu/cpu.h"
#include "simd_probe.h"
#include <string.h>

static const simd_probe *probes[CPU_ISAS_MAX];
static int probe_count;

#define EACH_PROBE(p)                                                                                        \
    for (int at = 0; at < probe_count; at++)                                                                 \
        for (const simd_probe *p = probes[at]; p; p = NULL)

/* Returns edge cases first, then numbers of random bits. */
static float some_float(uint64_t i) {
    static const float special[] = {0.0f,     -0.0f,    1.0f,     -1.0f,     NAN,       INFINITY,   -INFINITY,
                                    0.5f,     1.5f,     2.5f,     -2.5f,     0x1p-149f, -0x1p-149f, 0x1p-126f,
                                    3.4e38f,  -3.4e38f, 448.0f,   464.0f,    57344.0f,  61440.0f,   65504.0f,
                                    65520.0f, 0x1p-24f, 0x1p-25f, 0x1.8p-10f};
    enum { SPECIAL = sizeof special / sizeof special[0] };
    uint32_t r = rng_u32(3, 4, i);
    if (r % 4 == 0) return special[(r >> 8) % SPECIAL];
    if (r % 4 == 1) return rng_normal(3, 5, i) * 100.0f;
    return fmath_from_bits(rng_u32(3, 6, i));
}

static void fill(float *x, int count, uint64_t *draws) {
    for (int i = 0; i < count; i++) x[i] = some_float((*draws)++);
}

static void assert_same(const simd_probe *p, const char *what, float found, float expected, float a, float b,
                        float c) {
    if (fmath_bits(found) == fmath_bits(expected) || (isnan(found) && isnan(expected))) return;
    fail_msg("%s %s(%a, %a, %a) is %a, expected %a", p->isa, what, (double)a, (double)b, (double)c,
             (double)found, (double)expected);
}

/* ---- arithmetic ---- */

static float unary(simd_unary f, float x) {
    switch (f) {
    case SIMD_EXP: return fmath_exp(x);
    case SIMD_LOG: return fmath_log(x);
    case SIMD_ROUND: return rintf(x);
    case SIMD_ABS: return fabsf(x);
    case SIMD_NEG: return -x;
    case SIMD_UNARY_COUNT: break;
    }
    return 0.0f;
}

static float amax_of_two(float a, float b) {
    if (isnan(a) || isnan(b)) return NAN;
    return fabsf(a) > fabsf(b) ? fabsf(a) : fabsf(b);
}

static float binary(simd_binary f, float a, float b) {
    switch (f) {
    case SIMD_ADD: return a + b;
    case SIMD_SUB: return a - b;
    case SIMD_MUL: return a * b;
    case SIMD_DIV: return a / b;
    case SIMD_MAX: return a > b ? a : b;
    case SIMD_MIN: return a < b ? a : b;
    case SIMD_AMAX: return amax_of_two(a, b);
    case SIMD_SELECT_LT: return a < b ? a : b + b;
    case SIMD_SELECT_LE: return a <= b ? a : b + b;
    case SIMD_SELECT_EQ: return a == b ? a : b + b;
    case SIMD_BINARY_COUNT: break;
    }
    return 0.0f;
}

static float ternary(simd_ternary f, float a, float b, float c) {
    return fmaf(f == SIMD_FMA ? a : -a, b, c);
}

static void arithmetic_is_ieee(void **state) {
    (void)state;
    float a[16], b[16], c[16], y[16];
    EACH_PROBE(p) {
        uint64_t draws = 0;
        for (int repeat = 0; repeat < 1000; repeat++) {
            fill(a, 16, &draws), fill(b, 16, &draws), fill(c, 16, &draws);
            for (int f = 0; f < SIMD_UNARY_COUNT; f++) {
                p->unary((simd_unary)f, a, y);
                for (int i = 0; i < 16; i++)
                    assert_same(p, "unary", y[i], unary((simd_unary)f, a[i]), (float)f, a[i], 0);
            }
            for (int f = 0; f < SIMD_BINARY_COUNT; f++) {
                p->binary((simd_binary)f, a, b, y);
                for (int i = 0; i < 16; i++)
                    assert_same(p, "binary", y[i], binary((simd_binary)f, a[i], b[i]), (float)f, a[i], b[i]);
            }
            for (int f = 0; f < SIMD_TERNARY_COUNT; f++) {
                p->ternary((simd_ternary)f, a, b, c, y);
                for (int i = 0; i < 16; i++)
                    assert_same(p, "ternary", y[i], ternary((simd_ternary)f, a[i], b[i], c[i]), a[i], b[i],
                                c[i]);
            }
        }
    }
}

static void check_exp(const simd_probe *p, const float *x) {
    float y[16];
    p->unary(SIMD_EXP, x, y);
    for (int i = 0; i < 16; i++) assert_same(p, "exp", y[i], fmath_exp(x[i]), x[i], 0, 0);
}

static void exp_is_fmath_exp(void **state) {
    (void)state;
    float x[16];
    EACH_PROBE(p) {
        for (uint64_t bits = 0; bits < (uint64_t)1 << 32;
             bits += 16 * 20011) { /* all exponents, both signs */
            for (uint32_t i = 0; i < 16; i++) x[i] = fmath_from_bits((uint32_t)bits + i * 20011);
            check_exp(p, x);
        }
        for (int step = 0; step < 5000; step++) { /* x for which exp(x) is neither 0 nor infinite */
            for (int i = 0; i < 16; i++) x[i] = -110.0f + 0.003f * (float)(16 * step + i);
            check_exp(p, x);
        }
    }
}

static float fold(simd_fold f, const float *x) {
    float t[16];
    memcpy(t, x, sizeof t);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) {
            float a = t[i], b = t[i + half];
            t[i] = f == SIMD_FOLD_SUM ? a + b : f == SIMD_FOLD_MAX ? (a > b ? a : b) : amax_of_two(a, b);
        }
    return t[0];
}

static void folds_take_the_order_of_sum16(void **state) {
    (void)state;
    float x[16];
    EACH_PROBE(p) {
        uint64_t draws = 0;
        for (int repeat = 0; repeat < 1000; repeat++) {
            fill(x, 16, &draws);
            if (repeat % 2)
                for (int i = 0; i < 16; i++) x[i] = rng_normal(3, 7, draws++); /* sums are rounded */
            for (int f = 0; f < SIMD_FOLD_COUNT; f++)
                assert_same(p, "fold", p->fold((simd_fold)f, x), fold((simd_fold)f, x), (float)f, 0, 0);
        }
    }
}

static void integers_nan_count_and_transpose(void **state) {
    (void)state;
    EACH_PROBE(p) {
        const float x[16] = {0.9f, -0.9f, 1.5f,  -2.5f, 1e6f, -1e6f, 2147483520.0f, -2147483648.0f,
                             NAN,  3e9f,  -3e9f, 7.0f,  NAN,  -0.0f, 100.99f,       INFINITY};
        const int32_t integers[16] = {0,          0,         1,         -2,        1000000,   -1000000,
                                      2147483520, INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN, 7,
                                      INT32_MIN,  0,         100,       INT32_MIN};
        int32_t y[16];
        p->to_int(x, y);
        assert_memory_equal(y, integers, sizeof y);
        assert_int_equal(p->count_nan(x), 2);
        float square[256];
        for (int i = 0; i < 256; i++) square[i] = (float)i;
        p->transpose(square);
        for (int i = 0; i < 256; i++) assert_true(square[i] == (float)(i % 16 * 16 + i / 16));
    }
}

/* ---- formats ---- */

static const ott_dtype formats[] = {OTT_F32, OTT_BF16, OTT_F16, OTT_E4M3, OTT_E5M2};

static void loads_are_exact_and_bounded(void **state) {
    (void)state;
    uint8_t bytes[64 * 4];
    float y[16];
    EACH_PROBE(p) {
        for (int repeat = 0; repeat < 500; repeat++)
            for (int f = 0; f < 5; f++)
                for (int64_t n = 0; n <= 16; n++) {
                    for (size_t i = 0; i < sizeof bytes; i++)
                        bytes[i] = (uint8_t)rng_u32(9, (uint64_t)repeat, i);
                    int64_t index = repeat % 7;
                    p->load(bytes, formats[f], index, n, y);
                    for (int i = 0; i < 16; i++) {
                        float expected = i < n ? cast_load(bytes, formats[f], index + i) : 0.0f;
                        assert_same(p, dtype_name(formats[f]), y[i], expected, (float)n, (float)i, 0);
                    }
                }
    }
}

static void every_code_decodes(void **state) {
    (void)state;
    uint16_t half[16];
    uint8_t codes[16];
    float y[16];
    EACH_PROBE(p) {
        for (uint32_t base = 0; base < 65536; base += 16) {
            for (uint32_t i = 0; i < 16; i++) half[i] = (uint16_t)(base + i), codes[i] = (uint8_t)(base + i);
            for (int f = 1; f < 5; f++) {
                const void *x = dtype_is_fp8(formats[f]) ? (const void *)codes : half;
                p->load(x, formats[f], 0, 16, y);
                for (int i = 0; i < 16; i++)
                    assert_same(p, dtype_name(formats[f]), y[i], cast_load(x, formats[f], i),
                                (float)(base + (uint32_t)i), 0, 0);
            }
        }
    }
}

/* Stores x as cast_store does, but casts to FP8 with the given mode. */
static void store_one(void *y, ott_dtype d, cast_mode mode, int64_t index, float x) {
    if (dtype_is_fp8(d))
        ((uint8_t *)y)[index] = cast_to_fp8(x, d, mode);
    else
        cast_store(y, d, index, x);
}

static void check_store(const simd_probe *p, int f, cast_mode mode, int64_t n, const float *x) {
    uint8_t found[24 * 4], expected[24 * 4];
    memset(found, 0x5a, sizeof found), memset(expected, 0x5a, sizeof expected);
    p->store(found, formats[f], mode, 3, n, x);
    for (int64_t i = 0; i < n; i++) store_one(expected, formats[f], mode, 3 + i, x[i]);
    for (size_t i = 0; i < sizeof found; i++)
        if (found[i] != expected[i])
            fail_msg("%s: storing %d as %s: byte %d is %02x, expected %02x", p->isa, (int)n,
                     dtype_name(formats[f]), (int)i, found[i], expected[i]);
}

static void stores_round_as_cast_does(void **state) {
    (void)state;
    float x[16];
    EACH_PROBE(p) {
        uint64_t draws = 0;
        for (int repeat = 0; repeat < 300; repeat++)
            for (int f = 0; f < 5; f++)
                for (int64_t n = 0; n <= 16; n++) {
                    fill(x, 16, &draws);
                    check_store(p, f, repeat % 2 ? CAST_SATURATE : CAST_OVERFLOW, n, x);
                }
        for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += 16 * 40009)
            for (int f = 1; f < 5; f++)
                for (int mode = 0; mode < (f < 3 ? 1 : 2); mode++) {
                    for (uint32_t i = 0; i < 16; i++) x[i] = fmath_from_bits((uint32_t)bits + i * 40009);
                    check_store(p, f, (cast_mode)mode, 16, x);
                }
    }
}

/* In every second repeat no x is NaN, because other code encodes arrays without NaN. */
static void sixty_four_codes_are_those_of_cast(void **state) {
    (void)state;
    float x[64];
    uint8_t codes[64];
    EACH_PROBE(p) {
        uint64_t draws = 0;
        for (int repeat = 0; repeat < 2000; repeat++)
            for (int f = 3; f < 5; f++) {
                cast_mode mode = repeat % 4 < 2 ? CAST_SATURATE : CAST_OVERFLOW;
                fill(x, 64, &draws);
                for (int i = 0; i < 64 && repeat % 2; i++)
                    if (isnan(x[i])) x[i] = -0.01f * (float)i;
                p->encode64(codes, formats[f], mode, x);
                for (int i = 0; i < 64; i++) assert_int_equal(codes[i], cast_to_fp8(x[i], formats[f], mode));
            }
    }
}

static void rows_fold_to_their_amax(void **state) {
    (void)state;
    float rows[16 * 16], y[16];
    uint16_t halves[16 * 32];
    EACH_PROBE(p) {
        uint64_t draws = 0;
        for (int repeat = 0; repeat < 500; repeat++) {
            fill(rows, 16 * 16, &draws);
            for (int i = 0; i < 16 * 32; i++) cast_store(halves, OTT_BF16, i, some_float(draws++));
            for (int bf16 = 0; bf16 < 2; bf16++) {
                int n = bf16 ? 32 : 16;
                p->fold_rows(bf16 ? (const void *)halves : rows, bf16, y);
                for (int i = 0; i < 16; i++) {
                    float most = 0.0f;
                    for (int j = n * i; j < n * (i + 1); j++)
                        most = amax_of_two(most, bf16 ? cast_load(halves, OTT_BF16, j) : rows[j]);
                    assert_same(p, "fold_rows", y[i], most, (float)i, (float)bf16, 0);
                }
            }
        }
    }
}

/* Collects the probes of the ISA levels that this machine can run. */
static int setup(void **state) {
    (void)state;
    const simd_probe *every[] = {simd_probe_scalar, simd_probe_avx2, simd_probe_avx512, simd_probe_neon};
    enum { EVERY = sizeof every / sizeof *every };
    const char *names[CPU_ISAS_MAX];
    int count = cpu_isas(names);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < EVERY; j++)
            if (every[j] && strcmp(every[j]->isa, names[i]) == 0) probes[probe_count++] = every[j];
    /* avx512bf16 and amx have no probe of their own. Most of their functions are avx512's functions. The
       tests of GEMMs and of the backend's ops cover the others. */
    int without = 0;
    for (int i = 0; i < count; i++)
        without += strcmp(names[i], "avx512bf16") == 0 || strcmp(names[i], "amx") == 0;
    return probe_count == count - without ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arithmetic_is_ieee),
        cmocka_unit_test(exp_is_fmath_exp),
        cmocka_unit_test(folds_take_the_order_of_sum16),
        cmocka_unit_test(integers_nan_count_and_transpose),
        cmocka_unit_test(loads_are_exact_and_bounded),
        cmocka_unit_test(every_code_decodes),
        cmocka_unit_test(stores_round_as_cast_does),
        cmocka_unit_test(sixty_four_codes_are_those_of_cast),
        cmocka_unit_test(rows_fold_to_their_amax),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
