/*
 * cpu/gemm/choose: chooses the micro-kernel of a tile of C from the order of addition, the ISA level, the
 * tile's size and the smallest numbers of the operands.
 */
#ifndef CPU_GEMM_CHOOSE_H
#define CPU_GEMM_CHOOSE_H

#include "cpu/gemm/pairs.h"
#if SIMD_HAS_TILES
#include "cpu/gemm/amx.h"
#else
#include "cpu/gemm/kernel.h"
#include "cpu/gemm/tile32.h"
#endif

/* Row and column of a tile in a block of C, counted in tiles. */
typedef struct gemm_place {
    int64_t row_tile, column_tile;
} gemm_place;

static gemm_arithmetic choose_arithmetic(const gemm_job *job, const gemm_work *w, gemm_place at) {
#if SIMD_HAS_PAIRS
    if (job->terms == 2) {
        int least = w->least_a[at.row_tile % GEMM_A_TILES] + w->least_b[at.column_tile];
        return least >= PAIR_LEAST ? GEMM_PAIRS : GEMM_PAIRS_APART;
    }
#endif
    (void)w, (void)at;
    return gemm_of_terms(pack_is_fp8(job->args->a->t.dtype) && pack_is_fp8(job->args->b->t.dtype));
}

static gemm_kernel choose_kernel(const gemm_job *job, const gemm_work *w, gemm_part p, gemm_place at) {
    gemm_arithmetic how = choose_arithmetic(job, w, at);
    bool narrow = p.n <= 16;
#if SIMD_HAS_TILES
    return amx_kernel(narrow, how);
#else
    gemm_a_layout layout = gemm_layout_of(job->args->a);
    accumulate_mode mode = job->args->spec.accumulate;
    if (recipe_accumulate_is_hopper(mode))
        return ISA(gemm_tensorcore)(layout, mode == ACCUMULATE_HOPPER_SPLIT);
    int variant = gemm_variant(narrow, how);
    return job->tile32 ? tile32_kernels[variant][layout] : gemm_kernels[variant][layout][p.m - 1];
#endif
}

#endif
