/* comm/mpi: joins and ends the processes, runs the progress thread, and implements groups of ranks
   (tensor/group/group.h). The thread polls MPI while operations are pending, less often while no data moves.
   Otherwise it sleeps, and wakes now and then to answer ranks that ask which rank it waits for. */
#include "comm/mpi.h"
#include "base/clock.h"
#include "comm/mpi_parts.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    EAGER_POLLS = 200, /* polls without a pause after the last progress */
    EAGER_MOST = 100,  /* microseconds for these polls; if they take longer, other threads need the core */
    REST_LEAST = 20,   /* microseconds between two polls; the pause doubles up to REST_MOST */
    REST_MOST = 500,
    IDLE_REST = 50,    /* milliseconds that the thread sleeps without pending operations */
    GIVEN_UP = 0,      /* tag of the message that a process gives up */
    QUERY,             /* tag of a query: which rank does the receiver wait for? */
    ANSWER,            /* tag of the answer to a query */
    GROUPS,            /* tag of the first group's messages; each group has its own tag */
    NOT_WAITING = -1,  /* answer to a query: the rank waits for no other rank */
    ENDED_WITHIN = 10, /* seconds that a process waits to be ended by the process that reports a failure */
};

/* State of MPI in this process. MPI can start only once in a process. */
static struct {
    mem *account; /* holds the memory of failed groups, because MPI may still use it */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signaled when an operation ends or is enqueued, and when the state changes */
    pthread_t thread;
    int rank, size;
    bool joined, ending;
    bool given_up;                 /* this process cannot continue */
    bool is_notified, is_reporter; /* another process reports the failure; this process does */
    int group_count;
    mpi_group *groups;
    ott_status status; /* result of starting MPI */
    int exit_code;     /* exit code of all processes if this one gives up */
    char text[REASON_BYTES];
} mpi = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void sleep_microseconds(int microseconds) {
    nanosleep(&(struct timespec){.tv_nsec = microseconds * 1000L}, NULL);
}

/* ---- failing; with the lock held ---- */

/* Fails all pending operations of the group. Keeps their memory, because MPI may still use it. */
static void fail_group(mpi_group *g, ott_status status, const char *reason) {
    if (g->failed) return;
    g->failed = true;
    g->code = status;
    snprintf(g->reason, sizeof g->reason, "%s", reason);
    for (mpi_operation *o = g->queue; o; o = o->next) {
        o->done = true;
        o->status = status;
        snprintf(o->text, sizeof o->text, "%s", g->reason);
    }
    g->queue = NULL;
    pthread_cond_broadcast(&mpi.changed);
}

static mpi_envelope failure_envelope(int rank, int tag) {
    return (mpi_envelope){CHANNEL_FAILURES, rank, tag};
}

/* Sends a short message to another rank without waiting; does nothing for this rank. `data` must stay valid
   until the receiving rank polls next. */
static void send_note(int rank, int tag, const void *data, int64_t bytes) {
    mpi_request request;
    if (rank == mpi.rank) return;
    if (mpi_functions->send(failure_envelope(rank, tag), data, bytes, &request) == 0)
        mpi_functions->forget(&request);
}

/* Receives a short message with this tag from `rank` or ANY_RANK. *sender: -1 if there is none. */
static ott_status receive_note(int rank, int tag, void *data, int bytes, int *sender) {
    TRY(mpi_check(mpi_functions->probe(failure_envelope(rank, tag), sender), "MPI_Iprobe"));
    if (*sender < 0) return OTT_OK;
    return mpi_check(mpi_functions->receive_now(failure_envelope(*sender, tag), data, bytes), "MPI_Recv");
}

/* If a rank has sent a failure with this tag, receives the failure and returns it as an error. */
static ott_status receive_failure(int tag) {
    char text[REASON_BYTES];
    int sender;
    TRY(receive_note(ANY_RANK, tag, text, sizeof text, &sender));
    if (sender < 0) return OTT_OK;
    text[sizeof text - 1] = '\0';
    return status_fail(OTT_ERR_RANK, "%s", text);
}

/* ---- waiting too long ---- */

static bool is_message(const mpi_operation *o) {
    return o->kind == COLLECTIVE_SEND || o->kind == COLLECTIVE_RECEIVE;
}

/* Returns the lowest rank that the operation waits for; NOT_WAITING if there is none. */
static int late_rank(const mpi_group *g, const mpi_operation *o) {
    bool late[g->group.size];
    memset(late, 0, sizeof late);
    if (is_message(o)) return g->members[o->call.peer].rank;
    mpi_collective_late(g, late);
    for (int r = 0; r < g->group.size; r++)
        if (late[r]) return g->members[r].rank;
    return NOT_WAITING;
}

/* Returns a rank that one of this rank's started operations waits for; NOT_WAITING if there is none. */
static int own_late_rank(void) {
    for (const mpi_group *g = mpi.groups; g; g = g->next) {
        for (const mpi_operation *o = g->queue; o; o = o->next) {
            if (o->stage == STAGE_WAITING || o->stage == STAGE_DONE || o->kind == COLLECTIVE_SEND) continue;
            int rank = late_rank(g, o);
            if (rank != NOT_WAITING) return rank;
        }
    }
    return NOT_WAITING;
}

/* Receives an int, which is a query or an answer. Returns false if none has arrived. */
static bool receive_word(int rank, int tag, int *word, int *sender) {
    return receive_note(rank, tag, word, sizeof *word, sender) == OTT_OK && *sender >= 0;
}

/* Answers the queries that have arrived. Call with the lock held. */
static void answer_queries(void) {
    static int answer; /* so small that send_note copies it */
    int word, from;
    while (receive_word(ANY_RANK, QUERY, &word, &from)) {
        answer = own_late_rank();
        send_note(from, ANSWER, &answer, sizeof answer);
    }
}

/* Asks a rank which rank it waits for. Returns false if the rank does not answer in time. */
static bool ask_rank(int rank, double seconds, int *answer) {
    static const int query;
    int from;
    send_note(rank, QUERY, &query, sizeof query);
    for (double end = clock_seconds() + seconds; clock_seconds() < end; sleep_microseconds(REST_MOST)) {
        pthread_mutex_lock(&mpi.lock);
        answer_queries();
        pthread_mutex_unlock(&mpi.lock);
        if (receive_word(rank, ANSWER, answer, &from)) return true;
    }
    return false;
}

/* Asks the rank that the operation waits for whether it waits for another rank, asks that rank the same, and
   so on. Returns the last rank: it computes, hangs or does not answer (*answers is false). */
static int find_blocking_rank(const mpi_group *g, const mpi_operation *o, bool *answers) {
    double seconds = g->timeout < 4 ? g->timeout / 4 : 1;
    int rank = late_rank(g, o), next = rank;
    for (int hops = 0; hops < mpi.size && next != NOT_WAITING && next != mpi.rank; hops++) {
        rank = next;
        *answers = ask_rank(rank, seconds, &next);
        if (!*answers) break;
    }
    return rank;
}

static ott_status fail_late(const mpi_group *g, const mpi_operation *o) {
    bool answers = true;
    int rank = find_blocking_rank(g, o, &answers);
    char number[48] = "";
    if (!is_message(o)) snprintf(number, sizeof number, ", collective number %lld", (long long)o->number);
    return status_fail(OTT_ERR_RANK, "%s%s%s%s, on rank %d: rank %d did not join in time (%g s): %s",
                       group_collective_name(o->call.kind), number, *g->name ? " of " : "", g->name, mpi.rank,
                       rank, g->timeout,
                       answers ? "it is alive, and computes or waits elsewhere"
                               : "it has ended, hangs or cannot be reached");
}

/* ---- the progress thread ---- */

/* True if the operation can advance now. Sends always can. Receives from one rank run in order. Collectives
   run one after the other. The operation that closes the group runs last. */
static bool can_step(const mpi_group *g, const mpi_operation *o) {
    if (o->kind == COLLECTIVE_SEND) return true;
    for (const mpi_operation *before = g->queue; before != o; before = before->next) {
        if (o->kind == KIND_LEFT) return false;
        if (o->kind == COLLECTIVE_RECEIVE && before->kind == COLLECTIVE_RECEIVE &&
            before->call.peer == o->call.peer)
            return false;
        if (!is_message(o) && !is_message(before)) return false;
    }
    return true;
}

/* Removes a finished operation from the queue. Call with the lock held. */
static void dequeue(mpi_group *g, mpi_operation *o) {
    mpi_operation **at = &g->queue;
    while (*at != o) at = &(*at)->next;
    *at = o->next;
    o->next = NULL;
    o->done = true;
    if (o->kind == KIND_LEFT) g->left = true;
    if (o->abandoned) mpi_give_back(g, o);
    pthread_cond_broadcast(&mpi.changed);
}

/* Advances an operation. Only the progress thread calls this, without the lock. */
static ott_status step_operation(mpi_group *g, mpi_operation *o, bool *moved) {
    bool advanced = false;
    TRY(is_message(o) ? mpi_message_step(g, o, &advanced) : mpi_collective_step(g, o, &advanced));
    *moved |= advanced;
    if (o->stage == STAGE_DONE) return OTT_OK;
    ott_status status = receive_failure(g->id);
    g->is_notified = status != OTT_OK;
    if (g->is_notified) return status;
    double now = clock_seconds();
    if (advanced || o->moved == 0) o->moved = now;
    return g->timeout <= 0 || now - o->moved < g->timeout ? OTT_OK : fail_late(g, o);
}

/* Call with the lock held. The lock is free while an operation advances; others only append operations. */
static void step_group(mpi_group *g, bool *moved) {
    for (mpi_operation *o = g->queue, *next; o && !g->failed; o = next) {
        ott_status status = OTT_OK;
        if (can_step(g, o)) {
            pthread_mutex_unlock(&mpi.lock);
            status = step_operation(g, o, moved);
            pthread_mutex_lock(&mpi.lock);
        }
        next = o->next;
        if (status == OTT_OK && o->stage == STAGE_DONE) dequeue(g, o);
        if (status == OTT_OK) continue;
        fail_group(g, status, status_text());
        for (int r = 0; r < g->group.size && !g->is_notified; r++)
            send_note(g->members[r].rank, g->id, g->reason, REASON_BYTES);
    }
}

/* If several processes fail at once, the lowest rank reports. Higher ranks first wait for its message. */
static void choose_reporter(void) {
    int turns = 5 * (mpi.rank < 20 ? mpi.rank : 20);
    bool is_notified = false;
    for (int i = 0; i <= turns && !is_notified; i++) {
        is_notified = receive_failure(GIVEN_UP) != OTT_OK;
        if (!is_notified && i < turns) sleep_microseconds(10000);
    }
    for (int r = 0; r < mpi.size && !is_notified; r++) send_note(r, GIVEN_UP, mpi.text, REASON_BYTES);
    pthread_mutex_lock(&mpi.lock);
    mpi.is_notified = is_notified;
    mpi.is_reporter = !is_notified;
    pthread_cond_broadcast(&mpi.changed);
    pthread_mutex_unlock(&mpi.lock);
}

/* Waits for a new operation, for at most IDLE_REST. A query of another rank does not end the wait. */
static void sleep_a_while(void) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += IDLE_REST * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000L;
    end.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&mpi.changed, &mpi.lock, &end);
}

/* Pauses after `idle` polls without progress, the first at time `since`. Yields at first, later sleeps. On a
   busy core a thread that yields runs last, but a thread that wakes from sleep runs first. */
static void pause_between_polls(int idle, double since) {
    if (idle <= EAGER_POLLS && clock_seconds() - since < 1e-6 * EAGER_MOST) {
        sched_yield();
        return;
    }
    int doubled = idle > EAGER_POLLS ? (idle - EAGER_POLLS) / 8 : 0,
        pause = REST_LEAST << (doubled > 5 ? 5 : doubled);
    sleep_microseconds(pause < REST_MOST ? pause : REST_MOST);
}

static void make_progress(void) {
    int idle_polls = 0;
    double idle_since = 0;
    pthread_mutex_lock(&mpi.lock);
    while (!mpi.ending && !mpi.given_up) {
        bool moved = false, busy = false;
        for (mpi_group *g = mpi.groups; g; g = g->next) step_group(g, &moved);
        answer_queries();
        /* in a second loop, because other threads may have appended operations during the first one */
        for (const mpi_group *g = mpi.groups; g; g = g->next) busy |= g->queue != NULL;
        if (!busy && !mpi.ending && !mpi.given_up) sleep_a_while();
        idle_polls = moved || !busy ? 0 : idle_polls + 1;
        if (idle_polls <= 1) idle_since = clock_seconds();
        if (!busy || moved) continue;
        pthread_mutex_unlock(&mpi.lock);
        pause_between_polls(idle_polls, idle_since);
        pthread_mutex_lock(&mpi.lock);
    }
    for (mpi_group *g = mpi.groups; g && mpi.given_up; g = g->next) fail_group(g, OTT_ERR_RANK, mpi.text);
    pthread_mutex_unlock(&mpi.lock);
}

/* The progress thread. No other thread calls MPI, not even to start or end it. */
static void *run_progress_thread(void *unused) {
    (void)unused;
    ott_status status = mpi_check(mpi_functions->start(&mpi.rank, &mpi.size), "MPI_Init_thread");
    pthread_mutex_lock(&mpi.lock);
    mpi.status = status;
    snprintf(mpi.text, sizeof mpi.text, "%s", status == OTT_OK ? "" : status_text());
    mpi.joined = true;
    pthread_cond_broadcast(&mpi.changed);
    pthread_mutex_unlock(&mpi.lock);
    if (status != OTT_OK) return NULL;
    make_progress();
    if (!mpi.given_up) return mpi_functions->finish(), NULL;
    choose_reporter();
    pthread_mutex_lock(&mpi.lock);
    while (!mpi.ending) pthread_cond_wait(&mpi.changed, &mpi.lock);
    pthread_mutex_unlock(&mpi.lock);
    mpi_functions->abort(mpi.exit_code);
    return NULL;
}

/* ---- operations ---- */

static ott_status begin_operation(mpi_group *g, const collective *call, device *d, int64_t message_bytes,
                                  mpi_operation **out) {
    mpi_operation *o = NULL;
    pthread_mutex_lock(&mpi.lock);
    ott_status status = mpi_allocate_operation(g, message_bytes, &o);
    pthread_mutex_unlock(&mpi.lock);
    if (status != OTT_OK) return status;
    *o = (mpi_operation){.next_of_group = o->next_of_group,
                         .kind = (int)call->kind,
                         .call = *call,
                         .device = d,
                         .message = {.capacity = o->message.capacity, .data = o->message.data}};
    o->message.requests[0] = o->message.requests[1] = mpi_functions->no_request;
    *out = o;
    return OTT_OK;
}

/* Appends an operation to the group's queue. Call with the lock held. */
static void enqueue(mpi_group *g, mpi_operation *o) {
    mpi_operation **at = &g->queue;
    while (*at) at = &(*at)->next;
    *at = o;
    o->next = NULL;
    pthread_cond_broadcast(&mpi.changed);
}

/* Returns the bytes of a message, rounded up to whole MPI blocks; 0 for a collective. */
static int64_t bytes_of_message(const collective *call) {
    const tensor *t = call->kind == COLLECTIVE_SEND ? &call->input : &call->output;
    bool message = call->kind == COLLECTIVE_SEND || call->kind == COLLECTIVE_RECEIVE;
    return message ? (tensor_bytes(*t) + MESSAGE_BLOCK - 1) / MESSAGE_BLOCK * MESSAGE_BLOCK : 0;
}

static ott_status start_operation(group *base, exec *cx, group_request *request) {
    mpi_group *g = (mpi_group *)base;
    mpi_operation *o;
    request->state = NULL;
    TRY(begin_operation(g, &request->call, cx->device, bytes_of_message(&request->call), &o));
    if (o->kind == COLLECTIVE_SEND) {
        const tensor *t = &o->call.input;
        o->message.header = (mpi_header){
            .kind = COLLECTIVE_SEND, .dtype = (int32_t)t->dtype, .rows = t->rows, .columns = t->columns};
        o->abandoned = true;
        TRY(device_copy_out(o->device, o->message.data, t->data, tensor_bytes(*t)));
    } else {
        request->state = o;
    }
    pthread_mutex_lock(&mpi.lock);
    ott_status status = g->failed ? status_fail(g->code, "%s", g->reason) : OTT_OK;
    if (!is_message(o)) o->number = g->number++;
    if (status == OTT_OK)
        enqueue(g, o);
    else
        mpi_give_back(g, o);
    pthread_mutex_unlock(&mpi.lock);
    return status;
}

static ott_status wait_operation(group *base, exec *cx, group_request *request) {
    mpi_operation *o = request->state;
    ott_status status = OTT_OK;
    (void)cx;
    if (!o) return OTT_OK; /* a send needs no wait */
    pthread_mutex_lock(&mpi.lock);
    while (!o->done) pthread_cond_wait(&mpi.changed, &mpi.lock);
    status = o->status;
    if (status != OTT_OK)
        status_fail(status, "%s", o->text); /* keeps the operation: MPI may still use its memory */
    else
        mpi_give_back((mpi_group *)base, o);
    pthread_mutex_unlock(&mpi.lock);
    return status;
}

/* ---- groups ---- */

static void leave_group(group *base) {
    mpi_group *g = (mpi_group *)base;
    mpi_operation *o;
    bool can_notify = begin_operation(g, &(collective){.kind = COLLECTIVE_BARRIER}, NULL, 0, &o) == OTT_OK;
    pthread_mutex_lock(&mpi.lock);
    if (can_notify && !g->failed) {
        o->kind = KIND_LEFT;
        o->abandoned = true;
        enqueue(g, o);
        while (!g->left && !g->failed) pthread_cond_wait(&mpi.changed, &mpi.lock);
    }
    if (g->left) {
        mpi_group **at = &mpi.groups;
        while (*at != g) at = &(*at)->next;
        *at = g->next;
        mpi_release_group(g);
    } else {
        mpi_move_group(g, mpi.account);
    }
    pthread_mutex_unlock(&mpi.lock);
}

static const group_table table = {.start = start_operation, .wait = wait_operation, .close = leave_group};

ott_status mpi_group_open(mem *account, const int *ranks, int count, const char *name, double timeout,
                          group **out) {
    bool member = false;
    mpi_group *g;
    *out = NULL;
    for (int i = 0; i < count; i++) {
        STATUS_REQUIRE(ranks[i] >= 0 && ranks[i] < mpi.size && (i == 0 || ranks[i] > ranks[i - 1]));
        member |= ranks[i] == mpi.rank;
    }
    STATUS_REQUIRE(member);
    TRY(mpi_allocate_group(account, ranks, count, mpi.rank, &g));
    g->group.table = &table;
    g->name = name;
    g->timeout = timeout;
    pthread_mutex_lock(&mpi.lock);
    g->id = GROUPS + mpi.group_count++;
    g->next = mpi.groups;
    mpi.groups = g;
    pthread_mutex_unlock(&mpi.lock);
    *out = &g->group;
    return OTT_OK;
}

/* ---- joining and ending ---- */

static void end_process(void) {
    pthread_mutex_lock(&mpi.lock);
    bool running = mpi.status == OTT_OK;
    mpi.ending = true;
    pthread_cond_broadcast(&mpi.changed);
    pthread_mutex_unlock(&mpi.lock);
    if (running) pthread_join(mpi.thread, NULL);
}

/* Starts the progress thread and waits until it has started MPI. Call with the lock held. */
static ott_status join_processes(void) {
    sigset_t all, before;
    TRY(mpi_load());
    TRY(mem_open(&mpi.account));
    sigfillset(&all); /* signal handlers must run on the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&mpi.thread, NULL, run_progress_thread, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure) return status_fail(OTT_ERR_MEMORY, "cannot start a thread for MPI");
    atexit(end_process);
    while (!mpi.joined) pthread_cond_wait(&mpi.changed, &mpi.lock);
    return OTT_OK;
}

ott_status mpi_version(const char **version) {
    TRY(mpi_load());
    *version = mpi_functions->version;
    return OTT_OK;
}

ott_status mpi_join(int *rank, int *size) {
    pthread_mutex_lock(&mpi.lock);
    ott_status status = mpi.joined ? OTT_OK : join_processes();
    if (status == OTT_OK && mpi.status != OTT_OK) status = status_fail(mpi.status, "%s", mpi.text);
    *rank = mpi.rank;
    *size = mpi.size;
    pthread_mutex_unlock(&mpi.lock);
    return status;
}

bool mpi_give_up(ott_status code, const char *reason) {
    pthread_mutex_lock(&mpi.lock);
    bool joined = mpi.joined && mpi.status == OTT_OK, first = !mpi.given_up;
    if (joined && first) {
        snprintf(mpi.text, sizeof mpi.text, "%s", reason);
        mpi.exit_code = status_exit_code(code);
        mpi.given_up = true;
        pthread_cond_broadcast(&mpi.changed);
        while (!mpi.is_notified && !mpi.is_reporter) pthread_cond_wait(&mpi.changed, &mpi.lock);
    }
    bool is_notified = mpi.is_notified;
    pthread_mutex_unlock(&mpi.lock);
    unsigned left = is_notified ? ENDED_WITHIN : 0;
    while (left > 0) left = sleep(left); /* a signal ends sleep() early */
    return !is_notified;
}
