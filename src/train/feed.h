/* train/feed: the micro-batches of a step. Fills the next step's micro-batches in host memory while the
   device runs the current step, then copies them to the device. A micro-batch is one block of device memory.
   Its arrays (tokens, targets, positions, cu_seqlens) are aligned as the device requires. */
#ifndef TRAIN_FEED_H
#define TRAIN_FEED_H

#include "data/dataset.h"
#include "model/run.h"

/* Sets of staging memory. Steps use the first FEED_STEPS in turn; evaluation's own set has one batch. */
enum { FEED_STEPS = 2, FEED_EVALUATION = FEED_STEPS, FEED_SETS };

typedef struct feed_set {
    bool ready;         /* filled with the rows from `first` on */
    int64_t first;      /* index of the step's first row; all ranks' rows since the run began are counted */
    int64_t labels;     /* target tokens in this rank's rows */
    device_event *sent; /* after the last copy to the device; then staging memory may be reused */
} feed_set;

typedef struct feed_options {
    const dataset *train_data, *validation_data; /* borrowed; validation_data may be NULL */
    uint64_t seed;                               /* of the shuffle */
    const group *ranks;                          /* borrowed; each rank reads different rows */
    int64_t batch_size, seq_len, grad_accum;
    int64_t evaluation_rows, evaluation_length; /* shape of a batch of evaluation */
} feed_options;

/* Shape of a micro-batch. document_capacity: cu_seqlens on the device has document_capacity + 1 entries. It
   starts at `rows` and doubles when packed rows hold more documents. */
typedef struct feed_shape {
    int64_t rows, length, document_capacity;
} feed_shape;

typedef struct feed {
    feed_options options;
    device *device;
    int32_t *staging;   /* host memory of all sets */
    int64_t *documents; /* [FEED_STEPS * grad_accum + 1] documents in each batch */
    feed_shape training, evaluation;
    feed_set sets[FEED_SETS];
} feed;

/* On a dry run, only counts the staging memory. feed_close may be called after a failure. */
ott_status feed_open(feed *f, device *d, const feed_options *o);
void feed_close(feed *f);

/* Bytes of device memory of a micro-batch, and its tensors in memory that starts at `data`. */
int64_t feed_batch_bytes(const feed *f, const feed_shape *s);
batch feed_batch_at(const feed *f, const feed_shape *s, void *data);

/* Fills a set with this rank's micro-batches of the step that starts at row `first`, if not done already. */
ott_status feed_step(feed *f, int set, int64_t first);
/* Fills FEED_EVALUATION with rows first, first + 1, ... of the validation data. */
ott_status feed_evaluation(feed *f, int64_t first);
/* Starts the copy of micro-batch `index` of a set to the device, into `to`. Unused entries of cu_seqlens get
   the number of tokens, so they describe empty documents. */
ott_status feed_send(feed *f, int set, int64_t index, const batch *to);

#endif
