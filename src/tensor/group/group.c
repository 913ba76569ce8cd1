/* tensor/group/group: checks the arguments of collectives and calls the functions of the group's table. A
   group of one rank only copies its own part. */
#include "tensor/group/group.h"
#include "base/clock.h"
#include "tensor/dry_run.h"

/* ---- checks ---- */

static bool is_dense(const tensor *t) {
    return t->ld == t->columns || t->rows <= 1;
}

/* Checks that rows[] adds up to the rows of `full`, and the shape of this rank's part (`part`, or NULL). */
static ott_status check_row_counts(const group *g, const collective *call, const tensor *full,
                                   const int64_t *rows, const tensor *part) {
    int64_t total = group_part_first(rows, full->rows, g->size, g->size);
    bool sound = total == full->rows;
    for (int r = 0; rows && r < g->size; r++) sound = sound && rows[r] >= 0;
    if (sound && part)
        sound = part->rows == group_part_rows(rows, full->rows, g->size, g->rank) &&
                part->columns == full->columns && part->dtype == full->dtype;
    if (sound) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE,
                       "%s of %d ranks: the parts do not add up to %lld rows, or one has a wrong shape",
                       group_collective_name(call->kind), g->size, (long long)full->rows);
}

static ott_status check_reduction(const collective *call) {
    ott_dtype d = call->input.dtype;
    if (d == OTT_F32 || (d == OTT_BF16 && call->reduce == REDUCE_SUM)) return OTT_OK;
    return status_fail(OTT_ERR_DTYPE, "%s: cannot reduce %s; use fp32, or bf16 for sums",
                       group_collective_name(call->kind), dtype_name(d));
}

/* Makes a tensor of one row dense, because the row stride of one row has no meaning. */
static void narrow_row(tensor *t) {
    if (t->rows <= 1) t->ld = t->columns;
}

static ott_status check_call(const group *g, const collective *call) {
    STATUS_REQUIRE(is_dense(&call->input) && is_dense(&call->output));
    switch (call->kind) {
    case COLLECTIVE_ALL_REDUCE: return check_reduction(call);
    case COLLECTIVE_ALL_GATHER:
        return check_row_counts(g, call, &call->output, call->output_rows, &call->input);
    case COLLECTIVE_REDUCE_SCATTER:
        TRY(check_reduction(call));
        return check_row_counts(g, call, &call->input, call->input_rows, &call->output);
    case COLLECTIVE_ALL_TO_ALL:
        STATUS_REQUIRE(call->input.dtype == call->output.dtype &&
                       call->input.columns == call->output.columns);
        TRY(check_row_counts(g, call, &call->input, call->input_rows, NULL));
        return check_row_counts(g, call, &call->output, call->output_rows, NULL);
    case COLLECTIVE_SEND:
    case COLLECTIVE_RECEIVE: STATUS_REQUIRE(call->peer != g->rank); /* fallthrough */
    case COLLECTIVE_BROADCAST: STATUS_REQUIRE(call->peer >= 0 && call->peer < g->size); return OTT_OK;
    case COLLECTIVE_BARRIER: return OTT_OK;
    }
    return OTT_OK;
}

/* ---- calls ---- */

static ott_status run_single_rank(exec *cx, const collective *call) {
    if (!call->output.data || call->output.data == call->input.data) return OTT_OK;
    return device_copy(cx->device, call->output.data, call->input.data, tensor_bytes(call->output));
}

/* Reserves the communication memory of a call. All sends of a step may be in flight at the same time, because
   the host does not wait for the receiver. So their bytes are added up. */
static ott_status reserve_call(group *g, exec *cx, const collective *call) {
    int64_t bytes = 0;
    bool message = call->kind == COLLECTIVE_SEND;
    if (!g->table->reserve) return OTT_OK;
    TRY(g->table->reserve(g, cx, call, &bytes));
    if (message) bytes = plan_add_message(cx->plan, bytes);
    return cx->device->dry_run ? dry_run_count_comm(cx->device, g, message, bytes) : OTT_OK;
}

static ott_status record(group *g, exec *cx, const collective *call) {
    const dry_run_listener *l = cx->device->listener;
    if (g->size == 1) return OTT_OK;
    if (l && l->collective) l->collective(l->user, cx, g, call);
    return reserve_call(g, cx, call);
}

ott_status group_start(group *g, exec *cx, const collective *call, group_request *request) {
    *request = (group_request){.call = *call};
    call = &request->call;
    narrow_row(&request->call.input);
    narrow_row(&request->call.output);
    TRY(check_call(g, call));
    if (plan_recording(cx->plan)) return record(g, cx, call);
    if (g->size == 1) return run_single_rank(cx, call);
    if (cx->times) request->began = clock_seconds();
    TRY(g->table->start(g, cx, request));
    request->group = g;
    return OTT_OK;
}

static void report_time(const exec *cx, const group_request *request, double waits) {
    const exec_times *t = cx->times;
    if (t && t->on_collective)
        t->on_collective(t->user, &request->call, request->began, clock_seconds() - request->began,
                         clock_seconds() - waits);
}

ott_status group_wait(exec *cx, group_request *request) {
    group *g = request->group;
    if (!g) return OTT_OK;
    double waits = cx->times ? clock_seconds() : 0;
    request->group = NULL;
    TRY(g->table->wait(g, cx, request));
    report_time(cx, request, waits);
    return OTT_OK;
}

ott_status group_run(group *g, exec *cx, const collective *call) {
    group_request request;
    TRY(group_start(g, cx, call, &request));
    return group_wait(cx, &request);
}

ott_status group_all_reduce(group *g, exec *cx, const tensor *t, reduce_kind kind) {
    return group_run(g, cx,
                     &(collective){.kind = COLLECTIVE_ALL_REDUCE, .reduce = kind, .input = *t, .output = *t});
}

ott_status group_broadcast(group *g, exec *cx, const tensor *t, int root) {
    return group_run(g, cx,
                     &(collective){.kind = COLLECTIVE_BROADCAST, .input = *t, .output = *t, .peer = root});
}

ott_status group_barrier(group *g, exec *cx) {
    return group_run(g, cx, &(collective){.kind = COLLECTIVE_BARRIER});
}

void group_abandon(group *g) {
    if (g->table->abandon) g->table->abandon(g);
}

void group_close(group *g) {
    if (g) g->table->close(g);
}
