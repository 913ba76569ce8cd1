/* reference_numbers: conversion, quantization, matrix product, sums and counts, as plain loops. */
#include "fp8/history.h"
#include "fp8/reference.h"
#include "reference/reference_parts.h"
#include "tensor/scale_entry.h"
#include <float.h>
#include <stdlib.h>
#include <string.h>

ott_status reference_op_convert(exec *cx, const convert_args *a) {
    (void)cx;
    for (int64_t i = 0; i < a->x->rows; i++)
        for (int64_t j = 0; j < a->x->columns; j++) put(a->y, i, j, at(a->x, i, j));
    return OTT_OK;
}

ott_status reference_op_transpose(exec *cx, const transpose_args *a) {
    (void)cx;
    const uint8_t *from = a->x->data;
    uint8_t *to = a->y->data;
    for (int64_t i = 0; i < a->x->rows; i++)
        for (int64_t j = 0; j < a->x->columns; j++) to[j * a->y->ld + i] = from[i * a->x->ld + j];
    return OTT_OK;
}

/* ---- quantize, and its steps: amax, scale, cast; a copy in high precision is not quantized ---- */

/* Stores codes (rows x columns) in the layout of q. */
static void put_codes(const qtensor *q, const uint8_t *codes, const qdata *d) {
    for (int64_t i = 0; i < q->rows; i++)
        for (int64_t j = 0; j < q->columns; j++)
            ((uint8_t *)d->data)[qtensor_index(d, i, j)] = codes[i * q->columns + j];
}

/* Number of scale groups of the copy; column: of the columnwise copy. */
static int64_t group_count(const qtensor *q, const cast_spec *spec, bool column) {
    return column ? granularity_groups(spec->grain, q->columns, q->rows)
                  : granularity_groups(spec->grain, q->rows, q->columns);
}

static void quantize_use(const tensor *x, const qtensor *q, bool column, uint8_t *codes) {
    const cast_spec *spec = column ? &q->spec.columnwise : &q->spec.rowwise;
    const qdata *s = column ? &q->columnwise : &q->rowwise;
    if (!cast_spec_is_fp8(spec)) return;
    if (spec->policy == AMAX_DELAYED && s->next) s->scale[0] = s->next[0];
    int64_t count = group_count(q, spec, column);
    float *scale_inv = malloc((size_t)count * sizeof *scale_inv + 1);
    if (!scale_inv) abort();
    reference_quantize(x->data, x->dtype, x->rows, x->columns, x->ld, spec, column, s->amax, s->scale,
                       scale_inv, codes);
    for (int64_t g = 0; g < count; g++) scale_entry_write(s, g, scale_inv[g]);
    put_codes(q, codes, s);
    free(scale_inv);
}

static void quantize_both(const tensor *x, const qtensor *q) {
    uint8_t *codes = malloc((size_t)(q->rows * q->columns) + 1); /* + 1: malloc(0) may return NULL */
    if (!codes) abort();
    quantize_use(x, q, false, codes);
    if (qtensor_shares_scales(q))
        put_codes(q, codes, &q->columnwise);
    else
        quantize_use(x, q, true, codes);
    free(codes);
}

void reference_quantize_list(const tensor *x, const qlist *list) {
    for (int i = 0; list && i < list->count; i++) quantize_both(x, &list->item[i]);
}

/* Index of the scale group of element (i, j). */
static int64_t group_of(const cast_spec *spec, bool column, int64_t i, int64_t j, const qdata *s) {
    scale_block block = granularity_block(spec->grain);
    int64_t line = column ? j : i, k = column ? i : j;
    return line / block.mn * s->mn_step + k / block.k * s->k_step;
}

static void amax_use(const tensor *x, const qtensor *q, const cast_spec *spec, bool column, const qdata *s) {
    if (!cast_spec_is_fp8(spec)) return;
    float *amax = s->amax;
    for (int64_t g = 0; g < group_count(q, spec, column); g++) amax[g] = 0;
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++) {
            float *largest = &amax[group_of(spec, column, i, j, s)], magnitude = fabsf(at(x, i, j));
            if (isnan(magnitude) || magnitude > *largest) /* a comparison with NaN is false, so NaN stays */
                *largest = isnan(magnitude) ? NAN : magnitude;
        }
}

static void scale_use(const qtensor *q, const cast_spec *spec, bool column, const qdata *s) {
    if (!cast_spec_is_fp8(spec)) return;
    for (int64_t g = 0; g < group_count(q, spec, column); g++) {
        if (spec->policy == AMAX_CURRENT)
            s->scale[g] = scale_from_amax(s->amax[g], spec->format, &spec->scale);
        else if (s->next)
            s->scale[g] = s->next[0];
        scale_entry_write(s, g, scale_inverse(s->scale[g]));
    }
}

static void cast_use(const tensor *x, const cast_spec *spec, bool column, const qdata *s) {
    if (!cast_spec_is_fp8(spec)) return;
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t j = 0; j < x->columns; j++) {
            float scaled = at(x, i, j) * s->scale[group_of(spec, column, i, j, s)];
            ((uint8_t *)s->data)[qtensor_index(s, i, j)] = cast_to_fp8(scaled, spec->format, spec->mode);
        }
}

ott_status reference_op_dequantize(exec *cx, const dequantize_args *a) {
    (void)cx;
    bool column = !cast_spec_is_fp8(&a->q->spec.rowwise);
    const cast_spec *spec = column ? &a->q->spec.columnwise : &a->q->spec.rowwise;
    const qdata *s = column ? &a->q->columnwise : &a->q->rowwise;
    for (int64_t i = 0; i < a->y->rows; i++)
        for (int64_t j = 0; j < a->y->columns; j++) {
            uint8_t code = ((const uint8_t *)s->data)[qtensor_index(s, i, j)];
            put(a->y, i, j,
                cast_from_fp8(code, spec->format) * scale_entry_read(s, group_of(spec, column, i, j, s)));
        }
    return OTT_OK;
}

ott_status reference_op_amax(exec *cx, const amax_args *a) {
    (void)cx;
    amax_use(a->x, a->q, &a->q->spec.rowwise, false, &a->q->rowwise);
    amax_use(a->x, a->q, &a->q->spec.columnwise, true, &a->q->columnwise);
    return OTT_OK;
}

ott_status reference_op_scale(exec *cx, const scale_args *a) {
    (void)cx;
    scale_use(a->q, &a->q->spec.rowwise, false, &a->q->rowwise);
    scale_use(a->q, &a->q->spec.columnwise, true, &a->q->columnwise);
    return OTT_OK;
}

ott_status reference_op_cast(exec *cx, const cast_args *a) {
    (void)cx;
    cast_use(a->x, &a->q->spec.rowwise, false, &a->q->rowwise);
    cast_use(a->x, &a->q->spec.columnwise, true, &a->q->columnwise);
    return OTT_OK;
}

ott_status reference_op_quantize(exec *cx, const quantize_args *a) {
    (void)cx;
    quantize_both(a->x, a->q);
    return OTT_OK;
}

/* Quantizes one copy (rowwise or columnwise) of the rows of a group, as if they were a separate tensor. Then
   stores the scales and codes in the arrays of the full tensor. */
static void quantize_group_use(const tensor *x, const qtensor *q, bool column) {
    const cast_spec *spec = column ? &q->spec.columnwise : &q->spec.rowwise;
    const qdata *s = column ? &q->columnwise : &q->rowwise;
    if (!cast_spec_is_fp8(spec)) return;
    int64_t count = group_count(q, spec, column),
            mn_groups = granularity_mn_groups(spec->grain, column ? q->columns : q->rows);
    float *made = malloc(3 * (size_t)count * sizeof *made);
    uint8_t *codes = malloc((size_t)(q->rows * q->columns));
    if (!made || !codes) abort();
    reference_quantize(x->data, x->dtype, x->rows, x->columns, x->ld, spec, column, made, made + count,
                       made + 2 * count, codes);
    for (int64_t g = 0; g < count; g++) {
        int64_t to = g % mn_groups * s->mn_step + g / mn_groups * s->k_step;
        s->amax[to] = made[g];
        s->scale[to] = made[count + g];
        scale_entry_write(s, to, made[2 * count + g]);
    }
    put_codes(q, codes, s);
    free(made);
    free(codes);
}

ott_status reference_op_grouped_quantize(exec *cx, const grouped_quantize_args *a) {
    int64_t groups = a->q->groups, rows = a->x->rows, first = 0, end;
    (void)cx;
    for (int64_t e = 0; e <= groups; e++, first = end) {
        end = e == groups ? rows : a->end ? integer_at(a->end, e) : (e + 1) * (rows / groups);
        if (end == first) continue;
        tensor x = tensor_rows(*a->x, first, end - first);
        qtensor q = qtensor_group(a->q, e, first, end - first);
        quantize_group_use(&x, &q, false);
        quantize_group_use(&x, &q, true);
    }
    return OTT_OK;
}

/* ---- cast statistics ---- */

static void statistics_use(const tensor *x, const cast_spec *spec, bool column, const qtensor *q,
                           const qdata *s, float *out) {
    if (!cast_spec_is_fp8(spec)) return;
    double signal = 0, noise = 0, count = (double)tensor_count(*x);
    int64_t saturated = 0, underflowed = 0;
    for (int64_t first = 0; first < tensor_count(*x); first += REDUCE_BLOCK) {
        float squares[16] = {0}, errors[16] = {0};
        for (int64_t e = first; e < first + REDUCE_BLOCK && e < tensor_count(*x); e++) {
            int64_t i = e / x->columns, j = e % x->columns;
            int64_t group = group_of(spec, column, i, j, s);
            uint8_t code = ((const uint8_t *)s->data)[qtensor_index(s, i, j)];
            float value = at(x, i, j), scaled = fabsf(value * s->scale[group]);
            float difference = cast_from_fp8(code, spec->format) * scale_inverse(s->scale[group]) - value;
            saturated += isinf(value) || (spec->format == OTT_E4M3 ? scaled > 464.0f : scaled >= 61440.0f);
            underflowed += value != 0.0f && (code & 0x7f) == 0;
            squares[e % 16] = fmaf(value, value, squares[e % 16]);
            errors[e % 16] = fmaf(difference, difference, errors[e % 16]);
        }
        signal += fold16(squares);
        noise += fold16(errors);
    }
    out[STATISTICS_SATURATED] = (float)((double)saturated / count);
    out[STATISTICS_UNDERFLOWED] = (float)((double)underflowed / count);
    out[STATISTICS_SIGNAL] = (float)signal;
    out[STATISTICS_NOISE] = (float)noise;
    out[STATISTICS_SCALE_MIN] = out[STATISTICS_SCALE_MAX] = s->scale[0];
    for (int64_t g = 0; g < group_count(q, spec, column); g++) {
        float amax = s->amax[g], scale = s->scale[g];
        if (isnan(amax) || amax > out[STATISTICS_AMAX]) out[STATISTICS_AMAX] = amax;
        if (scale < out[STATISTICS_SCALE_MIN]) out[STATISTICS_SCALE_MIN] = scale;
        if (scale > out[STATISTICS_SCALE_MAX]) out[STATISTICS_SCALE_MAX] = scale;
    }
}

ott_status reference_op_quantize_statistics(exec *cx, const quantize_statistics_args *a) {
    (void)cx;
    for (int column = 0; column < 2; column++) {
        float out[STATISTICS_COUNT] = {0};
        const cast_spec *spec = column ? &a->q->spec.columnwise : &a->q->spec.rowwise;
        statistics_use(a->x, spec, column, a->q, column ? &a->q->columnwise : &a->q->rowwise, out);
        for (int i = 0; i < STATISTICS_COUNT; i++) put(a->statistics, column, i, out[i]);
    }
    return OTT_OK;
}

/* ---- delayed scaling ---- */

ott_status reference_op_amax_record(exec *cx, const amax_record_args *a) {
    (void)cx;
    const qdata *use = cast_spec_is_fp8(&a->q->spec.rowwise) ? &a->q->rowwise : &a->q->columnwise;
    put(a->seen, 0, 0, history_record(at(a->seen, 0, 0), use->amax[0]));
    return OTT_OK;
}

ott_status reference_op_amax_update(exec *cx, const amax_update_args *a) {
    (void)cx;
    history_update(&a->spec, at(a->seen, 0, 0), a->amax_history->data, a->scale->data);
    put(a->seen, 0, 0, 0.0f);
    return OTT_OK;
}

/* ---- matrix product ---- */

static reference_operand plain_operand(const operand *o) {
    return (reference_operand){.data = o->t.data,
                               .format = o->t.dtype,
                               .ld = o->t.ld,
                               .transposed = o->transposed,
                               .scale_inv = o->scale_inv,
                               .grain = o->grain,
                               .mn_step = o->mn_step,
                               .k_step = o->k_step,
                               .tiles = o->tiles};
}

/* In the reference a packed operand is the operand itself. */
ott_status reference_op_gemm(exec *cx, const gemm_args *args) {
    (void)cx;
    reference_operand a = plain_operand(args->a), b = plain_operand(args->b);
    reference_gemm(args->c->rows, args->c->columns, operand_k(args->a), &a, &b, &args->spec,
                   args->bias ? args->bias->data : NULL, args->accumulate, args->c->data, args->c->dtype,
                   args->c->ld);
    return OTT_OK;
}

ott_status reference_op_pack(exec *cx, const pack_args *a) {
    (void)cx;
    const tensor *x = &a->b->t;
    int64_t bytes = x->columns * dtype_bytes(x->dtype);
    for (int64_t i = 0; i < x->rows; i++)
        memcpy((char *)a->y->data + i * bytes, tensor_rows(*x, i, 1).data, (size_t)bytes);
    return OTT_OK;
}

ott_status reference_op_add(exec *cx, const add_args *a) {
    (void)cx;
    for (int64_t i = 0; i < a->y->rows; i++)
        for (int64_t j = 0; j < a->y->columns; j++) put(a->y, i, j, at(a->x, i, j) + at(a->delta, i, j));
    return OTT_OK;
}

ott_status reference_op_multiply(exec *cx, const multiply_args *a) {
    (void)cx;
    for (int64_t i = 0; i < a->y->rows; i++)
        for (int64_t j = 0; j < a->y->columns; j++) put(a->y, i, j, at(a->x, i, j) * a->factor);
    return OTT_OK;
}

ott_status reference_op_multiply_columns(exec *cx, const multiply_columns_args *a) {
    (void)cx;
    for (int64_t i = 0; i < a->y->rows; i++)
        for (int64_t j = 0; j < a->y->columns; j++) {
            float x = at(a->x, i, j), k = at(a->factor, 0, j);
            put(a->y, i, j, a->accumulate ? fmaf(x, k, at(a->y, i, j)) : x * k);
        }
    return OTT_OK;
}

ott_status reference_op_channel_scales(exec *cx, const channel_scales_args *a) {
    (void)cx;
    for (int64_t j = 0; j < a->x->columns; j++) {
        float amax = 0;
        for (int64_t i = 0; i < a->x->rows; i++) {
            float x = fabsf(at(a->x, i, j));
            if (isnan(x) || x > amax) amax = x;
            if (isnan(x)) break;
        }
        int e = amax > 0 && isfinite(amax) ? (amax < FLT_MIN ? -127 : ilogbf(amax)) : 0;
        float power = ldexpf(1.0f, (int)floor(e / 2.0));
        put(a->power, 0, j, power);
        put(a->power, 1, j, 1.0f / power);
    }
    return OTT_OK;
}

ott_status reference_op_column_sum(exec *cx, const column_sum_args *a) {
    (void)cx;
    for (int64_t n = 0; n < a->x->columns; n++) {
        float s = at(a->sum, 0, n);
        for (int64_t m = 0; m < a->x->rows; m++) s = s + at(a->x, m, n);
        put(a->sum, 0, n, s);
    }
    return OTT_OK;
}

/* ---- reductions over full tensors ---- */

/* Returns element `index` of a tensor, counted row by row without padding. */
static float laid_end_to_end(const tensor *x, int64_t index) {
    return at(x, index / x->columns, index % x->columns);
}

/* The SUM16 (ops.def) of one block of REDUCE_BLOCK elements, or of their squares. */
static float block_sum(const tensor *x, int64_t block, bool squares) {
    float lane[16] = {0};
    for (int64_t j = 0; j < REDUCE_BLOCK && block * REDUCE_BLOCK + j < tensor_count(*x); j++) {
        float e = laid_end_to_end(x, block * REDUCE_BLOCK + j);
        lane[j % 16] = squares ? fmaf(e, e, lane[j % 16]) : lane[j % 16] + e;
    }
    return fold16(lane);
}

ott_status reference_op_sum(exec *cx, const sum_args *a) {
    double total = 0;
    (void)cx;
    for (int64_t b = 0; b < op_reduce_blocks(tensor_count(*a->x)); b++) total += block_sum(a->x, b, false);
    put(a->sum, 0, 0, at(a->sum, 0, 0) + (float)total);
    return OTT_OK;
}

ott_status reference_op_block_squares(exec *cx, const block_squares_args *a) {
    (void)cx;
    for (int64_t b = 0; b < a->sums->columns; b++) put(a->sums, 0, b, block_sum(a->x, b, true));
    return OTT_OK;
}

ott_status reference_op_sum_blocks(exec *cx, const sum_blocks_args *a) {
    double total = 0;
    (void)cx;
    for (int64_t b = 0; b < a->sums->columns; b++) total += at(a->sums, 0, b);
    put(a->sum, 0, 0, (float)total);
    return OTT_OK;
}

ott_status reference_op_count_nonfinite(exec *cx, const count_nonfinite_args *a) {
    (void)cx;
    int32_t count = 0;
    for (int64_t i = 0; i < tensor_count(*a->x); i++) count += !isfinite(laid_end_to_end(a->x, i));
    *(int32_t *)a->count->data = count;
    return OTT_OK;
}
