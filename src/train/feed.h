/* train/feed: the micro-batches of a step. Fills the next step's micro-batches in host memory while the
   device runs the current step, then copies them to the device. A micro-batch is one block of device memory.
   Its arrays (tokens, targets, positions, cu_seqlens) are aligned as the device requires. */
#ifndef TRAIN_FEED_H
#define TRAIN_FEED_H

#include "data/dataset.h"
#include "model/run.h"

/* Sets of staging memory. Steps alternate between the first FEED_STEPS sets. Evaluation uses the last set. */
enum { FEED_STEPS = 2, FEED_EVALUATION = FEED_STEPS, FEED_SETS };

typedef struct feed_set {
    bool ready;         /* the set holds the rows from `first` on */
    int64_t first;      /* index of the step's first row, counted over all ranks since the run began */
    int64_t labels;     /* number of target tokens in this rank's rows */
    device_event *sent; /* event after the last copy to the device; then the set may be refilled */
} feed_set;

typedef struct feed_options {
    const dataset *train_data, *validation_data; /* borrowed; validation_data may be NULL */
    uint64_t seed;                               /* seed of the shuffle */
    const group *ranks;                          /* borrowed; ranks that read different rows */
    int64_t batch_size, seq_len, grad_accum;
    int64_t evaluation_rows, evaluation_length; /* shape of a batch of evaluation */
} feed_options;

/* Shape of a micro-batch. On the device, cu_seqlens has document_capacity + 1 entries. The capacity is at
   first `rows`. It doubles when packed rows hold more documents. */
typedef struct feed_shape {
    int64_t rows, length, document_capacity;
} feed_shape;

typedef struct feed {
    feed_options options;
    device *device;
    int32_t *staging;   /* host memory of all feed_sets */
    int64_t *documents; /* number of documents in each of the FEED_STEPS * grad_accum + 1 batches */
    feed_shape training, evaluation;
    feed_set sets[FEED_SETS];
} feed;

/* Opens a feed. A dry run only counts the staging memory. After a failure, feed_close may be called. */
ott_status feed_open(feed *f, device *d, const feed_options *o);
void feed_close(feed *f);

/* feed_batch_bytes: bytes of a micro-batch on the device. feed_batch_at: its tensors in memory `data`. */
int64_t feed_batch_bytes(const feed *f, const feed_shape *s);
batch feed_batch_at(const feed *f, const feed_shape *s, void *data);

/* Fills a staging set with this rank's rows of the step that starts at row `first`, if the set lacks them. */
ott_status feed_step(feed *f, int set, int64_t first);
/* Fills set FEED_EVALUATION with rows first, first + 1, ... of the validation data. */
ott_status feed_evaluation(feed *f, int64_t first);
/* Starts the copy of micro-batch `index` of a set to the device, into `to`. Unused entries of cu_seqlens get
   the number of tokens, so they describe empty documents. */
ott_status feed_send(feed *f, int set, int64_t index, const batch *to);

#endif
