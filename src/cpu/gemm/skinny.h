/*
 * cpu/gemm/skinny: the product of a few lines with packed ones, as generating a token is made of. It takes as
 * long as the packed lines take to come from memory; so they are read once, in order, and decoded on the way
 * into the registers, never into a buffer.
 *
 *     sum[i][j] = fmaf(a(i, k), b(j, k), sum[i][j])   for k ascending
 *
 * as in cpu/gemm/kernel.h; the lines of a panel are the sums that run side by side.
 */
#ifndef CPU_GEMM_SKINNY_H
#define CPU_GEMM_SKINNY_H

#include "cpu/gemm/pack.h"
#include "cpu/gemm/tile.h"

/* Lines of A at a time, as many as leave registers for a part of a panel. More than SKINNY_MOST are faster by
 * blocks. */
#if defined(CPU_ISA_avx512)
#define SKINNY_LINES 4
#else
#define SKINNY_LINES 2
#endif
enum {
    SKINNY_MOST = 16,
    SKINNY_A_FLOATS = GEMM_MB * GEMM_NB, /* gemm_work.partial holds the lines of A: [line][skinny_ld(k)] */
    SKINNY_AHEAD = 4096,                 /* bytes that are asked for before they are wanted */
};
_Static_assert(SKINNY_LINES <= GEMM_MR, "the sums of a panel are some of whole tiles");

SIMD int64_t skinny_ld(int64_t k) {
    return (k + 15) / 16 * 16;
}

/* A panel's sums with some lines of A. */
typedef struct skinny_tile {
    const void *panel; /* [depth][PANEL_LINES] */
    const float *a;    /* [lines][ld] */
    int64_t ld, depth;
    float *sums; /* [PANEL_LINES / GEMM_NR][GEMM_MR][GEMM_NR] */
    /* Block scales, NULL for none: scale_inv_a[lines], scale_inv_b[PANEL_LINES]; then the block's scaled sums are
       added. */
    const float *scale_inv_a, *scale_inv_b;
    scale_order order;
} skinny_tile;

SIMD void skinny_leave(const skinny_tile *t, int i, int64_t line, v16 sum) {
    float *y = t->sums + line / GEMM_NR * GEMM_TILE + i * GEMM_NR + line % GEMM_NR;
    if (t->scale_inv_a) {
        v16 scale_inv_a = v16_set1(t->scale_inv_a[i]), scale_inv_b = v16_load(t->scale_inv_b + line),
            before = v16_load(y);
        sum = t->order == SCALE_PRODUCT ? v16_fma(sum, v16_mul(scale_inv_a, scale_inv_b), before)
                                        : v16_fma(v16_mul(sum, scale_inv_a), scale_inv_b, before);
    }
    v16_store(y, sum);
}

/* A NaN at a place of B makes the sums of its line NaN. */
static void skinny_leave_nans(const skinny_tile *t, int lines, int part, uint64_t places) {
    for (; places; places &= places - 1) {
        int place = __builtin_ctzll(places);
        int64_t line = PANEL_PARTS == 1 ? place / 2 + place % 2 * (PANEL_LINES / 2)
                                        : panel_line(part, place % 2) + place / 2;
        for (int i = 0; i < lines; i++)
            t->sums[line / GEMM_NR * GEMM_TILE + i * GEMM_NR + line % GEMM_NR] = NAN;
    }
}

SIMD void skinny_extend(const skinny_tile *t, int lines, ott_dtype d, int part) {
    int64_t size = pack_is_fp8(d) ? 1 : d == OTT_F32 ? 4 : 2, first = part * 16 * PANEL_VECTORS;
    v16 sum[SKINNY_LINES][PANEL_VECTORS], right[PANEL_VECTORS];
    panel_seen seen = panel_seen_none();
    SIMD_UNROLL for (int i = 0; i < lines; i++) {
        SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) sum[i][v] = v16_zero();
    }
    for (int64_t k = 0; k < t->depth; k++) {
        const char *term = (const char *)t->panel + k * PANEL_LINES * size;
        SIMD_UNROLL for (int64_t at = 0; at < PANEL_LINES * size; at += 64)
            __builtin_prefetch(term + SKINNY_AHEAD + at);
        panel_load(term, d, first, right);
        if (d == OTT_E4M3) seen = panel_see(seen, (const uint8_t *)term + first);
        SIMD_UNROLL for (int i = 0; i < lines; i++) {
            v16 left = v16_set1(t->a[i * t->ld + k]);
            SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) sum[i][v] =
                gemm_term(left, right[v], sum[i][v], pack_is_fp8(d));
        }
    }
    SIMD_UNROLL for (int i = 0; i < lines; i++) {
        SIMD_UNROLL for (int v = 0; v < PANEL_VECTORS; v++)
            skinny_leave(t, i, panel_line(part, v), sum[i][v]);
    }
    skinny_leave_nans(t, lines, part, panel_nans(seen));
}

/* ---- a function for each format and number of lines ---- */

typedef void (*skinny_kernel)(const skinny_tile *t);

#define SKINNY_KERNEL(d, lines)                                                                              \
    static void skinny_##d##_##lines(const skinny_tile *t) {                                                 \
        for (int part = 0; part < PANEL_PARTS; part++) skinny_extend(t, lines, OTT_##d, part);               \
    }
#define SKINNY_FORMATS(X, lines) X(E4M3, lines) X(E5M2, lines) X(BF16, lines) X(F16, lines) X(F32, lines)
SKINNY_FORMATS(SKINNY_KERNEL, 1)
SKINNY_FORMATS(SKINNY_KERNEL, 2)
#if SKINNY_LINES == 4
SKINNY_FORMATS(SKINNY_KERNEL, 3)
SKINNY_FORMATS(SKINNY_KERNEL, 4)
#define SKINNY_ROW(d)                                                                                        \
    { skinny_##d##_1, skinny_##d##_2, skinny_##d##_3, skinny_##d##_4 }
#else
#define SKINNY_ROW(d)                                                                                        \
    { skinny_##d##_1, skinny_##d##_2 }
#endif

static skinny_kernel skinny_kernel_of(ott_dtype d, int64_t lines) {
    static const skinny_kernel kernels[][SKINNY_LINES] = {[OTT_E4M3] = SKINNY_ROW(E4M3),
                                                          [OTT_E5M2] = SKINNY_ROW(E5M2),
                                                          [OTT_BF16] = SKINNY_ROW(BF16),
                                                          [OTT_F16] = SKINNY_ROW(F16),
                                                          [OTT_F32] = SKINNY_ROW(F32)};
    return kernels[d][lines - 1];
}

/* ---- block scales ---- */

/* Entry of line `line` in block `block` of the contraction. */
static float skinny_scale_inv_a(const operand *o, int64_t line, int64_t block) {
    int64_t lines = granularity_block(o->grain).lines;
    return o->scale_inv ? o->scale_inv[line / lines * o->line_step + block * o->depth_step] : 1.0f;
}

/* Those of the panel from `line` on; a square block holds whole panels. */
static void skinny_scale_invs_b(float out[PANEL_LINES], const operand *o, int64_t line, int64_t block) {
    int64_t block_lines = granularity_block(o->grain).lines, there = o->t.rows - line;
    if (block_lines == 1 && there < PANEL_LINES) memset(out, 0, PANEL_LINES * sizeof *out);
    for (int64_t i = 0; i < PANEL_LINES && i < there; i++) out[i] = skinny_scale_inv_a(o, line + i, block);
}

static void skinny_multiply_blocks(const gemm_job *job, skinny_kernel kernel, skinny_tile t, gemm_part p) {
    const operand *a = job->args->a, *b = job->args->b;
    float scale_inv_a[SKINNY_LINES];
    _Alignas(64) float scale_inv_b[PANEL_LINES];
    t.scale_inv_a = scale_inv_a;
    t.scale_inv_b = scale_inv_b;
    memset(t.sums, 0, PANEL_LINES / GEMM_NR * GEMM_TILE * sizeof(float));
    for (int64_t k = 0; k < job->k; k += job->block) {
        t.depth = job->k - k < job->block ? job->k - k : job->block;
        for (int64_t i = 0; i < p.m; i++) scale_inv_a[i] = skinny_scale_inv_a(a, p.i + i, k / job->block);
        skinny_scale_invs_b(scale_inv_b, b, p.j, k / job->block);
        kernel(&t);
        t.a += t.depth;
        t.panel = (const char *)t.panel + t.depth * PANEL_LINES * dtype_bytes(b->t.dtype);
    }
}

/* ---- one thread's part ---- */

/* Lines p.i on with the panel from p.j on. */
static void skinny_multiply(const gemm_job *job, const float *lines, gemm_part p) {
    _Alignas(64) float sums[PANEL_LINES / GEMM_NR * GEMM_TILE];
    const operand *b = job->args->b;
    int64_t from = panel_index(p.j, 0, job->k) * dtype_bytes(b->t.dtype), ld = skinny_ld(job->k);
    skinny_kernel kernel = skinny_kernel_of(b->t.dtype, p.m);
    skinny_tile t = {.panel = (const char *)b->t.data + from,
                     .a = lines + p.i * ld,
                     .ld = ld,
                     .depth = job->k,
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

SIMD void skinny_decode_format(float *out, const operand *o, ott_dtype d, float factor) {
    int64_t k = o->t.columns;
    for (int64_t i = 0; i < o->t.rows; i++)
        for (int64_t t = 0; t < k; t += 16)
            v16_store(out + i * skinny_ld(k) + t,
                      v16_mul(pack_load_n(o->t.data, d, i * o->t.ld + t, k - t), v16_set1(factor)));
}

/* All lines of A, times what the numbers of B have been divided by. */
static void skinny_decode(float *out, const gemm_job *job) {
    const operand *a = job->args->a;
    float factor = job->args->b->t.dtype == OTT_E4M3 ? PANEL_FACTOR : 1.0f;
    PACK_EACH_FORMAT(skinny_decode_format, out, a, factor)
}

static void gemm_skinny_task(void *argument, int thread, int threads) {
    const gemm_job *job = argument;
    gemm_work *w = cpu_scratch(job->cx, thread);
    int64_t begin, end;
    pool_share(job->n, PANEL_LINES, thread, threads, &begin, &end);
    if (begin >= end) return;
    skinny_decode(w->partial, job);
    for (int64_t j = begin; j < end; j += PANEL_LINES)
        for (int64_t i = 0; i < job->m; i += SKINNY_LINES) {
            int64_t m = job->m - i < SKINNY_LINES ? job->m - i : SKINNY_LINES;
            int64_t n = end - j < PANEL_LINES ? end - j : PANEL_LINES;
            skinny_multiply(job, w->partial, (gemm_part){i, m, j, n});
        }
}

/* Is it a product that gemm_skinny_task makes? With FP8 lines A is FP8 too: times PANEL_FACTOR, other numbers
   might overflow. */
static bool gemm_is_skinny(const gemm_job *job) {
    const gemm_args *g = job->args;
    return g->b->packed && !g->a->transposed && job->m <= SKINNY_MOST &&
           job->m * skinny_ld(job->k) <= SKINNY_A_FLOATS && g->spec.accumulate == ACCUMULATE_FP32 &&
           pack_is_fp8(g->a->t.dtype) == pack_is_fp8(g->b->t.dtype);
}

#endif
