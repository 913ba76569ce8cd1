/* parallel/store: cutting, gathering and releasing parameters, reducing gradients. */
#include "parallel/store.h"

static int rank_count(const parameter_store *s) {
    return s->ranks ? s->ranks->size : 1;
}

/* ---- shards ---- */

/* What is cut: rows of the local matrix, elements of a vector. */
static int64_t line_count(const parameter *p) {
    return p->rank > 1 ? p->local.rows : p->local.columns;
}

static tensor as_lines(const parameter *p, tensor t) {
    return p->rank > 1 ? t : tensor_matrix(t.data, t.dtype, t.columns, 1);
}

ott_status store_divide(const parameter_store *s, arena *memory, parameter *p) {
    int ranks = rank_count(s);
    int64_t lines = line_count(p), first = 0, count = lines;
    p->shard = (parameter_shard){.row = p->local.row, .column = p->local.column};
    if (ranks > 1) {
        void *cut;
        TRY(arena_alloc(memory, ranks * (int64_t)sizeof(int64_t), &cut));
        p->shard.cut = cut;
        for (int r = 0; r < ranks; r++) p->shard.cut[r] = lines / ranks + (r < lines % ranks);
        first = group_part_first(p->shard.cut, lines, ranks, s->ranks->rank);
        count = p->shard.cut[s->ranks->rank];
    }
    *(p->rank > 1 ? &p->shard.row : &p->shard.column) += first;
    p->shard.value = p->rank > 1 ? tensor_matrix(NULL, OTT_F32, count, p->local.columns)
                                 : tensor_vector(NULL, OTT_F32, count);
    return OTT_OK;
}

/* ---- values ---- */

static ott_status gather(exec *cx, const parameter_store *s, parameter *p) {
    TRY(exec_open(cx, "gathered parameter", OTT_F32, p->local.rows, p->local.columns, &p->value,
                  &p->value_buffer));
    return group_run(s->ranks, cx,
                     &(collective){.kind = COLLECTIVE_ALL_GATHER,
                                   .input = as_lines(p, p->shard.value),
                                   .output = as_lines(p, p->value),
                                   .output_rows = p->shard.cut});
}

ott_status store_gather(exec *cx, const parameter_store *s, parameter *parameters, int count) {
    for (int i = 0; rank_count(s) > 1 && i < count; i++) TRY(gather(cx, s, &parameters[i]));
    return OTT_OK;
}

ott_status store_release(exec *cx, const parameter_store *s, parameter *parameters, int count) {
    for (int i = 0; rank_count(s) > 1 && i < count; i++) {
        TRY(plan_close(cx->plan, &parameters[i].value_buffer));
        parameters[i].value.data = NULL;
    }
    return OTT_OK;
}

/* ---- gradients ---- */

static bool is_apart(const parameter_store *s, const parameter *p) {
    return !p->frozen && (rank_count(s) > 1 || (s->micro_batches && p->adds_often));
}

static ott_status open_gradient(exec *cx, parameter *p) {
    TRY(exec_open(cx, "gradient of a micro-batch", OTT_F32, p->local.rows, p->local.columns, &p->grad,
                  &p->grad_buffer));
    return plan_recording(cx->plan) ? OTT_OK : device_zero(cx->device, p->grad.data, tensor_bytes(p->grad));
}

ott_status store_open_gradients(exec *cx, const parameter_store *s, parameter *parameters, int count) {
    for (int i = 0; i < count; i++)
        if (is_apart(s, &parameters[i])) TRY(open_gradient(cx, &parameters[i]));
    return OTT_OK;
}

/* This rank's rows of the sum over all. */
static ott_status scatter(exec *cx, const parameter_store *s, const parameter *p, tensor *sum,
                          plan_buffer *buffer) {
    const tensor *shard = &p->shard.grad;
    TRY(exec_open(cx, "reduced gradient", OTT_F32, shard->rows, shard->columns, sum, buffer));
    return group_run(s->ranks, cx,
                     &(collective){.kind = COLLECTIVE_REDUCE_SCATTER,
                                   .reduce = REDUCE_SUM,
                                   .input = as_lines(p, p->grad),
                                   .output = as_lines(p, *sum),
                                   .input_rows = p->shard.cut});
}

static ott_status reduce_gradient(exec *cx, const parameter_store *s, parameter *p) {
    tensor sum = p->grad, *shard = &p->shard.grad;
    plan_buffer buffer = PLAN_NONE;
    if (rank_count(s) > 1) TRY(scatter(cx, s, p, &sum, &buffer));
    TRY(op_add(cx, &(add_args){.x = shard, .delta = &sum, .y = shard}));
    TRY(plan_close(cx->plan, &buffer));
    TRY(plan_close(cx->plan, &p->grad_buffer));
    p->grad.data = rank_count(s) > 1 ? NULL : shard->data;
    return OTT_OK;
}

ott_status store_reduce_gradients(exec *cx, const parameter_store *s, parameter *parameters, int count) {
    for (int i = 0; i < count; i++)
        if (is_apart(s, &parameters[i])) TRY(reduce_gradient(cx, s, &parameters[i]));
    return OTT_OK;
}
