/*
 * cuda/nccl_group: groups of GPUs (tensor/group.h), one process a GPU, over NCCL. A group has a channel for what all its ranks
 * do together, and where neighbours send each other tensors one for each direction between two of them, so that no message
 * waits for another pair's. A channel is a communicator and a stream of its own.
 *
 * A collective begins when the device's stream has come to where it was started, runs on its channel's stream, and what is
 * queued after its group_wait runs when it is done; the host waits for nothing but a barrier. NCCL only moves bytes: what is
 * reduced is exchanged, and added up by a kernel of our own in rank order (cuda/ranks.cu), so that the bits are those of every
 * other transport, whatever way NCCL takes.
 *
 * One thread of the device looks after all its groups (nccl_watchdog.c): when NCCL reports an error, or a collective is not done in
 * the group's time, it ends the communicators of all of them, and with that what the GPU waits for; from then on
 * every wait of the host on this device fails with OTT_ERR_RANK.
 */
#ifndef CUDA_NCCL_GROUP_H
#define CUDA_NCCL_GROUP_H

#include "cuda/cuda.h"
#include "cuda/nccl.h"

enum { NCCL_TEXT = 256 };

/* One collective, from its start until it has happened and has been waited for; then it is used again. */
typedef struct nccl_operation {
    struct nccl_operation *next; /* in the channel, or idle */
    struct nccl_operation *also; /* of the group: all of them */
    cudaEvent_t ended;
    collective_kind kind;
    int64_t number;
    bool happened, waited;
    void *message; /* a sent tensor's copy, on the device */
    int64_t capacity;
} nccl_operation;

typedef struct nccl_channel {
    nccl_comm *comm; /* NULL: the group has no such channel, or has failed */
    int peer; /* this rank's number in the communicator is `place`, the other's `peer`, where they are two */
    int place;
    int turn; /* all ranks leave their channels in one order: the lowest turn first */
    cudaStream_t stream;
    cudaEvent_t ready;            /* of the device's stream, where a collective was started */
    nccl_operation *first, *last; /* that have not happened yet, as far as is known */
    double since;                 /* when `first` was first seen to be first; 0: not yet */
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
    group group; /* first: a group is cast to this */
    struct nccl_group *next;
    cuda_device *device;
    char name[32];
    double timeout;
    int64_t number; /* collectives started */
    nccl_channel channels[CHANNELS];
    nccl_operation *idle, *flights;
    char *staging; /* what ranks exchange to reduce it (tensor/group_staging.h); grows to the largest need */
    int64_t staging_bytes;
} nccl_group;

/* Of a device that has, or had, groups. The lock is held by who calls NCCL or looks at flights. */
typedef struct nccl_watchdog {
    const nccl_calls *calls;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    nccl_group *groups;
    bool stops, failed;
    char text[NCCL_TEXT]; /* why */
} nccl_watchdog;

ott_status nccl_make_link(device *d, const device_group *own, device_link *out);
ott_status nccl_open_group(device *d, const device_group *own, group **out);

/* ---- nccl_watchdog.c ---- */

/* The device's, running; nothing to do where it has one. */
ott_status nccl_watchdog_open(cuda_device *c, const nccl_calls *calls);
void nccl_watchdog_close(cuda_device *c); /* it has no group any more; NULL is allowed */
/* OTT_ERR_RANK when one of the device's groups has failed. */
ott_status nccl_watchdog_check(const cuda_device *c);
/* With the lock held: takes the flights that have happened out of the channel. */
void nccl_watchdog_sweep(nccl_group *g, nccl_channel *at);
/* With the lock held: ends the group's communicators, and what the GPU waits for of them. */
void nccl_end_group(nccl_group *g);
/* With the lock held: ends those of all groups of the device, which has failed from then on. */
void nccl_fail(cuda_device *c, const char *text);

/* ---- nccl_move.c ---- */

/* With the lock held: queues the call's moves on the channel. */
ott_status nccl_move(nccl_group *g, nccl_channel *at, const collective *call);
/* With the lock held: waits until NCCL has taken what it was given; it connects ranks meanwhile. */
ott_status nccl_settle(nccl_group *g, nccl_channel *at, int result, const char *what);

#endif
