/*
 * train_fixture: a temporary folder with a text to train on, a model small enough to train in milliseconds,
 * and its trainer or whole run made from a configuration, as the command line makes them. A call that fails
 * ends the test (cmocka); what is opened must have given every byte back when it is closed.
 */
#ifndef TESTS_TRAIN_FIXTURE_H
#define TESTS_TRAIN_FIXTURE_H

#include "train/loop.h"
#include "train/precision.h"
#include "train/trainer.h"

/* 1 in a build with a sanitizer, which needs memory and time of its own. */
#ifdef OTT_SANITIZED
#define FIXTURE_SANITIZED 1
#else
#define FIXTURE_SANITIZED 0
#endif
/* Where a step takes ten times as long, and behind a fence, where a test looks for other things than without one: some cases of
   many that differ in numbers only show as much as all. */
bool fixture_takes_few(void);

/* The group's state: a folder, removed at the end, and the text in it. */
typedef struct fixture {
    char folder[64], text[96];
} fixture;

int fixture_setup(void **state);
int fixture_teardown(void **state);
/* Writes `bytes` bytes of sentences of an invented language, the same for the same seed, to a file. */
void fixture_write_text(const char *path, int64_t bytes, uint64_t seed);

/* Ends the test with the status text unless status is OTT_OK. */
void fixture_ok(ott_status status, const char *what);
#define FIXTURE_OK(expression) fixture_ok(expression, #expression)

/* ---- configurations ---- */

#define STATE_IN_BF16  "--train.master_dtype=bf16", "--train.grad_dtype=bf16", "--optimizer.state_dtype=bf16"
#define MOMENTS_IN_FP8 "--train.master_dtype=bf16", "--train.grad_dtype=bf16", "--optimizer.state_dtype=fp8"

/* A way of computing, and what asks for it on the command line. */
typedef struct precision {
    const char *name;
    const char *arguments[3]; /* ends with NULL */
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

/* The tiny run under FOLDER/name, at this precision, with more arguments (ends with NULL; may be NULL), of
   which the last counts. */
config *fixture_config(const fixture *f, mem *account, const char *name, const precision *p,
                       const char *const *more);

/* ---- what the library says ---- */

typedef struct spoken {
    char text[1 << 16]; /* one line after the other */
    size_t length;
} spoken;

logger spoken_logger(spoken *s); /* forgets all before */
bool spoken_has(const spoken *s, const char *part);
int spoken_count(const spoken *s, const char *part);

/* ---- a trainer with everything it needs ---- */

typedef struct rig_options {
    const char *isa; /* as cpu_open takes it */
    device *device;  /* opened already; from now on the rig's. NULL: it opens its own */
    const precision *precision;
    const char *const *more; /* as fixture_config takes it */
    const recipe *row;       /* instead of the configuration's recipe; NULL: that one */
    group *run_group;        /* as trainer_options has it; NULL: the stages, or the data group */
    group *data_group;       /* as trainer_options has it, and the same for replica_group */
    group *tensor_ranks;     /* as model_options has it, */
    bool sequence_parallel;  /* this, */
    group *context_ranks;    /* this, */
    group *expert_ranks, *expert_shard_ranks; /* and these */
    group *shard_group;          /* of them those that share the parameters; NULL: each holds all */
    group *replica_group;        /* then those that hold the same part */
    const pipeline_stage *stage; /* as model_options has them */
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
/* The same in two steps, of which ranks that open at once make the second, each on its thread. */
void rig_prepare(rig *r, const fixture *f, const rig_options *o);
ott_status rig_make(rig *r, const rig_options *o);
/* Opens the same in an account of the caller's, which may run out; everything is given back on failure. */
ott_status rig_try(rig *r, mem *account, const fixture *f, const rig_options *o);
void rig_close(rig *r);
/* One step at the schedule's learning rate. */
step_result rig_step(rig *r);
double rig_validate(rig *r);
/* Saves to FOLDER/name; the path of the checkpoint goes to path[160]. */
void rig_save(rig *r, const fixture *f, const char *name, char *path);
const parameter *rig_parameter(const rig *r, const char *name);
/* One element of a parameter, set as anything may have set it. */
void rig_poke(rig *r, const char *name, int64_t index, float value);
/* Element `index` of an fp32 tensor, laid end to end. */
float rig_peek(const rig *r, const tensor *t, int64_t index);
float *rig_copy(const rig *r, const void *device_data, int64_t count); /* to be freed */
float *rig_copy_wide(const rig *r, const tensor *t); /* of any format, to fp32; to be freed */

/* Parameters and both moments. */
typedef struct snapshot {
    void *data;
    int64_t bytes;
} snapshot;

snapshot snapshot_take(const rig *r);
bool snapshot_equal(const snapshot *a, const snapshot *b);
void snapshot_free(snapshot *s);

/* ---- whole runs ---- */

typedef struct run_options {
    const char *name; /* of the run's folder in the fixture's */
    const precision *precision;
    const char *const *more;
    int64_t stop_after;  /* steps of this run after which it is asked to stop; 0: never */
    int64_t stop_within; /* questions later: inside the step that follows */
    spoken *said;        /* may be NULL */
} run_options;

ott_status fixture_run(const fixture *f, const run_options *o);
/* The whole file FOLDER/name, NUL-terminated, to be freed. */
char *fixture_read(const fixture *f, const char *name, int64_t *bytes);
/* metrics.jsonl of a run without what a clock or a machine decides, to be freed. */
char *fixture_read_metrics(const fixture *f, const char *run);
/* Two runs, or their folders' files, that must have the same bytes; of a run its metrics and its checkpoint of a step. */
void fixture_expect_same_file(const fixture *f, const char *a, const char *b, const char *file);
void fixture_expect_same_run(const fixture *f, const char *a, const char *b, int step);

#endif
