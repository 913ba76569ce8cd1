/* nn/embedding: looks up the vectors of token ids. */
#ifndef NN_EMBEDDING_H
#define NN_EMBEDDING_H

#include "nn/parameter.h"
#include "nn/tensor_ranks.h"

typedef struct embedding {
    const char *name;
    parameter *weight; /* table [V,D] */
    bool has_padding;
    int64_t padding;    /* if has_padding: row without a gradient (padding_idx in transformers) */
    tensor_ranks ranks; /* tensor-parallel ranks; each rank has some rows of the table, or all rows */
} embedding;

/* y[T,D] = the table's rows for token[T] (i32), rounded to y's format. y and dy: only this rank's rows. */
ott_status embedding_forward(exec *cx, const embedding *e, const tensor *token, const tensor *y);
/* Adds dy to the table's gradient; does nothing if the table is frozen. */
ott_status embedding_backward(exec *cx, const embedding *e, const tensor *token, const tensor *dy);

#endif
