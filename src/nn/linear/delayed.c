/* nn/linear/delayed: the store of delayed-scaling states, and their update. */
#include "nn/linear/delayed.h"
#include "fp8/history.h"
#include <math.h>

const cast_spec *delayed_cast(const quant_spec *q) {
    if (cast_spec_is_fp8(&q->rowwise) && q->rowwise.policy == AMAX_DELAYED) return &q->rowwise;
    if (cast_spec_is_fp8(&q->columnwise) && q->columnwise.policy == AMAX_DELAYED) return &q->columnwise;
    return NULL;
}

/* ---- the store ---- */

static ott_status carry_over(device *d, const delayed_state *from, const delayed_state *to) {
    int64_t old_length = from->amax_history.columns, length = to->amax_history.columns;
    void *memory;
    TRY(mem_alloc_array(d->account, MEM_OTHER, old_length + length, sizeof(float), "amax history", &memory));
    float *old_window = memory, *amax_history = old_window + old_length, scale;
    ott_status status = OTT_OK;
    TRY_OUT(device_copy_out(d, &scale, from->scale.data, sizeof scale));
    TRY_OUT(device_copy_in(d, to->scale.data, &scale, sizeof scale));
    TRY_OUT(device_copy_out(d, old_window, from->amax_history.data, tensor_bytes(from->amax_history)));
    history_resize(old_window, old_length, amax_history, length);
    TRY_OUT(device_copy_in(d, to->amax_history.data, amax_history, tensor_bytes(to->amax_history)));
out:
    mem_free(d->account, memory);
    return status;
}

static ott_status fill_state(device *d, const delayed_request *request, const delayed_state *state) {
    const float one = 1.0f;
    if (request->state->seen.data && request->state->spec.format == request->spec->format &&
        request->state->spec.scale.margin == request->spec->scale.margin)
        return carry_over(d, request->state, state);
    return device_copy_in(d, state->scale.data, &one, sizeof one);
}

/* Order in memory: states of inputs without spec.reduce, of inputs with it, other states with spec.reduce,
   other states without it. So the inputs are contiguous, and so are all states with spec.reduce. */
enum { ORDERS = 4 };
static int order_of(const delayed_request *request) {
    static const int orders[2][2] = {{3, 2}, {0, 1}};
    return orders[request->is_input][request->spec->reduce];
}

/* The store's memory has first all amaxes since the last update, then all scales, then all histories. */
static ott_status place_state(const delayed_store *fresh, device *d, const delayed_request *request,
                              int64_t index, float *amax_history) {
    float *scale = (float *)fresh->block + fresh->seen.columns;
    delayed_state state = {.spec = *request->spec,
                           .seen = tensor_columns(fresh->seen, index, 1),
                           .scale = tensor_vector(scale + index, OTT_F32, 1),
                           .amax_history = tensor_vector(amax_history, OTT_F32, request->spec->history)};
    TRY(fill_state(d, request, &state));
    *request->state = state;
    return OTT_OK;
}

/* next[ORDERS]: index of the next state of each order. */
static ott_status place_states(const delayed_store *fresh, device *d, const delayed_request *requests,
                               int count, int64_t *next) {
    float *amax_history = fresh->block ? (float *)fresh->block + 2 * fresh->seen.columns : NULL;
    for (int i = 0; i < count; i++) {
        if (!requests[i].spec) {
            *requests[i].state = (delayed_state){0};
            continue;
        }
        TRY(place_state(fresh, d, &requests[i], next[order_of(&requests[i])]++, amax_history));
        amax_history += requests[i].spec->history;
    }
    return OTT_OK;
}

ott_status delayed_store_set(delayed_store *store, device *d, const delayed_request *requests, int count) {
    delayed_store fresh = {0};
    int64_t counts[ORDERS] = {0}, floats = 0;
    for (int i = 0; i < count; i++) {
        if (!requests[i].spec) continue;
        counts[order_of(&requests[i])]++;
        floats += 2 + requests[i].spec->history;
    }
    int64_t states = counts[0] + counts[1] + counts[2] + counts[3];
    int64_t next[ORDERS] = {0, counts[0], counts[0] + counts[1], counts[0] + counts[1] + counts[2]};
    fresh.first_reduced = next[1];
    fresh.reduced = counts[1] + counts[2];
    fresh.block_bytes = floats * (int64_t)sizeof(float);
    if (states > 0) TRY(device_allocate(d, MEM_WEIGHT, fresh.block_bytes, "amax histories", &fresh.block));
    fresh.seen = tensor_vector(fresh.block, OTT_F32, states);
    if (states > 0)
        fresh.input_scales = tensor_vector((float *)fresh.block + states, OTT_F32, counts[0] + counts[1]);
    ott_status status = place_states(&fresh, d, requests, count, next);
    delayed_store_release(store, d);
    *store = fresh;
    return status;
}

void delayed_store_release(delayed_store *store, device *d) {
    device_release(d, store->block);
    *store = (delayed_store){0};
}

/* ---- between steps ---- */

ott_status delayed_reduce(exec *cx, const delayed_store *store, group *g) {
    tensor seen = tensor_columns(store->seen, store->first_reduced, store->reduced);
    return store->reduced ? group_all_reduce(g, cx, &seen, REDUCE_MAX) : OTT_OK;
}

/* A user's scale callback runs on the host. */
static ott_status update_on_host(exec *cx, const delayed_state *s) {
    device *d = cx->device;
    float seen, scale, *amax_history;
    TRY(mem_alloc(d->account, MEM_OTHER, tensor_bytes(s->amax_history), "amax history", &amax_history));
    ott_status status = OTT_OK;
    TRY_OUT(device_copy_out(d, &seen, s->seen.data, sizeof seen));
    TRY_OUT(device_copy_out(d, &scale, s->scale.data, sizeof scale));
    TRY_OUT(device_copy_out(d, amax_history, s->amax_history.data, tensor_bytes(s->amax_history)));
    history_update(&s->spec, seen, amax_history, &scale);
    if (!(scale > 0.0f && isfinite(scale)))
        TRY_OUT(status_fail(
            OTT_ERR_ARGUMENT,
            "delayed scaling: the scale callback returned %g; a scale must be positive and finite",
            (double)scale));
    TRY_OUT(device_copy_in(d, s->amax_history.data, amax_history, tensor_bytes(s->amax_history)));
    TRY_OUT(device_copy_in(d, s->scale.data, &scale, sizeof scale));
    TRY_OUT(device_zero(d, s->seen.data, sizeof seen));
out:
    mem_free(d->account, amax_history);
    return status;
}

ott_status delayed_updates_flush(delayed_updates *u) {
    int count = u->count;
    u->count = 0;
    return op_amax_update_many(u->cx, u->items, count);
}

ott_status delayed_updates_add(delayed_updates *u, const delayed_state *s) {
    if (!s->seen.data) return OTT_OK;
    if (s->spec.callbacks) return update_on_host(u->cx, s);
    u->items[u->count++] = (amax_update_args){
        .seen = &s->seen, .amax_history = &s->amax_history, .scale = &s->scale, .spec = s->spec};
    return u->count < DELAYED_LIST ? OTT_OK : delayed_updates_flush(u);
}

ott_status delayed_record(exec *cx, const delayed_state *s, const qtensor *q) {
    return s->seen.data ? op_amax_record(cx, &(amax_record_args){.q = q, .seen = &s->seen}) : OTT_OK;
}

ott_status delayed_update(exec *cx, const delayed_state *s) {
    delayed_updates u = {.cx = cx};
    TRY(delayed_updates_add(&u, s));
    return delayed_updates_flush(&u);
}
