/*
 * nn/parameter: a trained tensor: its fp32 master, its fp32 gradient, its optimizer's state. All are views of
 * memory that others own; state and gradient are NULL where nothing trains.
 *
 * A rank's layers compute with a part of each parameter: all of it, or the rows or columns that tensor
 * parallelism leaves them (`local`). Of that a rank holds its shard: what is initialized, updated and saved;
 * parallel/store makes the local part of the shards of the ranks that share it, around the layers. One rank's shard is
 * the whole, in the same memory.
 */
#ifndef NN_PARAMETER_H
#define NN_PARAMETER_H

#include "tensor/exec.h"

enum {
    PARAMETER_SLOTS = 2, /* state tensors an optimizer has of a parameter, at most */
    PARAMETER_RANKS = 3
};

/* How tensor parallelism cuts a parameter: each rank has as many rows, or columns, of it. */
typedef enum parameter_cut { PARAMETER_WHOLE, PARAMETER_ROWS, PARAMETER_COLUMNS } parameter_cut;

/* Rows [row, row + rows) and columns [column, column + columns) of a parameter's whole. */
typedef struct parameter_part {
    int64_t row, column, rows, columns;
} parameter_part;

/* The rows and columns of a parameter that are on this rank: those of its tensors, from (row, column) of the whole
   on. */
typedef struct parameter_shard {
    int64_t row, column;
    int64_t *cut; /* [ranks] rows of a local matrix, elements of a vector, that each has; NULL: one rank */
    tensor value, grad;
    tensor slot[PARAMETER_SLOTS]; /* of the optimizer's state, in its row's order (nn/optimizer.h) */
} parameter_shard;

typedef struct parameter {
    const char
        *name; /* Hugging Face's, "model.layers.0.self_attn.q_proj.weight"; borrowed from the model's arena */
    int rank;  /* 1: a vector of `columns`, 2: a matrix, 3: a stack of matrices */
    int64_t stack;           /* matrices, one below the other: of a stack, else 1 */
    int64_t rows, columns;   /* of the whole: rows of all its matrices */
    parameter_part local;    /* what layers of this rank compute with */
    bool decay;              /* takes part in weight decay */
    bool frozen;             /* is not trained: no gradient, no state, whatever else trains */
    int number;              /* among the model's trained parameters, of all stages of a pipeline */
    bool repeated;           /* the first stage of a pipeline has it too, and counts it */
    bool adds_often;         /* backward adds to its gradient row by row, or several times in a micro-batch */
    tensor value, grad;      /* of the local part */
    plan_buffer grad_buffer; /* of the local gradient while it is apart */
    parameter_shard shard;
} parameter;

/* One of a shape as in files: [columns], [rows, columns] or [stack, rows of each, columns]; all of it local. */
static inline parameter parameter_of_shape(int rank, const int64_t *shape) {
    parameter p = {.rank = rank, .stack = rank == 3 ? shape[0] : 1, .rows = 1, .columns = shape[rank - 1]};
    for (int i = 0; i < rank - 1; i++) p.rows *= shape[i];
    p.local = (parameter_part){.rows = p.rows, .columns = p.columns};
    p.decay = rank > 1;
    return p;
}

/* Its shape as in files. */
static inline void parameter_shape(const parameter *p, int64_t shape[PARAMETER_RANKS]) {
    if (p->rank == 3) shape[0] = p->stack;
    if (p->rank > 1) shape[p->rank - 2] = p->rows / p->stack;
    shape[p->rank - 1] = p->columns;
}

/* Elements of the whole. */
static inline int64_t parameter_count(const parameter *p) {
    return p->rows * p->columns;
}

/* Has this rank's model only a part of it? */
static inline bool parameter_is_cut(const parameter *p) {
    return p->local.rows != p->rows || p->local.columns != p->columns;
}

/* Where the shard is all of the local part. */
static inline void parameter_show_shard(parameter *p) {
    p->value = p->shard.value;
    p->grad = p->shard.grad;
}

#endif
