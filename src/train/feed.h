/*
 * train/feed: micro-batches of rows of the data: made on the host, those of the next step while the device works on this one,
 * and given to the device. Each lies in one block there, whose parts begin where the device wants them.
 */
#ifndef TRAIN_FEED_H
#define TRAIN_FEED_H

#include "data/dataset.h"
#include "model/run.h"

/* Steps take turns with two sets of micro-batches; the third is one of evaluation. */
enum { FEED_STEPS = 2, FEED_EVALUATION = FEED_STEPS, FEED_SETS };

typedef struct feed_set {
    bool ready;
    int64_t first;      /* row of the run, over all ranks, that the step begins with */
    int64_t labels;     /* of this rank's rows */
    device_event *sent; /* the device has what it was given of it */
} feed_set;

typedef struct feed_options {
    const dataset *train_data, *validation_data; /* borrowed; the second may be NULL */
    uint64_t seed;                               /* of the order of rows */
    const group *ranks;                          /* borrowed; each takes rows of its own */
    int64_t batch_size, seq_len, grad_accum;
    int64_t evaluation_rows, evaluation_length; /* of a batch of evaluation */
} feed_options;

/* A micro-batch: its rows, and places for documents on the device, which grow with what rows hold, and seldom. */
typedef struct feed_shape {
    int64_t rows, length, document_capacity;
} feed_shape;

typedef struct feed {
    feed_options options;
    device *device;
    int32_t *staging;   /* of all sets */
    int64_t *documents; /* of each micro-batch */
    feed_shape training, evaluation;
    feed_set sets[FEED_SETS];
} feed;

/* On a dry run it says what memory it would take. feed_close may follow a failure. */
ott_status feed_open(feed *f, device *d, const feed_options *o);
void feed_close(feed *f);

/* A micro-batch on the device, in `data`, of feed_batch_bytes. */
int64_t feed_batch_bytes(const feed *f, const feed_shape *s);
batch feed_batch_at(const feed *f, const feed_shape *s, void *data);

/* This rank's micro-batches of the step whose rows begin with `first`, into a set; nothing to do when they are there. */
ott_status feed_step(feed *f, int set, int64_t first);
/* Rows first, first + 1, ... of the validation data, into FEED_EVALUATION. */
ott_status feed_evaluation(feed *f, int64_t first);
/* Gives the device micro-batch `index` of a set, as `to`, with its shape's places for documents: those behind the rows' own are empty. */
ott_status feed_send(feed *f, int set, int64_t index, const batch *to);

#endif
