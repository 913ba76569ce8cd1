/*
 * cpu/statistics: quantization error statistics of a tensor (tensor/rules/statistics.h). Blocks of
 * REDUCE_BLOCK elements are divided among the threads. Their sums are added in order, so threads do not
 * change the result.
 */
#include "cpu/quantize/quantize.h"
#include "cpu/rows.h"

typedef struct block_sums {
    float signal, noise;
} block_sums;

/* Arguments of block_task, which writes the sums of blocks [first, first + count) of x to sums[count]. */
typedef struct statistics_job {
    exec *cx;
    const tensor *x;
    const quantize_use *use;
    int64_t first, count;
    block_sums *sums;
    int64_t saturated, underflowed;
} statistics_job;

/* A thread's buffers for a block. */
typedef struct statistics_buffers {
    float x[REDUCE_BLOCK]; /* copies of elements, in the tensor's format */
    float scale[REDUCE_BLOCK + 16];
    uint8_t codes[REDUCE_BLOCK];
} statistics_buffers;

/* ---- one block ---- */

/* The elements of a block, and their codes and scales, each stored consecutively. */
typedef struct block_data {
    int64_t count;
    const void *x;
    const uint8_t *codes;
    const float *scale; /* one number; with `each` `count` numbers, one for each element */
} block_data;

typedef struct block_counts {
    int64_t saturated, underflowed;
} block_counts;

SIMD v16 load_codes(const uint8_t *codes, ott_dtype format, int64_t lanes) {
    return lanes >= 16 ? v16_load_fp8(codes, format) : v16_load_fp8_n(codes, format, lanes);
}

/* True in lanes where x is infinite or the scaled x rounds beyond the format's largest value. */
SIMD v16m is_saturated(v16 x, v16 scaled, ott_dtype format) {
    const v16 infinity = v16_set1(INFINITY);
    v16 most = v16_select(v16_eq(v16_abs(x), infinity), infinity, v16_abs(scaled)); /* inf * 0 is a NaN */
    return format == OTT_E4M3 ? v16_lt(v16_set1(464.0f), most) : v16_le(v16_set1(61440.0f), most);
}

SIMD block_sums measure_block(const block_data *b, ott_dtype d, ott_dtype format, bool each,
                              block_counts *counts) {
    v16 signal = v16_zero(), noise = v16_zero(), zero = v16_zero();
    v16 scale = v16_set1(each ? 0.0f : b->scale[0]);
    int saturated = 0, underflowed = 0;
    BY_16(i, lanes, b->count, {
        v16 x = v16_get(b->x, d, i, lanes);
        v16 value = load_codes(b->codes + i, format, lanes);
        v16 s = each ? v16_get(b->scale, OTT_F32, i, lanes) : scale;
        v16 back = v16_mul(value, v16_div(v16_set1(1.0f), s));
        v16 difference = v16_sub(back, x);
        if (lanes < 16) difference = v16_keep_n(difference, lanes);
        signal = v16_fma(x, x, signal);
        noise = v16_fma(difference, difference, noise);
        saturated += v16m_count(is_saturated(x, v16_mul(x, s), format));
        v16 lost = v16_select(v16_eq(value, zero), x, zero);
        underflowed += 16 - v16m_count(v16_eq(lost, zero));
    });
    counts->saturated += saturated;
    counts->underflowed += underflowed;
    return (block_sums){v16_fold_sum(signal), v16_fold_sum(noise)};
}

static block_sums measure_any(const block_data *b, ott_dtype d, ott_dtype format, bool each,
                              block_counts *counts) {
    if (format == OTT_E4M3 && each) WITH_DTYPE(d, D, return measure_block(b, D, OTT_E4M3, true, counts));
    if (format == OTT_E4M3) WITH_DTYPE(d, D, return measure_block(b, D, OTT_E4M3, false, counts));
    if (each) WITH_DTYPE(d, D, return measure_block(b, D, OTT_E5M2, true, counts));
    WITH_DTYPE(d, D, return measure_block(b, D, OTT_E5M2, false, counts));
}

/* ---- the consecutive elements and scales of a block ---- */

/* Copies the scales of elements [at, at + count) to `buffer`. */
static const float *lay_scales(const quantize_use *s, int64_t columns, int64_t at, int64_t count,
                               float *buffer) {
    int64_t row = at / columns, column = at % columns;
    for (int64_t done = 0; done < count; row++, column = 0) {
        int64_t part = columns - column < count - done ? columns - column : count - done;
        const float *found = quantize_spread(s, s->at->scale, row, column, part, buffer + done);
        if (found != buffer + done) memcpy(buffer + done, found, (size_t)part * sizeof(float));
        done += part;
    }
    return buffer;
}

/* Returns the codes of elements [at, at + count). Copies them to `buffer` if they are not stored in rows
   of bytes. */
static const uint8_t *lay_codes(const quantize_use *s, int64_t columns, int64_t at, int64_t count,
                                uint8_t *buffer) {
    const qdata *d = s->at;
    int64_t row = at / columns, column = at % columns;
    if (!d->transposed) return quantize_codes(d, s->spec->format, 0, at, count, buffer);
    for (int64_t done = 0; done < count; row++, column = 0) {
        int64_t part = columns - column < count - done ? columns - column : count - done;
        quantize_codes(d, s->spec->format, row, column, part, buffer + done);
        done += part;
    }
    return buffer;
}

static void block_task(void *argument, int thread, int threads) {
    statistics_job *j = argument;
    const quantize_use *s = j->use;
    statistics_buffers *buffer = cpu_scratch(j->cx, thread);
    block_counts counts = {0, 0};
    int64_t block, end, elements = tensor_count(*j->x), columns = j->x->columns;
    bool each = s->rows != QUANTIZE_ALL || s->columns != QUANTIZE_ALL;
    pool_share(j->count, 1, thread, threads, &block, &end);
    for (; block < end; block++) {
        int64_t at = (j->first + block) * REDUCE_BLOCK;
        block_data b = {.count = elements - at < REDUCE_BLOCK ? elements - at : REDUCE_BLOCK,
                        .scale = s->at->scale};
        b.x = row_elements(j->x, at, b.count, buffer->x);
        b.codes = lay_codes(s, columns, at, b.count, buffer->codes);
        if (each) b.scale = lay_scales(s, columns, at, b.count, buffer->scale);
        j->sums[block] = measure_any(&b, j->x->dtype, quantize_codes_format(s->spec->format), each, &counts);
    }
    __atomic_fetch_add(&j->saturated, counts.saturated, __ATOMIC_RELAXED);
    __atomic_fetch_add(&j->underflowed, counts.underflowed, __ATOMIC_RELAXED);
}

/* ---- one use ---- */

/* Uses thread 0's scratch memory for statistics_buffers, then for the sums of as many blocks as fit. */
static void measure_elements(statistics_job *j, float *out) {
    const int64_t buffer =
        (CPU_SCRATCH_BYTES - (int64_t)sizeof(statistics_buffers)) / (int64_t)sizeof(block_sums);
    int64_t elements = tensor_count(*j->x), blocks = (elements + REDUCE_BLOCK - 1) / REDUCE_BLOCK;
    double signal = 0.0, noise = 0.0;
    j->sums = (block_sums *)((statistics_buffers *)cpu_scratch(j->cx, 0) + 1);
    for (; j->first < blocks; j->first += j->count) {
        j->count = blocks - j->first < buffer ? blocks - j->first : buffer;
        cpu_run_sized(j->cx, j->count * REDUCE_BLOCK, block_task, j);
        for (int64_t b = 0; b < j->count; b++) {
            signal += (double)j->sums[b].signal;
            noise += (double)j->sums[b].noise;
        }
    }
    out[STATISTICS_SATURATED] = (float)((double)j->saturated / (double)elements);
    out[STATISTICS_UNDERFLOWED] = (float)((double)j->underflowed / (double)elements);
    out[STATISTICS_SIGNAL] = (float)signal;
    out[STATISTICS_NOISE] = (float)noise;
}

/* Computes AMAX, SCALE_MIN and SCALE_MAX. Ignores NaN scales, unless the first scale is NaN. */
static void measure_scales(const quantize_use *s, float *out) {
    v16 amax = v16_zero(), least = v16_set1(s->at->scale[0]), most = least, first = least;
    for (int64_t g = 0; g < s->groups; g += 16) {
        int64_t lanes = s->groups - g < 16 ? s->groups - g : 16;
        v16 scale = v16_select(v16m_first(lanes), v16_load_n(s->at->scale + g, lanes), first);
        amax = v16_amax(amax, v16_load_n(s->at->amax + g, lanes));
        least = v16_min(scale, least);
        most = v16_max(scale, most);
    }
    out[STATISTICS_AMAX] = v16_fold_amax(amax);
    out[STATISTICS_SCALE_MIN] = -v16_fold_max(v16_neg(least));
    out[STATISTICS_SCALE_MAX] = v16_fold_max(most);
}

static void measure_use(exec *cx, const tensor *x, quantize_use use, float *out) {
    if (tensor_count(*x) == 0) return;
    measure_elements(&(statistics_job){.cx = cx, .x = x, .use = &use}, out);
    measure_scales(&use, out);
}

ott_status ISA(quantize_statistics)(exec *cx, const quantize_statistics_args *a) {
    float *row = a->statistics->data, *column = row + a->statistics->ld;
    STATUS_REQUIRE(a->statistics->columns == STATISTICS_COUNT);
    memset(row, 0, STATISTICS_COUNT * sizeof(float));
    memset(column, 0, STATISTICS_COUNT * sizeof(float));
    if (cast_spec_is_fp8(&a->q->spec.rowwise)) measure_use(cx, a->x, quantize_use_of(a->q, false), row);
    if (qtensor_shares_codes(a->q))
        memcpy(column, row, STATISTICS_COUNT * sizeof(float));
    else if (cast_spec_is_fp8(&a->q->spec.columnwise))
        measure_use(cx, a->x, quantize_use_of(a->q, true), column);
    return OTT_OK;
}
