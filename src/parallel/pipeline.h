/*
 * parallel/pipeline: how layers lie on the stages of a pipeline, what each stage does in which order, and
 * what it tells the others. Arithmetic alone; train/pipeline does it.
 *
 * A stage is a rank. It has one part of the model, or several (`chunks`), so that micro-batches go round the
 * stages more than once: part c of stage r is the (c * stages + r)-th of all. Forward and backward of a part
 * are tasks; every schedule is one rule: so many forwards that nothing comes back for yet, then a forward and
 * a backward in turn, then the backwards that are left. Each part sees the micro-batches in their order,
 * forward and backward, so that sums over them have the bits of one rank.
 *
 *     gpipe              all forwards first: every micro-batch of the step is in flight
 *     1f1b               at most stages - rank micro-batches are in flight (Narayanan et al. 2019, 2021)
 *     interleaved_1f1b   the same with several parts a stage; micro-batches come in groups of as many as stages
 */
#ifndef PARALLEL_PIPELINE_H
#define PARALLEL_PIPELINE_H

#include "base/status.h"
#include "config/config.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct layer_range {
    int64_t first, end;
} layer_range;

enum { PIPELINE_INTERLEAVED_CHUNKS = 2 }; /* of a run with interleaved_1f1b */

typedef struct pipeline_stage {
    config_pp_schedule schedule;
    int stages, rank; /* rank of stages */
    int chunks;       /* parts of the model on each, 1 but for interleaved_1f1b */
} pipeline_stage;

/* OTT_ERR_CONFIG where layers or micro-batches of a step are too few, or cannot be dealt out. */
ott_status pipeline_check(const pipeline_stage *s, int64_t layers, int64_t micro_batches);

/* The layers of a part of this stage. The first parts have one more where they cannot be equal. */
layer_range pipeline_layers(const pipeline_stage *s, int64_t layers, int chunk);
/* Of this stage; s NULL: all are. */
bool pipeline_has_layer(const pipeline_stage *s, int64_t layers, int64_t layer);
bool pipeline_is_first(const pipeline_stage *s); /* has the embedding */
bool pipeline_is_last(const pipeline_stage *s);  /* has the final norm and the head */

/* ---- what a stage does in a step ---- */

typedef struct pipeline_task {
    bool backward;
    int chunk;
    int64_t micro_batch;
} pipeline_task;

int64_t pipeline_task_count(const pipeline_stage *s, int64_t micro_batches);
/* The i-th. */
pipeline_task pipeline_task_at(const pipeline_stage *s, int64_t micro_batches, int64_t i);

/* ---- what it sends ---- */

typedef enum pipeline_content {
    PIPELINE_STREAM,   /* the residual stream, from forward to the next part's forward */
    PIPELINE_GRADIENT, /* its gradient, from backward to the part's before */
    /* a tied head's gradient of the embedding, from the last part's backward to the first's */
    PIPELINE_TABLE,
    PIPELINE_CONTENTS
} pipeline_content;

typedef struct pipeline_message {
    pipeline_content content;
    int peer;  /* to whom; where it was received, from whom */
    int chunk; /* of the receiver */
    int64_t micro_batch;
} pipeline_message;

enum { PIPELINE_MESSAGES = 2 };
/* What follows a task, in order; returns how many. tied: the embedding, which is trained, is the head too. */
int pipeline_sends(const pipeline_stage *s, bool tied, pipeline_task t,
                   pipeline_message out[PIPELINE_MESSAGES]);
/* So many messages of this content may be on their way before a stage waits for the first of them. */
int pipeline_max_in_flight(const pipeline_stage *s, pipeline_content content);
/* What a task waits for, likewise. */
int pipeline_receives(const pipeline_stage *s, bool tied, pipeline_task t,
                      pipeline_message out[PIPELINE_MESSAGES]);

#endif
