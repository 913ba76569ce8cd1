/*
 * tests/cuda/nccl_processes: the NCCL stand-in of nccl.c for ranks that are processes on one machine, each
 * with a GPU of cudart.h. Each pair of ranks of a communicator has a socket; the socket's name contains the
 * communicator's id. Data goes through the socket in call order. A header before each piece of data describes
 * the piece; a mismatch aborts the program.
 *
 * Another process cannot run this process's streams. So each communicator has a thread, which connects the
 * ranks and then runs the stream's work as soon as possible, like a GPU. If a rank dies or leaves, waiting
 * ranks get a remote error. Aborted work moves no more data.
 */
#define _GNU_SOURCE /* declares accept4 */
#include "nccl_processes.h"
#include "cudart.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = CUDART_DEVICES_MAX, TICK = 2 /* TICK in milliseconds */ };

typedef enum piece_kind { ALL_GATHER, BROADCAST, SEND } piece_kind;

static const char *const kind_names[] = {"all-gather", "broadcast", "send"};

/* The header that is sent before a piece of data. */
typedef struct piece_line {
    int kind, root;
    uint64_t bytes;
} piece_line;

/* A piece of data that is sent to another rank or received from it. */
typedef struct piece {
    struct piece *next;
    /* line: the header that this rank sends, or expects to receive. came: the header that it received. */
    piece_line line, came;
    size_t done; /* number of bytes of the header and the data that were moved so far */
    char *data;
    const char *from; /* memory of this rank to copy to `data` */
} piece;

typedef struct piece_queue {
    piece *first, *last;
} piece_queue;

/* Pieces that were queued together, as one job of the stream. */
typedef struct launch {
    nccl_comm *comm;
    cudaStream_t stream;
    piece_queue out[RANKS_MAX], in[RANKS_MAX], own;
} launch;

struct ncclComm {
    char name[64]; /* the common beginning of the names of the communicator's sockets */
    int rank, ranks, device;
    int sockets[RANKS_MAX];
    bool joined, broken, gone;
    /* Number of users of the communicator: the rank, the communicator's thread and each unfinished launch.
       The last user frees the communicator. */
    int users;
    cudaStream_t stream;
    uint64_t job; /* number of this communicator's last job in the stream */
};

static void die(const nccl_comm *c, const char *what) {
    fprintf(stderr, "NCCL stand-in: %s (rank %d of %d)\n", what, c->rank, c->ranks);
    abort();
}

static void *need_memory(void *p) {
    if (!p) abort();
    return p;
}

/* ---- joining ---- */

static socklen_t name_socket(const nccl_comm *c, int rank, struct sockaddr_un *out) {
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "%s-%d", c->name, rank);
    /* The name begins with a zero byte. This makes it the name of an abstract socket, which is no file. */
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static void tick(void) {
    nanosleep(&(struct timespec){.tv_nsec = TICK * 1000000L}, NULL);
}

/* True if the rank has left. Does not need the lock. */
static bool has_gone(nccl_comm *c) {
    return __atomic_load_n(&c->gone, __ATOMIC_ACQUIRE);
}

static int call_rank(nccl_comm *c, int rank) {
    struct sockaddr_un name;
    socklen_t length = name_socket(c, rank, &name);
    while (!has_gone(c)) {
        int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(s, (struct sockaddr *)&name, length) == 0 &&
            send(s, (int[]){c->rank, c->ranks}, 2 * sizeof(int), MSG_NOSIGNAL) == 2 * sizeof(int))
            return s;
        close(s);
        tick();
    }
    return -1;
}

static void take_call(nccl_comm *c, int s) {
    int who[2] = {-1, 0};
    if (recv(s, who, sizeof who, MSG_WAITALL) != sizeof who) {
        close(s);
        return;
    }
    if (who[1] != c->ranks || who[0] <= c->rank || who[0] >= c->ranks || c->sockets[who[0]] >= 0)
        die(c, "ranks with different parameters");
    c->sockets[who[0]] = s;
}

static bool has_all(const nccl_comm *c) {
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank && c->sockets[r] < 0) return false;
    return true;
}

static void join(nccl_comm *c) {
    struct sockaddr_un name;
    socklen_t length = name_socket(c, c->rank, &name);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&name, length) != 0 || listen(listener, RANKS_MAX) != 0)
        die(c, "a rank has joined twice");
    for (int r = 0; r < c->rank; r++) c->sockets[r] = call_rank(c, r);
    while (!has_gone(c) && !has_all(c))
        if (poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, TICK) > 0)
            take_call(c, accept4(listener, NULL, NULL, SOCK_CLOEXEC));
    close(listener);
}

/* ---- moving ---- */

/* Moves the next bytes of a piece through socket s. Returns 0 if that would block, -1 if the peer left. */
static ssize_t move_bytes(int s, piece *p, bool out) {
    bool line = p->done < sizeof p->line;
    char *at = line ? (char *)(out ? &p->line : &p->came) + p->done : p->data + (p->done - sizeof p->line);
    size_t left = line ? sizeof p->line - p->done : sizeof p->line + p->line.bytes - p->done;
    ssize_t moved = out ? send(s, at, left, MSG_DONTWAIT | MSG_NOSIGNAL) : recv(s, at, left, MSG_DONTWAIT);
    if (moved > 0) return moved;
    return moved < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

static void require_fit(const nccl_comm *c, const piece *p) {
    const piece_line *a = &p->line, *b = &p->came;
    if (a->kind == b->kind && a->root == b->root && a->bytes == b->bytes) return;
    fprintf(stderr, "NCCL stand-in: %s of %llu bytes, but %s of %llu bytes\n", kind_names[a->kind],
            (unsigned long long)a->bytes,
            b->kind >= 0 && b->kind <= SEND ? kind_names[b->kind] : "nothing known",
            (unsigned long long)b->bytes);
    die(c, "ranks call collectives in different orders or with different sizes");
}

/* Moves as many bytes of a queue as possible without blocking. False if the other rank has left. */
static bool move_queue(const nccl_comm *c, int s, piece_queue *q, bool out) {
    while (q->first) {
        piece *p = q->first;
        ssize_t moved = move_bytes(s, p, out);
        if (moved <= 0) return moved == 0;
        p->done += (size_t)moved;
        if (!out && p->done == sizeof p->line) require_fit(c, p);
        if (p->done < sizeof p->line + p->line.bytes) continue;
        q->first = p->next;
        free(p);
    }
    return true;
}

static int list_waits(nccl_comm *c, const launch *l, struct pollfd waits[RANKS_MAX]) {
    int count = 0;
    for (int r = 0; r < c->ranks; r++) {
        short events = (short)((l->out[r].first ? POLLOUT : 0) | (l->in[r].first ? POLLIN : 0));
        if (events) waits[count++] = (struct pollfd){.fd = c->sockets[r], .events = events};
    }
    return count;
}

static void transfer(nccl_comm *c, launch *l) {
    struct pollfd waits[RANKS_MAX];
    bool broken = false;
    while (!has_gone(c)) {
        for (int r = 0; r < c->ranks && !broken; r++)
            broken = !move_queue(c, c->sockets[r], &l->out[r], true) ||
                     !move_queue(c, c->sockets[r], &l->in[r], false);
        int count = list_waits(c, l, waits);
        if (count == 0) return;
        if (broken) {
            __atomic_store_n(&c->broken, true, __ATOMIC_RELEASE);
            tick();
        } else {
            poll(waits, (nfds_t)count, TICK);
        }
    }
}

/* ---- work ---- */

static piece *add_piece(piece_queue *q, piece_line line, const void *data) {
    piece *p = need_memory(calloc(1, sizeof *p));
    *p = (piece){.line = line, .data = (char *)data};
    *(q->first ? &q->last->next : &q->first) = p;
    return q->last = p;
}

static void free_pieces(piece_queue *q) {
    for (piece *p = q->first, *next; p; p = next) {
        next = p->next;
        free(p);
    }
}

/* Removes one user of the communicator, and frees the communicator after the last. Requires the lock. */
static void let_go(nccl_comm *c) {
    if (--c->users > 0) return;
    for (int r = 0; r < c->ranks; r++)
        if (c->sockets[r] >= 0) close(c->sockets[r]);
    free(c);
}

static void run_launch(void *argument) {
    launch *l = argument;
    nccl_comm *c = l->comm;
    while (!c->joined && !c->gone) cudart_wait();
    for (piece *p = l->own.first; p && !c->gone; p = p->next)
        if (p->data != p->from) memcpy(p->data, p->from, p->line.bytes);
    int held = cudart_leave();
    transfer(c, l);
    cudart_return(held);
    for (int r = 0; r < c->ranks; r++) {
        free_pieces(&l->out[r]);
        free_pieces(&l->in[r]);
    }
    free_pieces(&l->own);
    free(l);
    let_go(c);
}

/* The communicator's thread: connects the ranks, then runs the stream's work. */
static void *attend(void *argument) {
    nccl_comm *c = argument;
    cudaSetDevice(c->device);
    join(c);
    cudart_lock();
    c->joined = true;
    cudart_notify();
    for (uint64_t done = 0; !c->gone;) {
        if (done == c->job)
            cudart_wait();
        else
            cudart_run(c->stream, done = c->job);
    }
    let_go(c);
    cudart_unlock();
    return NULL;
}

/* ---- calls ---- */

static int get_version(int *version) {
    const char *given = getenv(NCCL_STAND_IN_VERSION);
    *version = given ? atoi(given) : NCCL_LEAST;
    return NCCL_SUCCESS;
}

static int make_id(nccl_id *id) {
    static unsigned made;
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "nccl-%d-%lld-%u", (int)getpid(), (long long)time(NULL),
             __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED));
    return NCCL_SUCCESS;
}

static int open_comm(nccl_comm **out, int ranks, nccl_id id, int rank, nccl_config *config) {
    if (config->magic != 0xcafebeef || config->blocking != 0) return NCCL_REMOTE_ERROR;
    nccl_comm *c = *out = need_memory(calloc(1, sizeof *c));
    *c = (nccl_comm){.rank = rank, .ranks = ranks, .users = 2};
    snprintf(c->name, sizeof c->name, "%.60s", id.bytes);
    if (rank < 0 || rank >= ranks || ranks > RANKS_MAX) die(c, "ranks with different parameters");
    for (int r = 0; r < RANKS_MAX; r++) c->sockets[r] = -1;
    cudaGetDevice(&c->device);
    pthread_t thread;
    if (pthread_create(&thread, NULL, attend, c) != 0 || pthread_detach(thread) != 0)
        die(c, "no thread can be started");
    return NCCL_IN_PROGRESS;
}

static int finalize_comm(nccl_comm *c) {
    (void)c;
    return NCCL_SUCCESS;
}

/* Makes this rank leave the communicator. Running work fails on this rank and on the other ranks. */
static int leave_comm(nccl_comm *c) {
    cudart_lock();
    __atomic_store_n(&c->gone, true, __ATOMIC_RELEASE);
    for (int r = 0; r < c->ranks && c->joined; r++)
        if (c->sockets[r] >= 0) shutdown(c->sockets[r], SHUT_RDWR);
    cudart_notify();
    let_go(c);
    cudart_unlock();
    return NCCL_SUCCESS;
}

static int get_state(nccl_comm *c, int *state) {
    cudart_lock();
    *state = __atomic_load_n(&c->broken, __ATOMIC_ACQUIRE) ? NCCL_REMOTE_ERROR
             : c->joined                                   ? NCCL_SUCCESS
                                                           : NCCL_IN_PROGRESS;
    cudart_unlock();
    return NCCL_SUCCESS;
}

/* The calls that this thread has made since ncclGroupStart. ncclGroupEnd queues them as one launch. */
static _Thread_local struct {
    int depth;
    launch *launch;
} together;

static int begin(void) {
    together.depth++;
    return NCCL_SUCCESS;
}

static int end(void) {
    launch *l = together.launch;
    if (--together.depth > 0 || !l) return NCCL_SUCCESS;
    together.launch = NULL;
    cudart_lock();
    l->comm->stream = l->stream;
    l->comm->job = cudart_queue(l->stream, run_launch, l, NULL);
    cudart_unlock();
    return NCCL_IN_PROGRESS;
}

static launch *launch_for(nccl_comm *c, cudaStream_t stream) {
    launch *l = together.launch;
    if (l && (l->comm != c || l->stream != stream))
        die(c, "two communicators or streams in one group of calls");
    if (l) return l;
    l = need_memory(calloc(1, sizeof *l));
    *l = (launch){.comm = c, .stream = stream};
    cudart_lock();
    c->users++;
    cudart_unlock();
    return together.launch = l;
}

/* Begins an NCCL call that reads `read` bytes at `from` and writes `written` bytes at `to` on the GPU. */
static launch *begin_call(nccl_comm *c, cudaStream_t stream, int type, const void *from, size_t read,
                          void *to, size_t written) {
    if (type != NCCL_BYTES) die(c, "the data type must be bytes");
    if (from) cudart_require_device("NCCL reads memory that is not on this GPU", from, read);
    if (to) cudart_require_device("NCCL writes memory that is not on this GPU", to, written);
    begin();
    return launch_for(c, stream);
}

static void keep(launch *l, const void *from, char *to, size_t bytes) {
    add_piece(&l->own, (piece_line){.bytes = bytes}, to)->from = from;
}

static int all_gather(const void *from, void *to, size_t count, int type, nccl_comm *c, cudaStream_t stream) {
    launch *l = begin_call(c, stream, type, from, count, to, count * (size_t)c->ranks);
    const piece_line line = {.kind = ALL_GATHER, .bytes = count};
    for (int r = 0; r < c->ranks; r++) {
        char *part = (char *)to + (size_t)r * count;
        if (r == c->rank) {
            keep(l, from, part, count);
        } else {
            add_piece(&l->out[r], line, from);
            add_piece(&l->in[r], line, part);
        }
    }
    return end();
}

static int broadcast(const void *from, void *to, size_t count, int type, int root, nccl_comm *c,
                     cudaStream_t stream) {
    bool own = root == c->rank;
    launch *l = begin_call(c, stream, type, own ? from : NULL, count, to, count);
    const piece_line line = {.kind = BROADCAST, .root = root, .bytes = count};
    if (own) keep(l, from, to, count);
    for (int r = 0; r < c->ranks; r++)
        if (own && r != root) add_piece(&l->out[r], line, from);
    if (!own) add_piece(&l->in[root], line, to);
    return end();
}

static void require_peer(const nccl_comm *c, int peer) {
    if (peer < 0 || peer >= c->ranks || peer == c->rank) die(c, "the peer rank does not exist");
}

static int send_bytes(const void *from, size_t count, int type, int peer, nccl_comm *c, cudaStream_t stream) {
    require_peer(c, peer);
    launch *l = begin_call(c, stream, type, from, count, NULL, 0);
    add_piece(&l->out[peer], (piece_line){.kind = SEND, .bytes = count}, from);
    return end();
}

static int receive_bytes(void *to, size_t count, int type, int peer, nccl_comm *c, cudaStream_t stream) {
    require_peer(c, peer);
    launch *l = begin_call(c, stream, type, NULL, 0, to, count);
    add_piece(&l->in[peer], (piece_line){.kind = SEND, .bytes = count}, to);
    return end();
}

static const char *error_text(int result) {
    return result == NCCL_REMOTE_ERROR ? "remote process exited or there was a network error"
                                       : "another error";
}

const nccl_calls nccl_processes = {.version = get_version,
                                   .make_id = make_id,
                                   .open = open_comm,
                                   .finalize = finalize_comm,
                                   .close = leave_comm,
                                   .abort = leave_comm,
                                   .state = get_state,
                                   .begin = begin,
                                   .end = end,
                                   .all_gather = all_gather,
                                   .broadcast = broadcast,
                                   .send = send_bytes,
                                   .receive = receive_bytes,
                                   .error_text = error_text};
