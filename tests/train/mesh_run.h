/*
 * mesh_run: a training run on the ranks of a mesh, which are threads, and what it leaves: put together from the parts
 * that the ranks hold, so that runs on different meshes can be compared tensor by tensor.
 */
#ifndef TESTS_TRAIN_MESH_RUN_H
#define TESTS_TRAIN_MESH_RUN_H

#include "parallel/mesh.h"
#include "train/train_fixture.h"

enum { MESH_RUN_STEPS = 2, MESH_RUN_RANKS_MAX = 8 };

typedef struct mesh_layout {
    int64_t size[MESH_DIMENSIONS]; /* 0: 1 */
    config_pp_schedule schedule;
    bool sequence_parallel;
} mesh_layout;

typedef struct mesh_run_options {
    const precision *precision;
    const char *const *more; /* as fixture_config takes it */
    mesh_layout layout;
    bool gpus; /* each rank has an emulated GPU of its own, and its groups are over links between them */
    int64_t
        histories_every; /* micro-batches with which delayed scaling's histories move on, as they do with one of each
                                of several ranks; 0: 1 */
} mesh_run_options;

typedef enum outcome_kind {
    OUTCOME_GRADIENT, /* of the first step */
    OUTCOME_LAST_GRADIENT,
    OUTCOME_VALUE,
    OUTCOME_MOMENT1,
    OUTCOME_MOMENT2,
    OUTCOME_SCALE,
    OUTCOME_HISTORY,
    OUTCOME_LOAD,
    OUTCOME_KINDS
} outcome_kind;

/* Of the whole model. */
typedef struct outcome_tensor {
    char name[96];
    outcome_kind kind;
    int64_t count;
    float *data; /* [count] */
} outcome_tensor;

typedef struct outcome {
    step_result step[MESH_RUN_STEPS];
    evaluation evaluated;
    store_traffic traffic;   /* of one rank */
    int64_t planned, peak;   /* bytes of the same rank: in its plan, and taken at most */
    outcome_tensor *tensors; /* [count] */
    int count;
} outcome;

/* Ends the test when a rank fails, when ranks differ in a bit of what both hold, or when a part is nobody's. */
void mesh_run(const fixture *f, const mesh_run_options *o, outcome *out);
void outcome_free(outcome *o);

/* Equal in every bit? If not, `what` says of what. */
bool outcome_equal(const outcome *a, const outcome *b, char what[160]);
/* The largest distance of two tensors of a kind, relative to the norm of a's: |a - b| / |a|. */
double outcome_distance(const outcome *a, const outcome *b, outcome_kind kind);

#endif
