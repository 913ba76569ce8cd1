/*
 * nn/parameter: a trained tensor: its fp32 master, its fp32 gradient, its optimizer's state. All are views of
 * memory that others own; state and gradient are NULL where nothing trains.
 *
 * Ranks that share a model hold a part of each parameter, its shard: what is initialized, updated and saved.
 * Layers read and add to the whole, which parallel/store makes of the shards around them; one rank's shard is
 * the whole, in the same memory.
 */
#ifndef NN_PARAMETER_H
#define NN_PARAMETER_H

#include "tensor/exec.h"

enum { PARAMETER_SLOTS = 2 }; /* state tensors an optimizer has of a parameter, at most */

/* The rows and columns of a parameter that are on this rank: those of its tensors, from (row, column) on. */
typedef struct parameter_shard {
    int64_t row, column;
    int64_t *cut; /* [ranks] rows of a matrix, elements of a vector, that each rank has; NULL: one rank */
    tensor value, grad;
    tensor slot[PARAMETER_SLOTS]; /* of the optimizer's state, in its row's order (nn/optimizer.h) */
} parameter_shard;

typedef struct parameter {
    const char
        *name; /* Hugging Face's, "model.layers.0.self_attn.q_proj.weight"; borrowed from the model's arena */
    int rank;  /* 1: a vector of `columns`, 2: a matrix, as in the file */
    int64_t rows, columns; /* of the whole */
    bool decay;            /* takes part in weight decay */
    bool frozen;           /* is not trained: no gradient, no state, whatever else trains */
    bool adds_often;       /* backward adds to its gradient row by row, or several times in a micro-batch */
    tensor value, grad;    /* the whole */
    plan_buffer value_buffer, grad_buffer; /* of the whole while it is gathered, or its gradient apart */
    parameter_shard shard;
} parameter;

/* Elements of the whole. */
static inline int64_t parameter_count(const parameter *p) {
    return p->rows * p->columns;
}

/* Where a shard of whole rows, or of one row's elements, begins in the whole with its rows laid end to end. */
static inline int64_t parameter_shard_first(const parameter *p) {
    return p->shard.row * p->columns + p->shard.column;
}

/* Where the shard is all of it. */
static inline void parameter_show_whole(parameter *p) {
    p->value = p->shard.value;
    p->grad = p->shard.grad;
}

#endif
