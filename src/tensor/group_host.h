/*
 * tensor/group_host: host memory over a group's collectives, which move what is on the device: through a buffer there, piece
 * by piece. Every rank makes the same calls in the same order; nothing is allocated.
 */
#ifndef TENSOR_GROUP_HOST_H
#define TENSOR_GROUP_HOST_H

#include "tensor/exec.h"

typedef struct group_host {
    group *group;
    device *device;
    void *buffer;  /* device memory, the caller's */
    int64_t bytes; /* of the buffer, at least a float's; the same on every rank */
} group_host;

/* data[bytes] of rank `root`, on every rank. */
ott_status group_host_broadcast(const group_host *h, void *data, int64_t bytes, int root);
/* Of all ranks, one for each of values[count]: their sum in rank order, or the largest; NaN where one is. */
ott_status group_host_reduce(const group_host *h, float *values, int64_t count, reduce_kind kind);
/* The sums of counts, exactly: none below 0 or above 2^48, of at most 4096 ranks. */
ott_status group_host_count(const group_host *h, int64_t *values, int64_t count);

#endif
