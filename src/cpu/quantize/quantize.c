/*
 * cpu/quantize/quantize: quantizes a tensor for its rowwise and columnwise use: amaxes, scales, codes.
 *
 * The work is split into units. A unit has as many rows as the highest scale block, and as many columns as
 * fit the second-level cache. A first pass computes every amax, and also codes whose scale is known in this
 * pass. A delayed scale is known at once, a row's scale after the row (which is still in the first-level
 * cache), a block's scale after the block's last row. If the scales need the amax of the full tensor or of
 * full columns, a second pass computes the codes. Threads share the units; a maximum does not depend on the
 * order. Transposed codes are also computed row by row, and then copied to their columns.
 */
#include "cpu/quantize/quantize.h"
#include "base/text/size.h"
#include "cpu/quantize/row.h"
#include "cpu/quantize/scale.h"
#include "cpu/rows.h"
#include "tensor/rules/route_check.h"

typedef struct quantize_job {
    exec *cx;
    const tensor *x;
    int uses;
    quantize_use use[2];
    bool waits[2]; /* true: the second pass computes the codes of use[i] */
    bool casts;    /* true: the first pass also computes scales and codes; false: only amaxes */
    int threads;
    int64_t band, width;    /* rows and columns of a unit */
    int64_t strips;         /* number of units that cover the columns */
    int64_t run;            /* an amax is computed for each `run` adjacent columns of a row */
    bool tiled;             /* true: TILE_ROWS rows are processed together */
    row_ahead ahead[3];     /* prefetch of three loops: amaxes, codes in pass 1, codes in pass 2 */
    int64_t most_floats[2]; /* number of floats in quantize_work.most[i] */
    int64_t spread_floats;  /* number of floats in quantize_work.spread */
    int64_t codes_floats;   /* size of quantize_work.codes in floats */
    bool each_full;         /* true: quantize_work.each has all columns, not only the unit's */
} quantize_job;

/* A unit of work: rows [row, row_end) and columns [column, column + columns) of the tensor. */
typedef struct quantize_unit {
    int64_t row, row_end, column, columns;
} quantize_unit;

/* Arrays in a thread's scratch. */
typedef struct quantize_work {
    /* [use] largest magnitudes so far: in each scale block of the unit, in each column, or in the tensor */
    float *most[2];
    float *runs;    /* amax of each job->run adjacent columns; one row, or [columns / run][TILE_ROWS] */
    float *spread;  /* scales of a row, one for each element */
    uint8_t *codes; /* codes of a row before they are transposed */
    void *each;     /* most[i] of the use that has a scale for each column; NULL: there is no such use */
} quantize_work;

/* ---- units and scratch ---- */

static bool is_tiled(const quantize_use *s) {
    return s->rows == 1 && s->columns != QUANTIZE_ALL && s->row_step == 1;
}

/* Returns the number of rows for which one call of finish_rows computes scales. */
static int64_t height(const quantize_use *s) {
    return is_tiled(s) ? TILE_ROWS : s->rows;
}

static bool spans_columns(const quantize_use *s) {
    return s->rows == QUANTIZE_ALL && s->columns == 1;
}

static quantize_unit unit_at(const quantize_job *job, int64_t index) {
    int64_t band = job->strips == 1 ? index : index / job->strips;
    int64_t row = band * job->band, column = (index - band * job->strips) * job->width;
    return (quantize_unit){row, size_min(row + job->band, job->x->rows), column,
                           size_min(job->width, job->x->columns - column)};
}

static void share_units(const quantize_job *job, int thread, int threads, int64_t *first, int64_t *end) {
    pool_share(quantize_blocks(job->x->rows, job->band) * job->strips, 1, thread, threads, first, end);
}

/* Chooses the size of units. They have enough columns that the overhead for a row is small, and few enough
   that a unit stays in the second-level cache. If a scale block is a full row, units have full rows. */
static void choose_units(quantize_job *job, int64_t columns) {
    enum { UNIT_ELEMENTS = 1 << 17, WIDEST_BLOCK = 128 };
    bool spans_row = false;
    int64_t run = QUANTIZE_ALL;
    job->band = 1;
    for (int i = 0; i < job->uses; i++) {
        const quantize_use *s = &job->use[i];
        if (s->rows != QUANTIZE_ALL && height(s) > job->band) job->band = height(s);
        if (s->columns != 1 && s->columns < run) run = s->columns;
        spans_row |= s->rows != QUANTIZE_ALL && s->columns == QUANTIZE_ALL;
    }
    job->width =
        spans_row ? columns : size_min(columns, UNIT_ELEMENTS / job->band / WIDEST_BLOCK * WIDEST_BLOCK);
    job->strips = columns > 0 ? quantize_blocks(columns, job->width) : 1;
    job->run = run == QUANTIZE_ALL ? job->width : run;
    for (int i = 0; i < job->uses; i++) {
        const quantize_use *s = &job->use[i];
        job->most_floats[i] = quantize_blocks(spans_columns(s) ? columns : job->width, s->columns) *
                              (is_tiled(s) ? TILE_ROWS : 1);
        job->each_full |= spans_columns(s);
        job->tiled |= is_tiled(s);
        if (quantize_spreads(s)) job->spread_floats = job->width;
        if (quantize_copies_codes(s->at, s->spec->format)) job->codes_floats = (job->width + 3) / 4;
    }
}

/* Enables prefetching if rows are processed one by one and a thread's share of x exceeds CACHED_BYTES. */
static void choose_ahead(quantize_job *job) {
    enum { AHEAD_BYTES = 4096, CACHED_BYTES = 4 << 20, BLOCK = 64 };
    int64_t row = job->x->ld * dtype_bytes(job->x->dtype);
    if (job->band != 1 || row * job->x->rows <= (int64_t)CACHED_BYTES * job->threads) return;
    int64_t distance = (AHEAD_BYTES / row + 1) * job->x->ld, mask = 0;
    for (int i = 0; i < job->uses && job->casts; i++)
        if (!job->waits[i]) mask = BLOCK;
    job->ahead[0] = (row_ahead){distance, mask, 0};
    job->ahead[1] = (row_ahead){distance, BLOCK, BLOCK};
    job->ahead[2] = (row_ahead){distance, 0, 0};
}

/* Rounds an array's size up to cache lines. Adds 16 floats, because vector stores may write past the end. */
static int64_t padded(int64_t floats) {
    return (floats + 15) / 16 * 16 + 16;
}

static int64_t runs_floats(const quantize_job *job) {
    return job->run > 0 ? quantize_blocks(job->width, job->run) * (job->tiled ? TILE_ROWS : 1) : 0;
}

static int64_t work_floats(const quantize_job *job) {
    return padded(job->most_floats[0]) + padded(job->most_floats[1]) + padded(runs_floats(job)) +
           padded(job->spread_floats) + padded(job->codes_floats);
}

static quantize_work work_of(const quantize_job *job, int thread) {
    quantize_work w;
    w.most[0] = cpu_scratch(job->cx, thread);
    w.most[1] = w.most[0] + padded(job->most_floats[0]);
    w.runs = w.most[1] + padded(job->most_floats[1]);
    w.spread = w.runs + padded(runs_floats(job));
    w.codes = (uint8_t *)(w.spread + padded(job->spread_floats));
    w.each = NULL;
    for (int i = 0; i < job->uses; i++)
        if (job->use[i].columns == 1) w.each = w.most[i];
    return w;
}

/* ---- scales ---- */

/* Computes scales and fp32 scale_invs of `count` groups (first, first + step, ...) from their amaxes. */
static void set_scales(const quantize_use *s, int64_t first, int64_t count, int64_t step) {
    const qdata *at = s->at;
    if (step == 1 && count > 1 && s->spec->policy == AMAX_CURRENT && scale_has_lanes(&s->spec->scale)) {
        scale_neighbours(s, first, count);
        return;
    }
    for (int64_t n = 0, g = first; n < count; n++, g += step) {
        if (s->spec->policy == AMAX_CURRENT)
            at->scale[g] = scale_from_amax(at->amax[g], s->spec->format, &s->spec->scale);
        else if (at->next) /* delayed scaling: the scale was computed from earlier steps' amaxes */
            at->scale[g] = at->next[0];
        if (s->scale_inv) s->scale_inv[g] = scale_inverse(at->scale[g]);
    }
}

/* Computes all scales of a tensor, which is not a view. */
static void set_all_scales(const quantize_use *s) {
    int64_t along_mn = s->at->k_step;
    set_scales(s, 0, s->groups, 1);
    if (s->scale_inv) return;
    for (int64_t k = 0; k * along_mn < s->groups; k++) scale_store_codes(s, 0, k, along_mn);
}

/* ---- codes ---- */

/* Returns where to write a row's codes from `column` on: w->codes if store_codes copies them afterwards. */
static uint8_t *codes_at(const quantize_use *s, int64_t row, int64_t column, const quantize_work *w) {
    return quantize_copies_codes(s->at, s->spec->format) ? w->codes
                                                         : (uint8_t *)s->at->data + row * s->at->ld + column;
}

/* Copies a row's codes to s->at or s->also, if one of these has transposed codes or codes of fewer than 8
   bits. */
static void store_codes(const quantize_use *s, int64_t row, int64_t column, int64_t count,
                        const uint8_t *codes) {
    ott_dtype format = s->spec->format;
    const qdata *d = quantize_copies_codes(s->at, format) ? s->at : s->also;
    if (!d) return;
    void *data = d->data; /* a local variable, because stores of bytes could change members */
    int64_t to = qtensor_index(d, row, column), step = d->transposed ? d->ld : 1;
    for (int64_t j = 0; j < count; j++) codes_put(data, format, to + j * step, codes[j]);
}

/* Casts rows [row, end) of a unit, which have the same scales. */
static void cast_rows(const quantize_job *job, const quantize_use *s, quantize_unit u, int64_t row,
                      int64_t end, row_ahead ahead, const quantize_work *w) {
    bool each = s->columns != QUANTIZE_ALL;
    row_scale scale = {.scale = s->at->scale};
    if (each)
        scale.scale = quantize_spread(s, scale.scale, row, u.column, u.columns, w->spread);
    else
        scale.scale += quantize_group(s, row, u.column);
    for (; row < end; row++) {
        uint8_t *codes = codes_at(s, row, u.column, w);
        int64_t from = row * job->x->ld + u.column;
        if (each)
            cast_row_each(job->x, from, u.columns, ahead, scale, s->spec, codes);
        else
            cast_row_one_scale(job->x, from, u.columns, ahead, scale, s->spec, codes);
        store_codes(s, row, u.column, u.columns, codes);
    }
}

static void cast_task(void *argument, int thread, int threads) {
    const quantize_job *job = argument;
    quantize_work w = work_of(job, thread);
    int64_t index, end;
    share_units(job, thread, threads, &index, &end);
    for (; index < end; index++) {
        quantize_unit u = unit_at(job, index);
        for (int i = 0; i < job->uses; i++) {
            const quantize_use *s = &job->use[i];
            int64_t step = size_min(s->rows, job->band);
            for (int64_t row = u.row; row < u.row_end && job->waits[i]; row += step)
                cast_rows(job, s, u, row, size_min(row + step, u.row_end), job->ahead[2], &w);
        }
    }
}

/* ---- amax ---- */

/* Replaces every NaN by the constant NAN, because conversions between formats give NaNs different bits. */
SIMD v16 canonical_nan(v16 amax) {
    return v16_select(v16_isnan(amax), v16_set1(NAN), amax);
}

/* most[i * step] = maximum of itself and of runs[i * per] to runs[(i + 1) * per - 1], for each i. */
static void raise_blocks(float *most, int64_t step, const float *runs, int64_t count, int64_t per) {
    for (int64_t n = 0; n < count; most += step)
        for (int64_t end = size_min(n + per, count); n < end; n++) *most = amax_of(*most, runs[n]);
}

/* Updates each use's amaxes of the rows so far with the elements of a row. */
static void raise_row(const quantize_job *job, quantize_unit u, int64_t row, const quantize_work *w) {
    void *each = column_amax_at(w->each, job->x->dtype, job->each_full ? u.column : 0);
    amax_row(job->x, row, u.column, u.columns, job->run, job->ahead[0], each, w->runs);
    if (u.columns == 0) return;
    int64_t runs = job->run == u.columns ? 1 : quantize_blocks(u.columns, job->run);
    for (int i = 0; i < job->uses; i++) {
        int64_t columns = job->use[i].columns, per = columns == QUANTIZE_ALL ? runs : columns / job->run;
        if (columns != 1) raise_blocks(w->most[i], 1, w->runs, runs, per);
    }
}

/* Updates each use's amaxes of the rows so far with rows [row, end), at most TILE_ROWS rows. */
static void raise_tile(const quantize_job *job, quantize_unit u, int64_t row, int64_t end,
                       const quantize_work *w) {
    void *each = column_amax_at(w->each, job->x->dtype, job->each_full ? u.column : 0);
    amax_tiles(job->x, row, end - row, u.column, u.columns, job->run, each, w->runs);
    for (int i = 0; i < job->uses; i++) {
        const quantize_use *s = &job->use[i];
        int64_t runs = quantize_blocks(u.columns, job->run);
        int64_t per = s->columns == QUANTIZE_ALL ? runs : s->columns / job->run;
        for (int64_t n = 0; n < runs && s->columns != 1; n++) {
            v16 most = v16_load(w->runs + n * TILE_ROWS);
            float *tile = w->most[i] + n / per * TILE_ROWS;
            if (is_tiled(s))
                v16_store(tile, v16_amax(v16_load(tile), most));
            else
                w->most[i][n / per] = amax_of(w->most[i][n / per], v16_fold_amax(most));
        }
    }
}

/* Like finish_rows, for a use with block scales. tile: amaxes of rows [row, end); 0 on return. */
static void finish_tile(const quantize_job *job, const quantize_use *s, float *tile, quantize_unit u,
                        int64_t row, int64_t end, const quantize_work *w) {
    int64_t count = quantize_blocks(u.columns, s->columns), g = quantize_group(s, row, u.column);
    for (int64_t n = 0; n < count; n++, g += s->column_step) {
        v16_store_n(s->at->amax + g, canonical_nan(v16_load(tile + n * TILE_ROWS)), end - row);
        if (!job->casts) continue;
        set_scales(s, g, end - row, 1);
        scale_store_codes(s, row, (u.column >> s->column_shift) + n, end - row);
        v16_store(tile + n * TILE_ROWS, v16_load_n(s->at->scale + g, end - row));
    }
    for (int64_t i = row; i < end && job->casts; i++) {
        row_scale scale = {.scale = tile + i - row, .shift = s->column_shift};
        uint8_t *codes = codes_at(s, i, u.column, w);
        cast_row_blocks(job->x, i * job->x->ld + u.column, u.columns, scale, s->spec, codes);
        store_codes(s, i, u.column, u.columns, codes);
    }
    memset(tile, 0, (size_t)(count * TILE_ROWS) * sizeof(float));
}

/* Returns amaxes of the rows so far in fp32: groups [n, n + count) of use[i]. count is at most 16. */
static v16 amax_so_far(const quantize_job *job, int i, const quantize_work *w, int64_t n, int64_t count) {
    return column_amax_load_n(w->most[i], job->use[i].columns == 1 ? job->x->dtype : OTT_F32, n, count);
}

/* Stores the amaxes of rows [row, end) for use[i]. If job->casts, also computes scales and codes. */
static void finish_rows(const quantize_job *job, int i, quantize_unit u, int64_t row, int64_t end,
                        const quantize_work *w) {
    const quantize_use *s = &job->use[i];
    if (is_tiled(s)) {
        finish_tile(job, s, w->most[i], u, row, end, w);
        return;
    }
    if (s->rows != QUANTIZE_ALL) {
        int64_t count = quantize_blocks(u.columns, s->columns), first = quantize_group(s, row, u.column);
        for (int64_t n = 0; n < count && s->columns != 1; n++)
            s->at->amax[first + n * s->column_step] = isnan(w->most[i][n]) ? NAN : w->most[i][n];
        for (int64_t n = 0; n < count && s->columns == 1; n += 16)
            v16_store_n(s->at->amax + first + n, canonical_nan(amax_so_far(job, i, w, n, count - n)),
                        count - n);
        memset(w->most[i], 0, (size_t)count * sizeof(float));
        if (job->casts) set_scales(s, first, count, s->column_step);
        if (job->casts && s->columns == 1) scale_store_codes(s, u.column, row >> s->row_shift, count);
    }
    if (job->casts && !job->waits[i]) cast_rows(job, s, u, row, end, job->ahead[1], w);
}

static void amax_task(void *argument, int thread, int threads) {
    const quantize_job *job = argument;
    quantize_work w = work_of(job, thread);
    for (int i = 0; i < job->uses; i++) memset(w.most[i], 0, (size_t)job->most_floats[i] * sizeof(float));
    int64_t index, end;
    share_units(job, thread, threads, &index, &end);
    for (; index < end; index++) {
        quantize_unit u = unit_at(job, index);
        for (int64_t row = u.row, next; row < u.row_end; row = next) {
            next = job->tiled ? size_min(row + TILE_ROWS, u.row_end) : row + 1;
            if (job->tiled)
                raise_tile(job, u, row, next, &w);
            else
                raise_row(job, u, row, &w);
            for (int i = 0; i < job->uses; i++) {
                int64_t rows = size_min(height(&job->use[i]), job->band), first = row & -rows;
                if (next == u.row_end || next == first + rows) finish_rows(job, i, u, first, next, &w);
            }
        }
    }
}

/* Computes the amaxes of scale blocks that span all rows: the maximum of the amaxes of all threads. */
static void merge_task(void *argument, int thread, int threads) {
    const quantize_job *job = argument;
    for (int i = 0; i < job->uses; i++) {
        const quantize_use *s = &job->use[i];
        if (s->rows != QUANTIZE_ALL) continue;
        int64_t begin, end;
        pool_share(s->groups, 64, thread, threads, &begin, &end);
        for (int64_t g = begin; g < end; g += 16) {
            v16 most = v16_zero();
            for (int t = 0; t < job->threads; t++) {
                quantize_work w = work_of(job, t);
                most = v16_amax(most, amax_so_far(job, i, &w, g, end - g));
            }
            v16_store_n(s->at->amax + g, canonical_nan(most), end - g);
        }
        if (job->casts) set_scales(s, begin, end - begin, 1);
    }
}

/* ---- the ops ---- */

static ott_status check_use(const cast_spec *s, const char *use) {
    if (!cast_spec_is_fp8(s) || s->rounding == ROUND_NEAREST) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "quantize: the CPU rounds to nearest, not stochastically (%s use)", use);
}

static ott_status start_job(quantize_job *job, exec *cx, const tensor *x, const qtensor *q) {
    TRY(check_use(&q->spec.rowwise, "rowwise"));
    TRY(check_use(&q->spec.columnwise, "columnwise"));
    *job = (quantize_job){.cx = cx, .x = x};
    job->uses = quantize_uses(q, job->use);
    choose_units(job, q->columns);
    job->threads = q->rows * q->columns >= CPU_WORTH_SPLITTING ? cpu_threads(cx) : 1;
    if (work_floats(job) * (int64_t)sizeof(float) <= CPU_SCRATCH_BYTES) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED, "quantize: %lld columns are too many for the CPU's buffers",
                       (long long)q->columns);
}

static void run_job(const quantize_job *job, pool_task task, bool split) {
    union {
        const quantize_job *job;
        void *argument;
    } to = {.job = job};
    if (job->threads == 1 || !split)
        task(to.argument, 0, 1);
    else
        cpu_run(job->cx, task, to.argument);
}

static void first_pass(quantize_job *job) {
    choose_ahead(job);
    run_job(job, amax_task, true);
    run_job(job, merge_task, job->each_full);
}

static ott_status quantize(exec *cx, const tensor *x, const qtensor *q) {
    quantize_job job;
    TRY(start_job(&job, cx, x, q));
    if (job.uses == 0) return OTT_OK;
    job.casts = true;
    for (int i = 0; i < job.uses; i++) {
        const quantize_use *s = &job.use[i];
        if (s->spec->policy == AMAX_DELAYED) set_all_scales(s);
        job.waits[i] = s->rows == QUANTIZE_ALL && s->spec->policy == AMAX_CURRENT;
    }
    first_pass(&job);
    if (job.waits[0] || job.waits[1]) run_job(&job, cast_task, true);
    return OTT_OK;
}

ott_status ISA(quantize)(exec *cx, const quantize_args *a) {
    return quantize(cx, a->x, a->q);
}

/* Quantizes rows [first, end) as group `which`. Group a->q->groups is the rows after all experts' rows. */
static ott_status quantize_rows(exec *cx, const grouped_quantize_args *a, int64_t which, int64_t first,
                                int64_t end) {
    tensor x = tensor_rows(*a->x, first, end - first);
    qtensor q = qtensor_group(a->q, which, first, end - first);
    return end > first ? quantize(cx, &x, &q) : OTT_OK;
}

ott_status ISA(grouped_quantize)(exec *cx, const grouped_quantize_args *a) {
    int64_t groups = a->q->groups, rows = a->x->rows, first = 0, end;
    TRY(route_check_quantize(a));
    if (a->end) TRY(row_check_ends("grouped_quantize", a->end, rows));
    for (int64_t e = 0; e < groups; e++, first = end) {
        end = a->end ? ((const int32_t *)a->end->data)[e] : (e + 1) * (rows / groups);
        TRY(quantize_rows(cx, a, e, first, end));
    }
    return quantize_rows(cx, a, groups, first, rows);
}

ott_status ISA(quantize_list)(exec *cx, const tensor *x, const qlist *q) {
    for (int i = 0; q && i < q->count; i++) TRY(quantize(cx, x, &q->item[i]));
    return OTT_OK;
}

ott_status ISA(amax)(exec *cx, const amax_args *a) {
    quantize_job job;
    TRY(start_job(&job, cx, a->x, a->q));
    first_pass(&job);
    return OTT_OK;
}

ott_status ISA(scale)(exec *cx, const scale_args *a) {
    quantize_job job;
    TRY(start_job(&job, cx, NULL, a->q));
    for (int i = 0; i < job.uses; i++) set_all_scales(&job.use[i]);
    return OTT_OK;
}

ott_status ISA(cast)(exec *cx, const cast_args *a) {
    quantize_job job;
    TRY(start_job(&job, cx, a->x, a->q));
    for (int i = 0; i < job.uses; i++) job.waits[i] = true;
    choose_ahead(&job);
    run_job(&job, cast_task, true);
    return OTT_OK;
}
