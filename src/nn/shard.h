/*
 * nn/shard: a tensor of which this rank has a part. Where a scale is of elements that other ranks hold too, the ranks
 * take the largest amax of all between amax and cast: each casts its part to the codes it has in the whole, bit for
 * bit.
 */
#ifndef NN_SHARD_H
#define NN_SHARD_H

#include "tensor/exec.h"

/* The ranks that hold the other parts. Borrowed; NULL: none, as of a zeroed one. */
typedef struct tensor_shard {
    group *row_ranks;      /* hold other rows */
    group *sequence_ranks; /* hold the other rows of those that this rank would have without them */
    group *column_ranks;   /* hold other columns */
} tensor_shard;

static inline bool shard_is_full(const tensor_shard *c) {
    return !c->row_ranks && !c->sequence_ranks && !c->column_ranks;
}

/* After op_amax of this rank's part: the amax of all. Delayed scaling reduces what it has seen (nn/delayed.h), not here. */
ott_status shard_reduce_amax(exec *cx, const tensor_shard *c, const qtensor *q);
/* op_quantize of this rank's part x. OTT_ERR_CONFIG when its rows are not of whole scale blocks. */
ott_status shard_quantize(exec *cx, const tensor_shard *c, const tensor *x, const qtensor *q);

/* Is a part of rows x columns made of whole scale blocks of the spec, along the axes it is cut? *block: the size
   that is not a factor. */
bool shard_fits_blocks(const tensor_shard *c, const quant_spec *s, int64_t rows, int64_t columns,
                       int64_t *block);

#endif
