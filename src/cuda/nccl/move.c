/* cuda/nccl/move: collectives as NCCL transfers of bytes, followed by the reduction of the received data. */
#include "base/clock.h"
#include "base/text/size.h"
#include "cuda/kernels/kernels.h"
#include "cuda/nccl/group.h"
#include "tensor/group/group_staging.h"
#include <time.h>

/* ---- calls ---- */

ott_status nccl_settle(nccl_group *g, nccl_channel *at, int result, const char *what) {
    nccl_watchdog *w = g->device->watchdog;
    double began = clock_seconds();
    int state = result;
    while (state == NCCL_SUCCESS || state == NCCL_IN_PROGRESS) {
        if (w->failed) return status_fail(OTT_ERR_RANK, "%s", w->text);
        int asked = w->calls->state(at->comm, &state);
        if (asked == NCCL_SUCCESS && state == NCCL_SUCCESS) return OTT_OK;
        if (asked != NCCL_SUCCESS) state = asked;
        if (g->timeout > 0 && clock_seconds() - began > g->timeout)
            return status_fail(OTT_ERR_RANK, "%s%s%s: another rank did not join in time", what,
                               g->name[0] ? " of " : "", g->name);
        pthread_mutex_unlock(&w->lock);
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        pthread_mutex_lock(&w->lock);
    }
    return status_fail(OTT_ERR_RANK, "%s%s%s: NCCL: %s (NCCL_DEBUG=WARN prints details)", what,
                       g->name[0] ? " of " : "", g->name, g->device->watchdog->calls->error_text(state));
}

/* A group of NCCL calls, between ncclGroupStart and ncclGroupEnd. */
typedef struct batch {
    const nccl_calls *nccl;
    nccl_channel *at;
    int result; /* the first error of these calls, else NCCL_SUCCESS */
} batch;

static void note_result(batch *b, int result) {
    if (b->result == NCCL_SUCCESS && result != NCCL_IN_PROGRESS) b->result = result;
}

static batch batch_begin(const nccl_group *g, nccl_channel *at) {
    batch b = {.nccl = g->device->watchdog->calls, .at = at};
    note_result(&b, b.nccl->begin());
    return b;
}

static ott_status batch_end(nccl_group *g, batch *b, collective_kind kind) {
    note_result(b, b->nccl->end());
    return nccl_settle(g, b->at, b->result, group_collective_name(kind));
}

static void batch_send(batch *b, const void *from, int64_t bytes, int peer) {
    if (bytes > 0)
        note_result(b, b->nccl->send(from, (size_t)bytes, NCCL_BYTES, peer, b->at->comm, b->at->stream));
}

static void batch_receive(batch *b, void *to, int64_t bytes, int peer) {
    if (bytes > 0)
        note_result(b, b->nccl->receive(to, (size_t)bytes, NCCL_BYTES, peer, b->at->comm, b->at->stream));
}

static ott_status broadcast(nccl_group *g, nccl_channel *at, const collective *call) {
    batch b = batch_begin(g, at);
    const tensor *t = &call->output;
    int64_t bytes = tensor_bytes(*t);
    if (bytes > 0)
        note_result(&b, b.nccl->broadcast(t->data, t->data, (size_t)bytes, NCCL_BYTES, call->peer, at->comm,
                                          at->stream));
    return batch_end(g, &b, call->kind);
}

/* Gathers the ranks' parts to `to`, in rank order. bytes[r]: size of rank r's part. from: this
   rank's part. */
static ott_status gather_parts(nccl_group *g, nccl_channel *at, collective_kind kind, const void *from,
                               char *to, const int64_t *bytes) {
    bool even = true;
    batch b = batch_begin(g, at);
    for (int r = 1; r < g->group.size; r++) even = even && bytes[r] == bytes[0];
    if (even && bytes[0] > 0)
        note_result(&b, b.nccl->all_gather(from, to, (size_t)bytes[0], NCCL_BYTES, at->comm, at->stream));
    for (int r = 0; r < g->group.size && !even; to += bytes[r++])
        if (bytes[r] > 0)
            note_result(&b, b.nccl->broadcast(r == g->group.rank ? from : to, to, (size_t)bytes[r],
                                              NCCL_BYTES, r, at->comm, at->stream));
    return batch_end(g, &b, kind);
}

static ott_status all_gather(nccl_group *g, nccl_channel *at, const collective *call) {
    int64_t bytes[g->group.size], row = call->output.columns * dtype_bytes(call->output.dtype);
    for (int r = 0; r < g->group.size; r++)
        bytes[r] = row * group_part_rows(call->output_rows, call->output.rows, g->group.size, r);
    return gather_parts(g, at, call->kind, call->input.data, call->output.data, bytes);
}

static ott_status all_to_all(nccl_group *g, nccl_channel *at, const collective *call) {
    int size = g->group.size, own = g->group.rank;
    int64_t row = call->output.columns * dtype_bytes(call->output.dtype);
    char *from = call->input.data, *to = call->output.data;
    batch b = batch_begin(g, at);
    ott_status status = OTT_OK;
    for (int r = 0; r < size; r++) {
        int64_t sent = row * group_part_rows(call->input_rows, call->input.rows, size, r);
        int64_t got = row * group_part_rows(call->output_rows, call->output.rows, size, r);
        if (r != own) {
            batch_send(&b, from, sent, r);
            batch_receive(&b, to, got, r);
        } else if (sent > 0) {
            status = cuda_check(cudaMemcpyAsync(to, from, (size_t)sent, cudaMemcpyDeviceToDevice, at->stream),
                                "all-to-all");
        }
        from += sent, to += got;
    }
    ott_status ended = batch_end(g, &b, call->kind);
    return status == OTT_OK ? ended : status;
}

/* ---- reductions ---- */

/* Reduces `count` elements over ranks, to `out`. `own` has this rank's elements. The staging memory has the
   elements of each other rank r from byte r * slot on. */
static ott_status reduce_slots(const nccl_group *g, const nccl_channel *at, const collective *call,
                               const void *own, void *out, int64_t count, int64_t slot) {
    ott_dtype d = call->input.dtype;
    tensor slots = tensor_matrix(g->staging, d, g->group.size, count);
    tensor mine = tensor_vector((void *)own, d, count), to = tensor_vector(out, d, count);
    slots.ld = slot / dtype_bytes(d);
    if (count == 0) return OTT_OK;
    return cuda_check(
        ranks_reduce_launch(&slots, &mine, g->group.rank, call->reduce == REDUCE_MAX, &to, at->stream),
        "reduction over ranks");
}

/* Small all-reduce: each rank sends its full input to all ranks. */
static ott_status reduce_full(nccl_group *g, nccl_channel *at, const collective *call) {
    int64_t count = tensor_count(call->input), bytes = count * dtype_bytes(call->input.dtype);
    batch b = batch_begin(g, at);
    int64_t slot = group_staging_slot(bytes);
    for (int r = 0; r < g->group.size; r++) {
        if (r == g->group.rank) continue;
        batch_send(&b, call->input.data, bytes, r);
        batch_receive(&b, g->staging + r * slot, bytes, r);
    }
    TRY(batch_end(g, &b, call->kind));
    return reduce_slots(g, at, call, call->input.data, call->output.data, count, slot);
}

/* Rank r gets the reduction of all ranks' elements [first[r], first[r] + count[r]) of x, in its `out`. */
static ott_status reduce_piece(nccl_group *g, nccl_channel *at, const collective *call, char *x, char *out,
                               const int64_t *first, const int64_t *count, int64_t slot) {
    int own = g->group.rank;
    int64_t size = dtype_bytes(call->input.dtype);
    batch b = batch_begin(g, at);
    for (int r = 0; r < g->group.size; r++) {
        if (r == own) continue;
        batch_send(&b, x + first[r] * size, count[r] * size, r);
        batch_receive(&b, g->staging + r * slot, count[own] * size, r);
    }
    TRY(batch_end(g, &b, call->kind));
    return reduce_slots(g, at, call, x + first[own] * size, out, count[own], slot);
}

static ott_status reduce_scatter(nccl_group *g, nccl_channel *at, const collective *call) {
    int n = g->group.size;
    ott_dtype d = call->input.dtype;
    int64_t most = group_staging_largest_part(n, call), piece = group_staging_piece(n, d, most), begin[n],
            part[n], first[n], count[n];
    for (int r = 0; r < n; r++) {
        begin[r] = group_part_first(call->input_rows, call->input.rows, n, r) * call->input.columns;
        part[r] = group_part_rows(call->input_rows, call->input.rows, n, r) * call->input.columns;
    }
    for (int64_t done = 0; done < most; done += piece) {
        for (int r = 0; r < n; r++) {
            first[r] = begin[r] + size_min(done, part[r]);
            count[r] = size_min(piece, part[r] - size_min(done, part[r]));
        }
        char *out = (char *)call->output.data + size_min(done, part[g->group.rank]) * dtype_bytes(d);
        TRY(reduce_piece(g, at, call, call->input.data, out, first, count, piece * dtype_bytes(d)));
    }
    return OTT_OK;
}

/* All-reduce in pieces; each piece is a reduce-scatter and an all-gather. */
static ott_status all_reduce(nccl_group *g, nccl_channel *at, const collective *call) {
    int n = g->group.size;
    int64_t size = dtype_bytes(call->input.dtype), all = tensor_count(call->input);
    int64_t piece = group_staging_piece(n, call->input.dtype, (all + n - 1) / n), first[n], count[n],
            bytes[n];
    for (int64_t done = 0; done < all; done += n * piece) {
        char *x = (char *)call->input.data + done * size;
        for (int r = 0; r < n; r++) {
            first[r] = size_min(r * piece, all - done);
            count[r] = size_min(piece, all - done - first[r]);
            bytes[r] = count[r] * size;
        }
        char *own = x + first[g->group.rank] * size;
        TRY(reduce_piece(g, at, call, x, own, first, count, piece * size));
        TRY(gather_parts(g, at, call->kind, own, x, bytes));
    }
    return OTT_OK;
}

/* All ranks gather one byte from each rank. */
static ott_status barrier(nccl_group *g, nccl_channel *at) {
    batch b = batch_begin(g, at);
    note_result(
        &b, b.nccl->all_gather(g->staging + g->group.rank, g->staging, 1, NCCL_BYTES, at->comm, at->stream));
    return batch_end(g, &b, COLLECTIVE_BARRIER);
}

/* ---- messages ---- */

static ott_status send_tensor(nccl_group *g, nccl_channel *at, const collective *call) {
    batch b = batch_begin(g, at);
    batch_send(&b, call->input.data, tensor_bytes(call->input), at->peer);
    return batch_end(g, &b, call->kind);
}

static ott_status receive_tensor(nccl_group *g, nccl_channel *at, const collective *call) {
    batch b = batch_begin(g, at);
    batch_receive(&b, call->output.data, tensor_bytes(call->output), at->peer);
    return batch_end(g, &b, call->kind);
}

ott_status nccl_move(nccl_group *g, nccl_channel *at, const collective *call) {
    switch (call->kind) {
    case COLLECTIVE_ALL_REDUCE:
        return group_staging_sends_full(g->group.size, call) ? reduce_full(g, at, call)
                                                             : all_reduce(g, at, call);
    case COLLECTIVE_ALL_GATHER: return all_gather(g, at, call);
    case COLLECTIVE_REDUCE_SCATTER: return reduce_scatter(g, at, call);
    case COLLECTIVE_ALL_TO_ALL: return all_to_all(g, at, call);
    case COLLECTIVE_BROADCAST: return broadcast(g, at, call);
    case COLLECTIVE_SEND: return send_tensor(g, at, call);
    case COLLECTIVE_RECEIVE: return receive_tensor(g, at, call);
    case COLLECTIVE_BARRIER: return barrier(g, at);
    }
    return OTT_OK;
}
