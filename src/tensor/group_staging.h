/*
 * tensor/group_staging: what devices with links of their own need to reduce over ranks: each sends the others their parts and adds
 * up its own (tensor/group.h), and what it receives lies in staging memory, in a slot for each rank. Small tensors go whole to
 * everyone, in one step instead of two; large ones in pieces.
 */
#ifndef TENSOR_GROUP_STAGING_H
#define TENSOR_GROUP_STAGING_H

#include "tensor/group.h"

/* Bytes of staging that a group of `size` ranks needs for the call, at most 64 MiB; of a message, the copy that is on its
   way. 0: none. */
int64_t group_staging_bytes(int size, const collective *call);

bool group_staging_sends_full(int size, const collective *call); /* an all-reduce */
int64_t group_staging_slot(int64_t bytes);                       /* of one rank's part */
/* Elements that a rank reduces at once, where parts have `most`. */
int64_t group_staging_piece(int size, ott_dtype d, int64_t most);
int64_t group_staging_largest_part(int size, const collective *call); /* elements, of a reduce-scatter */

#endif
