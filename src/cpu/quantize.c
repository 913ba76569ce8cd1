/*
 * cpu/quantize: a tensor to its FP8 forms (fp8/recipe.h): largest magnitudes, scales, codes.
 *
 * A first pass over the rows finds every amax: of each row, of each column, of all. A row that has its own
 * scale is cast at once, while it is in the cache; what needs an amax of the whole tensor or of a column
 * waits for a second pass. The threads take shares of the rows in both passes, and a maximum does not depend
 * on the order in which it is taken. Column-side codes lie as the source does, rows x columns: the matrix
 * product reads either orientation.
 */
#include "cpu/simd.h"
#include "cpu/tier.h"

typedef struct quantize_job {
    exec *cx;
    const tensor *x;
    const qtensor *q;
    const qside *row_amax;      /* the side with a scale a row, or NULL */
    const qside *column_amax;   /* the side with a scale a column, or NULL */
    bool fused;                 /* rows with their own scale are cast in the first pass */
    bool cast_row, cast_column; /* what the second pass casts */
    bool separate_column;       /* the column side is FP8 and has data of its own */
    int threads;
} quantize_job;

/* ---- one row ---- */

/* amax of n elements from index `from` on; columns: amax of each column so far, to be raised, or NULL. */
SIMD float amax_run(const void *x, ott_dtype d, int64_t from, int64_t n, float *columns) {
    v16 most[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
    int64_t i = 0;
    for (; i + 64 <= n; i += 64)
        for (int v = 0; v < 4; v++) {
            v16 value = v16_load_any(x, d, from + i + 16 * v);
            most[v] = v16_amax(most[v], value);
            if (columns) v16_store(columns + i + 16 * v, v16_amax(v16_load(columns + i + 16 * v), value));
        }
    for (; i < n; i += 16) {
        v16 value = v16_load_any_n(x, d, from + i, n - i);
        most[0] = v16_amax(most[0], value);
        if (columns) v16_store_n(columns + i, v16_amax(v16_load_n(columns + i, n - i), value), n - i);
    }
    return v16_fold_amax(v16_amax(v16_amax(most[0], most[1]), v16_amax(most[2], most[3])));
}

static float amax_row(const tensor *x, int64_t row, float *columns) {
    int64_t from = row * x->ld, n = x->columns;
    if (x->dtype == OTT_F32)
        return columns ? amax_run(x->data, OTT_F32, from, n, columns)
                       : amax_run(x->data, OTT_F32, from, n, NULL);
    if (x->dtype == OTT_BF16)
        return columns ? amax_run(x->data, OTT_BF16, from, n, columns)
                       : amax_run(x->data, OTT_BF16, from, n, NULL);
    return amax_run(x->data, OTT_F16, from, n, columns);
}

/* Codes of n elements from index `from` on. scale: one, or with `each` one for every element. */
SIMD void cast_run(const void *x, ott_dtype d, int64_t from, int64_t n, const float *scale, bool each,
                   ott_dtype format, cast_mode mode, uint8_t *codes) {
    v16 one = v16_set1(each ? 0.0f : scale[0]);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        v16i code[4];
        for (int v = 0; v < 4; v++) {
            v16 s = each ? v16_load(scale + i + 16 * v) : one;
            code[v] = v16_to_fp8(v16_mul(v16_load_any(x, d, from + i + 16 * v), s), format, mode);
        }
        v16i_store_u8x64(codes + i, code[0], code[1], code[2], code[3]);
    }
    for (; i < n; i += 16) {
        v16 s = each ? v16_load_n(scale + i, n - i) : one;
        v16_store_fp8_n(codes + i, v16_mul(v16_load_any_n(x, d, from + i, n - i), s), format, mode, n - i);
    }
}

SIMD void cast_format(const tensor *x, int64_t row, const float *scale, bool each, ott_dtype format,
                      cast_mode mode, uint8_t *codes) {
    int64_t from = row * x->ld, n = x->columns;
    if (x->dtype == OTT_F32)
        cast_run(x->data, OTT_F32, from, n, scale, each, format, mode, codes);
    else if (x->dtype == OTT_BF16)
        cast_run(x->data, OTT_BF16, from, n, scale, each, format, mode, codes);
    else
        cast_run(x->data, OTT_F16, from, n, scale, each, format, mode, codes);
}

static void cast_row_one_scale(const tensor *x, int64_t row, const float *scale, const side_spec *s,
                               uint8_t *codes) {
    if (s->format == OTT_E4M3)
        cast_format(x, row, scale, false, OTT_E4M3, s->mode, codes);
    else
        cast_format(x, row, scale, false, OTT_E5M2, s->mode, codes);
}

static void cast_row_each(const tensor *x, int64_t row, const float *scale, const side_spec *s,
                          uint8_t *codes) {
    if (s->format == OTT_E4M3)
        cast_format(x, row, scale, true, OTT_E4M3, s->mode, codes);
    else
        cast_format(x, row, scale, true, OTT_E5M2, s->mode, codes);
}

static uint8_t *codes_of_row(const quantize_job *job, const qside *side, int64_t row) {
    return (uint8_t *)side->data + row * job->x->columns;
}

/* ---- scales ---- */

/* From amax[first..last) to scale and inverse. */
static void set_scales(const qside *side, const side_spec *s, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) {
        if (s->policy == AMAX_CURRENT)
            side->scale[i] = scale_from_amax(side->amax[i], s->format, &s->scale);
        else if (side->next) /* its scale came from earlier steps; amax is only recorded */
            side->scale[i] = side->next[0];
        side->inverse[i] = scale_inverse(side->scale[i]);
    }
}

static int64_t side_groups(const qtensor *q, bool column) {
    if ((column ? q->spec.column : q->spec.row).grain == GRANULARITY_TENSOR) return 1;
    return column ? q->columns : q->rows;
}

/* ---- first pass: amax ---- */

/* A thread's own results: the amax of its rows, and of each column within them. */
typedef struct amax_share {
    _Alignas(64) float tensor;
    _Alignas(64) float columns[];
} amax_share;

static amax_share *share_of(const quantize_job *job, int thread) {
    return cpu_scratch(job->cx, thread);
}

static void amax_one_row(const quantize_job *job, int64_t row, amax_share *mine) {
    float amax = amax_row(job->x, row, job->column_amax ? mine->columns : NULL);
    mine->tensor = amax_of(mine->tensor, amax);
    if (!job->row_amax) return;
    job->row_amax->amax[row] = amax;
    if (!job->fused) return;
    const side_spec *s = &job->q->spec.row;
    set_scales(job->row_amax, s, row, row + 1);
    cast_row_one_scale(job->x, row, job->row_amax->scale + row, s, codes_of_row(job, job->row_amax, row));
}

static void amax_task(void *argument, int thread, int threads) {
    const quantize_job *job = argument;
    amax_share *mine = share_of(job, thread);
    mine->tensor = 0.0f;
    if (job->column_amax) memset(mine->columns, 0, (size_t)job->x->columns * sizeof(float));
    int64_t begin, end;
    pool_share(job->x->rows, 1, thread, threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) amax_one_row(job, row, mine);
}

/* The threads' column maxima to one. */
static void merge_task(void *argument, int thread, int threads) {
    const quantize_job *job = argument;
    float *amax = job->column_amax->amax;
    int64_t begin, end;
    pool_share(job->x->columns, 64, thread, threads, &begin, &end);
    for (int64_t j = begin; j < end; j += 16) {
        v16 most = v16_zero();
        for (int t = 0; t < job->threads; t++)
            most = v16_amax(most, v16_load_n(share_of(job, t)->columns + j, end - j));
        v16_store_n(amax + j, most, end - j);
    }
    if (job->fused) set_scales(job->column_amax, &job->q->spec.column, begin, end);
}

static void set_tensor_amax(const quantize_job *job, const qside *side) {
    float amax = 0.0f;
    for (int t = 0; t < job->threads; t++) amax = amax_of(amax, share_of(job, t)->tensor);
    side->amax[0] = amax;
}

/* ---- second pass: codes ---- */

static void cast_task(void *argument, int thread, int threads) {
    const quantize_job *job = argument;
    const quant_spec *spec = &job->q->spec;
    const qside *r = &job->q->row, *c = &job->q->column;
    bool scale_each_row = spec->row.grain == GRANULARITY_ROW,
         scale_each_column = spec->column.grain == GRANULARITY_ROW;
    int64_t begin, end;
    pool_share(job->x->rows, 1, thread, threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        if (job->cast_row)
            cast_row_one_scale(job->x, row, r->scale + (scale_each_row ? row : 0), &spec->row,
                               codes_of_row(job, r, row));
        if (!job->cast_column) continue;
        uint8_t *codes = codes_of_row(job, c, row);
        if (scale_each_column)
            cast_row_each(job->x, row, c->scale, &spec->column, codes);
        else
            cast_row_one_scale(job->x, row, c->scale, &spec->column, codes);
    }
}

/* ---- the ops ---- */

static ott_status check_side(const side_spec *s, const char *side) {
    if (!side_spec_is_fp8(s)) return OTT_OK;
    if (s->grain != GRANULARITY_TENSOR && s->grain != GRANULARITY_ROW)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "quantize: the CPU makes one scale for a tensor or a line, not blocks (%s side)",
                           side);
    if (s->rounding != ROUND_NEAREST)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "quantize: the CPU rounds to nearest, not stochastically (%s side)", side);
    return OTT_OK;
}

static ott_status start(quantize_job *job, exec *cx, const tensor *x, const qtensor *q) {
    TRY(check_side(&q->spec.row, "row"));
    TRY(check_side(&q->spec.column, "column"));
    bool row = side_spec_is_fp8(&q->spec.row), column = side_spec_is_fp8(&q->spec.column);
    bool row_lines = row && q->spec.row.grain == GRANULARITY_ROW;
    bool column_lines = column && q->spec.column.grain == GRANULARITY_ROW;
    *job = (quantize_job){.cx = cx, .x = x, .q = q};
    job->separate_column = column && !quant_spec_shares_data(&q->spec);
    job->row_amax = row_lines ? &q->row : NULL;
    job->column_amax = column_lines ? &q->column : NULL;
    job->threads = x && tensor_count(*x) >= CPU_WORTH_SPLITTING ? cpu_threads(cx) : 1;
    int64_t most_columns = (CPU_SCRATCH_BYTES - (int64_t)sizeof(amax_share)) / (int64_t)sizeof(float);
    if (column_lines && q->columns > most_columns)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "quantize: %lld columns with a scale each; the CPU takes at most %lld",
                           (long long)q->columns, (long long)most_columns);
    return OTT_OK;
}

static void run(const quantize_job *job, pool_task task) {
    union {
        const quantize_job *job;
        void *argument;
    } to = {.job = job};
    if (job->threads == 1)
        task(to.argument, 0, 1);
    else
        cpu_run(job->cx, task, to.argument);
}

static bool one_scale(const side_spec *s) {
    return side_spec_is_fp8(s) && s->grain == GRANULARITY_TENSOR;
}

static void find_amax(const quantize_job *job) {
    const quant_spec *spec = &job->q->spec;
    run(job, amax_task);
    if (one_scale(&spec->row)) set_tensor_amax(job, &job->q->row);
    if (one_scale(&spec->column) && job->separate_column) set_tensor_amax(job, &job->q->column);
    if (job->column_amax) run(job, merge_task);
}

static ott_status quantize(exec *cx, const tensor *x, const qtensor *q) {
    quantize_job job;
    TRY(start(&job, cx, x, q));
    job.fused = true;
    find_amax(&job);
    if (one_scale(&q->spec.row)) set_scales(&q->row, &q->spec.row, 0, 1);
    if (one_scale(&q->spec.column) && job.separate_column) set_scales(&q->column, &q->spec.column, 0, 1);
    job.cast_row = one_scale(&q->spec.row);
    job.cast_column = job.separate_column;
    if (job.cast_row || job.cast_column) run(&job, cast_task);
    return OTT_OK;
}

ott_status TIER(quantize)(exec *cx, const quantize_args *a) {
    return quantize(cx, a->x, a->q);
}

ott_status TIER(quantize_list)(exec *cx, const tensor *x, const qlist *q) {
    for (int i = 0; q && i < q->count; i++) TRY(quantize(cx, x, &q->item[i]));
    return OTT_OK;
}

ott_status TIER(amax)(exec *cx, const amax_args *a) {
    quantize_job job;
    TRY(start(&job, cx, a->x, a->q));
    find_amax(&job);
    return OTT_OK;
}

ott_status TIER(scale)(exec *cx, const scale_args *a) {
    quantize_job job;
    TRY(start(&job, cx, NULL, a->q));
    if (side_spec_is_fp8(&a->q->spec.row))
        set_scales(&a->q->row, &a->q->spec.row, 0, side_groups(a->q, false));
    if (job.separate_column) set_scales(&a->q->column, &a->q->spec.column, 0, side_groups(a->q, true));
    return OTT_OK;
}

ott_status TIER(cast)(exec *cx, const cast_args *a) {
    quantize_job job;
    TRY(start(&job, cx, a->x, a->q));
    job.cast_row = side_spec_is_fp8(&a->q->spec.row);
    job.cast_column = job.separate_column;
    if (job.cast_row || job.cast_column) run(&job, cast_task);
    return OTT_OK;
}
