/*
 * The body of simd_probe_<ISA level>.c: included once, with that level's CPU_ISA_ macro defined and its
 * instructions enabled.
 */
#include "cpu/simd/simd.h"
#include "simd_probe.h"

static void probe_unary(simd_unary f, const float *p, float *y) {
    v16 x = v16_load(p);
    switch (f) {
    case SIMD_EXP: x = v16_exp(x); break;
    case SIMD_LOG: x = v16_log(x); break;
    case SIMD_ROUND: x = v16_round(x); break;
    case SIMD_ABS: x = v16_abs(x); break;
    case SIMD_NEG: x = v16_neg(x); break;
    case SIMD_UNARY_COUNT: break;
    }
    v16_store(y, x);
}

static v16 select_of(v16m m, v16 a, v16 b) {
    return v16_select(m, a, v16_add(b, b));
}

static void probe_binary(simd_binary f, const float *p, const float *q, float *y) {
    v16 a = v16_load(p), b = v16_load(q), r = v16_zero();
    switch (f) {
    case SIMD_ADD: r = v16_add(a, b); break;
    case SIMD_SUB: r = v16_sub(a, b); break;
    case SIMD_MUL: r = v16_mul(a, b); break;
    case SIMD_DIV: r = v16_div(a, b); break;
    case SIMD_MAX: r = v16_max(a, b); break;
    case SIMD_MIN: r = v16_min(a, b); break;
    case SIMD_AMAX: r = v16_amax(v16_amax(v16_zero(), a), b); break;
    case SIMD_SELECT_LT: r = select_of(v16_lt(a, b), a, b); break;
    case SIMD_SELECT_LE: r = select_of(v16_le(a, b), a, b); break;
    case SIMD_SELECT_EQ: r = select_of(v16_eq(a, b), a, b); break;
    case SIMD_BINARY_COUNT: break;
    }
    v16_store(y, r);
}

static void probe_ternary(simd_ternary f, const float *p, const float *q, const float *s, float *y) {
    v16 a = v16_load(p), b = v16_load(q), c = v16_load(s);
    v16_store(y, f == SIMD_FMA ? v16_fma(a, b, c) : v16_fnma(a, b, c));
}

static float probe_fold(simd_fold f, const float *p) {
    v16 x = v16_load(p);
    if (f == SIMD_FOLD_SUM) return v16_fold_sum(x);
    return f == SIMD_FOLD_MAX ? v16_fold_max(x) : v16_fold_amax(v16_amax(v16_zero(), x));
}

static void probe_to_int(const float *p, int32_t *y) {
    /* Stores the bits of the integers as floats. Vector stores do not change the bits. */
    float bits[16];
    v16_store(bits, v16_from_bits(v16_to_int(v16_load(p))));
    memcpy(y, bits, sizeof bits);
}

static int probe_count_nan(const float *p) {
    return v16m_count(v16_isnan(v16_load(p)));
}

static void probe_transpose(float *square) {
    v16 t[16];
    for (int i = 0; i < 16; i++) t[i] = v16_load(square + 16 * i);
    v16_transpose(t);
    for (int i = 0; i < 16; i++) v16_store(square + 16 * i, t[i]);
}

static void probe_fold_rows(const void *rows, bool bf16, float *y) {
    v16i t[16];
    for (int i = 0; i < 16; i++) {
        const char *row = (const char *)rows + 64 * i;
        if (bf16)
            t[i] = v16i_amax_bf16(v16i_set1(0), row);
        else
            t[i] = v16i_and(v16i_load(row), v16i_set1(0x7fffffffu));
    }
    v16_store(y, bf16 ? v16_fold_rows_amax(t, true) : v16_fold_rows_amax(t, false));
}

static void probe_load(const void *x, ott_dtype d, int64_t index, int64_t n, float *y) {
    if (dtype_is_fp8(d)) {
        const uint8_t *p = (const uint8_t *)x + index;
        v16_store(y, n == 16 ? v16_load_fp8(p, d) : v16_load_fp8_n(p, d, n));
    } else
        v16_store(y, n == 16 ? v16_load_any(x, d, index) : v16_load_any_n(x, d, index, n));
}

static void probe_store(void *y, ott_dtype d, cast_mode mode, int64_t index, int64_t n, const float *p) {
    v16 x = v16_load(p);
    if (dtype_is_fp8(d)) {
        if (n == 16)
            v16_store_fp8((uint8_t *)y + index, x, d, mode);
        else
            v16_store_fp8_n((uint8_t *)y + index, x, d, mode, n);
    } else if (n == 16)
        v16_store_any(y, d, index, x);
    else
        v16_store_any_n(y, d, index, x, n);
}

static void probe_encode64(uint8_t *codes, ott_dtype d, cast_mode mode, const float *x) {
    v16 part[4];
    for (int i = 0; i < 4; i++) part[i] = v16_load(x + 16 * i);
    if (d == OTT_E4M3)
        v16_store_fp8x64(codes, part, OTT_E4M3, mode);
    else
        v16_store_fp8x64(codes, part, OTT_E5M2, mode);
}

#define PROBE(name)                                                                                          \
    {                                                                                                        \
        .isa = name, .unary = probe_unary, .binary = probe_binary, .ternary = probe_ternary,                 \
        .fold = probe_fold, .to_int = probe_to_int, .count_nan = probe_count_nan,                            \
        .transpose = probe_transpose, .fold_rows = probe_fold_rows, .load = probe_load,                      \
        .store = probe_store, .encode64 = probe_encode64                                                     \
    }
