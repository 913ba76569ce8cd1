/* comm/mpi_memory: allocates a group's memory once, and a new operation only if none is free. */
#include "comm/mpi.h"
#include "comm/mpi_parts.h"

enum {
    PIECE_MOST = 512 << 10, /* most bytes of a piece */
    PIECE_LEAST = 64 << 10,
    STAGING_MOST = 2 << 20, /* bytes: limit of all pieces that a rank sends at the same time */
    OPERATIONS = 6,         /* operations allocated with a group; enough for a step with only collectives */
};

void mpi_give_back(mpi_group *g, mpi_operation *o) {
    o->next = g->idle;
    g->idle = o;
}

/* Finds the smallest idle operation with at least `bytes` of message memory, else the largest idle operation.
   Returns the list's pointer to it, for removing it; the pointer is NULL if no operation is idle. */
static mpi_operation **find_idle(mpi_group *g, int64_t bytes) {
    mpi_operation **best = &g->idle;
    for (mpi_operation **at = best; *at; at = &(*at)->next) {
        bool fits = (*at)->message.capacity >= bytes, best_fits = (*best)->message.capacity >= bytes;
        bool smaller = (*at)->message.capacity < (*best)->message.capacity;
        if ((fits && (!best_fits || smaller)) || (!fits && !best_fits && !smaller)) best = at;
    }
    return best;
}

static ott_status make_idle_operation(mpi_group *g) {
    mpi_operation *o;
    TRY(mem_alloc(g->account, MEM_COMM, sizeof(mpi_operation), "a collective", &o));
    o->next_of_group = g->operations;
    g->operations = o;
    mpi_give_back(g, o);
    return OTT_OK;
}

ott_status mpi_allocate_operation(mpi_group *g, int64_t bytes, mpi_operation **out) {
    if (!g->idle) TRY(make_idle_operation(g));
    mpi_operation **best = find_idle(g, bytes), *o = *best;
    if (o->message.capacity < bytes) {
        mem_free(g->account, o->message.data);
        o->message.data = NULL, o->message.capacity = 0;
        TRY(mem_alloc(g->account, MEM_COMM, bytes, "a message to another rank", &o->message.data));
        o->message.capacity = bytes;
    }
    *best = o->next;
    *out = o;
    return OTT_OK;
}

static int64_t piece_bytes(int count) {
    int64_t bytes = STAGING_MOST / count / PIECE_LEAST * PIECE_LEAST;
    return bytes < PIECE_LEAST ? PIECE_LEAST : bytes > PIECE_MOST ? PIECE_MOST : bytes;
}

/* Returns staging bytes: for each rank a piece to send and one to receive; fp32 sums of a bf16 piece. */
static int64_t staging_bytes(int count) {
    return count > 1 ? (2 * (int64_t)count + 2) * piece_bytes(count) : 0;
}

static int64_t table_bytes(int count) {
    return (int64_t)sizeof(mpi_group) +
           count * ((int64_t)sizeof(mpi_member) + 2 * (int64_t)sizeof(mpi_request));
}

int64_t mpi_group_bytes(int count) {
    return table_bytes(count) + staging_bytes(count) + OPERATIONS * (int64_t)sizeof(mpi_operation);
}

static void lay_out_group(mpi_group *g, const int *ranks, int own) {
    int size = g->group.size;
    g->members = (mpi_member *)(g + 1);
    g->requests = (mpi_request *)(g->members + size);
    for (int r = 0; r < size; r++) {
        g->members[r].rank = ranks[r];
        g->members[r].send_piece = g->staging + 2 * r * g->piece_bytes;
        g->members[r].receive_piece = g->members[r].send_piece + g->piece_bytes;
        g->requests[2 * r] = g->requests[2 * r + 1] = mpi_functions->no_request;
        if (ranks[r] == own) g->group.rank = r;
    }
    g->sum = (float *)(void *)(g->staging + 2 * size * g->piece_bytes);
}

void mpi_release_group(mpi_group *g) {
    for (mpi_operation *o = g->operations, *next_of_group; o; o = next_of_group) {
        next_of_group = o->next_of_group;
        mem_free(g->account, o->message.data);
        mem_free(g->account, o);
    }
    mem_free(g->account, g->staging);
    mem_free(g->account, g);
}

ott_status mpi_allocate_group(mem *account, const int *ranks, int count, int own, mpi_group **out) {
    mpi_group *g;
    ott_status status;
    TRY(mem_alloc(account, MEM_COMM, table_bytes(count), "a group of ranks", &g));
    g->account = account;
    g->group.size = count;
    g->piece_bytes = piece_bytes(count);
    TRY_OUT(mem_alloc(account, MEM_COMM, staging_bytes(count), "a group's staging memory", &g->staging));
    for (int i = 0; i < OPERATIONS; i++) TRY_OUT(make_idle_operation(g));
    lay_out_group(g, ranks, own);
    *out = g;
    return OTT_OK;
out:
    mpi_release_group(g);
    return status;
}

void mpi_move_group(mpi_group *g, mem *to) {
    for (mpi_operation *o = g->operations; o; o = o->next_of_group) {
        mem_move(g->account, to, o->message.data);
        mem_move(g->account, to, o);
    }
    mem_move(g->account, to, g->staging);
    mem_move(g->account, to, g);
    g->account = to;
}
