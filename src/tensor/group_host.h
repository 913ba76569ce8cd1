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
/* The largest of all ranks, one for each of values[count]; NaN where one is. */
ott_status group_host_max(const group_host *h, float *values, int64_t count);

#endif
