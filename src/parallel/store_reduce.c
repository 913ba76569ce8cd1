/* parallel/store: reduces gradients. A unit's gradients are packed in one buffer, in the order of the
   receiving ranks. One reduce-scatter sums them during backward. The sums are added to the shards. */
#include "parallel/store.h"

/* ---- the gradient of a micro-batch ---- */

/* True if the ranks reduce the gradients of each micro-batch; false if they reduce once per step. */
static bool reduces_each_micro_batch(const parameter_store *s) {
    return store_ranks(s) > 1 && !s->full_gradients;
}

static bool is_summed_separately(const parameter_store *s, const parameter *p) {
    return !p->frozen && (reduces_each_micro_batch(s) || (s->micro_batches && p->adds_often));
}

/* Returns the tensor in which the gradients of parameter i are summed over micro-batches. */
static tensor kept_gradient(const parameter_store *s, const store_unit *u, int i) {
    int64_t first = u->full_first;
    if (!s->full_gradients) return u->parameters[i]->shard.grad;
    for (int k = 0; k < i; k++) {
        const parameter *p = u->parameters[k];
        if (!p->frozen) first += p->local.rows * p->local.columns;
    }
    const parameter_part *local = &u->parameters[i]->local;
    return tensor_matrix((float *)s->full_gradients + first, OTT_F32, local->rows, local->columns);
}

/* A tied table's buffer may be open already: the head's backward, which runs first, adds to it too. */
static ott_status open_full_gradient(exec *cx, parameter *p) {
    if (p->grad_buffer.id != 0) return OTT_OK;
    TRY(exec_open(cx, "gradient of a micro-batch", OTT_F32, p->local.rows, p->local.columns, &p->grad,
                  &p->grad_buffer));
    return plan_recording(cx->plan) ? OTT_OK : device_zero(cx->device, p->grad.data, tensor_bytes(p->grad));
}

ott_status store_open_gradients(exec *cx, const parameter_store *s, int unit) {
    for (; s; s = s->expert_store) {
        const store_unit *u = &s->units[unit];
        for (int i = 0; i < u->parameter_count; i++) {
            parameter *p = u->parameters[i];
            if (is_summed_separately(s, p))
                TRY(open_full_gradient(cx, p));
            else if (!p->frozen)
                p->grad = kept_gradient(s, u, i);
        }
    }
    return OTT_OK;
}

static ott_status accumulate_gradient(exec *cx, const parameter_store *s, const store_unit *u, int i) {
    parameter *p = u->parameters[i];
    const tensor sum = p->grad, kept = kept_gradient(s, u, i);
    if (!is_summed_separately(s, p)) return OTT_OK;
    TRY(op_add(cx, &(add_args){.x = &kept, .delta = &sum, .y = &kept}));
    TRY(plan_close(cx->plan, &p->grad_buffer));
    p->grad = kept;
    return OTT_OK;
}

/* ---- reduction over ranks ---- */

static ott_dtype gradient_format(const parameter_store *s) {
    return s->options.reduce_bf16 ? OTT_BF16 : OTT_F32;
}

/* Number of elements of rank `rank`'s shard of p in the packed buffer, with padding. */
static int64_t packed_gradient_count(const exec *cx, const parameter_store *s, const parameter *p, int rank) {
    int64_t size = dtype_bytes(gradient_format(s));
    return p->frozen ? 0 : backend_align(cx->device->can, store_count_at(p, rank) * size) / size;
}

/* Distance in the packed buffer, in elements, between parameter i's shards of rank r and of rank r + 1. */
static int64_t packed_step(const exec *cx, const parameter_store *s, const store_unit *u, int i, int r) {
    int64_t step = s->reduction.rows[r];
    for (int k = 0; k < i && r + 1 < s->ranks->size; k++)
        step += packed_gradient_count(cx, s, u->parameters[k], r + 1) -
                packed_gradient_count(cx, s, u->parameters[k], r);
    return step;
}

/* Returns `end`: ranks [r, end) have equally large shards of parameter i, equally spaced in the buffer. */
static int run_end(const exec *cx, const parameter_store *s, const store_unit *u, int i, int r) {
    const parameter *p = u->parameters[i];
    int64_t step = packed_step(cx, s, u, i, r);
    int next = r + 1;
    while (next < s->ranks->size && store_count_at(p, next) == store_count_at(p, r) &&
           packed_step(cx, s, u, i, next - 1) == step)
        next++;
    return next;
}

/* Packs parameter i's gradient for all ranks. One op packs several equal shards: fewer, larger copies. */
static ott_status pack_gradient(exec *cx, const parameter_store *s, const store_unit *u, int i, tensor to) {
    const parameter *p = u->parameters[i];
    for (int r = 0, next; r < s->ranks->size; r = next) {
        int64_t count = store_count_at(p, r), step = packed_step(cx, s, u, i, r);
        next = run_end(cx, s, u, i, r);
        tensor from = tensor_matrix((float *)p->grad.data + store_first_at(p, r), OTT_F32, next - r, count);
        tensor packed = tensor_matrix(to.data, to.dtype, next - r, count);
        packed.ld = step;
        if (count > 0) TRY(op_convert(cx, &(convert_args){.x = &from, .y = &packed}));
        step = (next - r - 1) * step + packed_step(cx, s, u, i, next - 1);
        to.data = (char *)to.data + step * dtype_bytes(to.dtype);
    }
    return OTT_OK;
}

static ott_status pack_gradients(exec *cx, const parameter_store *s, const store_unit *u, tensor to) {
    for (int i = 0; i < u->parameter_count; i++) {
        const parameter *p = u->parameters[i];
        if (!p->frozen) TRY(pack_gradient(cx, s, u, i, to));
        to.data = (char *)to.data + packed_gradient_count(cx, s, p, 0) * dtype_bytes(to.dtype);
    }
    return OTT_OK;
}

/* Sets s->reduction.rows to the number of elements for each rank, with padding; returns the sum. */
static int64_t measure_gradients(const exec *cx, parameter_store *s, const store_unit *u) {
    int64_t all = 0;
    for (int r = 0; r < s->ranks->size; r++) {
        s->reduction.rows[r] = 0;
        for (int i = 0; i < u->parameter_count; i++)
            s->reduction.rows[r] += packed_gradient_count(cx, s, u->parameters[i], r);
        all += s->reduction.rows[r];
    }
    if (!plan_recording(cx->plan)) s->traffic.gradient += all * dtype_bytes(gradient_format(s));
    return all;
}

static ott_status start_reduction(exec *cx, parameter_store *s, const store_unit *u) {
    tensor packed;
    int64_t all = measure_gradients(cx, s, u);
    if (all == 0) return OTT_OK;
    TRY(exec_open(cx, "gradients to reduce", gradient_format(s), all, 1, &packed, &s->reduction.sent_buffer));
    TRY(pack_gradients(cx, s, u, packed));
    for (int i = 0; i < u->parameter_count; i++) {
        TRY(plan_close(cx->plan, &u->parameters[i]->grad_buffer));
        u->parameters[i]->grad.data = NULL;
    }
    TRY(exec_open(cx, "reduced gradients", gradient_format(s), s->reduction.rows[s->ranks->rank], 1,
                  &s->reduction.sum, &s->reduction.sum_buffer));
    s->reduction.unit = u;
    return group_start(s->ranks, cx,
                       &(collective){.kind = COLLECTIVE_REDUCE_SCATTER,
                                     .reduce = REDUCE_SUM,
                                     .input = packed,
                                     .output = s->reduction.sum,
                                     .input_rows = s->reduction.rows},
                       &s->reduction.request);
}

static ott_status finish_reduction(exec *cx, parameter_store *s) {
    const store_unit *u = s->reduction.unit;
    tensor sum = s->reduction.sum;
    if (!u) return OTT_OK;
    s->reduction.unit = NULL;
    TRY(group_wait(cx, &s->reduction.request));
    TRY(plan_close(cx->plan, &s->reduction.sent_buffer));
    for (int i = 0; i < u->parameter_count; i++) {
        const parameter *p = u->parameters[i];
        if (!p->frozen && tensor_count(p->shard.grad) > 0) {
            const tensor *own = &p->shard.grad;
            tensor added = tensor_matrix(sum.data, sum.dtype, own->rows, own->columns);
            TRY(op_add(cx, &(add_args){.x = own, .delta = &added, .y = own}));
        }
        sum.data =
            (char *)sum.data + packed_gradient_count(cx, s, p, s->ranks->rank) * dtype_bytes(sum.dtype);
    }
    return plan_close(cx->plan, &s->reduction.sum_buffer);
}

ott_status store_finish_gradients(exec *cx, parameter_store *s) {
    for (; s; s = s->expert_store) TRY(finish_reduction(cx, s));
    return OTT_OK;
}

static ott_status reduce_unit(exec *cx, parameter_store *s, const store_unit *u) {
    TRY(finish_reduction(cx, s));
    TRY(start_reduction(cx, s, u));
    return s->options.no_prefetch ? finish_reduction(cx, s) : OTT_OK;
}

ott_status store_reduce_gradients(exec *cx, parameter_store *s, int unit) {
    for (; s; s = s->expert_store) {
        const store_unit *u = &s->units[unit];
        if (reduces_each_micro_batch(s))
            TRY(reduce_unit(cx, s, u));
        else
            for (int i = 0; i < u->parameter_count; i++) TRY(accumulate_gradient(cx, s, u, i));
    }
    return OTT_OK;
}

ott_status store_reduce_once(exec *cx, parameter_store *s) {
    for (; s; s = s->expert_store) {
        for (int n = s->unit_count - 1; n >= 0 && s->full_gradients; n--) {
            const store_unit *u = &s->units[n];
            for (int i = 0; i < u->parameter_count; i++) u->parameters[i]->grad = kept_gradient(s, u, i);
            TRY(reduce_unit(cx, s, u));
        }
        TRY(finish_reduction(cx, s));
    }
    return OTT_OK;
}

ott_status store_zero_gradients(const parameter_store *s, device *d) {
    for (; s; s = s->expert_store)
        if (s->full_gradients) TRY(device_zero(d, s->full_gradients, s->full_count * (int64_t)sizeof(float)));
    return OTT_OK;
}
