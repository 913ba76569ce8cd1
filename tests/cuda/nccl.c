/*
 * tests/cuda/nccl: a stand-in for NCCL whose ranks are threads of one process, each with a GPU of
 * cudart.h. A call queues work on its stream, like NCCL's kernels. The work is done when all participants
 * have reached it in their streams; a waiting thread runs those streams. Calls match by order: a rank's
 * n-th collective belongs to the other ranks' n-th collective, and a rank's n-th send to another rank
 * belongs to that rank's n-th receive from it. A mismatch aborts the program. If a rank leaves, the other
 * ranks get a remote error. Aborted work moves nothing. Closing a communicator waits for its other ranks.
 * Aborting a communicator waits for all work on its GPU that is not aborted with it. Under mpirun, ranks
 * are processes (nccl_processes.c).
 */
#include "cudart.h"
#include "nccl_processes.h"
#include "sanitize.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS_MAX = CUDART_DEVICES_MAX, ALL_GATHER = 0, BROADCAST, SEND, RECEIVE };

static const char *const kind_names[] = {"all-gather", "broadcast", "send", "receive"};

typedef struct move {
    struct move *next; /* the next move of this rank, in the order of calls */
    int kind, peer;    /* peer: a collective's root, or the other rank of a send or receive */
    /* For a collective: the number of this rank's earlier collectives. For a send or receive: the number of
       earlier sends or receives between the two ranks. */
    uint64_t number;
    const char *from;
    char *to;
    size_t bytes;
    struct launch *launch;
    bool arrived, done;
} move;

/* The collectives, sends and receives that one rank queued together. They are one job of a stream. */
typedef struct launch {
    nccl_comm *comm;
    cudaStream_t stream;
    uint64_t job;
    int moves;
} launch;

typedef struct shared_comm {
    struct shared_comm *next;
    nccl_id id;
    int ranks, joined, pending; /* pending: unfinished launches */
    nccl_comm *comms[RANKS_MAX];
    int left;
} shared_comm;

struct ncclComm {
    shared_comm *shared_comm;
    int rank, device;
    bool gone;
    uint64_t collectives, sent[RANKS_MAX], received[RANKS_MAX];
    move *first, *last;
};

static shared_comm *shared_comms;
int64_t nccl_bytes_gathered, nccl_bytes_sent;

static void die(const char *what, const nccl_comm *c) {
    fprintf(stderr, "NCCL stand-in: %s (rank %d of %d)\n", what, c->rank, c->shared_comm->ranks);
    abort();
}

static void *need_memory(void *p) {
    if (!p) abort();
    return p;
}

/* The calls that this thread has made since ncclGroupStart. ncclGroupEnd queues them as one launch. */
static _Thread_local struct {
    int depth;
    struct launch *launch;
    int aborted; /* 1 + index of the GPU on which communicators are being aborted together; 0: none */
} together;

/* ---- joining and closing ---- */

static int get_version(int *version) {
    *version = NCCL_LEAST;
    return NCCL_SUCCESS;
}

static int make_id(nccl_id *id) {
    static uint64_t made;
    cudart_lock();
    made++;
    memset(id, 0, sizeof *id);
    memcpy(id, &made, sizeof made);
    cudart_unlock();
    return NCCL_SUCCESS;
}

static shared_comm *find_shared_comm(const nccl_id *id, int ranks) {
    shared_comm *w = shared_comms;
    while (w && memcmp(&w->id, id, sizeof *id) != 0) w = w->next;
    if (w) return w;
    w = need_memory(calloc(1, sizeof *w));
    *w = (shared_comm){.next = shared_comms, .id = *id, .ranks = ranks};
    return shared_comms = w;
}

static int open_comm(nccl_comm **out, int ranks, nccl_id id, int rank, nccl_config *config) {
    if (config->magic != 0xcafebeef || config->blocking != 0) return NCCL_REMOTE_ERROR;
    cudart_lock();
    order_acquire(&shared_comms);
    shared_comm *w = find_shared_comm(&id, ranks);
    nccl_comm *c = *out = need_memory(calloc(1, sizeof *c));
    *c = (nccl_comm){.shared_comm = w, .rank = rank};
    cudaGetDevice(&c->device);
    if (w->ranks != ranks || rank < 0 || rank >= ranks || w->comms[rank])
        die("another number of ranks, a rank out of range, or a rank used twice", c);
    w->comms[rank] = c;
    w->joined++;
    order_release(&shared_comms);
    cudart_notify();
    cudart_unlock();
    return NCCL_IN_PROGRESS;
}

/* Frees the group unless a rank or a launch still uses it. */
static void close_shared_comm(shared_comm *w) {
    if (w->left < w->joined || w->pending > 0) return;
    order_acquire(&shared_comms);
    shared_comm **at = &shared_comms;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    for (int r = 0; r < w->ranks; r++) {
        if (!w->comms[r]) continue;
        for (move *m = w->comms[r]->first, *next; m; m = next) {
            next = m->next;
            free(m);
        }
        free(w->comms[r]);
    }
    free(w);
}

static int finalize_comm(nccl_comm *c) {
    (void)c;
    return NCCL_SUCCESS;
}

/* Marks the rank as gone. The caller holds the lock. */
static void leave_shared_comm(nccl_comm *c) {
    c->gone = true;
    c->shared_comm->left++;
    order_release(&shared_comms);
    cudart_notify();
}

enum { CLOSING_MILLISECONDS = 10000 };

/* Closes the rank's communicator. Returns when all ranks have closed the communicator. */
static int close_comm(nccl_comm *c) {
    cudart_lock();
    shared_comm *w = c->shared_comm;
    leave_shared_comm(c);
    w->pending++;
    for (int i = 0; w->left < w->joined; i++) {
        if (i == CLOSING_MILLISECONDS) die("this rank closes the communicator and another rank does not", c);
        int held = cudart_leave();
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        cudart_return(held);
    }
    w->pending--;
    close_shared_comm(w);
    cudart_unlock();
    return NCCL_SUCCESS;
}

/* Aborting a communicator frees GPU memory, which waits for all work on the GPU. Aborts the program if
   another communicator on this GPU has unfinished work that is not aborted too. */
static void require_idle(int gpu) {
    for (shared_comm *w = shared_comms; w; w = w->next)
        for (int r = 0; r < w->ranks; r++) {
            const nccl_comm *c = w->comms[r];
            if (!c || c->gone || c->device != gpu) continue;
            for (const move *m = c->first; m; m = m->next)
                if (!m->done)
                    die("aborting another communicator of this GPU waits forever for this communicator's "
                        "work",
                        c);
        }
}

static int abort_comm(nccl_comm *c) {
    cudart_lock();
    int gpu = c->device;
    leave_shared_comm(c);
    close_shared_comm(c->shared_comm);
    if (together.depth == 0)
        require_idle(gpu);
    else
        together.aborted = 1 + gpu;
    cudart_unlock();
    return NCCL_SUCCESS;
}

/* ---- matching moves ---- */

static move *find(const nccl_comm *c, bool collective, int kind, int peer, uint64_t number) {
    for (move *m = c ? c->first : NULL; m; m = m->next)
        if (m->number == number && (collective ? m->kind <= BROADCAST : m->kind == kind && m->peer == peer))
            return m;
    return NULL;
}

/* Returns rank r's call that belongs to this rank's call m; NULL if rank r has not made this call yet. */
static move *partner(const nccl_comm *c, const move *m, int r) {
    bool collective = m->kind <= BROADCAST;
    return find(c->shared_comm->comms[r], collective, m->kind == SEND ? RECEIVE : SEND, c->rank, m->number);
}

static bool has_gone(const shared_comm *w, int r) {
    return w->comms[r] && w->comms[r]->gone;
}

static bool takes_part(const nccl_comm *c, const move *m, int r) {
    return r != c->rank && (m->kind <= BROADCAST || r == m->peer);
}

/* True if this rank waits for a rank that has left. */
static bool is_deserted(const nccl_comm *c) {
    for (const move *m = c->first; m; m = m->next)
        for (int r = 0; r < c->shared_comm->ranks && !m->done; r++)
            if (takes_part(c, m, r) && has_gone(c->shared_comm, r)) return true;
    return false;
}

static int get_state(nccl_comm *c, int *state) {
    cudart_lock();
    bool joined = c->shared_comm->joined == c->shared_comm->ranks;
    *state = is_deserted(c) ? NCCL_REMOTE_ERROR : joined ? NCCL_SUCCESS : NCCL_IN_PROGRESS;
    cudart_unlock();
    return NCCL_SUCCESS;
}

/* True if all ranks that take part in transfer m have arrived. Otherwise runs the stream of a rank that has
   not arrived, or waits. */
static bool all_arrived(const nccl_comm *c, const move *m) {
    for (int r = 0; r < c->shared_comm->ranks; r++) {
        if (!takes_part(c, m, r)) continue;
        move *other = partner(c, m, r);
        if (other && other->arrived && !has_gone(c->shared_comm, r)) continue;
        /* the launch is a job in the other rank's stream */
        if (other && other->launch && other->launch->job > 0)
            cudart_run(other->launch->stream, other->launch->job);
        else
            cudart_wait();
        return false;
    }
    return true;
}

static void require_fit(const nccl_comm *c, const move *m, const move *other) {
    bool same = m->bytes == other->bytes &&
                (m->kind > BROADCAST || (m->kind == other->kind && m->peer == other->peer));
    if (same) return;
    fprintf(stderr, "NCCL stand-in: %s of %zu bytes, but %s of %zu bytes\n", kind_names[m->kind], m->bytes,
            kind_names[other->kind], other->bytes);
    die("ranks call collectives in different orders or with different sizes", c);
}

/* meet() and part() show the sanitizer that bytes move after all ranks arrive and before any continues. */
static void meet(move *const *moves, int count) {
    for (int i = 0; i < count; i++) order_acquire(moves[i]);
}

static void part(move *const *moves, int count) {
    for (int i = 0; i < count; i++) {
        order_release(moves[i]);
        moves[i]->done = true;
    }
}

static void gather(const nccl_comm *c, move *m) {
    move *moves[RANKS_MAX];
    for (int r = 0; r < c->shared_comm->ranks; r++) {
        moves[r] = r == c->rank ? m : partner(c, m, r);
        require_fit(c, m, moves[r]);
    }
    meet(moves, c->shared_comm->ranks);
    for (int to = 0; to < c->shared_comm->ranks; to++)
        for (int from = 0; from < c->shared_comm->ranks; from++) {
            if (m->kind == BROADCAST && from != m->peer) continue;
            size_t place = m->kind == BROADCAST ? 0 : (size_t)from * m->bytes;
            if (moves[to]->to + place != moves[from]->from)
                memcpy(moves[to]->to + place, moves[from]->from, m->bytes);
            if (to != from) nccl_bytes_gathered += (int64_t)m->bytes;
        }
    part(moves, c->shared_comm->ranks);
}

static void move_now(const nccl_comm *c, move *m) {
    if (m->kind <= BROADCAST) {
        gather(c, m);
        return;
    }
    move *other = partner(c, m, m->peer), *send = m->kind == SEND ? m : other;
    move *const both[] = {m, other};
    require_fit(c, m, other);
    meet(both, 2);
    memcpy(m->kind == SEND ? other->to : m->to, send->from, m->bytes);
    nccl_bytes_sent += (int64_t)m->bytes;
    part(both, 2);
}

/* ---- work ---- */

static void forget_done(nccl_comm *c) {
    while (c->first && c->first->done && c->first->arrived) {
        move *m = c->first;
        if (m->launch) return; /* a launch still uses this move */
        c->first = m->next;
        if (!c->first) c->last = NULL;
        free(m);
    }
}

static void run_launch(void *argument) {
    launch *l = argument;
    nccl_comm *c = l->comm;
    for (move *m = c->first; m; m = m->next)
        if (m->launch == l) {
            order_release(m);
            m->arrived = true;
        }
    cudart_notify();
    for (move *m = c->first; m; m = m->next) {
        if (m->launch != l) continue;
        while (!m->done && !c->gone)
            if (all_arrived(c, m) && !m->done && !c->gone) move_now(c, m);
        order_acquire(m);
    }
    for (move *m = c->first; m; m = m->next)
        if (m->launch == l) m->launch = NULL;
    shared_comm *w = c->shared_comm;
    forget_done(c);
    w->pending--;
    close_shared_comm(w);
    free(l);
}

/* ---- calls ---- */

static int begin(void) {
    together.depth++;
    return NCCL_SUCCESS;
}

static int end(void) {
    launch *l = together.launch;
    if (--together.depth > 0) return NCCL_SUCCESS;
    cudart_lock();
    if (together.aborted > 0) require_idle(together.aborted - 1);
    cudart_unlock();
    together.aborted = 0;
    if (!l) return NCCL_SUCCESS;
    together.launch = NULL;
    cudart_lock();
    l->job = cudart_queue(l->stream, run_launch, l, NULL);
    cudart_unlock();
    return NCCL_IN_PROGRESS;
}

/* Counts a new move (a collective, a send or a receive) and returns its move.number. */
static uint64_t next_number(nccl_comm *c, const move *m) {
    if (m->kind <= BROADCAST) return c->collectives++;
    return m->kind == SEND ? c->sent[m->peer]++ : c->received[m->peer]++;
}

static launch *launch_for(nccl_comm *c, cudaStream_t stream) {
    launch *l = together.launch;
    if (l && (l->comm != c || l->stream != stream))
        die("two communicators or streams in one group of calls", c);
    if (l) return l;
    l = need_memory(calloc(1, sizeof *l));
    *l = (launch){.comm = c, .stream = stream};
    c->shared_comm->pending++;
    return together.launch = l;
}

static int call(nccl_comm *c, cudaStream_t stream, int type, move request) {
    int outermost = together.depth == 0;
    if (type != NCCL_BYTES) die("the data type must be bytes", c);
    if (request.peer < 0 || request.peer >= c->shared_comm->ranks) die("the peer rank does not exist", c);
    if (request.from)
        cudart_require_device("NCCL reads memory that is not on this GPU", request.from, request.bytes);
    size_t written = request.bytes * (request.kind == ALL_GATHER ? (size_t)c->shared_comm->ranks : 1);
    if (request.to) cudart_require_device("NCCL writes memory that is not on this GPU", request.to, written);
    begin();
    cudart_lock();
    move *m = need_memory(malloc(sizeof *m));
    *m = request;
    m->launch = launch_for(c, stream);
    m->number = next_number(c, m);
    *(c->first ? &c->last->next : &c->first) = m;
    c->last = m;
    cudart_unlock();
    return end() == NCCL_SUCCESS && !outermost ? NCCL_SUCCESS : NCCL_IN_PROGRESS;
}

static int all_gather(const void *from, void *to, size_t count, int type, nccl_comm *c, cudaStream_t stream) {
    return call(c, stream, type, (move){.kind = ALL_GATHER, .from = from, .to = to, .bytes = count});
}

static int broadcast(const void *from, void *to, size_t count, int type, int root, nccl_comm *c,
                     cudaStream_t stream) {
    return call(c, stream, type,
                (move){.kind = BROADCAST, .from = from, .to = to, .bytes = count, .peer = root});
}

static int send(const void *from, size_t count, int type, int peer, nccl_comm *c, cudaStream_t stream) {
    return call(c, stream, type, (move){.kind = SEND, .from = from, .bytes = count, .peer = peer});
}

static int receive(void *to, size_t count, int type, int peer, nccl_comm *c, cudaStream_t stream) {
    return call(c, stream, type, (move){.kind = RECEIVE, .to = to, .bytes = count, .peer = peer});
}

static const char *error_text(int result) {
    return result == NCCL_REMOTE_ERROR ? "remote process exited or there was a network error"
                                       : "another error";
}

/* Replaces src/cuda/nccl/library.c. */
ott_status nccl_library(const nccl_calls **out) {
    static const nccl_calls calls = {.version = get_version,
                                     .make_id = make_id,
                                     .open = open_comm,
                                     .finalize = finalize_comm,
                                     .close = close_comm,
                                     .abort = abort_comm,
                                     .state = get_state,
                                     .begin = begin,
                                     .end = end,
                                     .all_gather = all_gather,
                                     .broadcast = broadcast,
                                     .send = send,
                                     .receive = receive,
                                     .error_text = error_text};
    *out = getenv("OMPI_COMM_WORLD_SIZE") ? &nccl_processes : &calls;
    return OTT_OK;
}
