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

/* Reduces q's amaxes over the ranks. Call op_amax of this rank's part before it, then op_scale and op_cast.
   Skips uses with delayed scaling: delayed_reduce (nn/delayed.h) reduces their amaxes. */
ott_status shard_reduce_amax(exec *cx, const tensor_shard *c, const qtensor *q);
/* Quantizes this rank's part x into q: op_quantize with the amax reduced over the ranks. OTT_ERR_CONFIG if
   ranks would split a scale block. */
ott_status shard_quantize(exec *cx, const tensor_shard *c, const tensor *x, const qtensor *q);

/* True if a part of rows x columns consists of complete scale blocks along each dimension that is split. If
   false, *block is the block size that does not divide its dimension. */
bool shard_fits_blocks(const tensor_shard *c, const quant_spec *s, int64_t rows, int64_t columns,
                       int64_t *block);

#endif
