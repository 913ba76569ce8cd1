/*
 * cpu/gemm/gemm: the matrix product, blocked for the caches and split over threads (structure:
 * cpu/gemm/gemm.h). Threads form a grid over C and never split the contraction, so the grid changes no bit.
 */
#include "cpu/gemm/gemm.h"
#include "base/text/size.h"
#include "cpu/gemm/blocks.h"
#include "cpu/gemm/choose.h"
#include "cpu/gemm/pack.h"
#include "cpu/gemm/pairs.h"
#if !SIMD_HAS_TILES
#include "cpu/gemm/skinny.h"
#endif

/* ---- one thread's part ---- */

/* A block of the contraction: its size, and whether it is the first or the last block. */
typedef struct gemm_stage {
    int64_t kc, length; /* number of terms, number of packed elements */
    bool first, last;
} gemm_stage;

static float smallest_normal(ott_dtype d) {
    return d == OTT_E4M3 ? 0x1p-6f : 0x1p-14f;
}

/* Computes part p of C from packed A and B. row_tile: index of p's first row tile in the block of C. */
static void multiply_packed(const gemm_job *job, gemm_work *w, gemm_part p, int64_t row_tile,
                            gemm_stage stage) {
    _Alignas(64) float finished[GEMM_TILE];
    const gemm_args *g = job->args;
    gemm_a_layout layout = gemm_layout_of(g->a);
    int64_t tile_step = layout == GEMM_A_PANEL ? GEMM_A_STEP * stage.length : GEMM_MR * GEMM_A_LD;
    int64_t size = dtype_bytes(g->c->dtype);
    int64_t blocks = job->block ? blocks_of(stage.kc, job->block) : 0;
    gemm_tile tile = {.order = g->spec.order,
                      .smallest_a = smallest_normal(g->a->t.dtype),
                      .smallest_b = smallest_normal(g->b->t.dtype)};
    for (int64_t j = 0; j < p.n; j += GEMM_NR) {
        for (int64_t i = 0; i < p.m; i += GEMM_MR) {
            gemm_part part = {p.i + i, size_min(p.m - i, GEMM_MR), p.j + j, size_min(p.n - j, GEMM_NR)};
            gemm_place at = {row_tile + i / GEMM_MR, j / GEMM_NR};
            gemm_kernel kernel = choose_kernel(job, w, part, at);
            tile.rows = part.m;
            tile.kc = stage.length;
            tile.a = w->a + i / GEMM_MR * tile_step;
            tile.b = w->b + j * stage.length;
            tile.sums = finished;
            if (!stage.first || !stage.last)
                tile.sums = w->partial + (at.column_tile * GEMM_A_TILES + at.row_tile) * GEMM_TILE;
            tile.start = stage.first ? NULL : tile.sums;
            tile.prefetch = stage.last ? (const char *)g->c->data + (part.i * g->c->ld + part.j) * size
                                       : (const char *)(tile.sums + GEMM_TILE); /* sums of the next tile */
            tile.prefetch_step = stage.last ? g->c->ld * size : GEMM_NR * (int64_t)sizeof(float);
            if (job->block) {
                tile.scale_inv_a = w->scale_inv_a + i * blocks;
                tile.scale_inv_b = w->scale_inv_b + j * blocks;
                multiply_blocks(kernel, tile, job->block / job->terms,
                                layout == GEMM_A_PANEL ? GEMM_A_STEP : 1);
            } else
                kernel(&tile);
            if (stage.last) gemm_finish(job, tile.sums, part);
        }
    }
}

/* Pack a block of A, or of B. first: true for the first block of the contraction. */
static void pack_a(const gemm_job *job, gemm_work *w, gemm_block b, int64_t row_tile, bool first) {
    const operand *a = job->args->a;
    gemm_pack_a(w->a, a, job->terms, b);
#if SIMD_HAS_PAIRS
    if (job->terms == 2) pairs_note_a(w, a, b.rows, b.length, w->least_a + row_tile % GEMM_A_TILES, first);
#endif
    (void)row_tile, (void)first;
}
static void pack_b(const gemm_job *job, gemm_work *w, gemm_block block, bool first) {
    const operand *b = job->args->b;
    gemm_pack_b(w->b, b, job->terms, block);
#if SIMD_HAS_PAIRS
    if (job->terms == 2) pairs_note_b(w, b, block.rows, block.length, first);
#endif
    (void)first;
}

/* Computes a block of C over the full contraction. */
static void multiply_block(const gemm_job *job, gemm_work *w, gemm_part p) {
    int64_t k = 0;
    do { /* runs once even if the contraction is empty: the sums are 0 */
        int64_t kc = size_min(job->k - k, GEMM_KC * job->terms),
                length = gemm_length(kc, job->terms, job->tile32);
        gemm_stage stage = {.kc = kc, .length = length, .first = k == 0, .last = k + kc == job->k};
        gemm_block b = {p.j, p.n, k, kc, length, job->tile32};
        pack_b(job, w, b, stage.first);
        if (job->block) pack_scale_invs(w->scale_inv_b, job->args->b, b, job->block, GEMM_NR);
        for (int64_t i = 0; i < p.m; i += GEMM_MC) {
            int64_t rows = size_min(p.m - i, GEMM_MC);
            gemm_block a = {p.i + i, rows, k, kc, length, job->tile32};
            pack_a(job, w, a, i / GEMM_MR, stage.first);
            if (job->block) pack_scale_invs(w->scale_inv_a, job->args->a, a, job->block, GEMM_MR);
            multiply_packed(job, w, (gemm_part){p.i + i, rows, p.j, p.n}, i / GEMM_MR, stage);
        }
        k += kc;
    } while (k < job->k);
}

/* Returns the number of columns of C in a block: as many as the buffers for packed B and its scales allow. */
static int64_t block_columns(const gemm_job *job) {
    int64_t length = gemm_length(job->k, job->terms, job->tile32);
    if (length > GEMM_KC) return GEMM_NB;
    return GEMM_B_FLOATS / (length > GEMM_BLOCK_MIN ? length : GEMM_BLOCK_MIN) / job->grain * job->grain;
}

/* Returns the number of rows of C in a block. There is no limit if the contraction has only one block. */
static int64_t block_rows(const gemm_job *job) {
    return job->k > GEMM_KC * job->terms ? GEMM_MB : INT64_MAX;
}

/* ---- threads ---- */

/* Each thread configures its tile unit for a product and releases it afterwards. Otherwise every context
   switch would save the unit's registers (8 KiB). Configuring is faster than packing a row. */
static void start_unit(void) {
#if SIMD_HAS_TILES
    tile_configure();
#endif
}
static void stop_unit(void) {
#if SIMD_HAS_TILES
    tile_release();
#endif
}

static void gemm_task(void *argument, int thread, int threads) {
    const gemm_job *job = argument;
    (void)threads;
    if (thread >= job->grid_m * job->grid_n) return;
    int64_t i, i_end, j, j_end;
    pool_share(job->m, GEMM_MR, thread / job->grid_n, job->grid_m, &i, &i_end);
    pool_share(job->n, job->grain, thread % job->grid_n, job->grid_n, &j, &j_end);
    if (i >= i_end || j >= j_end) return;
    int64_t rows = size_min(block_rows(job), i_end - i), columns = size_min(block_columns(job), j_end - j);
    start_unit();
    for (; j < j_end; j += columns)
        for (int64_t row = i; row < i_end; row += rows)
            multiply_block(job, cpu_scratch(job->cx, thread),
                           (gemm_part){row, size_min(i_end - row, rows), j, size_min(j_end - j, columns)});
    stop_unit();
}

static pool_task choose_task(const gemm_job *job) {
#if !SIMD_HAS_TILES
    if (gemm_is_skinny(job)) return gemm_skinny_task;
#endif
    (void)job;
    return gemm_task;
}

static int64_t share_of_grains(int64_t count, int64_t grain, int parts) {
    int64_t grains = (count + grain - 1) / grain;
    return size_min((grains + parts - 1) / parts * grain, count);
}

static int64_t block_count(int64_t count, int64_t size) {
    return count / size + (count % size != 0);
}

/* Chooses the grid of threads that gives the busiest thread the least work. Packing an element costs about
   PACK_COST multiply-adds. A is packed again for each block of columns, B for each block of rows. */
static void choose_grid(gemm_job *job, int threads) {
    enum { PACK_COST = 16 };
    int64_t least = INT64_MAX;
    for (int grid_m = 1; grid_m <= threads; grid_m++) {
        if (threads % grid_m) continue;
        int grid_n = threads / grid_m;
        int64_t m = share_of_grains(job->m, GEMM_MR, grid_m), n = share_of_grains(job->n, job->grain, grid_n);
        int64_t packed = m * block_count(n, block_columns(job)) + n * block_count(m, block_rows(job));
        int64_t cost = m * n + PACK_COST * packed;
        if (cost >= least) continue;
        least = cost;
        job->grid_m = grid_m;
        job->grid_n = grid_n;
    }
}

static ott_status check_operands(const gemm_args *a) {
    bool fp8 = dtype_is_fp8(a->a->t.dtype) && dtype_is_fp8(a->b->t.dtype);
    if (recipe_accumulate_is_hopper(a->spec.accumulate) && !fp8)
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "gemm: accumulation as in tensor cores is defined for FP8 operands, not %s x %s; use "
            "fp32 accumulation",
            dtype_name(a->a->t.dtype), dtype_name(a->b->t.dtype));
    if (granularity_block(a->a->grain).k != granularity_block(a->b->grain).k)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "gemm: granularities %s and %s do not split the contraction into the same blocks",
                           granularity_name(a->a->grain), granularity_name(a->b->grain));
    return OTT_OK;
}

ott_status ISA(gemm)(exec *cx, const gemm_args *a) {
    return ISA(gemm_times)(cx, a, 1.0f);
}

ott_status ISA(gemm_times)(exec *cx, const gemm_args *a, float factor) {
    gemm_job job = {.args = a, .cx = cx, .m = operand_mn(a->a), .n = operand_mn(a->b), .factor = factor};
    job.k = operand_k(a->a);
    job.terms = pairs_terms(a);
    job.tile32 = a->spec.accumulate == ACCUMULATE_TILE32;
    TRY(check_operands(a));
    int64_t kc = granularity_block(a->a->grain).k;
    job.block = kc == INT64_MAX || job.k == 0 ? 0 : kc; /* an empty sum has no scale blocks */
    job.grain = a->b->packed ? PANEL_ROWS : GEMM_NR;
    /* Products below this size take a few microseconds. Waking another thread may take longer. */
    enum { WORTH_SPLITTING = 1 << 19 };
    bool one_thread = job.m * job.n * (job.k + 16) < WORTH_SPLITTING;
    pool_task task = choose_task(&job);
    choose_grid(&job, one_thread ? 1 : cpu_threads(cx));
    if (one_thread)
        task(&job, 0, 1);
    else
        pool_run(cpu_of(cx)->pool, task, &job);
    return OTT_OK;
}
