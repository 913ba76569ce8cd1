/*
 * mesh_way: a way to spread a run over ranks. It defines which results must equal one rank's results in every
 * bit, and bounds the distance of the other results. docs/explanation/numerics.md derives the bounds.
 */
#ifndef TESTS_TRAIN_MESH_WAY_H
#define TESTS_TRAIN_MESH_WAY_H

#include "train/mesh_run.h"

/* Kinds of parallelism. Each is one bit. */
enum {
    WAY_DATA = 1, /* data parallelism: dp_replicate, dp_shard or ep */
    WAY_PIPELINE = 2,
    WAY_CONTEXT = 4,
    WAY_TENSOR = 8,
    WAY_ALL = 15
};

typedef struct mesh_way {
    char name[80];
    unsigned kinds;
    mesh_layout layout;
    bool gather_masters; /* the all-gather sends master weights, not FP8 codes */
    int micro_batches;   /* micro-batches of a rank in a step */
    bool experts;        /* the model has experts */
} mesh_way;

int64_t way_size(const mesh_way *w, mesh_dimension d);
int64_t way_data_ranks(const mesh_way *w);
int64_t way_ranks(const mesh_way *w);

/* Returns `w` without some kinds of parallelism. If data parallelism is removed, the ranks that are left also
   run the micro-batches of the removed ranks. */
mesh_way way_without(const mesh_way *w, unsigned kinds);
/* The kinds of parallelism that can be removed from `w` without changing a bit of the results. */
unsigned way_bits(const mesh_way *w);

/* Bound of the relative distance ||g - g1|| / ||g1|| of gradients g on the ranks of `w` and g1 on one rank.
   format: FP32, TENSORWISE and so on (train_fixture.h). tokens: tokens of a micro-batch. */
double way_gradient_bound(const mesh_way *w, int format, int64_t layers, int64_t tokens);
/* Which gradients are compared: OUTCOME_GRADIENT (first step) or OUTCOME_LAST_GRADIENT (last step). */
outcome_kind way_gradient_kind(const mesh_way *w, int format);
/* Fails the test if results differ too much. The limit is the larger of `gradient` (the gradients' bound) and
   the distance of neighboring FP8 codes. one: one rank's results. */
void way_expect_near(const outcome *one, const outcome *ranks, double gradient, const char *what);
void way_expect_within(const char *what, const char *subject, double apart, double bound);

#endif
