/* comm/mpi_message: sends or receives a message between two ranks: first a header, then all data. */
#include "comm/mpi_parts.h"

static ott_status check_message(const mpi_group *g, const mpi_operation *o) {
    const mpi_header *h = &o->message.header;
    const tensor *t = &o->call.output;
    int from = g->members[o->call.peer].rank, own = g->members[g->group.rank].rank;
    char text[64];
    if (h->kind == KIND_LEFT)
        return status_fail(OTT_ERR_RANK, "receive on rank %d: rank %d has left the process group", own, from);
    if (h->rows == t->rows && h->columns == t->columns && h->dtype == (int32_t)t->dtype) return OTT_OK;
    return status_fail(OTT_ERR_RANK, "rank %d sends %s, rank %d expects %lld x %lld %s", from,
                       mpi_shape(h, text), own, (long long)t->rows, (long long)t->columns,
                       dtype_name(t->dtype));
}

static ott_status step_receive(mpi_group *g, mpi_operation *o) {
    if (o->stage == STAGE_HEADERS) {
        o->stage = STAGE_PIECES;
        TRY(check_message(g, o));
        return mpi_receive(g, CHANNEL_MESSAGES, o->call.peer, o->message.data, tensor_bytes(o->call.output),
                           &o->message.requests[1]);
    }
    o->stage = STAGE_DONE;
    return device_copy_in(o->device, o->call.output.data, o->message.data, tensor_bytes(o->call.output));
}

ott_status mpi_message_step(mpi_group *g, mpi_operation *o, bool *moved) {
    bool sends = o->kind == COLLECTIVE_SEND, done;
    if (o->stage == STAGE_WAITING) {
        mpi_message *m = &o->message;
        int peer = o->call.peer;
        if (sends) {
            TRY(mpi_send(g, CHANNEL_MESSAGES, peer, &m->header, sizeof m->header, &m->requests[0]));
            TRY(mpi_send(g, CHANNEL_MESSAGES, peer, m->data, tensor_bytes(o->call.input), &m->requests[1]));
        } else {
            TRY(mpi_receive(g, CHANNEL_MESSAGES, peer, &m->header, sizeof m->header, &m->requests[0]));
        }
        o->stage = STAGE_HEADERS;
        *moved = true;
    }
    while (o->stage != STAGE_DONE) {
        TRY(mpi_test(2, o->message.requests, &done));
        if (!done) return OTT_OK;
        *moved = true;
        if (sends)
            o->stage = STAGE_DONE;
        else
            TRY(step_receive(g, o));
    }
    return OTT_OK;
}
