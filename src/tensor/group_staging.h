/*
 * tensor/group_staging: device memory for reductions over NCCL. Each rank sends the other ranks their parts
 * of the tensor and adds up its own part in rank order (tensor/group.h). Received parts are stored in staging
 * memory, in a slot for each rank. Small tensors are sent in full to all ranks, in one step instead of two.
 * Large tensors are sent and added in pieces.
 */
#ifndef TENSOR_GROUP_STAGING_H
#define TENSOR_GROUP_STAGING_H

#include "tensor/group.h"

/* Returns the staging bytes that a group of `size` ranks needs for the call: the size of the tensor for a
   SEND, at most 64 MiB for other calls, 0 if none. */
int64_t group_staging_bytes(int size, const collective *call);

bool group_staging_sends_full(int size, const collective *call); /* true: the call sends full tensors */
/* Returns the size of a slot for a part of `bytes`. */
int64_t group_staging_slot(int64_t bytes);
/* Returns the number of elements in a piece of a part. most: elements of the largest part. */
int64_t group_staging_piece(int size, ott_dtype d, int64_t most);
int64_t group_staging_largest_part(int size, const collective *call); /* elements, for REDUCE_SCATTER */

#endif
