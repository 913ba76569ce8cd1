/* comm/threads: ranks as threads. The n-th collective of every rank is the same call. For this call the ranks
   share a `meeting`, to which each rank adds a copy of its input. When all inputs have arrived, each rank
   computes its output. Messages from one rank to another are queued in order. */
#include "comm/threads.h"
#include "comm/reduce.h"
#include "tensor/exec.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A copy of one rank's input, and of the collective's input_rows if there are any. */
typedef struct contribution {
    collective call; /* the data of the call's tensors must not be used */
    char *data;
    int64_t *input_rows; /* [size] rows of each part, or NULL */
} contribution;

typedef struct meeting {
    struct meeting *next;
    int64_t number; /* number of the collective; the same on all ranks */
    int arrived, left;
    contribution *from; /* [size] one for each rank; `data` is NULL until the rank has made the call */
} meeting;

typedef struct message {
    struct message *next;
    int from, to;
    tensor shape;
    char *data;
} message;

typedef struct rank_state {
    group group; /* must be first: a pointer to it is cast to rank_state * */
    threads_group *shared;
    int64_t number; /* number of collectives started */
    bool gone;
} rank_state;

struct threads_group {
    mem *account;
    int size;
    double timeout;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    rank_state *ranks;
    meeting *meetings;
    message *messages;
    bool failed;
    char reason[256];
};

/* ---- failing; all with the lock held ---- */

/* Fails the group: all current and later waits return an error. The first reason is kept. */
static void fail_all(threads_group *s, const char *reason) {
    if (!s->failed) snprintf(s->reason, sizeof s->reason, "%s", reason);
    s->failed = true;
    pthread_cond_broadcast(&s->changed);
}

static ott_status fail_group(const threads_group *s) {
    return status_fail(OTT_ERR_RANK, "%s", s->reason);
}

/* A condition that a rank waits for: the arrival of all ranks, or of a message. */
typedef struct condition {
    bool (*holds)(const struct condition *c);
    bool (*needs)(const struct condition *c, int rank); /* true if the condition waits for this rank */
    const meeting *meeting;                             /* NULL: the rank waits for a message */
    rank_state *self;
    const collective *call;
} condition;

/* Writes an error text with the ranks that are waited for; left: only those that closed the group. */
static void name_missing(const condition *c, bool left, char text[256]) {
    const threads_group *s = c->self->shared;
    int length =
        snprintf(text, 256, "%s on rank %d", group_collective_name(c->call->kind), c->self->group.rank);
    if (c->meeting)
        length = snprintf(text, 256, "%s, collective number %lld", group_collective_name(c->call->kind),
                          (long long)c->meeting->number);
    length += snprintf(text + length, 256 - (size_t)length, ":");
    for (int r = 0; r < s->size && length < 200; r++)
        if (c->needs(c, r) && (!left || s->ranks[r].gone))
            length += snprintf(text + length, 256 - (size_t)length, " rank %d", r);
    snprintf(text + length, 256 - (size_t)length, left ? " has left" : " did not join in time");
}

static bool has_left(const condition *c) {
    const threads_group *s = c->self->shared;
    for (int r = 0; r < s->size; r++)
        if (s->ranks[r].gone && c->needs(c, r)) return true;
    return false;
}

/* Waits until the condition holds. Fails on timeout, if a needed rank has left, or if a rank has failed. */
static ott_status wait_until(const condition *c) {
    threads_group *s = c->self->shared;
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)end.tv_sec + (double)end.tv_nsec * 1e-9 + s->timeout;
    end.tv_sec = (time_t)seconds;
    end.tv_nsec = (long)((seconds - (double)end.tv_sec) * 1e9);
    char text[256];
    while (!c->holds(c)) {
        if (s->failed) return fail_group(s);
        if (has_left(c)) {
            name_missing(c, true, text);
            fail_all(s, text);
        } else if (pthread_cond_timedwait(&s->changed, &s->lock, &end) == ETIMEDOUT && !c->holds(c)) {
            name_missing(c, false, text);
            fail_all(s, text);
        }
    }
    return OTT_OK;
}

static void free_contribution(const threads_group *s, contribution *c) {
    mem_free(s->account, c->data);
    mem_free(s->account, c->input_rows);
}

static void close_meeting(threads_group *s, meeting *m) {
    meeting **at = &s->meetings;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    for (int r = 0; r < s->size; r++) free_contribution(s, &m->from[r]);
    mem_free(s->account, m);
}

/* True if two ranks call the same collective, with matching arguments. */
static bool same_collective(const collective *a, const collective *b) {
    bool same_shape = a->kind == COLLECTIVE_ALL_GATHER || a->kind == COLLECTIVE_ALL_TO_ALL ||
                      a->input.rows == b->input.rows;
    return a->kind == b->kind && a->reduce == b->reduce && a->peer == b->peer &&
           a->input.dtype == b->input.dtype && a->input.columns == b->input.columns && same_shape;
}

static void check_agreement(threads_group *s, const meeting *m, int rank) {
    const collective *own = &m->from[rank].call;
    char text[256];
    for (int r = 0; r < s->size; r++) {
        const collective *other = &m->from[r].call;
        if (r == rank || !m->from[r].data || same_collective(own, other)) continue;
        snprintf(text, sizeof text,
                 "collective number %lld: rank %d calls %s of %lld x %lld %s, rank %d %s of %lld x %lld %s",
                 (long long)m->number, r, group_collective_name(other->kind), (long long)other->input.rows,
                 (long long)other->input.columns, dtype_name(other->input.dtype), rank,
                 group_collective_name(own->kind), (long long)own->input.rows, (long long)own->input.columns,
                 dtype_name(own->input.dtype));
        fail_all(s, text);
    }
}

/* ---- start ---- */

static ott_status copy_input(const threads_group *s, exec *cx, const collective *call, contribution *out) {
    int64_t bytes = call->input.data ? tensor_bytes(call->input) : 0;
    out->call = *call;
    TRY(mem_alloc(s->account, MEM_COMM, bytes, "values of a collective", &out->data));
    if (bytes > 0) TRY(device_copy_out(cx->device, out->data, call->input.data, bytes));
    if (!call->input_rows) return OTT_OK;
    TRY(mem_alloc_array(s->account, MEM_COMM, s->size, sizeof(int64_t), "rows of a collective",
                        &out->input_rows));
    memcpy(out->input_rows, call->input_rows, (size_t)s->size * sizeof(int64_t));
    return OTT_OK;
}

/* Adds a rank's input to the meeting (shared state) of its next collective. Call with the lock held. */
static ott_status join_meeting(rank_state *self, const contribution *own, meeting **out) {
    threads_group *s = self->shared;
    if (s->failed) return fail_group(s);
    meeting *m = s->meetings;
    while (m && m->number != self->number) m = m->next;
    if (!m) {
        TRY(mem_alloc(s->account, MEM_COMM,
                      (int64_t)sizeof(meeting) + s->size * (int64_t)sizeof(contribution), "a collective",
                      &m));
        m->number = self->number;
        m->from = (contribution *)(m + 1);
        m->next = s->meetings;
        s->meetings = m;
    }
    *out = m;
    m->from[self->group.rank] = *own;
    m->arrived++;
    self->number++;
    check_agreement(s, m, self->group.rank);
    pthread_cond_broadcast(&s->changed);
    return OTT_OK;
}

/* Appends a message to the queue. Call with the lock held. */
static ott_status post_message(rank_state *self, const contribution *own) {
    threads_group *s = self->shared;
    message **at = &s->messages;
    void *memory;
    if (s->failed) return fail_group(s);
    TRY(mem_alloc(s->account, MEM_COMM, sizeof(message), "a message", &memory));
    while (*at) at = &(*at)->next;
    *at = memory;
    **at = (message){
        .from = self->group.rank, .to = own->call.peer, .shape = own->call.input, .data = own->data};
    pthread_cond_broadcast(&s->changed);
    return OTT_OK;
}

static ott_status start_collective(group *g, exec *cx, group_request *request) {
    rank_state *self = (rank_state *)g;
    threads_group *s = self->shared;
    contribution own = {0};
    meeting *m = NULL;
    if (request->call.kind == COLLECTIVE_RECEIVE) return OTT_OK;
    ott_status status = copy_input(s, cx, &request->call, &own);
    if (status == OTT_OK) {
        pthread_mutex_lock(&s->lock);
        status =
            request->call.kind == COLLECTIVE_SEND ? post_message(self, &own) : join_meeting(self, &own, &m);
        pthread_mutex_unlock(&s->lock);
    }
    if (status != OTT_OK) free_contribution(s, &own);
    request->state = m;
    return status;
}

/* ---- wait ---- */

static ott_status give_reduction(exec *cx, const meeting *m, int size, int64_t first, const tensor *out) {
    const collective *call = &m->from[0].call;
    int64_t skip = first * call->input.columns * dtype_bytes(out->dtype), count = tensor_count(*out);
    float *sum;
    mem *account = cx->device->account;
    TRY(mem_alloc_array(account, MEM_COMM, count, sizeof(float), "a reduction", &sum));
    reduce_first(sum, m->from[0].data + skip, out->dtype, count);
    for (int r = 1; r < size; r++) reduce_next(sum, m->from[r].data + skip, out->dtype, count, call->reduce);
    /* The output may replace the input: no format is wider than fp32, and elements are written in order. */
    reduce_last(sum, out->dtype, sum, count);
    ott_status status = device_copy_in(cx->device, out->data, sum, tensor_bytes(*out));
    mem_free(account, sum);
    return status;
}

static ott_status give_part(exec *cx, const contribution *from, int64_t first, const tensor *out) {
    int64_t skip = first * out->columns * dtype_bytes(out->dtype);
    return device_copy_in(cx->device, out->data, from->data + skip, tensor_bytes(*out));
}

/* Concatenates the parts that the ranks send to this rank. */
static ott_status give_parts(exec *cx, const meeting *m, const group *g, const collective *call) {
    bool gather = call->kind == COLLECTIVE_ALL_GATHER;
    for (int r = 0; r < g->size; r++) {
        const contribution *from = &m->from[r];
        int64_t rows = gather ? from->call.input.rows
                              : group_part_rows(from->input_rows, from->call.input.rows, g->size, g->rank);
        int64_t expected = group_part_rows(call->output_rows, call->output.rows, g->size, r);
        if (rows != expected)
            return status_fail(OTT_ERR_RANK, "%s number %lld: rank %d sends %lld rows, rank %d expects %lld",
                               group_collective_name(call->kind), (long long)m->number, r, (long long)rows,
                               g->rank, (long long)expected);
        tensor out = tensor_rows(call->output,
                                 group_part_first(call->output_rows, call->output.rows, g->size, r), rows);
        int64_t first =
            gather ? 0 : group_part_first(from->input_rows, from->call.input.rows, g->size, g->rank);
        TRY(give_part(cx, from, first, &out));
    }
    return OTT_OK;
}

static ott_status give_output(exec *cx, const meeting *m, const group *g, const collective *call) {
    switch (call->kind) {
    case COLLECTIVE_ALL_REDUCE: return give_reduction(cx, m, g->size, 0, &call->output);
    case COLLECTIVE_REDUCE_SCATTER:
        return give_reduction(cx, m, g->size,
                              group_part_first(call->input_rows, call->input.rows, g->size, g->rank),
                              &call->output);
    case COLLECTIVE_BROADCAST: return give_part(cx, &m->from[call->peer], 0, &call->output);
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_ALL_TO_ALL: return give_parts(cx, m, g, call);
    default: return OTT_OK;
    }
}

static bool all_arrived(const condition *c) {
    return c->meeting->arrived == c->self->shared->size;
}

static bool is_missing(const condition *c, int rank) {
    return !c->meeting->from[rank].data;
}

/* After all ranks have arrived, no rank changes the inputs until every rank has its output. So a rank reads
   the inputs without the lock. */
static ott_status wait_meeting(rank_state *self, exec *cx, const group_request *request) {
    threads_group *s = self->shared;
    meeting *m = request->state;
    pthread_mutex_lock(&s->lock);
    ott_status status = wait_until(&(condition){
        .holds = all_arrived, .needs = is_missing, .meeting = m, .self = self, .call = &request->call});
    if (status == OTT_OK && s->failed) status = fail_group(s);
    pthread_mutex_unlock(&s->lock);
    if (status == OTT_OK) status = give_output(cx, m, &self->group, &request->call);
    pthread_mutex_lock(&s->lock);
    if (status != OTT_OK) fail_all(s, status_text());
    if (++m->left == s->size) close_meeting(s, m);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static message **find_message(const condition *c) {
    threads_group *s = c->self->shared;
    message **at = &s->messages;
    while (*at && !((*at)->from == c->call->peer && (*at)->to == c->self->group.rank)) at = &(*at)->next;
    return at;
}

static bool message_arrived(const condition *c) {
    return *find_message(c) != NULL;
}

static bool is_sender(const condition *c, int rank) {
    return rank == c->call->peer;
}

static ott_status wait_receive(rank_state *self, exec *cx, const collective *call) {
    threads_group *s = self->shared;
    condition c = {.holds = message_arrived, .needs = is_sender, .self = self, .call = call};
    message *m = NULL;
    pthread_mutex_lock(&s->lock);
    ott_status status = wait_until(&c);
    if (status == OTT_OK) {
        message **at = find_message(&c);
        m = *at;
        *at = m->next;
    }
    pthread_mutex_unlock(&s->lock);
    TRY(status);
    bool fits = m->shape.rows == call->output.rows && m->shape.columns == call->output.columns &&
                m->shape.dtype == call->output.dtype;
    status = fits ? device_copy_in(cx->device, call->output.data, m->data, tensor_bytes(call->output))
                  : status_fail(OTT_ERR_RANK, "rank %d sends %lld x %lld %s, rank %d expects %lld x %lld %s",
                                call->peer, (long long)m->shape.rows, (long long)m->shape.columns,
                                dtype_name(m->shape.dtype), self->group.rank, (long long)call->output.rows,
                                (long long)call->output.columns, dtype_name(call->output.dtype));
    if (status != OTT_OK) {
        pthread_mutex_lock(&s->lock);
        fail_all(s, status_text());
        pthread_mutex_unlock(&s->lock);
    }
    mem_free(s->account, m->data);
    mem_free(s->account, m);
    return status;
}

static ott_status wait_collective(group *g, exec *cx, group_request *request) {
    switch (request->call.kind) {
    case COLLECTIVE_SEND: return OTT_OK;
    case COLLECTIVE_RECEIVE: return wait_receive((rank_state *)g, cx, &request->call);
    default: return wait_meeting((rank_state *)g, cx, request);
    }
}

/* ---- open and close ---- */

static void leave_group(group *g) {
    rank_state *self = (rank_state *)g;
    pthread_mutex_lock(&self->shared->lock);
    self->gone = true;
    pthread_cond_broadcast(&self->shared->changed);
    pthread_mutex_unlock(&self->shared->lock);
}

static const group_table table = {.start = start_collective, .wait = wait_collective, .close = leave_group};

ott_status threads_group_open(mem *account, int ranks, double timeout, threads_group **out) {
    threads_group *s;
    *out = NULL;
    STATUS_REQUIRE(ranks >= 1);
    TRY(mem_alloc(account, MEM_OTHER, (int64_t)sizeof(threads_group) + ranks * (int64_t)sizeof(rank_state),
                  "ranks", &s));
    s->account = account;
    s->size = ranks;
    s->timeout = timeout;
    s->ranks = (rank_state *)(s + 1);
    for (int r = 0; r < ranks; r++)
        s->ranks[r] = (rank_state){.group = {.table = &table, .rank = r, .size = ranks}, .shared = s};
    pthread_condattr_t monotonic;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = s;
    return OTT_OK;
}

group *threads_group_of_rank(threads_group *s, int rank) {
    return &s->ranks[rank].group;
}

void threads_group_close(threads_group *s) {
    if (!s) return;
    while (s->meetings) close_meeting(s, s->meetings);
    for (message *m = s->messages, *next; m; m = next) {
        next = m->next;
        mem_free(s->account, m->data);
        mem_free(s->account, m);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    mem_free(s->account, s);
}
