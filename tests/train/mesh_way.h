/*
 * mesh_way: a way to spread a run over ranks. It defines which results must equal one rank's in every bit,
 * and bounds the distance of the other results. docs/numerics.md derives the bounds.
 */
#ifndef TESTS_TRAIN_MESH_WAY_H
#define TESTS_TRAIN_MESH_WAY_H

#include "train/mesh_run.h"

/* Kinds of parallelism, a bit each. */
enum {
    WAY_DATA = 1, /* dp_replicate, dp_shard, ep */
    WAY_PIPELINE = 2,
    WAY_CONTEXT = 4,
    WAY_TENSOR = 8,
    WAY_ALL = 15
};

typedef struct mesh_way {
    char name[80];
    unsigned kinds;
    mesh_layout layout;
    bool gather_masters; /* the all-gather sends masters, not FP8 codes */
    int micro_batches;   /* micro-batches of a rank in a step */
    bool experts;        /* the model has experts */
} mesh_way;

int64_t way_size(const mesh_way *w, mesh_dimension d);
int64_t way_data_ranks(const mesh_way *w);
int64_t way_ranks(const mesh_way *w);

/* The same way without some kinds of parallelism. Each remaining rank also runs the removed ranks'
   micro-batches. */
mesh_way way_without(const mesh_way *w, unsigned kinds);
/* The kinds that can be removed without changing a bit. */
unsigned way_bits(const mesh_way *w);

/* The largest distance of gradients from one rank's gradients, relative to their norm. format: FP32,
   TENSORWISE and so on (train_fixture.h). tokens: tokens of a micro-batch. */
double way_gradient_bound(const mesh_way *w, int format, int64_t layers, int64_t tokens);
/* The gradients to compare: OUTCOME_GRADIENT (first step), or the last step's. */
outcome_kind way_gradient_kind(const mesh_way *w, int format);
/* Fails the test if `ranks` and `one` differ by more than the gradients' bound and the noise of FP8 codes. */
void way_expect_near(const outcome *one, const outcome *ranks, double gradient, const char *what);
void way_expect_within(const char *what, const char *subject, double apart, double bound);

#endif
