/* data/dataset: functions common to all datasets: opening, names, rows and the loader. */
#include "base/rng.h"
#include "data/dataset_internal.h"
#include <inttypes.h>

ott_status dataset_new(mem *account, const token_source *from, const row_source *rows_by, dataset **out) {
    *out = NULL;
    TRY(mem_alloc(account, MEM_DATA, sizeof(dataset), "a dataset", out));
    **out = (dataset){.account = account, .from = from, .rows_by = rows_by, .last_token = -1};
    return OTT_OK;
}

void dataset_close(dataset *d) {
    if (!d) return;
    if (d->from->close) d->from->close(d);
    void *const blocks[] = {d->name, d->state, d->begin, d->learned, d->kept, d->pack};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) mem_free(d->account, blocks[i]);
    mem_free(d->account, d);
}

ott_status dataset_check_share(const dataset_source *s) {
    if (s->count < 1) return status_fail(OTT_ERR_ARGUMENT, "a dataset needs a file");
    if (s->from_share >= 0 && s->from_share < s->to_share && s->to_share <= 1) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: the range from %g to %g is invalid: 0 <= from < to <= 1",
                       s->paths[0], s->from_share, s->to_share);
}

ott_status dataset_name_files(dataset *d, const dataset_source *s) {
    if (s->count == 1) return mem_strdup(d->account, s->paths[0], &d->name);
    return str_format(d->account, &d->name, "%" PRId64 " files, %s to %s", s->count, s->paths[0],
                      s->paths[s->count - 1]);
}

const char *dataset_name(const dataset *d) {
    return d->name;
}

int64_t dataset_tokens(const dataset *d) {
    return d->tokens;
}

int64_t dataset_vocab(const dataset *d) {
    return d->vocab;
}

bool dataset_has_samples(const dataset *d) {
    return d->has_samples;
}

int64_t dataset_longest(const dataset *d) {
    return d->longest;
}

int64_t dataset_length(const dataset *d) {
    return d->row_options.length;
}

int64_t dataset_rows(const dataset *d) {
    return d->rows;
}

int64_t dataset_left_out(const dataset *d) {
    return d->left_out;
}

int64_t dataset_samples(const dataset *d) {
    return d->samples;
}

ott_status dataset_make_rows(dataset *d, const dataset_row_options *options) {
    d->row_options = *options;
    if (!options->length_key) d->row_options.length_key = "train.seq_len";
    if (options->length < 1 || options->length > INT32_MAX)
        return status_fail(OTT_ERR_CONFIG, "%s = %" PRId64 " must be at least 1%s", d->row_options.length_key,
                           options->length, options->length < 1 ? "" : " and below 2^31");
    return d->rows_by->make_rows(d);
}

ott_status dataset_read_row(const dataset *d, int64_t index, dataset_row *row) {
    if (index < 0 || index >= d->rows)
        return status_fail(OTT_ERR_ARGUMENT, "%s: row %" PRId64 " does not exist: there are %" PRId64,
                           d->name, index, d->rows);
    return d->rows_by->read(d, index, row);
}

int64_t dataset_epoch(const dataset *d, int64_t number) {
    return d->rows > 0 ? number / d->rows : 0;
}

ott_status dataset_draw(const dataset *d, uint64_t seed, int64_t number, dataset_row *row) {
    uint64_t rows = (uint64_t)d->rows, index = (uint64_t)number % rows;
    uint64_t stream = rng_stream("epoch") + (uint64_t)dataset_epoch(d, number);
    if (d->row_options.shuffle) index = rng_permute(seed, stream, index, rows);
    return dataset_read_row(d, (int64_t)index, row);
}

ott_status dataset_load_row(const dataset *d, uint64_t seed, int64_t number, dataset_row *row) {
    if (number < 0) return status_fail(OTT_ERR_ARGUMENT, "%s: row %" PRId64 " is negative", d->name, number);
    if (d->rows == 0) return status_fail(OTT_ERR_ARGUMENT, "%s: dataset_make_rows was not called", d->name);
    return d->rows_by->draw(d, seed, number, row);
}
