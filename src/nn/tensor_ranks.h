/*
 * nn/tensor_ranks: ranks among which the weights of layers are cut (tensor parallelism, Shoeybi et al. 2019). A
 * layer with some rows of a weight (q, k, v, gate, up, head) makes some columns of its output from the whole input; one
 * with some columns (o, down) makes of those a part of a sum, which the ranks add up. What lies between such pairs, norms
 * and the residual stream, each rank has whole, or, with sequence parallelism (Korthikanti et al. 2022), some rows of:
 * then these are gathered before the first layer of a pair, and scattered after the second.
 *
 * A sum over the ranks is fp32, in rank order, rounded once; the ranks agree in every bit. One rank's sum is a single
 * chain, so it differs from that in rounding. Casts to FP8 take the scales of the whole.
 */
#ifndef NN_TENSOR_RANKS_H
#define NN_TENSOR_RANKS_H

#include "nn/activation.h"

typedef struct tensor_ranks {
    group *group;  /* borrowed; NULL: alone */
    bool sequence; /* sequence parallelism */
    /* the backend has rowwise and columnwise codes in one order, so that they can be gathered */
    bool codes_alike;
} tensor_ranks;

/* Of an activation that layers of these ranks want with the specs `all`: what this rank makes of its own rows for
   tensor_ranks_gather. */
activation_specs tensor_ranks_own_specs(const tensor_ranks *r, const activation_specs *all);
/* Opens the whole of an activation whose own rows are here, with the forms `all` (NULL: none). Where one scale is of the
   whole tensor the codes travel, a byte each, and nothing else. Without sequence parallelism it is a view of `own`. */
ott_status tensor_ranks_gather(exec *cx, const tensor_ranks *r, const char *what, const activation_specs *all,
                               const activation *own, activation *out);

/* Opens all[T, W * ranks], of which each rank has own[T, W], in their order. */
ott_status tensor_ranks_gather_columns(exec *cx, const tensor_ranks *r, const char *what, const tensor *own,
                                       tensor *all, plan_buffer *buffer);

/* A tensor that the ranks add up: this rank's part of the sum. */
typedef struct partial_sum {
    tensor t;
    plan_buffer buffer;
} partial_sum;

/* For y, of which this rank gets its own rows of the sum (all without sequence parallelism): in format d, y itself where
   that will do. r NULL: alone. */
ott_status tensor_partial_open(exec *cx, const tensor_ranks *r, ott_dtype d, const tensor *y,
                               partial_sum *out);
/* Writes y. */
ott_status tensor_partial_close(exec *cx, const tensor_ranks *r, const tensor *y, partial_sum *p);

/* A tensor of which every rank makes all rows. */
typedef struct full_rows {
    tensor t;
    plan_buffer buffer;
} full_rows;

/* For y: y itself, or, where this rank has some of its rows, room for all. */
ott_status tensor_full_open(exec *cx, const tensor_ranks *r, const tensor *y, full_rows *out);
/* Writes y. */
ott_status tensor_full_close(exec *cx, const tensor_ranks *r, const tensor *y, full_rows *w);

#endif
