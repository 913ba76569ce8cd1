/*
 * cpu/gemm/gemm: private to cpu/gemm. Block sizes, the job, and the epilogue of a finished tile of C.
 *
 * The structure is BLIS's (Van Zee and van de Geijn 2015). Blocks of both operands are decoded while they are
 * packed into the micro-kernel's order, so all formats and both orientations share one kernel. The order of
 * addition differs from BLIS: fp8/reference.h defines it. An element of C is one fp32 sum, to which the terms
 * of the full contraction are added one by one. ACCUMULATE_TILE32 adds sums of 32 terms instead, and block
 * scales require adding the scaled sum of each scale block. Sums of a part of the contraction are kept in an
 * fp32 buffer, never in C. A finished sum gets the other scales and the bias, is added to C, and is rounded.
 * Here an operand's rows are the M rows of A or the N rows of B; its columns are the contraction K.
 *
 * A packed element has 32 bits. It is one term of the contraction in fp32, or two terms in bf16 if the
 * instruction set (CPU_ISA_*) multiplies pairs of bf16 numbers and both operands are FP8 or BF16
 * (cpu/simd/avx512bf16.h).
 */
#ifndef CPU_GEMM_H
#define CPU_GEMM_H

#include "cpu/simd/simd.h"
#include "cpu/isa.h"

/* The micro-kernel computes a tile of C of MR rows and NR columns (NV vectors), as large as the registers
   allow. A panel of MR rows of A has MR packed elements for each k, padded to A_STEP floats for alignment. */
#if SIMD_HAS_TILES
#define GEMM_MR     32
#define GEMM_A_STEP 32
#define GEMM_NV     2
#elif defined(CPU_ISA_avx512)
#define GEMM_MR     14
#define GEMM_A_STEP 16
#define GEMM_NV     2
#elif defined(CPU_ISA_avx2) || defined(CPU_ISA_neon)
#define GEMM_MR     6
#define GEMM_A_STEP 8
#define GEMM_NV     1
#else
#define GEMM_MR     4
#define GEMM_A_STEP 4
#define GEMM_NV     1
#endif
#define GEMM_NR (16 * GEMM_NV)

/* Block sizes (measured). MC and NB are multiples of MR and NR. A_LD is no power of two, so that packed rows
   of A map to different cache sets. If the contraction has several blocks, C is computed in blocks of MB rows
   and NB columns, so that their sums fit gemm_work.partial. Otherwise a block of B has more columns. */
enum {
    GEMM_KC = 1024,                          /* packed elements of the contraction in a block */
    GEMM_TERMS_MAX = SIMD_HAS_PAIRS ? 2 : 1, /* terms in a packed element */
    GEMM_MC = SIMD_HAS_TILES ? 160 : 168,    /* rows of A in a packed block */
    GEMM_MB = 6 * GEMM_MC,
    GEMM_NB = 512,
    GEMM_B_FLOATS = GEMM_NB * GEMM_KC,
    GEMM_A_LD = GEMM_KC + 16,
    GEMM_A_ROWS_FLOATS = GEMM_MC * GEMM_A_LD,
    GEMM_A_PANELS_FLOATS = GEMM_MC / GEMM_MR * GEMM_A_STEP * GEMM_KC,
    GEMM_A_FLOATS = GEMM_A_ROWS_FLOATS > GEMM_A_PANELS_FLOATS ? GEMM_A_ROWS_FLOATS : GEMM_A_PANELS_FLOATS,
    GEMM_TILE = GEMM_MR * GEMM_NR,
    GEMM_TERMS_OF_TILE32 = 32, /* divides GEMM_KC and the length of every scale block */
    GEMM_BLOCK_MIN = 32,       /* fewest terms in a scale block; GEMM_KC is a multiple of every block */
    GEMM_A_INVERSES = GEMM_MC * GEMM_KC * GEMM_TERMS_MAX / GEMM_BLOCK_MIN,
    GEMM_B_INVERSES =
        (GEMM_TERMS_MAX + 1) * GEMM_B_FLOATS / GEMM_BLOCK_MIN, /* + 1: 33 terms need the scales of 2 blocks */
    GEMM_A_TILES = GEMM_MB / GEMM_MR,
    GEMM_B_TILES = GEMM_B_FLOATS / GEMM_BLOCK_MIN / GEMM_NR
};

/* A thread's scratch during a product. */
typedef struct gemm_work {
    float a[GEMM_A_FLOATS];
    float b[GEMM_B_FLOATS];
    float partial[GEMM_MB * GEMM_NB];   /* unfinished sums: [column tile][row tile][GEMM_MR][GEMM_NR] */
    float scale_inv_b[GEMM_B_INVERSES]; /* inverse block scales of b: [column tile][block][GEMM_NR] */
    float scale_inv_a[GEMM_A_INVERSES]; /* inverse block scales of a: [row tile][block][GEMM_MR] */
    /* For each row tile and column tile: the smallest exponent of its packed pairs, in all blocks of the
       contraction so far (cpu/simd/avx512bf16.h, PAIR_LEAST). */
    int16_t least_a[GEMM_A_TILES], least_b[GEMM_B_TILES];
} gemm_work;

_Static_assert(sizeof(gemm_work) <= CPU_SCRATCH_BYTES,
               "the buffers of a product must fit into a thread's scratch memory");
_Static_assert(GEMM_MC % GEMM_MR == 0 && GEMM_A_FLOATS % 16 == 0 && GEMM_NB % GEMM_NR == 0,
               "blocks are whole tiles");

typedef struct gemm_job {
    const gemm_args *args;
    exec *cx;
    int64_t m, n, k; /* C is m x n; k is the contraction */
    /* threads and blocks divide rows of B at multiples of this: PANEL_ROWS if B is packed, else GEMM_NR */
    int64_t grain;
    int64_t block;      /* terms of a scale block; 0: scales apply to the full contraction */
    int64_t terms;      /* terms of the contraction in a packed element: 1, or 2 for pairs */
    bool tile32;        /* true: ACCUMULATE_TILE32; false: terms are added one by one or as tensor cores do */
    int grid_m, grid_n; /* grid of threads over C */
    float factor;       /* factor of the scaled sums */
} gemm_job;

/* Returns the number of packed elements of kc terms. Padding completes the last pair, or the last 32 terms of
   ACCUMULATE_TILE32. Padding is -0 in A and 0 in B. Its products are -0, which keeps all sums, even -0. */
SIMD int64_t gemm_length(int64_t kc, int64_t terms, bool tile32) {
    int64_t step = tile32 ? GEMM_TERMS_OF_TILE32 : terms;
    return (kc + step - 1) / step * step / terms;
}

/* A part of C: rows [i, i + m), columns [j, j + n). */
typedef struct gemm_part {
    int64_t i, m, j, n;
} gemm_part;

/* Return the inverse scales that finished sums are multiplied by: for 16 rows (n of them exist), or for one
   row. They are 1 if the operand has no scales, or has block scales, which multiply partial sums. */
SIMD v16 gemm_scale_inv_lanes(const operand *o, int64_t row, int64_t n) {
    const float *scale_inv = o->scale_inv;
    if (scale_inv && o->grain == GRANULARITY_ROW) return v16_load_n(scale_inv + row, n);
    return v16_set1(scale_inv && o->grain == GRANULARITY_TENSOR ? scale_inv[0] : 1.0f);
}
SIMD v16 gemm_scale_inv(const operand *o, int64_t row) {
    const float *scale_inv = o->scale_inv;
    if (scale_inv && o->grain == GRANULARITY_ROW) return v16_set1(scale_inv[row]);
    return v16_set1(scale_inv && o->grain == GRANULARITY_TENSOR ? scale_inv[0] : 1.0f);
}
SIMD v16 gemm_scaled(v16 sum, v16 scale_inv_a, v16 scale_inv_b, scale_order order) {
    if (order == SCALE_PRODUCT) return v16_mul(sum, v16_mul(scale_inv_a, scale_inv_b));
    return v16_mul(v16_mul(sum, scale_inv_a), scale_inv_b);
}

/* Implements gemm_finish for format d of C. `full`: all GEMM_NR columns exist. */
SIMD void gemm_finish_format(const gemm_job *job, const float *sums, gemm_part p, ott_dtype d, bool full) {
    const gemm_args *g = job->args;
    const tensor *c = g->c;
    v16 scale_inv_b[GEMM_NV], bias[GEMM_NV], factor = v16_set1(job->factor);
    for (int v = 0; v < GEMM_NV; v++) {
        int64_t n = full ? 16 : p.n > 16 * v ? p.n - 16 * v : 0;
        scale_inv_b[v] = gemm_scale_inv_lanes(g->b, p.j + 16 * v, n);
        bias[v] = g->bias ? v16_load_n((const float *)g->bias->data + p.j + 16 * v, n) : v16_zero();
    }
    for (int64_t r = 0; r < p.m; r++) {
        int64_t row = (p.i + r) * c->ld + p.j;
        v16 scale_inv_a = gemm_scale_inv(g->a, p.i + r);
        for (int v = 0; v < GEMM_NV && (full || p.n > 16 * v); v++) {
            int64_t at = row + 16 * v, n = p.n - 16 * v;
            v16 x = v16_load(sums + r * GEMM_NR + 16 * v);
            x = v16_mul(gemm_scaled(x, scale_inv_a, scale_inv_b[v], g->spec.order), factor);
            if (g->bias) x = v16_add(x, bias[v]);
            if (g->accumulate)
                x = v16_add(x, full ? v16_load_any(c->data, d, at) : v16_load_any_n(c->data, d, at, n));
            if (full)
                v16_store_any(c->data, d, at, x);
            else
                v16_store_any_n(c->data, d, at, x, n);
        }
    }
}

/* gemm.c: like the op gemm, but multiplies the scaled sums by `factor` before it adds them to C. */
ott_status ISA(gemm_times)(exec *cx, const gemm_args *a, float factor);

/* Finishes a tile of C: scales sums[GEMM_MR][GEMM_NR], adds bias and C (if accumulate), rounds, stores. */
static inline void gemm_finish(const gemm_job *job, const float *sums, gemm_part p) {
    ott_dtype d = job->args->c->dtype;
    if (p.n < GEMM_NR)
        gemm_finish_format(job, sums, p, d, false);
    else if (d == OTT_F32)
        gemm_finish_format(job, sums, p, OTT_F32, true);
    else if (d == OTT_BF16)
        gemm_finish_format(job, sums, p, OTT_BF16, true);
    else
        gemm_finish_format(job, sums, p, OTT_F16, true);
}

#endif
