/* api/group: a process group with the caller's all-reduce as its only transport. */
#include "api/fp8/tensor.h"

static ott_status reduce_values(const ott_group *g, float *values, int64_t count, ott_reduce kind) {
    ott_status status = g->options.all_reduce(g->options.user, values, count, kind);
    if (status == OTT_OK) return OTT_OK;
    return status_fail(status, "the all_reduce callback failed for %lld values on rank %d of %d: %s",
                       (long long)count, g->options.rank, g->options.size, status_meaning(status));
}

static ott_status reduce_on_host(const ott_group *g, device *d, const tensor *t, ott_reduce kind, bool zero) {
    void *host;
    mem *account = d->account;
    int64_t bytes = tensor_count(*t) * (int64_t)sizeof(float);
    STATUS_REQUIRE(t->ld == t->columns || t->rows == 1);
    if (t->dtype != OTT_F32)
        return status_fail(OTT_ERR_UNSUPPORTED, "a group of ott_group_open reduces only fp32, not %s",
                           dtype_name(t->dtype));
    TRY(mem_alloc(account, MEM_OTHER, bytes, "values to reduce", &host));
    ott_status status = OTT_OK;
    if (!zero) TRY_OUT(device_copy_out(d, host, t->data, bytes)); /* else host stays zero (mem_alloc) */
    TRY_OUT(reduce_values(g, host, tensor_count(*t), kind));
    TRY_OUT(device_copy_in(d, t->data, host, bytes));
out:
    mem_free(account, host);
    return status;
}

/* Does nothing: the caller's all_reduce is a blocking call, so it is made in wait_reduce. */
static ott_status start_reduce(group *g, exec *cx, group_request *request) {
    (void)g, (void)cx, (void)request;
    return OTT_OK;
}

static ott_status wait_reduce(group *g, exec *cx, group_request *request) {
    const ott_group *owner = (ott_group *)((char *)g - offsetof(ott_group, group));
    const collective *call = &request->call;
    float nothing = 0;
    switch (call->kind) {
    case COLLECTIVE_ALL_REDUCE:
        return reduce_on_host(owner, cx->device, &call->input,
                              call->reduce == REDUCE_MAX ? OTT_REDUCE_MAX : OTT_REDUCE_SUM, false);
    case COLLECTIVE_BROADCAST: /* the sum over ranks; all ranks except the root contribute zeros */
        return reduce_on_host(owner, cx->device, &call->input, OTT_REDUCE_SUM, g->rank != call->peer);
    case COLLECTIVE_BARRIER: return reduce_values(owner, &nothing, 1, OTT_REDUCE_SUM);
    default:
        return status_fail(OTT_ERR_UNSUPPORTED, "a group of ott_group_open has all_reduce only, not %s",
                           group_collective_name(call->kind));
    }
}

static void close_nothing(group *g) {
    (void)g;
}

static const group_table table = {.start = start_reduce, .wait = wait_reduce, .close = close_nothing};

void(ott_group_options_init)(ott_group_options *options, size_t size) {
    API_INIT(options, size, .size = 1);
}

static ott_status open_group(ott_context *context, const ott_group_options *o, ott_group **out) {
    ott_group *g;
    TRY(handle_open(context, HANDLE_GROUP, sizeof(ott_group), &g));
    g->options = *o;
    g->group = (group){.table = &table, .rank = o->rank, .size = o->size};
    return *out = g, OTT_OK;
}

ott_status ott_group_open(ott_context *context, const ott_group_options *options, ott_group **out) {
    ott_group_options o;
    API_REQUIRE_BOTH(context, out);
    *out = NULL;
    API_REQUIRE(options);
    ott_group_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_group_options"));
    if (o.size < 1 || o.rank < 0 || o.rank >= o.size)
        return status_fail(OTT_ERR_ARGUMENT, "ott_group_open: rank %d of %d: give 0 <= rank < size", o.rank,
                           o.size);
    if (o.size > 1 && !o.all_reduce)
        return status_fail(OTT_ERR_ARGUMENT, "ott_group_open: all_reduce is NULL, but %d ranks need it",
                           o.size);
    return API_INSIDE(context, open_group(context, &o, out));
}

void ott_group_close(ott_group *g) {
    if (!handle_is_open(g, HANDLE_GROUP)) return;
    ott_context *context = g->handle.context;
    if (api_enter(context, __func__) != OTT_OK) return;
    handle_close(&g->handle);
    api_leave(context);
}
