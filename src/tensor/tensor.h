/*
 * tensor/tensor: what data looks like. A tensor is a view: it never owns. Rank 1 or 2 at this floor; more
 * axes are folded into rows (tokens) and columns (features), as every kernel sees them.
 */
#ifndef TENSOR_TENSOR_H
#define TENSOR_TENSOR_H

#include "fp8/dtype.h"

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

/* Packed lines, as a product with few lines on its other use reads them, from the first byte to the last:
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

#endif
