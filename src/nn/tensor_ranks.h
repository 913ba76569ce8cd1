/*
 * nn/tensor_ranks: tensor parallelism (Shoeybi et al. 2019) and sequence parallelism (Korthikanti et al.
 * 2022). A column-parallel layer (q, k, v, gate, up, head) holds some rows of its weight and computes some
 * columns of its output from the full input. A row-parallel layer (o, down) holds the matching columns of its
 * weight and computes one term of a sum over the ranks. A column-parallel layer and the row-parallel layer
 * after it are a pair. Outside of the pairs, in norms and the residual stream, every rank has all tokens
 * (rows). With sequence parallelism, every rank has a slice of the tokens there. Ranks gather the rows before
 * a pair and reduce-scatter them after it.
 *
 * Sums over the ranks are fp32, in rank order, rounded once, and equal on all ranks. They differ in rounding
 * from one rank's sum, which is a single chain. FP8 casts use the scales of the full tensor.
 */
#ifndef NN_TENSOR_RANKS_H
#define NN_TENSOR_RANKS_H

#include "nn/activation.h"

typedef struct tensor_ranks {
    group *group;     /* tensor-parallel ranks; borrowed; NULL: no tensor parallelism */
    bool sequence;    /* true: sequence parallelism */
    bool codes_alike; /* the backend stores rowwise and columnwise codes in the same order */
} tensor_ranks;

/* Returns how this rank quantizes its rows before tensor_ranks_gather. all: specs of the gathered rows. */
activation_specs tensor_ranks_own_specs(const tensor_ranks *r, const activation_specs *all);
/* Opens *out: an activation with the rows of all ranks and the quantized copies `all` (NULL: none). own: this
   rank's rows. Ranks send only codes if all readers read FP8 codes with one scale per tensor, and codes_alike
   is true. Without sequence parallelism *out is a view of `own`. The caller closes *out. */
ott_status tensor_ranks_gather(exec *cx, const tensor_ranks *r, const char *what, const activation_specs *all,
                               const activation *own, activation *out);

/* Opens all[T, W * ranks]: the columns own[T, W] of all ranks, in rank order. The caller closes *buffer. */
ott_status tensor_ranks_gather_columns(exec *cx, const tensor_ranks *r, const char *what, const tensor *own,
                                       tensor *all, plan_buffer *buffer);

/* This rank's term of a sum over the ranks. Call tensor_partial_open, write t, call tensor_partial_close. */
typedef struct partial_sum {
    tensor t;
    plan_buffer buffer;
} partial_sum;

/* Opens out->t, this rank's term for all rows of y, in format d. If y has this format and all rows, or if r
   or r->group is NULL (no sum), t is y itself. */
ott_status tensor_partial_open(exec *cx, const tensor_ranks *r, ott_dtype d, const tensor *y,
                               partial_sum *out);
/* Sums the terms of all ranks. y gets all rows or, with sequence parallelism, this rank's rows of the sum. */
ott_status tensor_partial_close(exec *cx, const tensor_ranks *r, const tensor *y, partial_sum *p);

/* A full tensor that each rank computes in full. Call tensor_full_open, write t, call tensor_full_close. */
typedef struct full_rows {
    tensor t;
    plan_buffer buffer;
} full_rows;

/* Opens out->t for all rows. With sequence parallelism it is a new tensor; without, it is y itself. */
ott_status tensor_full_open(exec *cx, const tensor_ranks *r, const tensor *y, full_rows *out);
/* Writes this rank's rows to y. */
ott_status tensor_full_close(exec *cx, const tensor_ranks *r, const tensor *y, full_rows *w);

#endif
