/* cpu/reduce: sums of each column and of full tensors. Threads do not change the order of addition. */
#include "cpu/rows.h"

/* ---- sums of columns ---- */

/* Adds `count` (a constant) rows from r on to the sums of x's columns. */
SIMD void add_rows(ott_dtype d, const tensor *x, int64_t r, int count, float *sum) {
    const void *row = row_of(x, r);
    int64_t ld = x->ld;
    BY_16(c, lanes, x->columns, {
        v16 s = v16_get(sum, OTT_F32, c, lanes);
        for (int i = 0; i < count; i++) s = v16_add(s, v16_get(row, d, i * ld + c, lanes));
        v16_put(sum, OTT_F32, c, s, lanes);
    });
}

static void column_task(void *argument, int thread, int threads) {
    const column_sum_args *a = argument;
    int64_t first, end, r = 0;
    pool_share(a->x->columns, 16, thread, threads, &first, &end);
    tensor x = tensor_columns(*a->x, first, end - first);
    float *sum = (float *)a->sum->data + first;
    for (; r + 4 <= x.rows; r += 4) WITH_DTYPE(x.dtype, D, add_rows(D, &x, r, 4, sum));
    for (; r < x.rows; r++) WITH_DTYPE(x.dtype, D, add_rows(D, &x, r, 1, sum));
}

ott_status ISA(column_sum)(exec *cx, const column_sum_args *a) {
    cpu_run_sized(cx, tensor_count(*a->x), column_task, (void *)a);
    return OTT_OK;
}

/* ---- sums of all elements, in blocks ---- */

SIMD float block_sum(ott_dtype d, const void *x, int64_t count, bool squares) {
    v16 sum = v16_zero();
    BY_16(i, lanes, count, {
        v16 value = v16_get(x, d, i, lanes);
        sum = squares ? v16_fma(value, value, sum) : v16_add(sum, value);
    });
    return v16_fold_sum(sum);
}

/* Arguments of block_task, which writes the sums of blocks [first, first + count) of x to sums[count]. */
typedef struct block_job {
    const exec *cx;
    const tensor *x;
    bool squares;
    int64_t first, count;
    float *sums;
} block_job;

static void block_task(void *argument, int thread, int threads) {
    const block_job *j = argument;
    int64_t block, end, elements = tensor_count(*j->x);
    pool_share(j->count, 1, thread, threads, &block, &end);
    for (; block < end; block++) {
        int64_t at = (j->first + block) * REDUCE_BLOCK;
        int64_t count = elements - at < REDUCE_BLOCK ? elements - at : REDUCE_BLOCK;
        const void *x = row_elements(j->x, at, count, cpu_scratch(j->cx, thread));
        j->sums[block] = !j->squares               ? block_sum(OTT_F32, x, count, false)
                         : j->x->dtype == OTT_BF16 ? block_sum(OTT_BF16, x, count, true)
                                                   : block_sum(OTT_F32, x, count, true);
    }
}

/* Uses thread 0's scratch memory for a copy of a block, then for the sums of as many blocks as fit. */
ott_status ISA(sum)(exec *cx, const sum_args *a) {
    const int64_t capacity = CPU_SCRATCH_BYTES / (int64_t)sizeof(float) - REDUCE_BLOCK;
    int64_t blocks = op_reduce_blocks(tensor_count(*a->x));
    block_job j = {.cx = cx, .x = a->x, .sums = (float *)cpu_scratch(cx, 0) + REDUCE_BLOCK};
    double total = 0.0;
    for (; j.first < blocks; j.first += j.count) {
        j.count = blocks - j.first < capacity ? blocks - j.first : capacity;
        cpu_run_sized(cx, j.count * REDUCE_BLOCK, block_task, &j);
        for (int64_t b = 0; b < j.count; b++) total += (double)j.sums[b];
    }
    *(float *)a->sum->data += (float)total;
    return OTT_OK;
}

/* ---- sum of squares ---- */

ott_status ISA(block_squares)(exec *cx, const block_squares_args *a) {
    int64_t blocks = op_reduce_blocks(tensor_count(*a->x));
    if (a->sums->columns != blocks)
        return status_fail(OTT_ERR_SHAPE, "block_squares: sums has %lld columns; x has %lld blocks",
                           (long long)a->sums->columns, (long long)blocks);
    block_job j = {.cx = cx, .x = a->x, .squares = true, .count = blocks, .sums = a->sums->data};
    cpu_run_sized(cx, blocks * REDUCE_BLOCK, block_task, &j);
    return OTT_OK;
}

ott_status ISA(sum_blocks)(exec *cx, const sum_blocks_args *a) {
    const float *sums = a->sums->data;
    double total = 0.0;
    (void)cx;
    for (int64_t b = 0; b < a->sums->columns; b++) total += (double)sums[b];
    *(float *)a->sum->data = (float)total;
    return OTT_OK;
}

/* ---- counting non-finite elements ---- */

/* Returns a mask. An element with 1 in all bits of the mask is infinite or NaN (NaN in E4M3). */
static uint32_t nonfinite_bits(ott_dtype d) {
    switch (d) {
    case OTT_F32: return 0x7f800000u;
    case OTT_BF16: return 0x7f80u;
    case OTT_F16: return 0x7c00u;
    case OTT_E4M3: return 0x7fu;
    default: return 0x7cu; /* OTT_E5M2 */
    }
}

SIMD v16i load_bits(const void *p, int bytes, int64_t index) {
    if (bytes == 4) return v16_bits(v16_load((const float *)p + index));
    return bytes == 2 ? v16i_load_u16((const uint16_t *)p + index) : v16i_load_u8((const uint8_t *)p + index);
}

/* Returns how many of `count` elements have all bits of `mask` set. bytes: size of an element, a constant. */
SIMD int64_t count_row(const void *p, int bytes, uint32_t mask, int64_t count) {
    int64_t found = 0, i = 0;
    v16i all = v16i_set1(mask);
    for (; i + 16 <= count; i += 16) found += v16m_count(v16i_eq(v16i_and(load_bits(p, bytes, i), all), all));
    for (; i < count; i++) {
        uint32_t u = 0; /* the element in the low bytes (little-endian) */
        memcpy(&u, (const char *)p + i * bytes, (size_t)bytes);
        found += (u & mask) == mask;
    }
    return found;
}

typedef struct count_job {
    tensor x;
    int64_t found;
} count_job;

static void count_task(void *argument, int thread, int threads) {
    count_job *j = argument;
    row_share s = row_share_of(j->x.rows, j->x.columns, thread, threads);
    uint32_t mask = nonfinite_bits(j->x.dtype);
    int64_t bytes = dtype_bytes(j->x.dtype), found = 0;
    for (int64_t r = s.row; r < s.row_end; r++) {
        const char *p = (const char *)row_of(&j->x, r) + s.column * bytes;
        found += bytes == 4   ? count_row(p, 4, mask, s.columns)
                 : bytes == 2 ? count_row(p, 2, mask, s.columns)
                              : count_row(p, 1, mask, s.columns);
    }
    __atomic_fetch_add(&j->found, found, __ATOMIC_RELAXED);
}

ott_status ISA(count_nonfinite)(exec *cx, const count_nonfinite_args *a) {
    count_job j = {.x = row_flattened(a->x)};
    cpu_run_sized(cx, tensor_count(j.x), count_task, &j);
    *(int32_t *)a->count->data = j.found > INT32_MAX ? INT32_MAX : (int32_t)j.found;
    return OTT_OK;
}
