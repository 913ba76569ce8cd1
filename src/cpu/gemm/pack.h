/*
 * cpu/gemm/pack: blocks of an operand, decoded to fp32 and laid out as the micro-kernel reads them: any
 * format, either orientation. `d` is the operand's format as a constant, so that each format gets its own
 * loop.
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
SIMD v16 pack_load(const void *p, ott_dtype d, int64_t index) {
    return pack_is_fp8(d) ? v16_load_fp8((const uint8_t *)p + index, d) : v16_load_any(p, d, index);
}
/* The first n of 16 elements, 0 for the others; n may be anything. */
SIMD v16 pack_load_n(const void *p, ott_dtype d, int64_t index, int64_t n) {
    if (n >= 16) return pack_load(p, d, index);
    if (n <= 0) return v16_zero();
    return pack_is_fp8(d) ? v16_load_fp8_n((const uint8_t *)p + index, d, n) : v16_load_any_n(p, d, index, n);
}

/* ---- A ---- */

/* Contraction along memory: row i at out + i*GEMM_A_LD. Up to 15 terms beyond kc are written, and never
 * read. */
SIMD void pack_a_rows(float *out, const operand *o, ott_dtype d, gemm_block b) {
    for (int64_t i = 0; i < b.rows; i++) {
        int64_t from = (b.row + i) * o->t.ld + b.k;
        for (int64_t t = 0; t < b.kc; t += 16)
            v16_store(out + i * GEMM_A_LD + t, pack_load_n(o->t.data, d, from + t, o->t.columns - b.k - t));
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

/* Terms packed for all panels before the next ones are: as many as let each cache line of the source be used
   up while it is there, whatever the leading dimension. */
enum { PACK_TERMS = 8 };

/* Rows along memory: [panel of GEMM_MR rows][kc][GEMM_A_STEP]. */
SIMD void pack_a_panels(float *out, const operand *o, ott_dtype d, gemm_block b) {
    for (int64_t t0 = 0; t0 < b.kc; t0 += PACK_TERMS) {
        int64_t terms = b.kc - t0 < PACK_TERMS ? b.kc - t0 : PACK_TERMS, available = o->t.columns - b.row;
        int64_t from = (b.k + t0) * o->t.ld + b.row;
        float *to = out + t0 * GEMM_A_STEP;
        for (int64_t i = 0; i < b.rows; i += GEMM_MR, to += GEMM_A_STEP * b.kc)
            for (int64_t t = 0; t < terms; t++)
                pack_store_step(to + t * GEMM_A_STEP,
                                pack_load_n(o->t.data, d, from + t * o->t.ld + i, available - i));
    }
}

/* ---- B: [panel of GEMM_NR rows][kc][GEMM_NR], rows that are not there are 0 ---- */

/* Rows along memory. A few terms at a time for all panels, so that each cache line of the source is used up
   while it is there, whatever its leading dimension. */
SIMD void pack_b_panels(float *out, const operand *o, ott_dtype d, gemm_block b) {
    for (int64_t t0 = 0; t0 < b.kc; t0 += PACK_TERMS) {
        int64_t terms = b.kc - t0 < PACK_TERMS ? b.kc - t0 : PACK_TERMS;
        for (int64_t j = 0; j < b.rows; j += 16) {
            float *to = out + j / GEMM_NR * GEMM_NR * b.kc + j % GEMM_NR + t0 * GEMM_NR;
            int64_t from = (b.k + t0) * o->t.ld + b.row + j;
            for (int64_t t = 0; t < terms; t++)
                v16_store(to + t * GEMM_NR, pack_load_n(o->t.data, d, from + t * o->t.ld, b.rows - j));
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

/* A block of at most 16 rows x 16 terms with the contraction along memory, turned. */
SIMD void pack_square(float *out, const operand *o, ott_dtype d, gemm_block b) {
#ifndef CPU_ISA_scalar
    if (pack_is_fp8(d)) {
        pack_square_fp8(out, o, d, b);
        return;
    }
#endif
    v16 t[16];
    for (int64_t i = 0; i < 16; i++)
        t[i] = i >= b.rows ? v16_zero() : pack_load_n(o->t.data, d, (b.row + i) * o->t.ld + b.k, b.kc);
    v16_transpose(t);
    for (int64_t k = 0; k < 16 && k < b.kc; k++) v16_store(out + k * GEMM_NR, t[k]);
}

/* Contraction along memory. */
SIMD void pack_b_rows(float *out, const operand *o, ott_dtype d, gemm_block b) {
    for (int64_t j = 0; j < b.rows; j += 16) {
        float *to = out + j / GEMM_NR * GEMM_NR * b.kc + j % GEMM_NR;
        gemm_block square = {.row = b.row + j, .rows = b.rows - j};
        for (int64_t t = 0; t < b.kc; t += 16) {
            square.k = b.k + t;
            square.kc = b.kc - t;
            if (square.rows >= 16 && square.kc >= 16)
                pack_square(to + t * GEMM_NR, o, d, (gemm_block){square.row, 16, square.k, 16});
            else
                pack_square(to + t * GEMM_NR, o, d, square);
        }
    }
}

/* A term of a panel as it is: a NaN too. */
SIMD void pack_load_panel(const operand *o, ott_dtype d, int64_t at, v16 out[PANEL_VECTORS]) {
    panel_load(o->t.data, d, at, out);
    SIMD_UNROLL for (int v = 0; d == OTT_E4M3 && v < PANEL_VECTORS; v++) {
        v16m nan = v16_eq(v16_abs(out[v]), v16_set1(PANEL_NAN));
        out[v] = v16_select(nan, v16_set1(NAN), v16_mul(out[v], v16_set1(PANEL_FACTOR)));
    }
}

/* Packed rows: b.row is the first of a panel, and whole panels are written. */
SIMD void pack_b_packed(float *out, const operand *o, ott_dtype d, gemm_block b) {
    for (int64_t j = 0; j < b.rows; j += PANEL_ROWS)
        for (int64_t t = 0; t < b.kc; t++) {
            int64_t from = panel_index(b.row + j, b.k + t, o->t.columns);
            for (int part = 0; part < PANEL_PARTS; part++) {
                v16 terms[PANEL_VECTORS];
                pack_load_panel(o, d, from + part * 16 * PANEL_VECTORS, terms);
                SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) {
                    int64_t row = panel_row(part, v), tile = (j + row) / GEMM_NR;
                    v16_store(out + (tile * b.kc + t) * GEMM_NR + row % GEMM_NR, terms[v]);
                }
            }
        }
}

/* ---- by format ---- */

/* function(out, o, <format>, b), each format a call of its own. */
#define PACK_EACH_FORMAT(function, out, o, b)                                                                \
    switch ((o)->t.dtype) {                                                                                  \
    case OTT_E4M3: function(out, o, OTT_E4M3, b); break;                                                     \
    case OTT_E5M2: function(out, o, OTT_E5M2, b); break;                                                     \
    case OTT_BF16: function(out, o, OTT_BF16, b); break;                                                     \
    case OTT_F16: function(out, o, OTT_F16, b); break;                                                       \
    default: function(out, o, OTT_F32, b); break;                                                            \
    }

static void gemm_pack_a(float *out, const operand *o, gemm_block b) {
    if (o->transposed)
        PACK_EACH_FORMAT(pack_a_panels, out, o, b)
    else
        PACK_EACH_FORMAT(pack_a_rows, out, o, b)
}

static void gemm_pack_b(float *out, const operand *o, gemm_block b) {
    if (o->packed)
        PACK_EACH_FORMAT(pack_b_packed, out, o, b)
    else if (o->transposed)
        PACK_EACH_FORMAT(pack_b_panels, out, o, b)
    else
        PACK_EACH_FORMAT(pack_b_rows, out, o, b)
}

#endif
