/*
 * tensor/group/group_host: collectives on host memory, copied piece by piece through a device buffer. All
 * ranks must make the same calls in the same order. Nothing is allocated.
 */
#ifndef TENSOR_GROUP_GROUP_HOST_H
#define TENSOR_GROUP_GROUP_HOST_H

#include "tensor/exec.h"

typedef struct group_host {
    group *group;
    device *device;
    void *buffer;  /* device memory, owned by the caller */
    int64_t bytes; /* bytes of the buffer, at least 4; the same on every rank */
} group_host;

/* Copies data[bytes] of rank `root` to all ranks. */
ott_status group_host_broadcast(const group_host *h, void *data, int64_t bytes, int root);
/* Replaces values[count] by the results of an all-reduce over all ranks (tensor/group/group.h). */
ott_status group_host_reduce(const group_host *h, float *values, int64_t count, reduce_kind kind);
/* Replaces values[count] by exact sums over at most 4096 ranks. Values must be in [0, 2^48). */
ott_status group_host_count(const group_host *h, int64_t *values, int64_t count);

#endif
