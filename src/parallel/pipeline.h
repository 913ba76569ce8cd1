/*
 * parallel/pipeline: pipeline parallelism: computes the layers, the order of tasks and the messages of each
 * stage. train/stage executes tasks and sends messages.
 *
 * A stage is a rank. The model's layers are divided into parts. A stage has one or several parts, its chunks:
 * chunk c of stage r is part c * stages + r. With several chunks, a micro-batch passes through the stages
 * more than once. A task is the forward or the backward of one part for one micro-batch. Every schedule runs
 * warm-up forwards, then forwards and backwards alternately, then the remaining backwards. Each part runs the
 * micro-batches in ascending order, so sums over micro-batches have the bits of one rank.
 *
 *     gpipe              all forwards first: every micro-batch of the step is in flight
 *     1f1b               stage r has at most stages - r micro-batches in flight (Narayanan et al. 2019, 2021)
 *     interleaved_1f1b   1f1b with several chunks per stage; each chunk runs `stages` micro-batches in a row
 */
#ifndef PARALLEL_PIPELINE_H
#define PARALLEL_PIPELINE_H

#include "base/status.h"
#include "kinds/choices.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct layer_range {
    int64_t first, end; /* layers first, first + 1, ..., end - 1 */
} layer_range;

enum { PIPELINE_INTERLEAVED_CHUNKS = 2 }; /* chunks per stage with interleaved_1f1b */

typedef struct pipeline_stage {
    kind_pp_schedule schedule;
    int stages, rank; /* number of stages; index of this stage */
    int chunks;       /* number of chunks per stage; 1 unless schedule is interleaved_1f1b */
} pipeline_stage;

/* OTT_ERR_CONFIG if layers < parts, or with interleaved_1f1b if micro_batches % stages != 0. */
ott_status pipeline_check(const pipeline_stage *s, int64_t layers, int64_t micro_batches);

/* Returns the layers of a chunk of this stage. The first parts may have one layer more than the others. */
layer_range pipeline_layers(const pipeline_stage *s, int64_t layers, int chunk);
/* True if this stage has the layer, and also if s is NULL, which means that there is no pipeline. */
bool pipeline_has_layer(const pipeline_stage *s, int64_t layers, int64_t layer);
bool pipeline_is_first(const pipeline_stage *s); /* True for the stage with the embedding. */
bool pipeline_is_last(const pipeline_stage *s);  /* True for the stage with the final norm and the head. */

/* ---- the tasks of a stage in a step ---- */

typedef struct pipeline_task {
    bool backward;
    int chunk;
    int64_t micro_batch;
} pipeline_task;

int64_t pipeline_task_count(const pipeline_stage *s, int64_t micro_batches);
/* Returns task i in order of execution. */
pipeline_task pipeline_task_at(const pipeline_stage *s, int64_t micro_batches, int64_t i);

/* ---- messages between stages ---- */

typedef enum pipeline_content {
    PIPELINE_STREAM,   /* the residual stream, from a part's forward to the next part's forward */
    PIPELINE_GRADIENT, /* the stream's gradient, from a part's backward to the previous part's backward */
    PIPELINE_TABLE,    /* the embedding table's gradient from a tied head, from the last part to the first */
    PIPELINE_CONTENTS
} pipeline_content;

typedef struct pipeline_message {
    pipeline_content content;
    int peer;  /* index of the stage at the other end of the message */
    int chunk; /* chunk of the receiving stage */
    int64_t micro_batch;
} pipeline_message;

enum { PIPELINE_MESSAGES = 2 };
/* Writes the messages to send after task t or, if !sent, the messages to receive before it; returns their
   number. tied: embeddings are tied and trained. */
int pipeline_messages(const pipeline_stage *s, bool tied, pipeline_task t, bool sent,
                      pipeline_message out[PIPELINE_MESSAGES]);
/* Maximum number of sends of `content` in flight. At this number, a stage waits for its oldest send. */
int pipeline_max_in_flight(const pipeline_stage *s, pipeline_content content);

#endif
