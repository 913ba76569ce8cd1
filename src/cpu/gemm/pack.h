/*
 * cpu/gemm/pack: packs a block of an operand: decodes any format in either orientation into the
 * micro-kernel's layout. A packed element is one term of the contraction in fp32 (`terms` = 1) or two terms
 * in bf16 (`terms` = 2, chosen by pack_order). The format `d` and `terms` are constants of each function, so
 * each combination gets its own loop.
 */
#ifndef CPU_GEMM_PACK_H
#define CPU_GEMM_PACK_H

#include "cpu/gemm/gemm.h"
#include "cpu/gemm/panel.h"

/* Block of an operand: rows [row, row + rows), terms [k, k + kc) of the contraction, which fill `length`
   packed elements of each row. */
typedef struct gemm_block {
    int64_t row, rows, k, kc, length;
    bool tile32; /* for ACCUMULATE_TILE32: pack_order may then pair terms that are not adjacent */
} gemm_block;

SIMD bool pack_is_fp8(ott_dtype d) {
    return d == OTT_E4M3 || d == OTT_E5M2;
}
SIMD v16 pack_load(const void *p, ott_dtype d, int64_t index) {
    return pack_is_fp8(d) ? v16_load_fp8((const uint8_t *)p + index, d) : v16_load_any(p, d, index);
}
/* Loads 16 elements from `index` on. Lanes from n on are 0; n may be negative or above 16. */
SIMD v16 pack_load_n(const void *p, ott_dtype d, int64_t index, int64_t n) {
    if (n >= 16) return pack_load(p, d, index);
    if (n <= 0) return v16_zero();
    return pack_is_fp8(d) ? v16_load_fp8_n((const uint8_t *)p + index, d, n) : v16_load_any_n(p, d, index, n);
}
/* Padding of a contraction (gemm_length): -0 in A, 0 in B. */
SIMD v16 pack_padding(bool minus) {
    return v16_set1(minus ? -0.0f : 0.0f);
}
#if SIMD_HAS_PAIRS
SIMD pair_order pack_order(const gemm_block *b) {
    return b->tile32 && !SIMD_HAS_TILES ? PAIR_TILE32 : PAIR_CHAIN;
}
#endif
/* Returns 16 packed elements of a row: n terms, contiguous in memory from `index` on, then padding. minus:
   pads with -0 (operand A), else with 0. */
SIMD v16 pack_along(const operand *o, ott_dtype d, int64_t terms, const gemm_block *b, int64_t index,
                    int64_t n, bool minus) {
#if SIMD_HAS_PAIRS
    if (terms == 2) return v16_load_pairs(o->t.data, d, index, n, pack_order(b), minus);
#endif
    (void)terms, (void)b;
    v16 x = pack_load_n(o->t.data, d, index, n);
    return minus && n < 16 ? v16_select(v16m_first(n < 0 ? 0 : n), x, pack_padding(true)) : x;
}

/* Returns packed element e of 16 rows from `row` on (n exist), contiguous in memory. minus: pads with -0. */
SIMD v16 pack_across(const operand *o, ott_dtype d, int64_t terms, const gemm_block *b, int64_t row,
                     int64_t n, int64_t e, bool minus) {
#if SIMD_HAS_PAIRS
    if (terms == 2) {
        int64_t k = pair_term(pack_order(b), e), second = k + pair_step(pack_order(b));
        int64_t index = (b->k + k) * o->t.ld + row;
        return v16_join_pairs(o->t.data, d, k < b->kc ? index : -1,
                              second < b->kc ? index + (second - k) * o->t.ld : -1, n, minus);
    }
#endif
    (void)terms;
    return e < b->kc ? pack_load_n(o->t.data, d, (b->k + e) * o->t.ld + row, n) : pack_padding(minus);
}

/* Packing writes PACK_ELEMENTS elements of every panel, then the next PACK_ELEMENTS of every panel. So each
   cache line of the source is read completely while it is cached, for any leading dimension. */
enum { PACK_ELEMENTS = 8 };

/* ---- A ---- */

#if SIMD_HAS_TILES

/* Returns where packed element e of row i of a block is stored, in the layout of cpu/gemm/amx.h. */
SIMD float *pack_tile_row(float *out, int64_t length, int64_t i, int64_t e) {
    return out + i / GEMM_MR * GEMM_MR * length + e * GEMM_MR + i % GEMM_MR * TILE_SIDE;
}
SIMD int64_t pack_tile_rows(gemm_block b) {
    return (b.rows + GEMM_MR - 1) / GEMM_MR * GEMM_MR;
}
/* Packs a block of A that is contiguous along the contraction. Rows that pad a panel are 0. */
SIMD void pack_a_rows(float *out, const operand *o, ott_dtype d, int64_t terms, gemm_block b) {
    for (int64_t i = 0; i < pack_tile_rows(b); i++)
        for (int64_t e = 0; e < b.length; e += TILE_SIDE) {
            int64_t k = e * terms, from = (b.row + i) * o->t.ld + b.k + k;
            v16_store(pack_tile_row(out, b.length, i, e),
                      i < b.rows ? pack_along(o, d, terms, &b, from, b.kc - k, true) : v16_zero());
        }
}
/* Packs a block of a transposed A. */
SIMD void pack_a_panels(float *out, const operand *o, ott_dtype d, int64_t terms, gemm_block b) {
    v16 t[TILE_SIDE];
    for (int64_t e = 0; e < b.length; e += TILE_SIDE)
        for (int64_t i = 0; i < pack_tile_rows(b); i += TILE_SIDE) {
            for (int64_t j = 0; j < TILE_SIDE; j++)
                t[j] = pack_across(o, d, terms, &b, b.row + i, b.rows - i, e + j, true);
            v16_transpose(t);
            for (int64_t j = 0; j < TILE_SIDE; j++) v16_store(pack_tile_row(out, b.length, i + j, e), t[j]);
        }
}

#else

/* Packs a block of A that is contiguous along K: row i to out + i*GEMM_A_LD. May write 15 elements more. */
SIMD void pack_a_rows(float *out, const operand *o, ott_dtype d, int64_t terms, gemm_block b) {
    for (int64_t i = 0; i < b.rows; i++) {
        int64_t from = (b.row + i) * o->t.ld + b.k;
        /* Pairs need padding after the block's last term. In fp32 the elements after it are never read. */
        int64_t there = terms == 2 ? b.kc : o->t.columns - b.k;
        for (int64_t t = 0; t < b.length * terms; t += 16 * terms)
            v16_store(out + i * GEMM_A_LD + t / terms,
                      pack_along(o, d, terms, &b, from + t, there - t, true));
    }
}

/* Stores the first GEMM_A_STEP lanes. */
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

/* Packs a block of a transposed A to [panel of GEMM_MR rows][packed element][GEMM_A_STEP]. */
SIMD void pack_a_panels(float *out, const operand *o, ott_dtype d, int64_t terms, gemm_block b) {
    int64_t length = b.length, available = o->t.columns - b.row;
    for (int64_t t0 = 0; t0 < length; t0 += PACK_ELEMENTS) {
        int64_t t1 = length - t0 < PACK_ELEMENTS ? length : t0 + PACK_ELEMENTS;
        float *to = out;
        for (int64_t i = 0; i < b.rows; i += GEMM_MR, to += GEMM_A_STEP * length)
            for (int64_t t = t0; t < t1; t++)
                pack_store_step(to + t * GEMM_A_STEP,
                                pack_across(o, d, terms, &b, b.row + i, available - i, t, true));
    }
}

#endif

/* ---- B: packed to [panel of GEMM_NR rows][packed element][GEMM_NR]; missing rows are 0 ---- */

/* Packs a block of a transposed B. */
SIMD void pack_b_panels(float *out, const operand *o, ott_dtype d, int64_t terms, gemm_block b) {
    int64_t length = b.length;
    for (int64_t t0 = 0; t0 < length; t0 += PACK_ELEMENTS) {
        int64_t t1 = length - t0 < PACK_ELEMENTS ? length : t0 + PACK_ELEMENTS;
        for (int64_t j = 0; j < b.rows; j += 16) {
            float *to = out + j / GEMM_NR * GEMM_NR * length + j % GEMM_NR;
            for (int64_t t = t0; t < t1; t++)
                v16_store(to + t * GEMM_NR, pack_across(o, d, terms, &b, b.row + j, b.rows - j, t, false));
        }
    }
}

#ifndef CPU_ISA_scalar
/* Transposes 16 x 16 bytes: byte j of t[i] becomes byte i of t[j]. Interleaves rows i, i + 8 four times. */
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
/* Does what pack_square does, for FP8. It transposes codes before decoding: codes are smaller than fp32. */
SIMD void pack_square_fp8(float *out, const operand *o, ott_dtype d, gemm_block b) {
    codes16 t[16];
    const uint8_t *from = (const uint8_t *)o->t.data + b.row * o->t.ld + b.k;
    int64_t there = b.kc > 0 ? b.kc : 0;
    for (int64_t i = 0; i < 16; i++)
        t[i] = i >= b.rows ? codes16_load_n(from, 0) : codes16_load_n(from + i * o->t.ld, there);
    codes16_transpose(t);
    for (int64_t k = 0; k < 16 && k < b.length; k++) v16_store(out + k * GEMM_NR, v16_from_codes(t[k], d));
}
#endif

/* Packs at most 16 rows x 16 packed elements of an operand that is contiguous along the contraction. */
SIMD void pack_square(float *out, const operand *o, ott_dtype d, int64_t terms, gemm_block b) {
#ifndef CPU_ISA_scalar
    if (pack_is_fp8(d) && terms == 1) {
        pack_square_fp8(out, o, d, b);
        return;
    }
#endif
    v16 t[16];
    for (int64_t i = 0; i < 16; i++)
        t[i] =
            i >= b.rows ? v16_zero() : pack_along(o, d, terms, &b, (b.row + i) * o->t.ld + b.k, b.kc, false);
    v16_transpose(t);
    for (int64_t k = 0; k < 16 && k < b.length; k++) v16_store(out + k * GEMM_NR, t[k]);
}

/* Packs a block of B that is contiguous along the contraction. */
SIMD void pack_b_rows(float *out, const operand *o, ott_dtype d, int64_t terms, gemm_block b) {
    int64_t side = 16 * terms;
    for (int64_t j = 0; j < b.rows; j += 16) {
        float *to = out + j / GEMM_NR * GEMM_NR * b.length + j % GEMM_NR;
        gemm_block square = b;
        square.row = b.row + j;
        square.rows = b.rows - j;
        for (int64_t e = 0; e < b.length; e += 16) {
            square.k = b.k + e * terms;
            square.kc = b.kc - e * terms;
            square.length = b.length - e;
            if (square.rows >= 16 && square.kc >= side)
                pack_square(to + e * GEMM_NR, o, d, terms,
                            (gemm_block){square.row, 16, square.k, side, 16, b.tile32});
            else
                pack_square(to + e * GEMM_NR, o, d, terms, square);
        }
    }
}

/* Sets `out` to packed pair e of each row of the panel that starts at row `row`. */
SIMD void pack_panel_pairs(const operand *o, ott_dtype d, const gemm_block *b, int64_t row, int64_t e,
                           v16 out[PANEL_VECTORS]) {
#if SIMD_HAS_PAIRS
    bool tile32 = pack_order(b) == PAIR_TILE32;
    int64_t k = b->k + (tile32 ? e / 2 * 4 : 2 * e);
    v16 next[PANEL_VECTORS];
    panel_pairs(o, d, row, k, out);
    if (!tile32) return;
    panel_pairs(o, d, row, k + 2, next);
    SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) out[v] =
        e % 2 ? v16_pair_seconds(out[v], next[v]) : v16_pair_firsts(out[v], next[v]);
#else
    (void)o, (void)d, (void)b, (void)row, (void)e, (void)out;
#endif
}

/* Packs a block of B that was written by the op `pack`. b.row is the first row of a panel; b.k is even. */
SIMD void pack_b_packed(float *out, const operand *o, ott_dtype d, int64_t terms, gemm_block b) {
    int64_t length = b.length;
    for (int64_t j = 0; j < b.rows; j += PANEL_ROWS)
        for (int64_t t = 0; t < length; t++)
            for (int part = 0; part < PANEL_PARTS; part++) {
                v16 elements[PANEL_VECTORS];
                if (terms == 2)
                    pack_panel_pairs(o, d, &b, b.row + j, t, elements);
                else
                    panel_terms(o, d, b.row + j, b.k + t, part, elements);
                SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) {
                    int64_t row = panel_row(part, v), tile = (j + row) / GEMM_NR;
                    v16_store(out + (tile * length + t) * GEMM_NR + row % GEMM_NR, elements[v]);
                }
            }
}

/* ---- by format ---- */

/* Calls function(out, o, <format>, <terms>, b) with a constant format. */
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
#if SIMD_HAS_TILES
#define PACK_BY_TERMS(terms, function, out, o, b)                                                            \
    (void)(terms); /* a tile unit requires pairs */                                                          \
    PACK_EACH_PAIR_FORMAT(function, out, o, b)
#else
#define PACK_BY_TERMS(terms, function, out, o, b)                                                            \
    if ((terms) == 2)                                                                                        \
        PACK_EACH_PAIR_FORMAT(function, out, o, b)                                                           \
    else                                                                                                     \
        PACK_EACH_FORMAT(function, out, o, b)
#endif
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
