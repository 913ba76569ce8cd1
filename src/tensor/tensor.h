/*
 * tensor/tensor: a view of a matrix or vector in device memory. It owns nothing. Tensors with more axes are
 * folded into rows (tokens) and columns (features).
 */
#ifndef TENSOR_TENSOR_H
#define TENSOR_TENSOR_H

#include "fp8/dtype.h"

typedef struct tensor {
    void *data; /* memory of the device on which ops use the tensor */
    ott_dtype dtype;
    int64_t rows;    /* number of rows, 1 for a vector */
    int64_t columns; /* elements of a row are contiguous */
    int64_t ld;      /* row stride in elements, >= columns */
} tensor;

/* Returns a dense view of rows x columns elements. A vector has one row. */
static inline tensor tensor_matrix(void *data, ott_dtype d, int64_t rows, int64_t columns) {
    tensor t = {data, d, rows, columns, columns};
    return t;
}
static inline tensor tensor_vector(void *data, ott_dtype d, int64_t count) {
    return tensor_matrix(data, d, 1, count);
}
/* Returns a view of rows [first, first + count) of t. tensor_columns does the same for columns. */
static inline tensor tensor_rows(tensor t, int64_t first, int64_t count) {
    t.data = (char *)t.data + dtype_count_bytes(t.dtype, first * t.ld);
    t.rows = count;
    return t;
}
static inline tensor tensor_columns(tensor t, int64_t first, int64_t count) {
    t.data = (char *)t.data + dtype_count_bytes(t.dtype, first);
    t.columns = count;
    return t;
}
static inline int64_t tensor_count(tensor t) {
    return t.rows * t.columns;
}
static inline int64_t tensor_bytes(tensor t) {
    return dtype_count_bytes(t.dtype, t.rows * t.ld);
}

#endif
