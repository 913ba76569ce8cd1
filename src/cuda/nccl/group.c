/* cuda/nccl/group: opens and closes groups, starts collectives and waits for them. */
#include "cuda/nccl/group.h"
#include "tensor/group/group_staging.h"
#include <stdio.h>
#include <string.h>

enum { LEAVE_SECONDS = 10 }; /* longest wait for queued collectives when this rank leaves a group */

static nccl_group *nccl_group_of(group *g) {
    return (nccl_group *)g;
}

/* ---- channels ---- */

/* NCCL ids that a rank creates: for its messages to the next and to the previous rank, and for all ranks. Of
   the ids for all ranks only rank 0's is used. */
typedef struct link_ids {
    nccl_id all, to_next, to_previous;
} link_ids;
_Static_assert(sizeof(link_ids) == sizeof(device_link), "a link holds them");

static bool has_channel(const device_group *own, int channel) {
    if (channel == CHANNEL_ALL) return true;
    bool previous = channel == CHANNEL_TO_PREVIOUS || channel == CHANNEL_FROM_PREVIOUS;
    return own->messages && !(previous && own->size == 2); /* 2 ranks: the next rank is the previous one */
}

static ott_status make_id(const nccl_calls *calls, nccl_id *out) {
    int result = calls->make_id(out);
    if (result == NCCL_SUCCESS) return OTT_OK;
    return status_fail(OTT_ERR_DEVICE,
                       "NCCL cannot be used on this machine: %s (NCCL_DEBUG=WARN prints details)",
                       calls->error_text(result));
}

ott_status nccl_make_link(device *d, const device_group *own, device_link *out) {
    const nccl_calls *calls;
    link_ids ids = {0};
    TRY(nccl_library(&calls));
    TRY(cuda_check(cudaSetDevice(cuda_device_of(d)->index), "a group of GPUs"));
    if (own->rank == 0) TRY(make_id(calls, &ids.all));
    if (has_channel(own, CHANNEL_TO_NEXT)) TRY(make_id(calls, &ids.to_next));
    if (has_channel(own, CHANNEL_TO_PREVIOUS)) TRY(make_id(calls, &ids.to_previous));
    memcpy(out->bytes, &ids, sizeof ids);
    return OTT_OK;
}

static link_ids ids_of(const device_group *own, int rank) {
    link_ids ids;
    memcpy(&ids, own->links[rank].bytes, sizeof ids);
    return ids;
}

/* Sets place, peer and turn of a channel. Returns the NCCL id of the channel. For CHANNEL_ALL rank 0 has
   created the id; for a channel of two ranks, the sender has. */
static nccl_id place_channel(const device_group *own, int channel, nccl_channel *at) {
    int next = (own->rank + 1) % own->size, previous = (own->rank + own->size - 1) % own->size;
    bool sends = channel == CHANNEL_TO_NEXT || channel == CHANNEL_TO_PREVIOUS;
    int sender = sends ? own->rank : channel == CHANNEL_FROM_NEXT ? next : previous;
    bool backwards = channel == CHANNEL_TO_PREVIOUS || (channel == CHANNEL_FROM_NEXT && own->size > 2);
    *at = (nccl_channel){.place = sends ? 0 : 1, .peer = sends ? 1 : 0, .turn = 1 + 2 * sender + backwards};
    if (channel == CHANNEL_ALL) {
        *at = (nccl_channel){.place = own->rank};
        return ids_of(own, 0).all;
    }
    return backwards ? ids_of(own, sender).to_previous : ids_of(own, sender).to_next;
}

static ott_status open_channel(nccl_group *g, const device_group *own, int channel) {
    nccl_channel *at = &g->channels[channel];
    nccl_config config = NCCL_CONFIG_SET(0);
    nccl_id id = place_channel(own, channel, at);
    TRY(cuda_check(cudaStreamCreateWithFlags(&at->stream, cudaStreamNonBlocking), "a stream of a group"));
    TRY(cuda_check(cudaEventCreateWithFlags(&at->ready, cudaEventDisableTiming), "an event of a group"));
    int ranks = channel == CHANNEL_ALL ? own->size : 2;
    int result = g->device->watchdog->calls->open(&at->comm, ranks, id, at->place, &config);
    if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) return OTT_OK;
    at->comm = NULL;
    return status_fail(OTT_ERR_RANK, "opening group %s of %d GPUs: NCCL: %s (NCCL_DEBUG=WARN prints details)",
                       g->name, own->size, g->device->watchdog->calls->error_text(result));
}

/* Starts to open all channels before it waits for one: the other ranks may open them in another order. */
static ott_status open_channels(nccl_group *g, const device_group *own) {
    for (int i = 0; i < CHANNELS; i++)
        if (has_channel(own, i)) TRY(open_channel(g, own, i));
    for (int i = 0; i < CHANNELS; i++)
        if (g->channels[i].comm)
            TRY(nccl_settle(g, &g->channels[i], NCCL_IN_PROGRESS, "opening a group of GPUs"));
    return OTT_OK;
}

/* The channel for a call; NULL if the group has no channel to or from call->peer. */
static nccl_channel *channel_for(nccl_group *g, const collective *call) {
    int size = g->group.size, next = (g->group.rank + 1) % size, which = CHANNEL_ALL;
    if (call->kind == COLLECTIVE_SEND)
        which = call->peer == next ? CHANNEL_TO_NEXT : CHANNEL_TO_PREVIOUS;
    else if (call->kind == COLLECTIVE_RECEIVE)
        which = call->peer == next ? CHANNEL_FROM_NEXT : CHANNEL_FROM_PREVIOUS;
    else
        return &g->channels[which];
    bool neighbour = call->peer == next || call->peer == (g->group.rank + size - 1) % size;
    return neighbour && g->channels[which].stream ? &g->channels[which] : NULL;
}

/* ---- memory ---- */

static ott_status make_operation(nccl_group *g) {
    nccl_operation *f;
    TRY(mem_alloc(g->device->base.account, MEM_COMM, sizeof(nccl_operation), "a collective", &f));
    ott_status status =
        cuda_check(cudaEventCreateWithFlags(&f->ended, cudaEventDisableTiming), "an event of a collective");
    if (status != OTT_OK) return mem_free(g->device->base.account, f), status;
    f->next_of_group = g->operations;
    f->next = g->idle;
    g->operations = g->idle = f;
    return OTT_OK;
}

/* Takes the idle operation with the best-fitting message buffer; may enlarge it. Requires the lock. */
static ott_status take_operation(nccl_group *g, int64_t bytes, nccl_operation **out) {
    device *d = &g->device->base;
    if (!g->idle) TRY(make_operation(g));
    nccl_operation **best = &g->idle;
    for (nccl_operation **at = best; *at; at = &(*at)->next) {
        bool fits = (*at)->capacity >= bytes, best_fits = (*best)->capacity >= bytes;
        if ((fits && (!best_fits || (*at)->capacity < (*best)->capacity)) || (!fits && !best_fits)) best = at;
    }
    nccl_operation *f = *best;
    if (f->capacity < bytes) {
        if (f->message) d->table->release(d, f->message);
        f->message = NULL, f->capacity = 0;
        TRY(d->table->allocate(d, MEM_COMM, bytes, "a message to another rank", &f->message));
        f->capacity = bytes;
    }
    *best = f->next;
    f->next = NULL;
    f->completed = f->waited = false;
    return *out = f, OTT_OK;
}

/* Enlarges the staging memory. Synchronizes first, because queued work may still use the old memory. */
static ott_status need_staging(nccl_group *g, const nccl_channel *at, int64_t bytes) {
    device *d = &g->device->base;
    if (bytes <= g->staging_bytes) return OTT_OK;
    if (g->staging) {
        TRY(cuda_check(cudaStreamSynchronize(at->stream), "waiting for a group"));
        d->table->release(d, g->staging);
        g->staging = NULL, g->staging_bytes = 0;
    }
    TRY(d->table->allocate(d, MEM_COMM, bytes, "staging of a reduction", MEM_OUT(&g->staging)));
    g->staging_bytes = bytes;
    return OTT_OK;
}

/* ---- start and wait ---- */

static ott_status copy_message(const nccl_group *g, nccl_operation *f, collective *call) {
    int64_t bytes = tensor_bytes(call->input);
    TRY(cuda_check(cudaMemcpyAsync(f->message, call->input.data, (size_t)bytes, cudaMemcpyDeviceToDevice,
                                   g->device->stream),
                   "a message to another rank"));
    call->input.data = f->message;
    return OTT_OK;
}

/* Queues an operation on the channel. Requires the lock. */
static ott_status queue(nccl_group *g, nccl_channel *at, nccl_operation *f, collective call) {
    if (call.kind == COLLECTIVE_SEND) TRY(copy_message(g, f, &call));
    TRY(cuda_check(cudaEventRecord(at->ready, g->device->stream), "an event of a group"));
    TRY(cuda_check(cudaStreamWaitEvent(at->stream, at->ready, 0), "a stream of a group"));
    TRY(nccl_move(g, at, &call));
    TRY(cuda_check(cudaEventRecord(f->ended, at->stream), "an event of a collective"));
    *(at->last && at->first ? &at->last->next : &at->first) = f;
    at->last = f;
    return OTT_OK;
}

static ott_status start_locked(nccl_group *g, nccl_channel *at, group_request *request) {
    const collective *call = &request->call;
    bool sends = call->kind == COLLECTIVE_SEND;
    nccl_watchdog *w = g->device->watchdog;
    nccl_operation *f;
    if (w->failed) return status_fail(OTT_ERR_RANK, "%s", w->text);
    nccl_watchdog_sweep(g, at);
    TRY(take_operation(g, sends ? tensor_bytes(call->input) : 0, &f));
    f->kind = call->kind;
    f->number = g->number++;
    f->waited = sends; /* the input was copied, so nothing waits for a send */
    request->state = sends ? NULL : f;
    return queue(g, at, f, *call);
}

static ott_status start(group *base, exec *cx, group_request *request) {
    nccl_group *g = nccl_group_of(base);
    nccl_channel *at = channel_for(g, &request->call);
    STATUS_REQUIRE(cx->device == &g->device->base);
    if (!at)
        return status_fail(
            OTT_ERR_UNSUPPORTED, "%s of group %s: ranks %d and %d have no channel between them",
            group_collective_name(request->call.kind), g->name, g->group.rank, request->call.peer);
    TRY(cuda_check(cudaSetDevice(g->device->index), "a collective"));
    if (request->call.kind != COLLECTIVE_SEND)
        TRY(need_staging(g, at, group_staging_bytes(g->group.size, &request->call)));
    pthread_mutex_lock(&g->device->watchdog->lock);
    ott_status status = start_locked(g, at, request);
    pthread_mutex_unlock(&g->device->watchdog->lock);
    return status;
}

/* The host waits only for barriers, and for collectives whose time is measured. */
static ott_status wait_for(group *base, exec *cx, group_request *request) {
    nccl_group *g = nccl_group_of(base);
    nccl_operation *f = request->state;
    if (!f) return OTT_OK; /* a send needs no wait */
    TRY(cuda_check(cudaSetDevice(g->device->index), "a collective"));
    TRY(cuda_check(cudaStreamWaitEvent(g->device->stream, f->ended, 0), "a collective"));
    if (f->kind == COLLECTIVE_BARRIER || cx->times)
        TRY(cuda_check(cudaEventSynchronize(f->ended), group_collective_name(f->kind)));
    pthread_mutex_lock(&g->device->watchdog->lock);
    f->waited = true;
    if (f->completed) {
        f->next = g->idle;
        g->idle = f;
    }
    pthread_mutex_unlock(&g->device->watchdog->lock);
    return nccl_watchdog_check(g->device);
}

/* ---- closing ---- */

/* Waits for queued work. The watchdog aborts this work if another rank is missing for LEAVE_SECONDS. */
static void finish_work(nccl_group *g) {
    pthread_mutex_lock(&g->device->watchdog->lock);
    if (g->timeout <= 0 || g->timeout > LEAVE_SECONDS) g->timeout = LEAVE_SECONDS;
    pthread_mutex_unlock(&g->device->watchdog->lock);
    for (int i = 0; i < CHANNELS; i++)
        if (g->channels[i].stream) cudaStreamSynchronize(g->channels[i].stream);
}

/* Closing a communicator waits for its other ranks on this machine. All ranks close communicators in the
   order of `turn`. So two ranks that wait for each other close the same communicator. */
static nccl_channel *next_to_leave(nccl_group *g) {
    nccl_channel *next = NULL;
    for (nccl_channel *at = g->channels; at < g->channels + CHANNELS; at++)
        if (at->comm && (!next || at->turn < next->turn)) next = at;
    return next;
}

/* Closes the channel's communicator. Requires the lock. */
static void leave_channel(nccl_group *g, nccl_channel *at) {
    const nccl_calls *calls = g->device->watchdog->calls;
    if (nccl_settle(g, at, calls->finalize(at->comm), "closing a group of GPUs") == OTT_OK)
        calls->close(at->comm);
    else
        nccl_fail(g->device, "a group of GPUs could not be closed");
    at->comm = NULL;
}

static void close_operations(nccl_group *g) {
    device *d = &g->device->base;
    for (nccl_operation *f = g->operations, *next_of_group; f; f = next_of_group) {
        next_of_group = f->next_of_group;
        cudaEventDestroy(f->ended);
        if (f->message) d->table->release(d, f->message);
        mem_free(d->account, f);
    }
}

static void unlink_group(nccl_group *g) {
    nccl_watchdog *w = g->device->watchdog;
    nccl_group **at = &w->groups;
    while (*at && *at != g) at = &(*at)->next;
    if (*at) *at = g->next;
}

static void abandon(group *base) {
    cuda_device *c = nccl_group_of(base)->device;
    cudaSetDevice(c->index);
    pthread_mutex_lock(&c->watchdog->lock);
    nccl_fail(c, "this rank has left the group after an error");
    pthread_mutex_unlock(&c->watchdog->lock);
}

static void leave(group *base) {
    nccl_group *g = nccl_group_of(base);
    device *d = &g->device->base;
    cudaSetDevice(g->device->index);
    finish_work(g);
    pthread_mutex_lock(&g->device->watchdog->lock);
    for (nccl_channel *at; (at = next_to_leave(g));) leave_channel(g, at);
    unlink_group(g);
    pthread_mutex_unlock(&g->device->watchdog->lock);
    close_operations(g);
    for (int i = 0; i < CHANNELS; i++) {
        if (g->channels[i].ready) cudaEventDestroy(g->channels[i].ready);
        if (g->channels[i].stream) cudaStreamDestroy(g->channels[i].stream);
    }
    if (g->staging) d->table->release(d, g->staging);
    mem_free(d->account, g);
}

/* ---- opening ---- */

/* *bytes: bytes of staging memory for the call, or of the message if it is a send. Reserves the staging
   memory. A send reserves nothing here: it allocates its buffer when it starts. */
static ott_status reserve(group *base, exec *cx, const collective *call, int64_t *bytes) {
    nccl_group *g = nccl_group_of(base);
    *bytes = group_staging_bytes(g->group.size, call);
    if (cx->device != &g->device->base || call->kind == COLLECTIVE_SEND) return OTT_OK;
    TRY(cuda_check(cudaSetDevice(g->device->index), "a group of GPUs"));
    return need_staging(g, &g->channels[CHANNEL_ALL], *bytes);
}

static const group_table table = {
    .start = start, .wait = wait_for, .close = leave, .reserve = reserve, .abandon = abandon};

ott_status nccl_open_group(device *d, const device_group *own, group **out) {
    cuda_device *c = cuda_device_of(d);
    const nccl_calls *calls;
    nccl_group *g;
    *out = NULL;
    STATUS_REQUIRE(own->size >= 2 && own->rank >= 0 && own->rank < own->size);
    TRY(nccl_library(&calls));
    TRY(cuda_check(cudaSetDevice(c->index), "a group of GPUs"));
    TRY(nccl_watchdog_open(c, calls));
    TRY(mem_alloc(d->account, MEM_COMM, sizeof(nccl_group), "a group of GPUs", &g));
    g->group = (group){.table = &table, .rank = own->rank, .size = own->size};
    g->device = c;
    g->timeout = own->timeout;
    snprintf(g->name, sizeof g->name, "%s", own->name);
    pthread_mutex_lock(&c->watchdog->lock);
    ott_status status = open_channels(g, own);
    if (status != OTT_OK) nccl_end_group(g);
    g->next = c->watchdog->groups;
    c->watchdog->groups = g;
    pthread_mutex_unlock(&c->watchdog->lock);
    if (status == OTT_OK)
        *out = &g->group;
    else
        leave(&g->group);
    return status;
}
