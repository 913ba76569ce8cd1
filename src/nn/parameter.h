/*
 * nn/parameter: a trained tensor: its master, its gradient, its optimizer's state. All are views of memory that others
 * own; state and gradient are NULL where nothing trains. Of a matrix each is fp32 or bf16, and its state may be FP8 in groups
 * (tensor/moment.h); a vector's are fp32, which costs next to nothing. While it is summed apart, a gradient is fp32.
 *
 * A rank's layers compute with a part of each parameter: all of it, or the rows or columns that tensor
 * parallelism leaves them (`local`). Of that a rank holds its shard: what is initialized, updated and saved;
 * parallel/store makes the local part of the shards of the ranks that share it, around the layers. One rank's shard is
 * the whole, in the same memory. Where the elements of a part are in the whole, parameter_run_at says.
 */
#ifndef NN_PARAMETER_H
#define NN_PARAMETER_H

#include "tensor/exec.h"

enum {
    PARAMETER_SLOTS = 3, /* state tensors an optimizer has of a parameter, at most */
    PARAMETER_RANKS = 3,
    PARAMETER_SECTIONS = 3 /* projections in one matrix, at most: q, k and v */
};

/* How tensor parallelism cuts a parameter: each rank has as many rows, or columns, of it. */
typedef enum parameter_split { PARAMETER_FULL, PARAMETER_ROWS, PARAMETER_COLUMNS } parameter_split;

/* A part's lines are the rows of a matrix, and the elements of a vector, which is a matrix of one row. After so many of them
   the next ones of the whole are not in the part; skipped 0: no gap. */
typedef struct parameter_gap {
    int64_t after, skipped;
} parameter_gap;

/* Rows [row, row + rows) and columns [column, column + columns) of a parameter's whole; of several projections in one
   matrix some rows of each, with gaps between. */
typedef struct parameter_part {
    int64_t row, column, rows, columns;
    parameter_gap gap[PARAMETER_SECTIONS - 1];
} parameter_part;

/* Of the local part's lines those that this rank holds: so many as its tensors have, from `first` on. */
typedef struct parameter_shard {
    int64_t first;
    int64_t *rows_per_rank; /* [ranks] lines that each has; NULL: one rank */
    tensor value, grad;
    tensor slot[PARAMETER_SLOTS];         /* of the optimizer's state, in its row's order (nn/optimizer.h) */
    tensor group_scales[PARAMETER_SLOTS]; /* of the groups of a slot in FP8; else without memory */
    /* of the value, which the optimizer makes with it; without codes only the amax; not FP8: none */
    qtensor quantized;
} parameter_shard;

typedef struct parameter {
    const char
        *name; /* Hugging Face's, "model.layers.0.self_attn.q_proj.weight"; borrowed from the model's arena */
    int rank;  /* 1: a vector of `columns`, 2: a matrix, 3: a stack of matrices */
    int64_t stack;         /* matrices, one below the other: of a stack, else 1 */
    int64_t rows, columns; /* of the whole: rows of all its matrices */
    parameter_part local;  /* what layers of this rank compute with */
    bool decay;            /* takes part in weight decay */
    bool is_hidden;        /* a matrix of a layer; false: a vector, an embedding or an output head */
    bool frozen;           /* is not trained: no gradient, no state, whatever else trains */
    bool is_frozen_now; /* has no updates now, though it has a gradient and state (train.freeze_schedule) */
    struct frozen_codes
        *codes;              /* value holds FP8 codes and there is no master (nn/frozen.h); NULL: numbers */
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
    p.decay = p.is_hidden = rank > 1;
    return p;
}

/* What its master, gradient or state has where a matrix's has `format`: a vector stays fp32. */
static inline ott_dtype parameter_format(const parameter *p, ott_dtype format) {
    return p->rank > 1 ? format : OTT_F32;
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
static inline bool parameter_is_split(const parameter *p) {
    return p->local.rows != p->rows || p->local.columns != p->columns;
}

/* Lines of the local part. */
static inline int64_t parameter_local_rows(const parameter *p) {
    return p->rank > 1 ? p->local.rows : p->local.columns;
}

/* What lies together in the whole: of lines from a part's first line on, of elements from the whole's first, its rows laid
   end to end. */
typedef struct parameter_run {
    int64_t first, count;
} parameter_run;

/* Those from line, or element, `at` of the part on, at most `most` of them; the whole has `columns`. */
parameter_run parameter_rows_at(const parameter_part *part, int64_t at, int64_t most);
parameter_run parameter_run_at(const parameter_part *part, int64_t columns, int64_t at, int64_t most);

/* Leaves rank `rank` of `ranks` an equal share of the lines of each section; together they are all lines. */
void parameter_split_rows(parameter *p, const int64_t *section, int sections, int rank, int ranks);
/* Where the shard is in the whole. */
parameter_part parameter_shard_part(const parameter *p);

/* Where the shard is all of the local part. */
static inline void parameter_use_shard(parameter *p) {
    p->value = p->shard.value;
    p->grad = p->shard.grad;
}

#endif
