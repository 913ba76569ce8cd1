/*
 * tensor/tensor: what data looks like. A tensor is a view: it never owns. Rank 1 or 2 at this floor; more
 * axes are folded into rows (tokens) and columns (features), as every kernel sees them.
 */
#ifndef TENSOR_TENSOR_H
#define TENSOR_TENSOR_H

#include "fp8/recipe.h"

typedef struct tensor {
    void *data; /* on the device of the context that uses it */
    ott_dtype dtype;
    int64_t rows;    /* rank 1: 1 */
    int64_t columns; /* contiguous */
    int64_t ld;      /* elements from one row to the next, >= columns */
} tensor;

/* Dense view of rows x columns elements. A vector has one row. */
static inline tensor tensor_matrix(void *data, ott_dtype d, int64_t rows, int64_t columns) {
    return (tensor){.data = data, .dtype = d, .rows = rows, .columns = columns, .ld = columns};
}
static inline tensor tensor_vector(void *data, ott_dtype d, int64_t count) {
    return tensor_matrix(data, d, 1, count);
}
/* Rows [first, first + count). */
static inline tensor tensor_rows(tensor t, int64_t first, int64_t count) {
    t.data = (char *)t.data + first * t.ld * dtype_bytes(t.dtype);
    t.rows = count;
    return t;
}
/* Columns [first, first + count). */
static inline tensor tensor_columns(tensor t, int64_t first, int64_t count) {
    t.data = (char *)t.data + first * dtype_bytes(t.dtype);
    t.columns = count;
    return t;
}
static inline int64_t tensor_count(tensor t) {
    return t.rows * t.columns;
}
static inline int64_t tensor_bytes(tensor t) {
    return t.rows * t.ld * dtype_bytes(t.dtype);
}

/* One use of a quantized tensor. The arrays amax, scale and scale_inv have an entry for each group of the
   spec's granularity: that of element (line, k), with block = granularity_block, is entry line / block.lines
   * line_step + k / block.depth * depth_step. All NULL when the side stays in high precision. */
typedef struct qside {
    void *data;       /* codes, rows x columns, dense */
    float *amax;      /* largest magnitude of each group */
    float *scale;     /* multiplied on the way to FP8 */
    float *scale_inv; /* 1/scale: multiplied on the way back */
    int64_t line_step, depth_step;
    const float *next; /* AMAX_DELAYED: where quantize takes the scale from; NULL: it stands in `scale` */
} qside;

/* A tensor in FP8 for use along rows and along columns (fp8/recipe.h). When the two sides share data, column
   is qside_shared(row). Owns nothing. */
typedef struct qtensor {
    int64_t rows, columns;
    quant_spec spec;
    qside row, column;
} qtensor;

/* Entries lie [block of the contraction][group of lines], so that neighbouring lines' scales do. */
static inline void qside_order(qside *s, granularity g, int64_t lines) {
    s->line_step = 1;
    s->depth_step = granularity_line_groups(g, lines);
}
/* The column side of a tensor whose row side has the same codes and scales: lines and contraction change
 * places. */
static inline qside qside_shared(qside row) {
    int64_t line_step = row.line_step;
    row.line_step = row.depth_step;
    row.depth_step = line_step;
    return row;
}

#define QLIST_MAX 4
/* The quantized forms a producer makes of its output: one for each distinct spec of its consumers. */
typedef struct qlist {
    int count;
    qtensor item[QLIST_MAX];
} qlist;

/* Packed lines, as a product with few lines on its other side reads them, from the first byte to the last:
   panels of PANEL_LINES lines, [panel][contraction][PANEL_LINES] elements of the matrix's own format; lines
   beyond the last are 0. Lines i and i + PANEL_LINES/2 of a panel lie next to each other: vectors of 16 or 8
   bits wide elements split into the two by shifts. */
#define PANEL_LINES 64
/* Lines of whole panels. */
static inline int64_t panel_round(int64_t lines) {
    return (lines + PANEL_LINES - 1) / PANEL_LINES * PANEL_LINES;
}
/* The element of (line, k) in packed lines. */
static inline int64_t panel_index(int64_t line, int64_t k, int64_t contraction) {
    int64_t i = line % PANEL_LINES, half = PANEL_LINES / 2;
    return (line / PANEL_LINES * contraction + k) * PANEL_LINES + i % half * 2 + i / half;
}

/* A GEMM operand: one side of a tensor, contracted along its rows' elements (transposed false: line = row) or
   down its columns (transposed true: line = column). packed: t.data is packed lines, t.rows x t.columns are
   still lines x contraction; only for b, by rows. scale_inv NULL: no scale; else that of (line, k) is where
   qside says. */
typedef struct operand {
    tensor t;
    bool transposed, packed;
    granularity grain;
    const float *scale_inv;
    int64_t line_step, depth_step;
} operand;

static inline int64_t operand_lines(const operand *o) {
    return o->transposed ? o->t.columns : o->t.rows;
}
static inline int64_t operand_contraction(const operand *o) {
    return o->transposed ? o->t.rows : o->t.columns;
}
/* The operand a GEMM sees: the FP8 side where the spec has one, else the high-precision tensor. */
operand operand_by_rows(tensor high_precision, const qtensor *q);    /* q may be NULL */
operand operand_by_columns(tensor high_precision, const qtensor *q); /* q may be NULL */

#endif
