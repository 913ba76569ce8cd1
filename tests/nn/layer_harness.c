/* layer_harness: sets up device, plan and execution context for tests of layers and models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "backend/open.h"
#include "nn/layer_harness.h"

void harness_ok(ott_status status, const char *what) {
    if (status != OTT_OK) fail_msg("%s: %s: %s", what, status_name(status), status_text());
}

void harness_open(harness *h, int threads, const char *isa) {
    *h = (harness){.single_rank = {.rank = 0, .size = 1}};
    HARNESS_OK(mem_open(&h->account));
    HARNESS_OK(test_device_open(h->account, threads, isa, &h->device));
    HARNESS_OK(plan_create(h->device, &h->plan));
    h->cx = (exec){.device = h->device,
                   .is_first_microbatch = true,
                   .plan = h->plan,
                   .phase = PHASE_TRAIN,
                   .data_group = &h->single_rank};
}

void harness_close(harness *h) {
    for (int i = 0; i < h->block_count; i++) device_release(h->device, h->blocks[i]);
    device_release(h->device, h->arena);
    plan_destroy(h->plan);
    device_close(h->device);
    assert_int_equal(mem_read(h->account).now, 0);
    mem_close(h->account);
}

/* ---- steps ---- */

void harness_record(harness *h, harness_step step, void *user) {
    device_release(h->device, h->arena);
    plan_record(h->plan);
    HARNESS_OK(step(&h->cx, user));
    HARNESS_OK(plan_seal(h->plan));
    HARNESS_OK(device_allocate(h->device, MEM_STEP, plan_bytes(h->plan), "step arena", &h->arena));
    plan_bind(h->plan, h->arena);
}

/* Fills all of the arena with 0xFF bytes, which are NaN in every format. */
static void poison(harness *h) {
    int64_t bytes = plan_bytes(h->plan);
    void *garbage = malloc((size_t)bytes + 1);
    memset(garbage, 0xff, (size_t)bytes + 1);
    HARNESS_OK(device_copy_in(h->device, h->arena, garbage, bytes));
    free(garbage);
}

void harness_replay(harness *h, harness_step step, void *user) {
    poison(h);
    plan_replay(h->plan);
    h->cx.step++;
    HARNESS_OK(step(&h->cx, user));
    HARNESS_OK(device_synchronize(h->device));
}

ott_status harness_replay_rank(harness *h, harness_step step, void *user, group *ranks) {
    plan_replay(h->plan);
    ott_status status = step(&h->cx, user);
    group_close(ranks);
    return status;
}

/* ---- tensors ---- */

tensor harness_tensor(harness *h, ott_dtype d, int64_t rows, int64_t columns) {
    void *data;
    assert_in_range(h->block_count, 0, HARNESS_BLOCKS_MAX - 1);
    HARNESS_OK(device_allocate(h->device, MEM_OTHER, rows * columns * dtype_bytes(d), "test tensor", &data));
    h->blocks[h->block_count++] = data;
    return tensor_matrix(data, d, rows, columns);
}

void harness_put(harness *h, const tensor *t, const float *values) {
    void *host = malloc((size_t)tensor_bytes(*t) + 1);
    for (int64_t i = 0; i < tensor_count(*t); i++) cast_store(host, t->dtype, i, values[i]);
    HARNESS_OK(device_copy_in(h->device, t->data, host, tensor_bytes(*t)));
    free(host);
}

void harness_get(harness *h, const tensor *t, float *values) {
    void *host = malloc((size_t)tensor_bytes(*t) + 1);
    HARNESS_OK(device_copy_out(h->device, host, t->data, tensor_bytes(*t)));
    for (int64_t i = 0; i < tensor_count(*t); i++) values[i] = cast_load(host, t->dtype, i);
    free(host);
}

void harness_zero(harness *h, const tensor *t) {
    HARNESS_OK(device_zero(h->device, t->data, tensor_bytes(*t)));
}

tensor harness_tensor_of(harness *h, ott_dtype d, int64_t rows, int64_t columns, const float *values) {
    tensor t = harness_tensor(h, d, rows, columns);
    harness_put(h, &t, values);
    return t;
}

tensor harness_vector_of_int(harness *h, int64_t count, const int32_t *values) {
    tensor t = harness_tensor(h, OTT_I32, 1, count);
    HARNESS_OK(device_copy_in(h->device, t.data, values, tensor_bytes(t)));
    return t;
}

tensor harness_tensor_normal(harness *h, ott_dtype d, int64_t rows, int64_t columns, double deviation,
                             uint64_t stream) {
    int64_t count = rows * columns;
    float *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(deviation * (double)rng_normal(11, stream, (uint64_t)i));
    tensor t = harness_tensor_of(h, d, rows, columns, values);
    free(values);
    return t;
}

parameter harness_parameter(harness *h, const char *name, int64_t rows, int64_t columns, double deviation,
                            uint64_t stream) {
    parameter p = {.name = name, .rank = rows ? 2 : 1, .rows = rows ? rows : 1, .columns = columns};
    p.value = harness_tensor_normal(h, OTT_F32, p.rows, columns, deviation, stream);
    p.grad = harness_tensor(h, OTT_F32, p.rows, columns);
    return p;
}
