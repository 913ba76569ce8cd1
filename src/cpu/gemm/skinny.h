/*
 * cpu/gemm/skinny: the product of a few rows of A with packed rows of B (cpu/gemm/panel.h), for generating
 * tokens. Reading B from memory limits the speed. So B is read in order and decoded to registers.
 *
 *     sum[i][j] = fmaf(a(i, k), b(j, k), sum[i][j])   for k ascending
 *
 * as in cpu/gemm/kernel.h, or in the order ACCUMULATE_TILE32. Each lane is a row of a panel.
 */
#ifndef CPU_GEMM_SKINNY_H
#define CPU_GEMM_SKINNY_H

#include "cpu/gemm/pack.h"
#include "cpu/gemm/tile.h"

/* Rows of A computed together (limited by the registers). Above SKINNY_MOST rows, gemm_task is faster. */
#if defined(CPU_ISA_avx512)
#define SKINNY_ROWS 4
#else
#define SKINNY_ROWS 2
#endif
enum {
    SKINNY_MOST = 16,
    SKINNY_A_FLOATS = GEMM_MB * GEMM_NB, /* floats of gemm_work.partial, which has A: [row][skinny_ld] */
    SKINNY_AHEAD = 4096,                 /* prefetch distance in bytes */
};
_Static_assert(SKINNY_ROWS <= GEMM_MR, "the sums of a panel must fit into tiles");

/* Returns the number of terms in a packed element of A if B has format d. It is 2 for FP8 on levels with bf16
   dot products. It is 1 for BF16, because dot products treat subnormals as 0, and memory limits the speed. */
SIMD int64_t skinny_terms(ott_dtype d) {
    return panel_has_pairs(d) && pack_is_fp8(d) ? 2 : 1;
}
/* Returns how many packed elements kc terms of a row of A need. */
SIMD int64_t skinny_length(const gemm_job *job, int64_t kc) {
    return gemm_length(kc, skinny_terms(job->args->b->t.dtype), job->tile32);
}
/* Returns the row stride of A, in packed elements. */
SIMD int64_t skinny_ld(const gemm_job *job) {
    return (skinny_length(job, job->k) + 15) / 16 * 16;
}
/* Returns how many rows of A are computed together. ACCUMULATE_TILE32 needs three registers for each sum. */
static int64_t skinny_rows(const gemm_job *job) {
    return job->tile32 ? SKINNY_ROWS / 2 : SKINNY_ROWS;
}

/* Arguments of a kernel: a panel and some rows of A. */
typedef struct skinny_tile {
    const void *panel; /* packed rows of B: [kc][PANEL_ROWS], or [kc / 2][PANEL_ROWS][2] */
    const float *a;    /* packed rows of A: [rows][ld] */
    int64_t ld, kc;
    float *sums; /* sums of the panel: [PANEL_ROWS / GEMM_NR][GEMM_MR][GEMM_NR] */
    /* Inverse block scales scale_inv_a[rows], scale_inv_b[PANEL_ROWS]: sums of the block are scaled and added
       to `sums`. NULL: sums are stored in `sums`. */
    const float *scale_inv_a, *scale_inv_b;
    scale_order order;
} skinny_tile;

SIMD void skinny_leave(const skinny_tile *t, int i, int64_t row, v16 sum) {
    float *y = t->sums + row / GEMM_NR * GEMM_TILE + i * GEMM_NR + row % GEMM_NR;
    if (t->scale_inv_a) {
        v16 scale_inv_a = v16_set1(t->scale_inv_a[i]), scale_inv_b = v16_load(t->scale_inv_b + row),
            before = v16_load(y);
        sum = t->order == SCALE_PRODUCT ? v16_fma(sum, v16_mul(scale_inv_a, scale_inv_b), before)
                                        : v16_fma(v16_mul(sum, scale_inv_a), scale_inv_b, before);
    }
    v16_store(y, sum);
}

/* Sets the sums of rows of B that contain a NaN to NaN. places: result of panel_nans for this part. */
static void skinny_leave_nans(const skinny_tile *t, int rows, int part, uint64_t places) {
    for (; places; places &= places - 1) {
        int place = __builtin_ctzll(places);
        int64_t row = PANEL_PARTS == 1 ? place / 2 + place % 2 * (PANEL_ROWS / 2)
                                       : panel_row(part, place % 2) + place / 2;
        for (int i = 0; i < rows; i++) t->sums[row / GEMM_NR * GEMM_TILE + i * GEMM_NR + row % GEMM_NR] = NAN;
    }
}

SIMD void skinny_ask_ahead(const void *element, int64_t bytes) {
    SIMD_UNROLL for (int64_t at = 0; at < bytes; at += 64)
        __builtin_prefetch((const char *)element + SKINNY_AHEAD + at);
}

/* Sums for some rows of A and for the rows of B in one part of a panel. */
typedef v16 skinny_sums[SKINNY_ROWS][PANEL_VECTORS];

SIMD void skinny_zero(int rows, skinny_sums sum) {
    SIMD_UNROLL for (int i = 0; i < rows; i++) {
        SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) sum[i][v] = v16_zero();
    }
}
/* Adds a tile of 32 terms to the sums, as ACCUMULATE_TILE32 requires: sum = sum + (even + odd). */
SIMD void skinny_add_tile32(int rows, skinny_sums sum, skinny_sums even, skinny_sums odd) {
    SIMD_UNROLL for (int i = 0; i < rows; i++) {
        SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) sum[i][v] =
            v16_add(sum[i][v], v16_add(even[i][v], odd[i][v]));
    }
}
/* Returns the end of the terms, from term k on, that are added together: at most 32 for ACCUMULATE_TILE32. */
SIMD int64_t skinny_end(const skinny_tile *t, int64_t k, bool tile32) {
    return tile32 && t->kc - k > GEMM_TERMS_OF_TILE32 ? k + GEMM_TERMS_OF_TILE32 : t->kc;
}

#if SIMD_HAS_PAIRS
/* Adds the products of terms [k, end) of a panel of pairs. If `unit`, A is packed in pairs too, and bf16 dot
   products add both terms of a pair to `first`. If not, fp32 multiply-adds add the first term of a pair to
   `first` and the second term to `second`. */
SIMD void skinny_extend_pairs(const skinny_tile *t, int rows, ott_dtype d, bool unit, int64_t k, int64_t end,
                              skinny_sums first, skinny_sums second) {
    v16 right[PANEL_VECTORS];
    int64_t size = 2 * PANEL_ROWS * panel_bytes(d);
    for (; k < end; k += 2) {
        const char *pair = (const char *)t->panel + k / 2 * size;
        skinny_ask_ahead(pair, size);
        panel_load_pairs(pair, d, 0, right);
        SIMD_UNROLL for (int i = 0; i < rows; i++) {
            const float *a = t->a + i * t->ld;
            SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) {
                if (unit)
                    first[i][v] = v16_pair_fma(v16_set1(a[k / 2]), right[v], first[i][v]);
                else {
                    first[i][v] = v16_fma(v16_set1(a[k]), v16_pair_first(right[v]), first[i][v]);
                    second[i][v] = v16_fma(v16_set1(a[k + 1]), v16_pair_second(right[v]), second[i][v]);
                }
            }
        }
    }
}

/* Adds the products of terms [k, end) of FP8 rows to the sums of even and of odd terms (ACCUMULATE_TILE32).
   The first terms of two pairs of the panel make a pair of even terms, their second terms a pair of odd. */
SIMD void skinny_extend_tile32(const skinny_tile *t, int rows, ott_dtype d, int64_t k, int64_t end,
                               skinny_sums even, skinny_sums odd) {
    v16 right[PANEL_VECTORS], next[PANEL_VECTORS];
    const int64_t size = 2 * PANEL_ROWS;
    for (; k < end; k += 4) {
        const char *pair = (const char *)t->panel + k / 2 * size;
        skinny_ask_ahead(pair, 2 * size);
        panel_load_pairs(pair, d, 0, right);
        if (k + 2 < end)
            panel_load_pairs(pair + size, d, 0, next);
        else {
            SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) next[v] = v16_zero();
        }
        SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) {
            v16 first = v16_pair_firsts(right[v], next[v]), second = v16_pair_seconds(right[v], next[v]);
            SIMD_UNROLL for (int i = 0; i < rows; i++) {
                const float *a = t->a + i * t->ld + k / 2;
                even[i][v] = v16_pair_fma(v16_set1(a[0]), first, even[i][v]);
                odd[i][v] = v16_pair_fma(v16_set1(a[1]), second, odd[i][v]);
            }
        }
    }
}
#endif

/* Adds the products of term k to the sums, for the rows of B in part `part` of the panel. */
SIMD void skinny_extend(const skinny_tile *t, int rows, ott_dtype d, int part, int64_t k, skinny_sums sum,
                        panel_seen *seen) {
    int64_t size = PANEL_ROWS * panel_bytes(d), first = part * 16 * PANEL_VECTORS;
    const char *term = (const char *)t->panel + k * size;
    v16 right[PANEL_VECTORS];
    skinny_ask_ahead(term, size);
    panel_load(term, d, first, right);
    if (d == OTT_E4M3) *seen = panel_see(*seen, (const uint8_t *)term + first);
    SIMD_UNROLL for (int i = 0; i < rows; i++) {
        v16 left = v16_set1(t->a[i * t->ld + k]);
        SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) sum[i][v] =
            gemm_extended(left, right[v], sum[i][v], gemm_of_terms(pack_is_fp8(d)));
    }
}

SIMD void skinny_extend_part(const skinny_tile *t, int rows, ott_dtype d, bool tile32, int part) {
    skinny_sums sum, even, odd;
    panel_seen seen = panel_seen_none();
    skinny_zero(rows, sum);
    for (int64_t k = 0, end; k < t->kc; k = end) {
        end = skinny_end(t, k, tile32);
        if (tile32) {
            skinny_zero(rows, even);
            skinny_zero(rows, odd);
        }
#if SIMD_HAS_PAIRS
        if (panel_has_pairs(d)) {
            bool unit = skinny_terms(d) == 2;
            if (tile32 && unit)
                skinny_extend_tile32(t, rows, d, k, end, even, odd);
            else if (tile32)
                skinny_extend_pairs(t, rows, d, false, k, end, even, odd);
            else
                skinny_extend_pairs(t, rows, d, unit, k, end, sum, sum);
        } else
#endif
            for (int64_t term = k; term < end; term++) {
                skinny_extend(t, rows, d, part, term, tile32 ? even : sum, &seen);
                if (tile32 && ++term < end) skinny_extend(t, rows, d, part, term, odd, &seen);
            }
        if (tile32) skinny_add_tile32(rows, sum, even, odd);
    }
    SIMD_UNROLL for (int i = 0; i < rows; i++) {
        SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) skinny_leave(t, i, panel_row(part, v), sum[i][v]);
    }
    skinny_leave_nans(t, rows, part, panel_nans(seen));
}

/* ---- a function for each format and number of rows ---- */

typedef void (*skinny_kernel)(const skinny_tile *t);

#define SKINNY_KERNEL(d, rows, name, tile32)                                                                 \
    static void name##_##d##_##rows(const skinny_tile *t) {                                                  \
        for (int part = 0; part < PANEL_PARTS; part++) skinny_extend_part(t, rows, OTT_##d, tile32, part);   \
    }
#define SKINNY_FORMATS(X, ...)                                                                               \
    X(E4M3, __VA_ARGS__) X(E5M2, __VA_ARGS__) X(BF16, __VA_ARGS__) X(F16, __VA_ARGS__) X(F32, __VA_ARGS__)
#define SKINNY_ENTRY(d, rows, name) [OTT_##d] = name##_##d##_##rows,
#define SKINNY_ROW(rows, name)      {SKINNY_FORMATS(SKINNY_ENTRY, rows, name)},
SKINNY_FORMATS(SKINNY_KERNEL, 1, skinny, false)
SKINNY_FORMATS(SKINNY_KERNEL, 2, skinny, false)
SKINNY_FORMATS(SKINNY_KERNEL, 1, skinny_tile32, true)
#if SKINNY_ROWS == 4
SKINNY_FORMATS(SKINNY_KERNEL, 3, skinny, false)
SKINNY_FORMATS(SKINNY_KERNEL, 4, skinny, false)
SKINNY_FORMATS(SKINNY_KERNEL, 2, skinny_tile32, true)
#endif

static skinny_kernel skinny_kernel_of(ott_dtype d, int64_t rows, bool tile32) {
    static const skinny_kernel chains[][OTT_DTYPE_COUNT] = {
        SKINNY_ROW(1, skinny) SKINNY_ROW(2, skinny)
#if SKINNY_ROWS == 4
            SKINNY_ROW(3, skinny) SKINNY_ROW(4, skinny)
#endif
    };
    static const skinny_kernel tiles[][OTT_DTYPE_COUNT] = {
        SKINNY_ROW(1, skinny_tile32)
#if SKINNY_ROWS == 4
            SKINNY_ROW(2, skinny_tile32)
#endif
    };
    return tile32 ? tiles[rows - 1][d] : chains[rows - 1][d];
}

/* ---- block scales ---- */

/* Returns the inverse scale of row `row` in scale block `block` of the contraction. */
static float skinny_scale_inv_a(const operand *o, int64_t row, int64_t block) {
    int64_t rows = granularity_block(o->grain).mn;
    return o->scale_inv ? operand_scale_inv(o, row / rows, block) : 1.0f;
}

/* Writes the inverse scales of the panel's rows, from row `row` on. Rows that do not exist get 0. */
static void skinny_scale_invs_b(float out[PANEL_ROWS], const operand *o, int64_t row, int64_t block) {
    int64_t block_mn = granularity_block(o->grain).mn, there = o->t.rows - row;
    if (block_mn == 1 && there < PANEL_ROWS) memset(out, 0, PANEL_ROWS * sizeof *out);
    for (int64_t i = 0; i < PANEL_ROWS && i < there; i++) out[i] = skinny_scale_inv_a(o, row + i, block);
}

static void skinny_multiply_blocks(const gemm_job *job, skinny_kernel kernel, skinny_tile t, gemm_part p) {
    const operand *a = job->args->a, *b = job->args->b;
    float scale_inv_a[SKINNY_ROWS];
    _Alignas(64) float scale_inv_b[PANEL_ROWS];
    t.scale_inv_a = scale_inv_a;
    t.scale_inv_b = scale_inv_b;
    memset(t.sums, 0, PANEL_ROWS / GEMM_NR * GEMM_TILE * sizeof(float));
    for (int64_t k = 0; k < job->k; k += job->block) {
        t.kc = job->k - k < job->block ? job->k - k : job->block;
        for (int64_t i = 0; i < p.m; i++) scale_inv_a[i] = skinny_scale_inv_a(a, p.i + i, k / job->block);
        skinny_scale_invs_b(scale_inv_b, b, p.j, k / job->block);
        kernel(&t);
        t.a += skinny_length(job, t.kc);
        t.panel = (const char *)t.panel + t.kc * PANEL_ROWS * dtype_bytes(b->t.dtype);
    }
}

/* ---- one thread's part ---- */

/* Computes part p of C, from p.m rows of A and the panel of B that starts at row p.j. */
static void skinny_multiply(const gemm_job *job, const float *rows, gemm_part p) {
    _Alignas(64) float sums[PANEL_ROWS / GEMM_NR * GEMM_TILE];
    const operand *b = job->args->b;
    int64_t panel = PANEL_ROWS * panel_contraction(b->t.dtype, job->k), ld = skinny_ld(job);
    int64_t from = p.j / PANEL_ROWS * panel * dtype_bytes(b->t.dtype);
    skinny_kernel kernel = skinny_kernel_of(b->t.dtype, p.m, job->tile32);
    skinny_tile t = {.panel = (const char *)b->t.data + from,
                     .a = rows + p.i * ld,
                     .ld = ld,
                     .kc = job->k,
                     .sums = sums,
                     .order = job->args->spec.order};
    if (job->block)
        skinny_multiply_blocks(job, kernel, t, p);
    else
        kernel(&t);
    for (int64_t j = 0; j < p.n; j += GEMM_NR)
        gemm_finish(job, sums + j / GEMM_NR * GEMM_TILE,
                    (gemm_part){p.i, p.m, p.j + j, p.n - j < GEMM_NR ? p.n - j : GEMM_NR});
}

SIMD void skinny_decode_format(float *out, const operand *o, ott_dtype d, int64_t terms,
                               const gemm_job *job) {
    const gemm_block order = {.tile32 = job->tile32};
    int64_t k = o->t.columns;
    float factor = job->args->b->t.dtype == OTT_E4M3 ? PANEL_FACTOR : 1.0f;
    for (int64_t i = 0; i < o->t.rows; i++, out += skinny_ld(job)) {
        for (int64_t t = 0; t < k; t += 16 * terms) {
            v16 x = pack_along(o, d, terms, &order, i * o->t.ld + t, k - t, true);
            v16_store(out + t / terms, terms == 1 ? v16_mul(x, v16_set1(factor)) : x);
        }
        /* The panel's last pair is padded with 0, A with -0. Their product is -0, which keeps a sum of -0. */
        if (terms == 1 && panel_has_pairs(job->args->b->t.dtype) && k % 2) out[k] = -0.0f;
    }
}

/* Decodes all rows of A. Multiplies them by PANEL_FACTOR if panel_load divides B by PANEL_FACTOR. */
static void skinny_decode(float *out, const gemm_job *job) {
    const operand *a = job->args->a;
    PACK_BY_TERMS(skinny_terms(job->args->b->t.dtype), skinny_decode_format, out, a, job)
}

static void gemm_skinny_task(void *argument, int thread, int threads) {
    const gemm_job *job = argument;
    gemm_work *w = cpu_scratch(job->cx, thread);
    int64_t begin, end;
    pool_share(job->n, PANEL_ROWS, thread, threads, &begin, &end);
    if (begin >= end) return;
    skinny_decode(w->partial, job);
    for (int64_t j = begin; j < end; j += PANEL_ROWS)
        for (int64_t i = 0; i < job->m; i += skinny_rows(job)) {
            int64_t m = job->m - i < skinny_rows(job) ? job->m - i : skinny_rows(job);
            int64_t n = end - j < PANEL_ROWS ? end - j : PANEL_ROWS;
            skinny_multiply(job, w->partial, (gemm_part){i, m, j, n});
        }
}

/* True if gemm_skinny_task can compute the product. If B is FP8, A must be FP8 too: numbers of other formats
   might overflow when they are multiplied by PANEL_FACTOR. */
static bool gemm_is_skinny(const gemm_job *job) {
    const gemm_args *g = job->args;
    return g->b->packed && !g->a->transposed && job->m <= SKINNY_MOST &&
           job->m * skinny_ld(job) <= SKINNY_A_FLOATS && !recipe_accumulate_is_hopper(g->spec.accumulate) &&
           pack_is_fp8(g->a->t.dtype) == pack_is_fp8(g->b->t.dtype);
}

#endif
