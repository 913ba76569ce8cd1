/* data/dataset_rows: makes rows: windows of running text, and samples, one per row or packed. */
#include "data/dataset_internal.h"
#include <inttypes.h>
#include <string.h>

static void place_in_row(int64_t length, dataset_row *row) {
    for (int64_t i = 0; i < length; i++) row->position[i] = (int32_t)i;
    row->start[0] = 0;
    row->documents = 1;
    row->labels = length;
}

/* Ends the document that begins at row->start[row->documents], before token `end`. Sets row->position. */
static void end_row_document(dataset_row *row, int64_t end) {
    int64_t first = row->start[row->documents];
    for (int64_t i = first; i < end; i++) row->position[i] = (int32_t)(i - first);
    row->documents++;
}

/* True if a document ends with token i of the window that begins at token `first`. *next: index of the first
   document that begins later; the caller keeps it for the next i. */
static bool ends_document(const dataset *d, const dataset_row *row, int64_t first, int64_t i, int64_t *next) {
    if (!d->begin) return row->token[i] == d->last_token;
    while (*next < d->documents && d->begin[*next] <= first + i) ++*next;
    return *next < d->documents && d->begin[*next] == first + i + 1;
}

static void place_apart(const dataset *d, int64_t first, dataset_row *row) {
    int64_t length = d->row_options.length, next = 0;
    if (d->begin) next = dataset_lower_bound(d->begin, sizeof *d->begin, d->documents, first + 1);
    row->documents = row->labels = 0;
    row->start[0] = 0;
    for (int64_t i = 0; i < length; i++) {
        bool ends = ends_document(d, row, first, i, &next);
        if (ends) row->target[i] = DATASET_NO_LABEL;
        row->labels += !ends;
        if (!ends && i + 1 < length) continue;
        end_row_document(row, i + 1);
        if (i + 1 < length) row->start[row->documents] = (int32_t)(i + 1);
    }
}

static ott_status read_window(const dataset *d, int64_t index, dataset_row *row) {
    int64_t length = d->row_options.length, first = index * length;
    TRY(d->from->read(d, first, length, row->token));
    memcpy(row->target, row->token + 1, (size_t)(length - 1) * sizeof *row->target);
    TRY(d->from->read(d, first + length, 1, &row->target[length - 1]));
    if (d->row_options.pack)
        place_apart(d, first, row);
    else
        place_in_row(length, row);
    return OTT_OK;
}

static ott_status make_window_rows(dataset *d) {
    int64_t length = d->row_options.length;
    d->rows = d->tokens > length ? (d->tokens - 1) / length : 0;
    if (d->row_options.pack && !d->begin && d->last_token < 0)
        return status_fail(OTT_ERR_CONFIG,
                           "data.pack_sequences needs the ends of documents, but %s does not contain them: "
                           "set data.tokenizer_path to a tokenizer with an EOS, or set "
                           "data.pack_sequences = false",
                           d->name);
    if (d->rows > 0) return OTT_OK;
    if (d->tokens < 2)
        return status_fail(OTT_ERR_CONFIG,
                           "%s = %" PRId64 " exceeds the %" PRId64
                           " tokens of %s; at least 2 are needed: give a longer text",
                           d->row_options.length_key, length, d->tokens, d->name);
    return status_fail(OTT_ERR_CONFIG,
                       "%s = %" PRId64 " exceeds the %" PRId64
                       " tokens of %s; a sequence takes seq_len + 1 tokens: set %s to %" PRId64
                       " or less, or give a longer text",
                       d->row_options.length_key, length, d->tokens, d->name, d->row_options.length_key,
                       d->tokens - 1);
}

const row_source dataset_windows = {make_window_rows, read_window, dataset_draw};

static int64_t sample_length(const dataset *d, int64_t sample) {
    return d->begin[sample + 1] - d->begin[sample];
}

/* Writes a sample to tokens [at, at + count) of the row. */
static ott_status read_sample(const dataset *d, int64_t sample, int64_t at, dataset_row *row) {
    int64_t count = sample_length(d, sample);
    int32_t *token = row->token + at, *target = row->target + at;
    const uint8_t *learned = d->learned + d->begin[sample];
    TRY(d->from->read(d, d->begin[sample], count, token));
    for (int64_t i = 0; i < count; i++) {
        bool label = i + 1 < count && learned[i + 1];
        target[i] = label ? token[i + 1] : DATASET_NO_LABEL;
        row->labels += label;
    }
    row->start[row->documents] = (int32_t)at;
    end_row_document(row, at + count);
    return OTT_OK;
}

static void pad(int64_t at, int64_t length, dataset_row *row) {
    if (at == length) return;
    for (int64_t i = at; i < length; i++) {
        row->token[i] = 0;
        row->target[i] = DATASET_NO_LABEL;
    }
    row->start[row->documents] = (int32_t)at;
    end_row_document(row, length);
}

static ott_status read_pack(const dataset *d, int64_t index, dataset_row *row) {
    int64_t at = 0;
    row->documents = row->labels = 0;
    for (int64_t i = d->pack[index]; i < d->pack[index + 1]; i++) {
        TRY(read_sample(d, d->kept[i], at, row));
        at += sample_length(d, d->kept[i]);
    }
    pad(at, d->row_options.length, row);
    return OTT_OK;
}

/* Packs greedily in file order: a sample that does not fit begins the next row. */
static ott_status make_sample_rows(dataset *d) {
    int64_t used = 0;
    d->rows = d->samples = d->left_out = 0;
    mem_free(d->account, d->kept);
    mem_free(d->account, d->pack);
    d->kept = d->pack = NULL;
    TRY(mem_alloc_array(d->account, MEM_DATA, d->documents, sizeof *d->kept, "samples", &d->kept));
    TRY(mem_alloc_array(d->account, MEM_DATA, d->documents + 1, sizeof *d->pack, "packs of samples",
                        &d->pack));
    for (int64_t i = 0; i < d->documents; i++) {
        int64_t count = sample_length(d, i);
        if (count > d->row_options.length) {
            d->left_out++;
            continue;
        }
        if (d->samples == 0 || !d->row_options.pack || used + count > d->row_options.length) {
            d->pack[d->rows++] = d->samples;
            used = 0;
        }
        d->kept[d->samples++] = i;
        used += count;
    }
    d->pack[d->rows] = d->samples;
    if (d->rows > 0) return OTT_OK;
    if (d->documents == 0) return status_fail(OTT_ERR_CONFIG, "%s: has no samples", d->name);
    return status_fail(OTT_ERR_CONFIG,
                       "%s = %" PRId64 " is shorter than every sample of %s; the longest has %" PRId64
                       " tokens",
                       d->row_options.length_key, d->row_options.length, d->name, d->longest);
}

const row_source dataset_packs = {make_sample_rows, read_pack, dataset_draw};
