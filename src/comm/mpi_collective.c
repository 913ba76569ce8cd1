/* comm/mpi_collective: runs a collective as messages between pairs of ranks: first headers, then data in
   pieces. In a reduction each rank reduces one part: it receives this part of every input, and adds them in
   rank order. A large all-reduce then sends the reduced parts to all ranks in a second pass. */
#include "comm/mpi_parts.h"
#include "comm/reduce.h"

/* In all-reduces of at most SMALL_BYTES every rank reduces all values in one pass, which has less latency. */
enum { SMALL_BYTES = 4096 };

static int64_t row_bytes(const tensor *t) {
    return t->columns * dtype_bytes(t->dtype);
}

/* ---- headers ---- */

static void write_call_header(const mpi_operation *o, int size, int to, mpi_header *h) {
    const collective *call = &o->call;
    bool is_split = call->kind == COLLECTIVE_ALL_TO_ALL;
    *h = (mpi_header){.kind = o->kind,
                      .reduce = (int32_t)call->reduce,
                      .peer = call->peer,
                      .dtype = (int32_t)call->input.dtype,
                      .number = o->number,
                      .rows = call->input.rows,
                      .columns = call->input.columns,
                      .part_rows = is_split ? group_part_rows(call->input_rows, call->input.rows, size, to)
                                            : call->input.rows};
}

static ott_status send_headers(mpi_group *g, mpi_operation *o) {
    for (int r = 0; r < g->group.size; r++) {
        mpi_member *m = &g->members[r];
        write_call_header(o, g->group.size, r, &m->out);
        m->in = (mpi_header){0};
        g->requests[2 * r] = g->requests[2 * r + 1] = mpi_functions->no_request;
        if (r == g->group.rank) continue;
        TRY(mpi_send(g, CHANNEL_COLLECTIVES, r, &m->out, sizeof m->out, &g->requests[2 * r + 1]));
        if (o->kind == KIND_LEFT) /* also notify ranks that wait for a message */
            TRY(mpi_send(g, CHANNEL_MESSAGES, r, &m->out, sizeof m->out, &g->requests[2 * r]));
        else
            TRY(mpi_receive(g, CHANNEL_COLLECTIVES, r, &m->in, sizeof m->in, &g->requests[2 * r]));
    }
    return OTT_OK;
}

/* True if two ranks call the same collective, with matching arguments. */
static bool same_call(const mpi_header *a, const mpi_header *b) {
    bool same_shape =
        a->kind == COLLECTIVE_ALL_GATHER || a->kind == COLLECTIVE_ALL_TO_ALL || a->rows == b->rows;
    return a->kind == b->kind && a->number == b->number && a->reduce == b->reduce && a->peer == b->peer &&
           a->dtype == b->dtype && a->columns == b->columns && same_shape;
}

static ott_status check_header(const mpi_group *g, const mpi_operation *o, const mpi_member *m) {
    const mpi_header *own = &m->out, *other = &m->in;
    char a[64], b[64];
    if (other->kind == KIND_LEFT)
        return status_fail(OTT_ERR_RANK, "%s, collective number %lld: rank %d has left the process group",
                           group_collective_name(o->call.kind), (long long)o->number, m->rank);
    if (same_call(own, other)) return OTT_OK;
    return status_fail(OTT_ERR_RANK, "collective number %lld%s%s: rank %d calls %s of %s, rank %d %s of %s",
                       (long long)o->number, *g->name ? " of " : "", g->name, m->rank,
                       group_collective_name((collective_kind)other->kind), mpi_shape(other, a),
                       g->members[g->group.rank].rank, group_collective_name(o->call.kind),
                       mpi_shape(own, b));
}

static ott_status check_headers(const mpi_group *g, const mpi_operation *o) {
    const collective *call = &o->call;
    for (int r = 0; r < g->group.size; r++)
        if (r != g->group.rank) TRY(check_header(g, o, &g->members[r]));
    if (call->kind != COLLECTIVE_ALL_GATHER && call->kind != COLLECTIVE_ALL_TO_ALL) return OTT_OK;
    for (int r = 0; r < g->group.size; r++) {
        const mpi_member *m = &g->members[r];
        int64_t expected = group_part_rows(call->output_rows, call->output.rows, g->group.size, r);
        if (r != g->group.rank && m->in.part_rows != expected)
            return status_fail(OTT_ERR_RANK, "%s number %lld: rank %d sends %lld rows, rank %d expects %lld",
                               group_collective_name(call->kind), (long long)o->number, m->rank,
                               (long long)m->in.part_rows, g->members[g->group.rank].rank,
                               (long long)expected);
    }
    return OTT_OK;
}

/* ---- passes ---- */

static mpi_span span_of_rank(const tensor *t, const int64_t *rows, int size, int r) {
    return (mpi_span){.first = group_part_first(rows, t->rows, size, r) * row_bytes(t),
                      .bytes = group_part_rows(rows, t->rows, size, r) * row_bytes(t)};
}

/* Returns the part of an all-reduce that rank r reduces. */
static mpi_span value_span_of_rank(const tensor *t, int size, int r) {
    int64_t count = tensor_count(*t), each = count / size, more = count % size, width = dtype_bytes(t->dtype);
    return (mpi_span){.first = (r * each + (r < more ? r : more)) * width,
                      .bytes = (each + (r < more)) * width};
}

static mpi_span full_span(const tensor *t) {
    return (mpi_span){.bytes = tensor_bytes(*t)};
}

static void lay_out_all_reduce(const mpi_group *g, const mpi_operation *o, int r, mpi_member *m) {
    const tensor *t = &o->call.input;
    int size = g->group.size;
    if (tensor_bytes(*t) <= SMALL_BYTES) {
        m->send = m->receive = full_span(t);
        return;
    }
    mpi_span own = value_span_of_rank(t, size, g->group.rank), other = value_span_of_rank(t, size, r);
    m->send = o->pass == 0 ? other : own;
    m->receive = o->pass == 0 ? own : other;
}

static void lay_out_member(const mpi_group *g, const mpi_operation *o, int r, mpi_member *m) {
    const collective *call = &o->call;
    int size = g->group.size, rank = g->group.rank;
    m->send = m->receive = (mpi_span){0};
    switch (call->kind) {
    case COLLECTIVE_ALL_REDUCE: lay_out_all_reduce(g, o, r, m); break;
    case COLLECTIVE_ALL_GATHER:
        m->send = full_span(&call->input);
        m->receive = span_of_rank(&call->output, call->output_rows, size, r);
        break;
    case COLLECTIVE_REDUCE_SCATTER:
        m->send = span_of_rank(&call->input, call->input_rows, size, r);
        m->receive = full_span(&call->output);
        break;
    case COLLECTIVE_ALL_TO_ALL:
        m->send = span_of_rank(&call->input, call->input_rows, size, r);
        m->receive = span_of_rank(&call->output, call->output_rows, size, r);
        break;
    case COLLECTIVE_BROADCAST:
        if (rank == call->peer) m->send = full_span(&call->input);
        if (r == call->peer && r != rank) m->receive = full_span(&call->output);
        break;
    default: break;
    }
}

static ott_status begin_collective_pass(mpi_group *g, mpi_operation *o) {
    collective_kind kind = o->call.kind;
    bool small = kind == COLLECTIVE_ALL_REDUCE && tensor_bytes(o->call.input) <= SMALL_BYTES;
    for (int r = 0; r < g->group.size; r++) lay_out_member(g, o, r, &g->members[r]);
    o->reducing = kind == COLLECTIVE_REDUCE_SCATTER || (kind == COLLECTIVE_ALL_REDUCE && o->pass == 0);
    o->shared_send = kind == COLLECTIVE_ALL_GATHER || kind == COLLECTIVE_BROADCAST || small || (o->pass == 1);
    o->piece = 0;
    const mpi_member *own = &g->members[g->group.rank]; /* the part that this rank sends to itself */
    char *to = (char *)o->call.output.data + own->receive.first;
    const char *from = (const char *)o->call.input.data + own->send.first;
    bool moves = kind == COLLECTIVE_ALL_GATHER || kind == COLLECTIVE_ALL_TO_ALL;
    if (!moves || to == from || own->send.bytes == 0) return OTT_OK;
    return device_copy(o->device, to, from, own->send.bytes);
}

/* ---- pieces ---- */

/* Returns the bytes of span s that belong to the current piece; none after the end of s. */
static mpi_span piece_of(const mpi_group *g, const mpi_operation *o, mpi_span s) {
    int64_t skip = o->piece * g->piece_bytes, left = s.bytes - skip;
    if (left <= 0) return (mpi_span){0};
    return (mpi_span){.first = s.first + skip, .bytes = left < g->piece_bytes ? left : g->piece_bytes};
}

static bool is_last_piece(const mpi_group *g, const mpi_operation *o) {
    int64_t end = (o->piece + 1) * g->piece_bytes;
    for (int r = 0; r < g->group.size; r++)
        if (g->members[r].send.bytes > end || g->members[r].receive.bytes > end) return false;
    return true;
}

/* Sends a piece to rank r. If all ranks get the same bytes, copies them once and sets *copied. */
static ott_status send_piece(mpi_group *g, const mpi_operation *o, int r, bool *copied) {
    const mpi_member *m = &g->members[r];
    char *staging = o->shared_send ? g->members[0].send_piece : m->send_piece;
    mpi_span s = piece_of(g, o, m->send);
    if (s.bytes == 0) return OTT_OK;
    if (!*copied || !o->shared_send)
        TRY(device_copy_out(o->device, staging, (const char *)o->call.input.data + s.first, s.bytes));
    *copied = true;
    return mpi_send(g, CHANNEL_COLLECTIVES, r, staging, s.bytes, &g->requests[2 * r + 1]);
}

static ott_status begin_piece(mpi_group *g, mpi_operation *o) {
    bool copied = false;
    for (int r = 0; r < g->group.size; r++) {
        const mpi_member *m = &g->members[r];
        mpi_span part = piece_of(g, o, m->receive);
        if (r != g->group.rank && part.bytes > 0)
            TRY(mpi_receive(g, CHANNEL_COLLECTIVES, r, m->receive_piece, part.bytes, &g->requests[2 * r]));
    }
    for (int r = 0; r < g->group.size; r++)
        if (r != g->group.rank) TRY(send_piece(g, o, r, &copied));
    mpi_member *own = &g->members[g->group.rank];
    mpi_span s = piece_of(g, o, own->send);
    if (!o->reducing || s.bytes == 0) return OTT_OK;
    return device_copy_out(o->device, own->receive_piece, (const char *)o->call.input.data + s.first,
                           s.bytes);
}

static ott_status reduce_received_piece(mpi_group *g, const mpi_operation *o) {
    mpi_span s = piece_of(g, o, g->members[g->group.rank].receive);
    ott_dtype d = o->call.output.dtype;
    int64_t count = s.bytes / dtype_bytes(d);
    if (count == 0) return OTT_OK;
    reduce_first(g->sum, g->members[0].receive_piece, d, count);
    for (int r = 1; r < g->group.size; r++)
        reduce_next(g->sum, g->members[r].receive_piece, d, count, o->call.reduce);
    reduce_last(g->sum, d, g->sum, count); /* writes over its input: no format is wider than fp32 */
    return device_copy_in(o->device, (char *)o->call.output.data + s.first, g->sum, s.bytes);
}

static ott_status end_piece(mpi_group *g, const mpi_operation *o) {
    if (o->reducing) return reduce_received_piece(g, o);
    for (int r = 0; r < g->group.size; r++) {
        const mpi_member *m = &g->members[r];
        mpi_span s = piece_of(g, o, m->receive);
        if (r == g->group.rank || s.bytes == 0) continue;
        TRY(device_copy_in(o->device, (char *)o->call.output.data + s.first, m->receive_piece, s.bytes));
    }
    return OTT_OK;
}

/* Starts the next piece or pass, or ends the operation. */
static ott_status advance_operation(mpi_group *g, mpi_operation *o) {
    bool gathers =
        o->call.kind == COLLECTIVE_ALL_REDUCE && tensor_bytes(o->call.input) > SMALL_BYTES && o->pass == 0;
    if (!is_last_piece(g, o)) {
        o->piece++;
    } else if (gathers) {
        o->pass = 1;
        TRY(begin_collective_pass(g, o));
    } else {
        o->stage = STAGE_DONE;
        return OTT_OK;
    }
    return begin_piece(g, o);
}

ott_status mpi_collective_step(mpi_group *g, mpi_operation *o, bool *moved) {
    bool done = true;
    if (o->stage == STAGE_WAITING) {
        TRY(send_headers(g, o));
        o->stage = STAGE_HEADERS;
        *moved = true;
    }
    while (o->stage != STAGE_DONE) {
        TRY(mpi_test(2 * g->group.size, g->requests, &done));
        if (!done) return OTT_OK;
        *moved = true;
        if (o->stage == STAGE_PIECES) {
            TRY(end_piece(g, o));
            TRY(advance_operation(g, o));
        } else if (o->kind == KIND_LEFT || o->kind == COLLECTIVE_BARRIER) {
            if (o->kind == COLLECTIVE_BARRIER) TRY(check_headers(g, o));
            o->stage = STAGE_DONE;
        } else {
            TRY(check_headers(g, o));
            o->stage = STAGE_PIECES;
            TRY(begin_collective_pass(g, o));
            TRY(begin_piece(g, o));
        }
    }
    return OTT_OK;
}

void mpi_collective_late(const mpi_group *g, bool *late) {
    for (int i = 0; i < 2 * g->group.size; i++)
        if (!mpi_functions->is_done(&g->requests[i])) late[i / 2] = true;
}
