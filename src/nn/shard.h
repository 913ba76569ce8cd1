/*
 * nn/shard: quantizes a tensor that is split over ranks. If a scale covers elements of several ranks, the
 * ranks reduce its amax (max) between op_amax and op_scale. Codes then equal one rank's, bit for bit.
 */
#ifndef NN_SHARD_H
#define NN_SHARD_H

#include "tensor/exec.h"

/* The groups over which a tensor is split; borrowed. All NULL: the tensor is not split. */
typedef struct tensor_shard {
    group *row_ranks;      /* ranks that hold other rows */
    group *sequence_ranks; /* sequence-parallel ranks: each holds a slice of the remaining rows */
    group *column_ranks;   /* ranks that hold other columns */
} tensor_shard;

static inline bool shard_is_full(const tensor_shard *c) {
    return !c->row_ranks && !c->sequence_ranks && !c->column_ranks;
}

/* Reduces q's amaxes over the ranks. Order of calls: op_amax of this rank's part, this, op_scale, op_cast.
   Skips amaxes of delayed scaling, which delayed_reduce (nn/linear/delayed.h) reduces. */
ott_status shard_reduce_amax(exec *cx, const tensor_shard *c, const qtensor *q);
/* Quantizes this rank's part x into q like op_quantize, but with amaxes that are reduced over the ranks.
   OTT_ERR_CONFIG if the ranks split a scale block. */
ott_status shard_quantize(exec *cx, const tensor_shard *c, const tensor *x, const qtensor *q);

/* True if a rank's part, rows x columns, splits no scale block. If false, *block is the size of a block that
   does not divide the rows or the columns of the part. */
bool shard_fits_blocks(const tensor_shard *c, const quant_spec *s, int64_t rows, int64_t columns,
                       int64_t *block);

#endif
