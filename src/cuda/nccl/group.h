/*
 * cuda/nccl/group: groups of GPUs (tensor/group/group.h), one process per GPU, over NCCL. A group has one
 * channel for collectives. If neighbours exchange messages, each pair also has one channel per direction, so
 * that no message waits for another pair. A channel is a communicator with its own stream.
 *
 * A collective starts when the device's stream reaches the point of its group_start, and runs on its
 * channel's stream. Work queued after group_wait runs when the collective is done. Only barriers and timed
 * collectives block the host. NCCL only moves bytes: reductions exchange data, and Ottava's kernel adds the
 * data in rank order (cuda/nccl/ranks.cu). So every transport gives the same bits, whatever algorithm NCCL
 * chooses.
 *
 * One watchdog thread per device observes all its groups (nccl_watchdog.c). If NCCL reports an error or a
 * collective exceeds the group's timeout, the watchdog aborts the communicators of all groups, which releases
 * the GPU. After that, every host wait on this device fails with OTT_ERR_RANK.
 */
#ifndef CUDA_NCCL_GROUP_H
#define CUDA_NCCL_GROUP_H

#include "cuda/cuda.h"
#include "cuda/nccl/nccl.h"

enum { NCCL_TEXT = 256 };

/* One collective or message. Reusable once it has completed and, except for sends, group_wait was called. */
typedef struct nccl_operation {
    struct nccl_operation *next;          /* next in the channel's queue, or in the list of idle operations */
    struct nccl_operation *next_of_group; /* next in the list of all operations of the group */
    cudaEvent_t ended;
    collective_kind kind;
    int64_t number;
    bool completed, waited;
    void *message; /* device copy of the tensor that is sent */
    int64_t capacity;
} nccl_operation;

typedef struct nccl_channel {
    nccl_comm *comm; /* NULL: the group does not use this channel, or the group has failed */
    int peer;        /* pairs only: the other rank's number in the communicator */
    int place;       /* this rank's number in the communicator */
    int turn;        /* all ranks close their channels in the same order, lowest turn first */
    cudaStream_t stream;
    cudaEvent_t ready;            /* recorded on the device's stream at the start of a collective */
    nccl_operation *first, *last; /* queue of operations that may not have completed */
    double since;                 /* when the watchdog first saw `first`, in seconds; 0: not yet */
} nccl_channel;

enum {
    CHANNEL_ALL,
    CHANNEL_TO_NEXT,
    CHANNEL_FROM_NEXT,
    CHANNEL_TO_PREVIOUS,
    CHANNEL_FROM_PREVIOUS,
    CHANNELS
};

typedef struct nccl_group {
    group group; /* must be first: a group * is cast to nccl_group * */
    struct nccl_group *next;
    cuda_device *device;
    char name[32];
    double timeout;
    int64_t number; /* number of collectives started */
    nccl_channel channels[CHANNELS];
    nccl_operation *idle, *operations;
    /* device memory for the data of a reduction (tensor/group/group_staging.h); grows as needed */
    char *staging;
    int64_t staging_bytes;
} nccl_group;

/* The watchdog of a device. The lock protects NCCL calls, the groups and their operations. */
typedef struct nccl_watchdog {
    const nccl_calls *calls;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    nccl_group *groups;
    bool stops, failed;
    char text[NCCL_TEXT]; /* reason of the failure */
} nccl_watchdog;

ott_status nccl_make_link(device *d, const device_group *own, device_link *out);
ott_status nccl_open_group(device *d, const device_group *own, group **out);

/* ---- nccl_watchdog.c ---- */

/* Starts the device's watchdog if the device has none yet. */
ott_status nccl_watchdog_open(cuda_device *c, const nccl_calls *calls);
/* Call after the device's last group was closed. Does nothing if there is no watchdog. */
void nccl_watchdog_close(cuda_device *c);
/* OTT_ERR_RANK if one of the device's groups has failed. */
ott_status nccl_watchdog_check(const cuda_device *c);
/* Removes completed operations from the channel's queue. Requires the lock. */
void nccl_watchdog_sweep(nccl_group *g, nccl_channel *at);
/* Aborts the group's communicators, so that their collectives release the GPU. Requires the lock. */
void nccl_end_group(nccl_group *g);
/* Marks the device as failed and aborts the communicators of all its groups. Requires the lock. */
void nccl_fail(cuda_device *c, const char *text);

/* ---- nccl_move.c ---- */

/* Queues the call's transfers on the channel. Requires the lock. */
ott_status nccl_move(nccl_group *g, nccl_channel *at, const collective *call);
/* Waits until NCCL has finished the nonblocking call that returned `result`, such as connecting ranks.
   Requires the lock, and releases the lock between polls. */
ott_status nccl_settle(nccl_group *g, nccl_channel *at, int result, const char *what);

#endif
