/*
 * train_fixture: a temporary folder with a text, and a model that trains in milliseconds. A rig is this
 * model's trainer; fixture_run runs the whole training loop. Command-line arguments configure rigs and runs.
 * A call that fails ends the test (cmocka). Closing a rig also checks that all memory was freed.
 */
#ifndef TESTS_TRAIN_FIXTURE_H
#define TESTS_TRAIN_FIXTURE_H

#include "run/loop.h"
#include "train/precision.h"
#include "train/trainer.h"

/* 1 in builds with a sanitizer, which needs extra memory and time. */
#ifdef OTT_SANITIZED
#define FIXTURE_SANITIZED 1
#else
#define FIXTURE_SANITIZED 0
#endif
/* True if tests run only some of many similar cases: with a sanitizer, which makes steps ten times slower,
   and in a test's second run. That run uses the fenced device, and only checks memory accesses. */
bool fixture_takes_few(void);

/* The group's state: a temporary folder, removed at the end, and the path of its text. */
typedef struct fixture {
    char folder[64], text[96];
} fixture;

int fixture_setup(void **state);
int fixture_teardown(void **state);
/* Writes a file of `bytes` bytes with sentences of an invented language. Equal seeds give equal texts. */
void fixture_write_text(const char *path, int64_t bytes, uint64_t seed);

/* Fails the test with the status text unless status is OTT_OK. */
void fixture_ok(ott_status status, const char *what);
#define FIXTURE_OK(expression) fixture_ok(expression, #expression)

/* ---- configurations ---- */

#define STATE_IN_BF16  "--train.master_dtype=bf16", "--train.grad_dtype=bf16", "--optimizer.state_dtype=bf16"
#define MOMENTS_IN_FP8 "--train.master_dtype=bf16", "--train.grad_dtype=bf16", "--optimizer.state_dtype=fp8"

/* A precision of training and the command-line arguments that select it. */
typedef struct precision {
    const char *name;
    const char *arguments[3]; /* the list ends with NULL */
} precision;

extern const precision fixture_precisions[]; /* fp32, bf16, fp16, then the FP8 recipes */
enum {
    FP32,
    BF16,
    FP16,
    TENSORWISE,
    ROWWISE,
    ROWWISE_WITH_GW_HP,
    DELAYED,
    CURRENT,
    BLOCK,
    MXFP8,
    PRECISIONS
};

/* The configuration of the tiny run in FOLDER/name with precision p. more: further arguments, which override
   earlier ones and end with NULL; may be NULL. */
config *fixture_config(const fixture *f, mem *account, const char *name, const precision *p,
                       const char *const *more);

/* ---- log messages ---- */

typedef struct captured_log {
    char text[1 << 16]; /* one line per message */
    size_t length;
} captured_log;

logger capture_log(captured_log *s); /* clears earlier messages */
bool captured_log_has(const captured_log *s, const char *part);
int captured_log_count(const captured_log *s, const char *part);

/* ---- a trainer ---- */

typedef struct rig_options {
    const char *isa; /* as for cpu_open */
    device *device;  /* an open device, which the rig takes over and closes; NULL: the rig opens one */
    const precision *precision;
    const char *const *more; /* further arguments, as for fixture_config */
    const recipe *row;       /* replaces the configured recipe, unless NULL */
    group *run_group;        /* as in trainer_options; if NULL, the rig uses stage_ranks or data_group */
    group *data_group;       /* as in trainer_options */
    group *tensor_ranks;     /* this and the next four members: as in model_options */
    bool sequence_parallel;
    group *context_ranks;
    group *expert_ranks, *expert_shard_ranks;
    /* ranks of data_group that shard the parameters; NULL: each rank has all parameters */
    group *shard_group;
    group *replica_group;        /* ranks with the same shard */
    const pipeline_stage *stage; /* stage and stage_ranks: as in model_options */
    group *stage_ranks;
} rig_options;

typedef struct rig {
    mem *account;
    config *cfg;
    precision_plan precision;
    device *device;
    dataset *train_data, *validation_data;
    trainer *t;
} rig;

void rig_open(rig *r, const fixture *f, const rig_options *o);
/* rig_prepare and then rig_make do what rig_open does. If several ranks open together, each rank calls
   rig_make on a separate thread. */
void rig_prepare(rig *r, const fixture *f, const rig_options *o);
ott_status rig_make(rig *r, const rig_options *o);
/* Opens and closes a rig in the caller's memory account. If memory runs out, fails and frees all memory. */
ott_status rig_try(rig *r, mem *account, const fixture *f, const rig_options *o);
void rig_close(rig *r);
/* Runs one step at the schedule's learning rate. */
step_result rig_step(rig *r);
double rig_validate(rig *r);
/* Saves to FOLDER/name and writes the checkpoint's path to path[160]. */
void rig_save(rig *r, const fixture *f, const char *name, char *path);
const parameter *rig_parameter(const rig *r, const char *name);
/* Sets one element of a parameter. */
void rig_poke(rig *r, const char *name, int64_t index, float value);
/* Returns element `index` of an fp32 tensor, in row order. */
float rig_peek(const rig *r, const tensor *t, int64_t index);
float *rig_copy(const rig *r, const void *device_data, int64_t count); /* the caller frees the copy */
float *rig_copy_wide(const rig *r, const tensor *t); /* converts to fp32; the caller frees the copy */

/* A copy of the parameters and both moments. */
typedef struct snapshot {
    void *data;
    int64_t bytes;
} snapshot;

snapshot snapshot_take(const rig *r);
bool snapshot_equal(const snapshot *a, const snapshot *b);
void snapshot_free(snapshot *s);

/* ---- full runs ---- */

typedef struct run_options {
    const char *name; /* name of the run's folder, inside of the fixture's folder */
    const precision *precision;
    const char *const *more;
    int64_t stop_after; /* requests a stop after this number of steps; 0: never */
    /* after stop_after steps: number of further calls of the stop hook before it requests a stop */
    int64_t stop_within;
    captured_log *logged; /* receives the log; may be NULL */
} run_options;

ott_status fixture_run(const fixture *f, const run_options *o);
/* Reads the file FOLDER/name, NUL-terminated. The caller frees it. */
char *fixture_read(const fixture *f, const char *name, int64_t *bytes);
/* Reads a run's metrics.jsonl without values that depend on time or machine. The caller frees it. */
char *fixture_read_metrics(const fixture *f, const char *run);
/* Fail the test if runs a and b differ. fixture_expect_same_file compares the bytes of a file in both run
   folders. fixture_expect_same_run compares the metrics and the checkpoint of a step. */
void fixture_expect_same_file(const fixture *f, const char *a, const char *b, const char *file);
void fixture_expect_same_run(const fixture *f, const char *a, const char *b, int step);

#endif
