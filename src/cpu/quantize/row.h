/*
 * cpu/quantize/row: computes amaxes and codes of one row, or of 16 rows, of a tensor. On vector ISA levels
 * the loops are specialized for each number format (cpu/rows.h).
 */
#ifndef CPU_QUANTIZE_ROW_H
#define CPU_QUANTIZE_ROW_H

#include "cpu/rows.h"
#include "tensor/tensor.h"

/* Block scales of TILE_ROWS rows are computed together, because they are next to each other in memory. A tile
   [block][row] has first the amaxes, then the scales. */
enum { TILE_ROWS = 16 };

/* Software prefetch into the second-level cache. The hardware prefetcher stops at the end of a page. */
typedef struct row_ahead {
    int64_t distance; /* prefetch distance in elements; 0: no prefetch */
    int64_t mask;     /* prefetch only at elements i with (i & mask) == turn */
    int64_t turn;     /* loops over the same rows have different turns, to prefetch different elements */
} row_ahead;

/* While elements [i, i + 64) of a row are processed, prefetches the elements a.distance after them. */
SIMD void fetch(row_ahead a, const void *x, ott_dtype d, int64_t from, int64_t i) {
    if (a.distance == 0 || (i & a.mask) != a.turn) return;
    const char *p = (const char *)x + (from + i + a.distance) * dtype_bytes(d);
    for (int64_t at = 0; at < 64 * dtype_bytes(d); at += 64) __builtin_prefetch(p + at, 0, 2);
}

/* ---- amax ---- */

/* Running amaxes of columns are fp32, but bf16 for a bf16 tensor: a vector then has 32 amaxes, not 16. */
SIMD int64_t column_amax_bytes(ott_dtype d) {
    return d == OTT_BF16 ? 2 : 4;
}
/* Returns the address of column n's amax; NULL if `columns` is NULL. */
SIMD void *column_amax_at(void *columns, ott_dtype d, int64_t n) {
    return columns ? (char *)columns + n * column_amax_bytes(d) : NULL;
}
SIMD v16 column_amax_load_n(const void *columns, ott_dtype d, int64_t at, int64_t n) {
    return d == OTT_BF16 ? v16_load_bf16_n((const uint16_t *)columns + at, n)
                         : v16_load_n((const float *)columns + at, n);
}

/* Returns the lanewise maximum of `most` and the magnitudes of elements [i, i + n), n <= 16. Also updates the
   column amaxes columns[n] with these magnitudes, unless columns is NULL. */
SIMD v16 amax_step(const void *x, ott_dtype d, int64_t i, int64_t n, void *columns, v16 most) {
    v16 value = v16_abs(n >= 16 ? v16_load_any(x, d, i) : v16_load_any_n(x, d, i, n));
    if (columns) {
        v16 column = v16_amax(column_amax_load_n(columns, d, 0, n), value);
        if (d == OTT_BF16)
            v16i_store_u16_n(columns, v16i_shr(v16_bits(column), 16), n);
        else
            v16_store_n(columns, column, n);
    }
    return v16_amax(most, value);
}

/* Returns the amax of n elements from index `from` on. Also updates amaxes columns[n] unless it is NULL. */
ROW_LOOP float amax_run(const void *x, ott_dtype d, int64_t from, int64_t n, row_ahead ahead, void *columns) {
    v16 most[4] = {v16_zero(), v16_zero(), v16_zero(), v16_zero()};
    v16i pairs[2] = {v16i_set1(0), v16i_set1(0)};
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        fetch(ahead, x, d, from, i);
        for (int v = 0; v < 4 && d != OTT_BF16; v++)
            most[v] = amax_step(x, d, from + i + 16 * v, 16, column_amax_at(columns, d, i + 16 * v), most[v]);
        for (int v = 0; v < 2 && d == OTT_BF16; v++) {
            const uint16_t *at = (const uint16_t *)x + from + i + 32 * v;
            uint16_t *column = column_amax_at(columns, d, i + 32 * v);
            pairs[v] = v16i_amax_bf16(pairs[v], at);
            if (column) v16i_store(column, v16i_amax_bf16(v16i_load(column), at));
        }
    }
    for (; i < n; i += 16) {
        int64_t left = n - i < 16 ? n - i : 16;
        most[0] = amax_step(x, d, from + i, left, column_amax_at(columns, d, i), most[0]);
    }
    most[1] = v16_amax(most[1], v16_larger_bf16(v16i_umax16(pairs[0], pairs[1])));
    return v16_fold_amax(v16_amax(v16_amax(most[0], most[1]), v16_amax(most[2], most[3])));
}

SIMD void amax_runs(const void *x, ott_dtype d, int64_t from, int64_t n, int64_t run, row_ahead ahead,
                    void *columns, float *runs) {
    for (int64_t i = 0; i < n; i += run)
        *runs++ = amax_run(x, d, from + i, n - i < run ? n - i : run, ahead, column_amax_at(columns, d, i));
}

/* runs[] = amax of each `run` of a row's elements [column, column + n). Also updates amaxes columns[n]. */
static void amax_row(const tensor *x, int64_t row, int64_t column, int64_t n, int64_t run, row_ahead ahead,
                     void *columns, float *runs) {
    int64_t from = row * x->ld + column;
    if (columns)
        WITH_DTYPE(x->dtype, D, amax_runs(x->data, D, from, n, run, ahead, columns, runs));
    else
        WITH_DTYPE(x->dtype, D, amax_runs(x->data, D, from, n, run, ahead, NULL, runs));
}

/* Returns the magnitudes of 32 bf16 elements, or of 16 elements of another format. */
SIMD v16i magnitudes(const void *x, ott_dtype d, int64_t i) {
    if (d == OTT_BF16) return v16i_amax_bf16(v16i_set1(0), (const uint16_t *)x + i);
    return v16_bits(v16_abs(v16_load_any(x, d, i)));
}
SIMD v16i larger(ott_dtype d, v16i a, v16i b) {
    return d == OTT_BF16 ? v16i_umax16(a, b) : v16i_umax(a, b);
}

/* Returns the amaxes of TILE_ROWS rows, one in each lane. Row r has n elements, from index from + r * ld on.
   n is a multiple of 32 for bf16, else of 16. Also updates the column amaxes columns[n] unless it is NULL. */
ROW_LOOP v16 amax_full_tile(const void *x, ott_dtype d, int64_t from, int64_t ld, int64_t n, void *columns) {
    v16i most[TILE_ROWS];
    ROW_UNROLL for (int r = 0; r < TILE_ROWS; r++) most[r] = v16i_set1(0);
    for (int64_t i = 0; i < n; i += d == OTT_BF16 ? 32 : 16) {
        void *at = column_amax_at(columns, d, i);
        v16i column = at ? v16i_load(at) : v16i_set1(0);
        ROW_UNROLL for (int r = 0; r < TILE_ROWS; r++) {
            v16i value = magnitudes(x, d, from + r * ld + i);
            most[r] = larger(d, most[r], value);
            column = larger(d, column, value);
        }
        if (at) v16i_store(at, column);
    }
    return v16_fold_rows_amax(most, d == OTT_BF16);
}

/* Like amax_full_tile, for at most TILE_ROWS rows and any n. */
SIMD v16 amax_part_tile(const void *x, ott_dtype d, int64_t from, int64_t ld, int64_t rows, int64_t n,
                        void *columns) {
    float most[TILE_ROWS] = {0};
    for (int64_t r = 0; r < rows; r++) most[r] = amax_run(x, d, from + r * ld, n, (row_ahead){0}, columns);
    return v16_load(most);
}

/* Computes amaxes of rows [row, row + rows), for each `run` adjacent columns in [column, column + n). They
   are written to runs[n / run][TILE_ROWS], with a lane for each row. */
SIMD void amax_tiles_of(ott_dtype d, const tensor *x, int64_t row, int64_t rows, int64_t column, int64_t n,
                        int64_t run, void *columns, float *runs) {
    for (int64_t i = 0; i < n; i += run, runs += TILE_ROWS) {
        int64_t from = row * x->ld + column + i, count = n - i < run ? n - i : run;
        void *at = column_amax_at(columns, d, i);
        v16 most = rows == TILE_ROWS && count % 32 == 0
                       ? amax_full_tile(x->data, d, from, x->ld, count, at)
                       : amax_part_tile(x->data, d, from, x->ld, rows, count, at);
        v16_store(runs, most);
    }
}
static void amax_tiles(const tensor *x, int64_t row, int64_t rows, int64_t column, int64_t n, int64_t run,
                       void *columns, float *runs) {
    WITH_DTYPE(x->dtype, D, amax_tiles_of(D, x, row, rows, column, n, run, columns, runs));
}

/* ---- codes ---- */

/* How the elements of a row are scaled. Element i is multiplied by scale[0] (SCALE_ONE), by scale[i]
   (SCALE_EACH), or by scale[(i >> shift) * TILE_ROWS], the row's block scale in a tile (SCALE_BLOCKS). */
typedef enum scale_kind { SCALE_ONE, SCALE_EACH, SCALE_BLOCKS } scale_kind;
typedef struct row_scale {
    const float *scale;
    int shift;
} row_scale;

/* Returns the scales of n (at most 16) elements from i on. */
SIMD v16 scale_at(row_scale s, scale_kind kind, int64_t i, int64_t n) {
    if (kind == SCALE_BLOCKS) return v16_set1(s.scale[(i >> s.shift) * TILE_ROWS]);
    if (kind == SCALE_EACH) return n >= 16 ? v16_load(s.scale + i) : v16_load_n(s.scale + i, n);
    return v16_set1(s.scale[0]);
}

/* Casts n elements from index `from` on to codes[n]. */
ROW_LOOP void cast_run(const void *x, ott_dtype d, int64_t from, int64_t n, row_ahead ahead, row_scale scale,
                       scale_kind kind, ott_dtype format, cast_mode mode, uint8_t *codes) {
    v16 one = kind == SCALE_ONE ? v16_set1(scale.scale[0]) : v16_zero();
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        v16 scaled[4];
        fetch(ahead, x, d, from, i);
        for (int v = 0; v < 4; v++) {
            v16 s = kind == SCALE_ONE ? one : scale_at(scale, kind, i + 16 * v, 16);
            scaled[v] = v16_mul(v16_load_any(x, d, from + i + 16 * v), s);
        }
        v16_store_fp8x64(codes + i, scaled, format, mode);
    }
    for (; i < n; i += 16) {
        v16 s = scale_at(scale, kind, i, n - i);
        v16_store_fp8_n(codes + i, v16_mul(v16_load_any_n(x, d, from + i, n - i), s), format, mode, n - i);
    }
}

SIMD void cast_row(const tensor *x, int64_t from, int64_t n, row_ahead ahead, row_scale scale,
                   scale_kind kind, const cast_spec *s, uint8_t *codes) {
    WITH_DTYPE(x->dtype, D,
               WITH_FP8(s->format, F, cast_run(x->data, D, from, n, ahead, scale, kind, F, s->mode, codes)));
}

/* Casts n elements from index `from` on, all with one scale, to codes[n]. */
static void cast_row_one_scale(const tensor *x, int64_t from, int64_t n, row_ahead ahead, row_scale scale,
                               const cast_spec *s, uint8_t *codes) {
    cast_row(x, from, n, ahead, scale, SCALE_ONE, s, codes);
}

static void cast_row_each(const tensor *x, int64_t from, int64_t n, row_ahead ahead, row_scale scale,
                          const cast_spec *s, uint8_t *codes) {
    cast_row(x, from, n, ahead, scale, SCALE_EACH, s, codes);
}

static void cast_row_blocks(const tensor *x, int64_t from, int64_t n, row_scale scale, const cast_spec *s,
                            uint8_t *codes) {
    cast_row(x, from, n, (row_ahead){0}, scale, SCALE_BLOCKS, s, codes);
}

#endif
