/*
 * layer_harness: runs layers as any caller must: a device, an execution context, and a memory plan that is
 * recorded, sealed and bound before the step is replayed. Tensors that outlive a step (inputs, parameters,
 * results) are made here; what a step needs in between comes from the plan.
 *
 * Before each replay the whole arena is filled with NaN, so that a layer that reads what it did not write
 * shows. A call that fails ends the test (cmocka).
 */
#ifndef TESTS_NN_LAYER_HARNESS_H
#define TESTS_NN_LAYER_HARNESS_H

#include "nn/parameter.h"

#define HARNESS_BLOCKS_MAX 160

typedef struct harness {
    mem *account;
    device *device;
    plan *plan;
    group alone;
    exec cx;
    void *arena;
    void *blocks[HARNESS_BLOCKS_MAX]; /* device memory given out by harness_tensor */
    int block_count;
} harness;

/* A step: what is recorded and then replayed. */
typedef ott_status (*harness_step)(exec *cx, void *user);

/* threads and ISA level as cpu_open takes them. */
void harness_open(harness *h, int threads, const char *isa);
void harness_close(harness *h); /* every byte must have been given back */

/* Rehearses the step and binds an arena of what it needs. */
void harness_record(harness *h, harness_step step, void *user);
/* Replays it, as the step after the one before: parameters may have changed. */
void harness_replay(harness *h, harness_step step, void *user);
/* The same for a rank on its own thread (tests/comm/ranks.h), whose failure is the caller's to see; leaves the group. */
ott_status harness_replay_rank(harness *h, harness_step step, void *user, group *ranks);

/* Zero-filled, owned by the harness. */
tensor harness_tensor(harness *h, ott_dtype d, int64_t rows, int64_t columns);
/* The same with values from the host, rounded to d. */
tensor harness_tensor_of(harness *h, ott_dtype d, int64_t rows, int64_t columns, const float *values);
tensor harness_vector_of_int(harness *h, int64_t count, const int32_t *values);
/* Normal numbers of this deviation, the same for the same stream. */
tensor harness_tensor_normal(harness *h, ott_dtype d, int64_t rows, int64_t columns, double deviation,
                             uint64_t stream);
void harness_put(harness *h, const tensor *t, const float *values);
void harness_get(harness *h, const tensor *t, float *values);
void harness_zero(harness *h, const tensor *t);
/* Value and gradient of a parameter; rank 1 when rows is 0. `name` is borrowed. */
parameter harness_parameter(harness *h, const char *name, int64_t rows, int64_t columns, double deviation,
                            uint64_t stream);

/* Ends the test with the status text unless status is OTT_OK. */
void harness_ok(ott_status status, const char *what);
#define HARNESS_OK(expression) harness_ok(expression, #expression)

#endif
