/*
 * cpu/gemm/pack: blocks of an operand, decoded and laid out as the micro-kernel reads them: any format, either
 * orientation. A packed element is one term of the contraction in fp32 (`terms` = 1) or a pair of terms in bf16
 * (`terms` = 2). The format `d` and `terms` are constants of each function, so that each gets its own loop.
 */
#ifndef CPU_GEMM_PACK_H
#define CPU_GEMM_PACK_H

#include "cpu/gemm/gemm.h"
#include "cpu/gemm/panel.h"

/* Part of an operand: rows [row, row + rows) and terms [k, k + kc) of the contraction. */
typedef struct gemm_block {
    int64_t row, rows, k, kc;
} gemm_block;

SIMD bool pack_is_fp8(ott_dtype d) {
    return d == OTT_E4M3 || d == OTT_E5M2;
}
/* Packed elements of kc terms. The last pair of an odd number of terms is completed with -0 in A and 0 in B: adding
   their product, -0, changes no sum, not even -0. */
SIMD int64_t pack_length(int64_t kc, int64_t terms) {
    return (kc + terms - 1) / terms;
}
SIMD v16 pack_load(const void *p, ott_dtype d, int64_t index) {
    return pack_is_fp8(d) ? v16_load_fp8((const uint8_t *)p + index, d) : v16_load_any(p, d, index);
}
/* The first n of 16 elements, 0 for the others; n may be anything. */
SIMD v16 pack_load_n(const void *p, ott_dtype d, int64_t index, int64_t n) {
    if (n >= 16) return pack_load(p, d, index);
    if (n <= 0) return v16_zero();
    return pack_is_fp8(d) ? v16_load_fp8_n((const uint8_t *)p + index, d, n) : v16_load_any_n(p, d, index, n);
}
/* 16 packed elements of one row, whose contraction is contiguous from `index` on; n terms are there. */
SIMD v16 pack_along(const operand *o, ott_dtype d, int64_t terms, int64_t index, int64_t n) {
#if SIMD_HAS_PAIRS
    if (terms == 2) return v16_load_pairs(o->t.data, d, index, n);
#endif
    (void)terms;
    return pack_load_n(o->t.data, d, index, n);
}
#define PACK_MINUS_ZERO 0x8000u /* as the second term of a pair */

/* A packed element of 16 rows, which are contiguous from `row` on, n of them there: terms k to `end` at most. */
SIMD v16 pack_across(const operand *o, ott_dtype d, int64_t terms, int64_t row, int64_t n, int64_t k,
                     int64_t end) {
    int64_t index = k * o->t.ld + row;
#if SIMD_HAS_PAIRS
    if (terms == 2) return v16_join_pairs(o->t.data, d, index, k + 1 < end ? index + o->t.ld : -1, n);
#endif
    (void)terms, (void)end;
    return pack_load_n(o->t.data, d, index, n);
}

/* ---- A ---- */

/* Contraction contiguous: row i at out + i*GEMM_A_LD. Up to 15 elements beyond the row's last are written, and never
 * read. */
SIMD void pack_a_rows(float *out, const operand *o, ott_dtype d, int64_t terms, gemm_block b) {
    for (int64_t i = 0; i < b.rows; i++) {
        int64_t from = (b.row + i) * o->t.ld + b.k;
        /* Beyond this block's terms pairs need 0; other elements are not read. */
        int64_t there = terms == 2 ? b.kc : o->t.columns - b.k;
        for (int64_t t = 0; t < b.kc; t += 16 * terms)
            v16_store(out + i * GEMM_A_LD + t / terms, pack_along(o, d, terms, from + t, there - t));
        if (terms == 2 && b.kc % 2) {
            float *last = out + i * GEMM_A_LD + b.kc / 2;
            *last = fmath_from_bits(fmath_bits(*last) | PACK_MINUS_ZERO);
        }
    }
}

/* A vector's first GEMM_A_STEP lanes. */
SIMD void pack_store_step(float *to, v16 x) {
#if defined(CPU_ISA_avx512)
    v16_store(to, x);
#elif defined(CPU_ISA_avx2)
    _mm256_store_ps(to, x.a);
#elif defined(CPU_ISA_neon)
    vst1q_f32(to, x.a);
    vst1q_f32(to + 4, x.b);
#else
    v16_store_n(to, x, GEMM_A_STEP);
#endif
}

/* Packed elements written for all panels before the next ones are: as many as let each cache line of the source be
   used up while it is there, whatever the leading dimension. */
enum { PACK_ELEMENTS = 8 };

/* Rows contiguous: [panel of GEMM_MR rows][element][GEMM_A_STEP]. */
SIMD void pack_a_panels(float *out, const operand *o, ott_dtype d, int64_t terms, gemm_block b) {
    int64_t length = pack_length(b.kc, terms), available = o->t.columns - b.row, end = b.k + b.kc;
    for (int64_t t0 = 0; t0 < length; t0 += PACK_ELEMENTS) {
        int64_t t1 = length - t0 < PACK_ELEMENTS ? length : t0 + PACK_ELEMENTS;
        float *to = out;
        for (int64_t i = 0; i < b.rows; i += GEMM_MR, to += GEMM_A_STEP * length)
            for (int64_t t = t0; t < t1; t++) {
                v16 x = pack_across(o, d, terms, b.row + i, available - i, b.k + t * terms, end);
                if (terms == 2 && t == b.kc / 2)
                    x = v16_from_bits(v16i_or(v16_bits(x), v16i_set1(PACK_MINUS_ZERO)));
                pack_store_step(to + t * GEMM_A_STEP, x);
            }
    }
}

/* ---- B: [panel of GEMM_NR rows][element][GEMM_NR], rows that are not there are 0 ---- */

/* Rows contiguous. A few elements at a time for all panels, so that each cache line of the source is used up while it
   is there, whatever its leading dimension. */
SIMD void pack_b_panels(float *out, const operand *o, ott_dtype d, int64_t terms, gemm_block b) {
    int64_t length = pack_length(b.kc, terms), end = b.k + b.kc;
    for (int64_t t0 = 0; t0 < length; t0 += PACK_ELEMENTS) {
        int64_t t1 = length - t0 < PACK_ELEMENTS ? length : t0 + PACK_ELEMENTS;
        for (int64_t j = 0; j < b.rows; j += 16) {
            float *to = out + j / GEMM_NR * GEMM_NR * length + j % GEMM_NR;
            for (int64_t t = t0; t < t1; t++)
                v16_store(to + t * GEMM_NR,
                          pack_across(o, d, terms, b.row + j, b.rows - j, b.k + t * terms, end));
        }
    }
}

#ifndef CPU_ISA_scalar
/* 16 x 16 bytes: t[i] byte j becomes t[j] byte i, in four rounds of interleaving row i with row i + 8. */
SIMD void codes16_transpose(codes16 t[16]) {
    codes16 u[16];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 8; i++) {
            u[2 * i] = codes16_zip_low(t[i], t[i + 8]);
            u[2 * i + 1] = codes16_zip_high(t[i], t[i + 8]);
        }
        for (int i = 0; i < 8; i++) {
            t[2 * i] = codes16_zip_low(u[i], u[i + 8]);
            t[2 * i + 1] = codes16_zip_high(u[i], u[i + 8]);
        }
    }
}
/* The same 16 x 16 block through its codes: a quarter of the data to move. */
SIMD void pack_square_fp8(float *out, const operand *o, ott_dtype d, gemm_block b) {
    codes16 t[16];
    const uint8_t *from = (const uint8_t *)o->t.data + b.row * o->t.ld + b.k;
    for (int64_t i = 0; i < 16; i++)
        t[i] = i >= b.rows ? codes16_load_n(from, 0) : codes16_load_n(from + i * o->t.ld, b.kc);
    codes16_transpose(t);
    for (int64_t k = 0; k < 16 && k < b.kc; k++) v16_store(out + k * GEMM_NR, v16_from_codes(t[k], d));
}
#endif

/* A block of at most 16 rows x 16 packed elements with the contraction contiguous, turned. */
SIMD void pack_square(float *out, const operand *o, ott_dtype d, int64_t terms, gemm_block b) {
#ifndef CPU_ISA_scalar
    if (pack_is_fp8(d) && terms == 1) {
        pack_square_fp8(out, o, d, b);
        return;
    }
#endif
    v16 t[16];
    for (int64_t i = 0; i < 16; i++)
        t[i] = i >= b.rows ? v16_zero() : pack_along(o, d, terms, (b.row + i) * o->t.ld + b.k, b.kc);
    v16_transpose(t);
    for (int64_t k = 0; k < 16 && k < pack_length(b.kc, terms); k++) v16_store(out + k * GEMM_NR, t[k]);
}

/* Contraction contiguous. */
SIMD void pack_b_rows(float *out, const operand *o, ott_dtype d, int64_t terms, gemm_block b) {
    int64_t length = pack_length(b.kc, terms), side = 16 * terms;
    for (int64_t j = 0; j < b.rows; j += 16) {
        float *to = out + j / GEMM_NR * GEMM_NR * length + j % GEMM_NR;
        gemm_block square = {.row = b.row + j, .rows = b.rows - j};
        for (int64_t t = 0; t < b.kc; t += side) {
            square.k = b.k + t;
            square.kc = b.kc - t;
            if (square.rows >= 16 && square.kc >= side)
                pack_square(to + t / terms * GEMM_NR, o, d, terms,
                            (gemm_block){square.row, 16, square.k, side});
            else
                pack_square(to + t / terms * GEMM_NR, o, d, terms, square);
        }
    }
}

/* Packed rows: b.row is the first of a panel, and whole panels are written. b.k is even. */
SIMD void pack_b_packed(float *out, const operand *o, ott_dtype d, int64_t terms, gemm_block b) {
    int64_t length = pack_length(b.kc, terms);
    for (int64_t j = 0; j < b.rows; j += PANEL_ROWS)
        for (int64_t t = 0; t < length; t++)
            for (int part = 0; part < PANEL_PARTS; part++) {
                v16 elements[PANEL_VECTORS];
                panel_elements(o, d, terms, b.row + j, b.k + t * terms, part, elements);
                SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) {
                    int64_t row = panel_row(part, v), tile = (j + row) / GEMM_NR;
                    v16_store(out + (tile * length + t) * GEMM_NR + row % GEMM_NR, elements[v]);
                }
            }
}

/* ---- by format ---- */

/* function(out, o, <format>, <terms>, b), each format a call of its own. */
#define PACK_EACH_FORMAT(function, out, o, b)                                                                \
    switch ((o)->t.dtype) {                                                                                  \
    case OTT_E4M3: function(out, o, OTT_E4M3, 1, b); break;                                                  \
    case OTT_E5M2: function(out, o, OTT_E5M2, 1, b); break;                                                  \
    case OTT_BF16: function(out, o, OTT_BF16, 1, b); break;                                                  \
    case OTT_F16: function(out, o, OTT_F16, 1, b); break;                                                    \
    default: function(out, o, OTT_F32, 1, b); break;                                                         \
    }
#if SIMD_HAS_PAIRS
#define PACK_EACH_PAIR_FORMAT(function, out, o, b)                                                           \
    switch ((o)->t.dtype) {                                                                                  \
    case OTT_E4M3: function(out, o, OTT_E4M3, 2, b); break;                                                  \
    case OTT_E5M2: function(out, o, OTT_E5M2, 2, b); break;                                                  \
    default: function(out, o, OTT_BF16, 2, b); break;                                                        \
    }
#define PACK_BY_TERMS(terms, function, out, o, b)                                                            \
    if ((terms) == 2)                                                                                        \
        PACK_EACH_PAIR_FORMAT(function, out, o, b)                                                           \
    else                                                                                                     \
        PACK_EACH_FORMAT(function, out, o, b)
#else
#define PACK_BY_TERMS(terms, function, out, o, b)                                                            \
    (void)(terms);                                                                                           \
    PACK_EACH_FORMAT(function, out, o, b)
#endif

static void gemm_pack_a(float *out, const operand *o, int64_t terms, gemm_block b) {
    if (o->transposed) {
        PACK_BY_TERMS(terms, pack_a_panels, out, o, b)
    } else {
        PACK_BY_TERMS(terms, pack_a_rows, out, o, b)
    }
}

static void gemm_pack_b(float *out, const operand *o, int64_t terms, gemm_block b) {
    if (o->packed) {
        PACK_BY_TERMS(terms, pack_b_packed, out, o, b)
    } else if (o->transposed) {
        PACK_BY_TERMS(terms, pack_b_panels, out, o, b)
    } else {
        PACK_BY_TERMS(terms, pack_b_rows, out, o, b)
    }
}

#endif
