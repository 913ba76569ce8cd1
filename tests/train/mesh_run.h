/*
 * mesh_run: runs training on the ranks of a mesh, one thread per rank. It assembles the ranks' shards to full
 * tensors, so that tests can compare runs on different meshes tensor by tensor.
 */
#ifndef TESTS_TRAIN_MESH_RUN_H
#define TESTS_TRAIN_MESH_RUN_H

#include "parallel/mesh.h"
#include "train/train_fixture.h"

enum { MESH_RUN_STEPS = 2, MESH_RUN_RANKS_MAX = 8 };

typedef struct mesh_layout {
    int64_t size[MESH_DIMENSIONS]; /* size of each mesh dimension; 0 means 1 */
    kind_pp_schedule schedule;
    bool sequence_parallel;
} mesh_layout;

typedef struct mesh_run_options {
    const precision *precision;
    const char *const *more; /* further arguments, as for fixture_config */
    mesh_layout layout;
    bool gpus; /* each rank has its own emulated GPU; ranks communicate over links between the GPUs */
    /* The amax histories roll after this number of micro-batches (0 means 1). So one rank that runs the
       micro-batches of N ranks can roll them as often as the N ranks. */
    int64_t histories_every;
} mesh_run_options;

typedef enum outcome_kind {
    OUTCOME_GRADIENT, /* gradients of the first step */
    OUTCOME_LAST_GRADIENT,
    OUTCOME_VALUE,
    OUTCOME_MOMENT1,
    OUTCOME_MOMENT2,
    OUTCOME_SCALE,
    OUTCOME_HISTORY,
    OUTCOME_LOAD,
    OUTCOME_KINDS
} outcome_kind;

/* A tensor of the full model, assembled from all ranks' shards. */
typedef struct outcome_tensor {
    char name[96];
    outcome_kind kind;
    int64_t count;
    float *data; /* [count] elements */
} outcome_tensor;

typedef struct outcome {
    step_result step[MESH_RUN_STEPS];
    evaluation evaluated;
    store_traffic traffic;   /* traffic of one rank's parameter store */
    int64_t planned, peak;   /* one rank's peak memory in bytes: planned, measured */
    outcome_tensor *tensors; /* [count] tensors */
    int count;
} outcome;

/* Trains on all ranks and assembles the full tensors in *out. Fails the test if a rank fails, if two ranks
   have different bits of an element, or if an element is on no rank. */
void mesh_run(const fixture *f, const mesh_run_options *o, outcome *out);
void outcome_free(outcome *o);

/* True if a and b have equal bits. Otherwise `what` names the first tensor that differs. */
bool outcome_equal(const outcome *a, const outcome *b, char what[160]);
/* Returns the largest relative distance ||x - y|| / ||x|| of all tensors of a kind, x in a and y in b. */
double outcome_distance(const outcome *a, const outcome *b, outcome_kind kind);

#endif
