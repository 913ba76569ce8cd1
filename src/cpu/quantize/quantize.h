/*
 * cpu/quantize/quantize: private to src/cpu. Finds the scale of each element of a quantized tensor, for one
 * of its uses.
 */
#ifndef CPU_QUANTIZE_QUANTIZE_H
#define CPU_QUANTIZE_QUANTIZE_H

#include "cpu/simd/simd.h"
#include "cpu/isa.h"
#include "fp8/codes.h"

#define QUANTIZE_ALL INT64_MAX /* a scale group contains all rows, or all columns */

/* An FP8 use of a quantized tensor. A group of rows x columns elements shares a scale. The scale of element
   (i, j) of the tensor has the index i / rows * row_step + j / columns * column_step. */
typedef struct quantize_use {
    const cast_spec *spec; /* format, granularity and rule of the scales */
    const qdata *at;       /* codes, scales and amaxes of the use */
    float *scale_inv;      /* at->scale_inv if it is fp32; NULL if it has 8 bits */
    /* the tensor's other use, if that use shares the scales but has separate codes; else NULL */
    const qdata *also;
    int64_t rows, columns;       /* size of a scale group: powers of two, or QUANTIZE_ALL */
    int row_shift, column_shift; /* log2 of rows and of columns */
    int64_t row_step, column_step;
    int64_t groups; /* number of scales of the tensor */
} quantize_use;

static inline int64_t quantize_blocks(int64_t count, int64_t block) {
    return block == QUANTIZE_ALL ? 1 : (count + block - 1) / block;
}

static inline int64_t quantize_group(const quantize_use *s, int64_t row, int64_t column) {
    return (row >> s->row_shift) * s->row_step + (column >> s->column_shift) * s->column_step;
}

/* Returns the 8-bit scale_inv of the element's group. */
static inline float quantize_scale_inv(const quantize_use *s, int64_t row, int64_t column) {
    bool rowwise = s->rows == 1; /* a block of MN is one row or one column */
    row >>= s->row_shift;
    column >>= s->column_shift;
    return scale_inv_at(s->at->scale_inv, 0, 0, s->at->tiles, rowwise ? row : column, rowwise ? column : row);
}

static inline int quantize_shift(int64_t block) {
    return block == QUANTIZE_ALL ? 63 : __builtin_ctzll((unsigned long long)block);
}

static inline quantize_use quantize_use_of(const qtensor *q, bool column) {
    quantize_use s = {.spec = column ? &q->spec.columnwise : &q->spec.rowwise,
                      .at = column ? &q->columnwise : &q->rowwise};
    scale_block block = granularity_block(s.spec->grain);
    if (granularity_scale_format(s.spec->grain) == OTT_F32) s.scale_inv = s.at->scale_inv;
    s.rows = column ? block.k : block.mn;
    s.columns = column ? block.mn : block.k;
    s.row_shift = quantize_shift(s.rows);
    s.column_shift = quantize_shift(s.columns);
    s.row_step = column ? s.at->k_step : s.at->mn_step;
    s.column_step = column ? s.at->mn_step : s.at->k_step;
    s.groups = quantize_blocks(q->rows, s.rows) * quantize_blocks(q->columns, s.columns);
    return s;
}

/* Writes q's FP8 uses to use[2] and returns their number. If two uses share scales, writes only one. */
static inline int quantize_uses(const qtensor *q, quantize_use *use) {
    int count = 0;
    if (cast_spec_is_fp8(&q->spec.rowwise)) use[count++] = quantize_use_of(q, false);
    if (!qtensor_shares_scales(q)) {
        if (cast_spec_is_fp8(&q->spec.columnwise)) use[count++] = quantize_use_of(q, true);
    } else if (!qtensor_shares_codes(q))
        use[0].also = &q->columnwise;
    return count;
}

/* True if a row has several scales, but no array with one scale for each element. */
static inline bool quantize_spreads(const quantize_use *s) {
    return s->columns != QUANTIZE_ALL && !(s->columns == 1 && s->column_step == 1);
}

/* Returns a scale for each of `count` elements of a row from `column` on. values: the use's array `scale` or
   `scale_inv`; NULL: 8-bit scale_inv. Copies scales to buffer[count + 15] if `values` does not have one for
   each element. */
static inline const float *quantize_spread(const quantize_use *s, const float *values, int64_t row,
                                           int64_t column, int64_t count, float *buffer) {
    if (values && s->columns != QUANTIZE_ALL && !quantize_spreads(s))
        return values + quantize_group(s, row, column);
    for (int64_t j = 0; j < count;) {
        /* elements up to the end of the scale group; more than count if the group is a full row */
        int64_t left = s->columns - ((column + j) & (s->columns - 1));
        int64_t end = left < count - j ? j + left : count;
        v16 value = v16_set1(values ? values[quantize_group(s, row, column + j)]
                                    : quantize_scale_inv(s, row, column + j));
        for (int64_t i = j; i < end; i += 16) v16_store(buffer + i, value);
        j = end;
    }
    return buffer;
}

/* True if codes of this format are not stored in rows of bytes. */
static inline bool quantize_copies_codes(const qdata *d, ott_dtype format) {
    return d->transposed || dtype_bits(format) != 8;
}

/* Returns the format of the codes that quantize_codes returns. E4M3 has all numbers of a narrower format. */
static inline ott_dtype quantize_codes_format(ott_dtype format) {
    return dtype_bits(format) == 8 ? format : OTT_E4M3;
}

/* Returns the codes of `count` elements of a row from `column` on, one in each byte. Copies codes to
   buffer if they are transposed or have fewer than 8 bits. */
static inline const uint8_t *quantize_codes(const qdata *d, ott_dtype format, int64_t row, int64_t column,
                                            int64_t count, uint8_t *buffer) {
    int64_t from = qtensor_index(d, row, column), step = d->transposed ? d->ld : 1;
    if (!quantize_copies_codes(d, format)) return (const uint8_t *)d->data + from;
    for (int64_t j = 0; j < count; j++) {
        uint8_t code = codes_get(d->data, format, from + j * step);
        buffer[j] = dtype_bits(format) == 8 ? code : cast_to_e4m3(cast_from_fp8(code, format), CAST_SATURATE);
    }
    return buffer;
}

#endif
