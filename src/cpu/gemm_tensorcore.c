/*
 * cpu/gemm_tensorcore: the matrix product as Hopper's FP8 tensor cores accumulate it (fp8/tensorcore.h), for
 * study and for checking a GPU. Slow: every output is a dot product of integer arithmetic.
 */
#include "cpu/gemm.h"
#include "fp8/tensorcore.h"

/* The codes of lines [line, line + lines), k of each, gathered to out[lines][k]. */
static void gather(uint8_t *out, const operand *o, int64_t line, int64_t lines, int64_t k) {
    const uint8_t *codes = o->t.data;
    if (!o->transposed) {
        for (int64_t i = 0; i < lines; i++) memcpy(out + i * k, codes + (line + i) * o->t.ld, (size_t)k);
        return;
    }
    for (int64_t t = 0; t < k; t++)
        for (int64_t i = 0; i < lines; i++) out[i * k + t] = codes[t * o->t.ld + line + i];
}

static void multiply_tile(const gemm_job *job, const uint8_t *a, const uint8_t *b, gemm_part p) {
    _Alignas(64) float sums[GEMM_TILE] = {0};
    const gemm_args *g = job->args;
    bool split = g->spec.accumulate == ACCUMULATE_HOPPER_SPLIT;
    float (*dot)(const uint8_t *, ott_dtype, const uint8_t *, ott_dtype, int64_t) =
        split ? tensorcore_fp8_dot_split : tensorcore_fp8_dot_fast;
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++)
            sums[i * GEMM_NR + j] = dot(a + i * job->k, g->a->t.dtype, b + j * job->k, g->b->t.dtype, job->k);
    gemm_finish(job, sums, p);
}

void TIER(gemm_tensorcore)(const gemm_job *job, void *scratch, gemm_part part) {
    uint8_t *b = scratch, *a = b + GEMM_NR * job->k;
    for (int64_t j = 0; j < part.n; j += GEMM_NR) {
        int64_t columns = part.n - j < GEMM_NR ? part.n - j : GEMM_NR;
        gather(b, job->args->b, part.j + j, columns, job->k);
        for (int64_t i = 0; i < part.m; i += GEMM_MR) {
            int64_t rows = part.m - i < GEMM_MR ? part.m - i : GEMM_MR;
            gather(a, job->args->a, part.i + i, rows, job->k);
            multiply_tile(job, a, b, (gemm_part){part.i + i, rows, part.j + j, columns});
        }
    }
}
