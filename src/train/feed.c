/* train/feed: fills micro-batches in staging memory and copies them to the device. */
#include "train/feed.h"
#include "base/text/size.h"
#include "tensor/dry_run.h"
#include <string.h>

/* ---- layout of a micro-batch: number[2], token[T], target[T], position[T], cu_seqlens[T + 1] ---- */

static int64_t tokens_of(const feed_shape *s) {
    return s->rows * s->length;
}

/* Size of an array of `count` integers with padding to the device's alignment, in integers. */
static int64_t part_ints(const feed *f, int64_t count) {
    const int64_t size = (int64_t)sizeof(int32_t);
    return backend_align(f->device->can, count * size) / size;
}

/* A micro-batch begins with the index of its first token in the run. The tokens follow at this offset. */
static int64_t number_ints(const feed *f) {
    return part_ints(f, 2);
}

static int64_t batch_ints(const feed *f, const feed_shape *s) {
    return number_ints(f) + 3 * part_ints(f, tokens_of(s)) + part_ints(f, tokens_of(s) + 1);
}

int64_t feed_batch_bytes(const feed *f, const feed_shape *s) {
    return batch_ints(f, s) * (int64_t)sizeof(int32_t);
}

batch feed_batch_at(const feed *f, const feed_shape *s, void *data) {
    int64_t tokens = tokens_of(s), part = part_ints(f, tokens);
    int32_t *number = data, *at = number + number_ints(f);
    return (batch){.count = s->rows,
                   .length = s->length,
                   .number = tensor_vector(number, OTT_I32, 2),
                   .token = tensor_vector(at, OTT_I32, tokens),
                   .target = tensor_vector(at + part, OTT_I32, tokens),
                   .at = {.position = tensor_vector(at + 2 * part, OTT_I32, tokens),
                          .cu_seqlens = tensor_vector(at + 3 * part, OTT_I32, s->document_capacity + 1),
                          .longest = s->length}};
}

/* ---- open and close ---- */

static ott_status open_documents(feed *f, int64_t count) {
    if (f->device->dry_run)
        return dry_run_count_host(f->device, MEM_DATA, count, sizeof(int64_t), "documents of a step");
    return mem_alloc_array(f->device->account, MEM_DATA, count, sizeof(int64_t), "documents of a step",
                           &f->documents);
}

ott_status feed_open(feed *f, device *d, const feed_options *o) {
    int64_t count = FEED_STEPS * o->grad_accum, bytes;
    *f = (feed){.options = *o,
                .device = d,
                .training = {o->batch_size, o->seq_len, o->batch_size},
                .evaluation = {o->evaluation_rows, o->evaluation_length, o->evaluation_rows}};
    TRY(size_product("batches of two steps: train.grad_accum_steps x train.batch_size x train.seq_len",
                     (int64_t[]){count, batch_ints(f, &f->training), sizeof(int32_t)}, 3, &bytes));
    bytes += feed_batch_bytes(f, &f->evaluation);
    TRY(device_allocate_host(d, MEM_DATA, bytes, "batches of two steps", &f->staging));
    TRY(open_documents(f, count + 1));
    for (int i = 0; i < FEED_SETS; i++) TRY(device_event_open(d, &f->sets[i].sent));
    return OTT_OK;
}

void feed_close(feed *f) {
    if (!f->device) return;
    for (int i = 0; i < FEED_SETS; i++) device_event_close(f->device, f->sets[i].sent);
    device_release_host(f->device, f->staging);
    mem_free(f->device->account, f->documents);
    *f = (feed){0};
}

/* ---- rows ---- */

/* The shape of batch `index` in staging memory. Micro-batches of training precede evaluation's batch. */
static feed_shape *shape_of(feed *f, int64_t index) {
    return index < FEED_STEPS * f->options.grad_accum ? &f->training : &f->evaluation;
}

static int32_t *staging_at(const feed *f, int64_t index) {
    return f->staging + index * batch_ints(f, &f->training);
}

static int32_t *tokens_at(const feed *f, int64_t index) {
    return staging_at(f, index) + number_ints(f);
}

/* Loads row `number` of the dataset into row b of micro-batch `index`, with the starts of its documents. */
static ott_status make_row(feed *f, int64_t index, int64_t b, bool training, int64_t number,
                           int64_t *labels) {
    const feed_shape *s = shape_of(f, index);
    int64_t part = part_ints(f, tokens_of(s)), length = s->length;
    int32_t *host = tokens_at(f, index);
    int32_t *start = host + 3 * part + f->documents[index];
    dataset_row row = {.token = host + b * length,
                       .target = host + part + b * length,
                       .position = host + 2 * part + b * length,
                       .start = start};
    TRY(training ? dataset_load_row(f->options.train_data, f->options.seed, number, &row)
                 : dataset_read_row(f->options.validation_data, number, &row));
    for (int64_t i = 0; i < row.documents; i++) start[i] += (int32_t)(b * length);
    f->documents[index] += row.documents;
    start[row.documents] = (int32_t)((b + 1) * length);
    *labels += row.labels;
    return OTT_OK;
}

static ott_status make_batch(feed *f, int64_t index, bool training, int64_t first, int64_t *labels) {
    feed_shape *s = shape_of(f, index);
    uint64_t token_index = (uint64_t)first * (uint64_t)s->length;
    memcpy(staging_at(f, index), &(uint32_t[]){(uint32_t)token_index, (uint32_t)(token_index >> 32)},
           2 * sizeof(int32_t));
    f->documents[index] = 0;
    for (int64_t b = 0; b < s->rows; b++) TRY(make_row(f, index, b, training, first + b, labels));
    /* The capacity doubles, so it changes rarely: each change requires new memory plans and graphs. */
    while (s->document_capacity < f->documents[index]) s->document_capacity *= 2;
    if (s->document_capacity > tokens_of(s)) s->document_capacity = tokens_of(s);
    return OTT_OK;
}

/* Waits until the set's staging memory may be overwritten. */
static ott_status begin_set(feed *f, int set, int64_t first) {
    feed_set *s = &f->sets[set];
    s->ready = false;
    s->first = first;
    s->labels = 0;
    return device_event_wait(f->device, s->sent);
}

ott_status feed_step(feed *f, int set, int64_t first) {
    const feed_options *o = &f->options;
    feed_set *s = &f->sets[set];
    if (s->ready && s->first == first) return OTT_OK;
    TRY(begin_set(f, set, first));
    for (int64_t i = 0; i < o->grad_accum; i++)
        TRY(make_batch(f, set * o->grad_accum + i, true,
                       first + (i * o->ranks->size + o->ranks->rank) * o->batch_size, &s->labels));
    s->ready = true;
    return OTT_OK;
}

ott_status feed_evaluation(feed *f, int64_t first) {
    TRY(begin_set(f, FEED_EVALUATION, first));
    return make_batch(f, FEED_EVALUATION * f->options.grad_accum, false, first,
                      &f->sets[FEED_EVALUATION].labels);
}

ott_status feed_send(feed *f, int set, int64_t index, const batch *to) {
    int64_t at = set * f->options.grad_accum + index;
    const feed_shape *s = shape_of(f, at);
    int64_t part = part_ints(f, tokens_of(s)), ints = number_ints(f) + 3 * part + s->document_capacity + 1;
    int32_t *host = staging_at(f, at), *start = tokens_at(f, at) + 3 * part;
    for (int64_t i = f->documents[at] + 1; i <= s->document_capacity; i++) start[i] = (int32_t)tokens_of(s);
    TRY(device_copy_in_async(f->device, to->number.data, host, ints * (int64_t)sizeof *host));
    return device_event_record(f->device, f->sets[set].sent);
}
