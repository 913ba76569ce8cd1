/*
 * tensor/group/group_staging: device memory for reductions over NCCL. Each rank sums one part of the tensor,
 * in rank order (tensor/group/group.h). It receives the other ranks' values of this part in staging memory,
 * in a slot for each rank. Small tensors are sent in full to all ranks, in one step; large ones are sent in
 * pieces.
 */
#ifndef TENSOR_GROUP_GROUP_STAGING_H
#define TENSOR_GROUP_GROUP_STAGING_H

#include "tensor/group/group.h"

/* Returns the staging bytes that a group of `size` ranks needs for the call. A SEND needs the size of its
   tensor, other calls need at most 64 MiB, and some calls need 0. */
int64_t group_staging_bytes(int size, const collective *call);

bool group_staging_sends_full(int size, const collective *call); /* true: the call sends full tensors */
/* Returns the size of a slot for a part of `bytes` bytes. */
int64_t group_staging_slot(int64_t bytes);
/* Returns how many elements of a part are sent at once. most: elements of the largest part. */
int64_t group_staging_piece(int size, ott_dtype d, int64_t most);
int64_t group_staging_largest_part(int size, const collective *call); /* elements, for REDUCE_SCATTER */

#endif
