/* nn/embedding: token ids to vectors. */
#ifndef NN_EMBEDDING_H
#define NN_EMBEDDING_H

#include "nn/parameter.h"
#include "nn/tensor_ranks.h"

typedef struct embedding {
    const char *name;
    parameter *weight; /* [V,D] */
    bool has_padding;
    int64_t padding;    /* a row that tokens do not train (transformers' padding_idx) */
    tensor_ranks ranks; /* among which the rows are cut, or else each has the whole table */
} embedding;

/* y[T,D] = rows of the master, rounded to y's format; of y and dy the rows that are here between layers. token: i32[T]. */
ott_status embedding_forward(exec *cx, const embedding *e, const tensor *token, const tensor *y);
ott_status embedding_backward(exec *cx, const embedding *e, const tensor *token, const tensor *dy);

#endif
