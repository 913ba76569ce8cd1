/*
 * layer_harness: runs layers as a model does, with a device, an execution context and a memory plan. The plan
 * is recorded, sealed and bound before the step is replayed. The harness allocates the tensors that exist
 * longer than a step (inputs, parameters, results). Temporary tensors are in the plan.
 *
 * Before each replay, all memory of the plan is filled with NaN. So results are NaN if a layer reads memory
 * that it did not write. A call that fails ends the test (cmocka).
 */
#ifndef TESTS_NN_LAYER_HARNESS_H
#define TESTS_NN_LAYER_HARNESS_H

#include "nn/parameter.h"

#define HARNESS_BLOCKS_MAX 160

typedef struct harness {
    mem *account;
    device *device;
    plan *plan;
    group single_rank;
    exec cx;
    void *arena;
    void *blocks[HARNESS_BLOCKS_MAX]; /* device memory of the harness's tensors */
    int block_count;
} harness;

/* Makes the calls of one step. It is called to record the step, and then to replay it. */
typedef ott_status (*harness_step)(exec *cx, void *user);

/* Opens the device. threads and isa: as for cpu_open. */
void harness_open(harness *h, int threads, const char *isa);
void harness_close(harness *h); /* fails the test if memory is still allocated */

/* Records the step, then allocates and binds the arena. */
void harness_record(harness *h, harness_step step, void *user);
/* Replays the recorded step as the next step. Parameters may have changed. */
void harness_replay(harness *h, harness_step step, void *user);
/* Like harness_replay, for a rank that runs in its own thread (tests/comm/ranks.h). A failure does not end
   the test: it is returned, and the rank leaves its group. */
ott_status harness_replay_rank(harness *h, harness_step step, void *user, group *ranks);

/* Returns a tensor of zeros. The harness owns its memory. */
tensor harness_tensor(harness *h, ott_dtype d, int64_t rows, int64_t columns);
/* Like harness_tensor, with values from the host, rounded to format d. */
tensor harness_tensor_of(harness *h, ott_dtype d, int64_t rows, int64_t columns, const float *values);
tensor harness_vector_of_int(harness *h, int64_t count, const int32_t *values);
/* Like harness_tensor, with normally distributed random numbers. `stream` selects the numbers. */
tensor harness_tensor_normal(harness *h, ott_dtype d, int64_t rows, int64_t columns, double deviation,
                             uint64_t stream);
void harness_put(harness *h, const tensor *t, const float *values);
void harness_get(harness *h, const tensor *t, float *values);
void harness_zero(harness *h, const tensor *t);
/* Returns a parameter with normally distributed values and memory for its gradient. rows = 0: a vector. The
   name is not copied and must stay valid. */
parameter harness_parameter(harness *h, const char *name, int64_t rows, int64_t columns, double deviation,
                            uint64_t stream);

/* Ends the test with the status text if status is not OTT_OK. */
void harness_ok(ott_status status, const char *what);
#define HARNESS_OK(expression) harness_ok(expression, #expression)

#endif
