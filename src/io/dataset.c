/*
 * io/dataset: the token sources and the loader. A source is a row of functions; windows, names and the loader
 * know nothing of what lies behind it, so a new kind of token file is one more open function.
 */
#include "io/dataset.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/str.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct source {
    /* Tokens [begin, begin + count) of the sequence; the caller has checked the range. */
    void (*read)(const dataset *d, int64_t begin, int64_t count, int32_t *tokens);
} source;

struct dataset {
    mem *account;
    const source *from;
    char *name;
    int64_t tokens, vocab;
    void *memory;               /* text: the bytes read */
    const unsigned char *bytes; /* text: [tokens] */
    uint64_t seed;              /* synthetic */
};

static ott_status dataset_new(mem *account, const source *from, dataset **out) {
    void *memory;
    *out = NULL;
    TRY(mem_take(account, MEM_DATA, sizeof(dataset), "a dataset", &memory));
    *out = memory;
    (*out)->account = account;
    (*out)->from = from;
    return OTT_OK;
}

void dataset_close(dataset *d) {
    if (!d) return;
    mem_give(d->account, d->name);
    mem_give(d->account, d->memory);
    mem_give(d->account, d);
}

/* ---- text: a token is a byte ---- */

#define TEXT_LIMIT (INT64_C(4) << 30) /* bytes held in memory */

static void text_read(const dataset *d, int64_t begin, int64_t count, int32_t *tokens) {
    for (int64_t i = 0; i < count; i++) tokens[i] = d->bytes[begin + i];
}

static const source text_source = {text_read};

/* The part [begin, end) of a file, and what is read of it: up to 3 bytes more on each side, so that
   characters cut by its ends can be judged whole. */
typedef struct part {
    int64_t begin, end, read_begin, read_end;
} part;

static ott_status choose_part(const file_reader *r, double from_share, double to_share, part *p) {
    if (!(from_share >= 0 && from_share < to_share && to_share <= 1))
        return status_fail(OTT_ERR_ARGUMENT, "%s: the part from %g to %g is not one: 0 <= from < to <= 1",
                           r->path, from_share, to_share);
    if (r->bytes == 0) return status_fail(OTT_ERR_FORMAT, "%s: is empty", r->path);
    p->begin = (int64_t)floor(from_share * (double)r->bytes);
    p->end = to_share < 1 ? (int64_t)floor(to_share * (double)r->bytes) : r->bytes;
    if (p->end - p->begin > TEXT_LIMIT)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "%s: %" PRId64
                           " bytes are more than the 4 GiB of text held in memory; split the file",
                           r->path, p->end - p->begin);
    p->read_begin = p->begin > 3 ? p->begin - 3 : 0;
    p->read_end = r->bytes - p->end > 3 ? p->end + 3 : r->bytes;
    return OTT_OK;
}

static ott_status check_utf8(const char *path, const part *p, const char *text) {
    int64_t skip = 0;
    while (p->read_begin > 0 && skip < 3 && p->read_begin + skip < p->read_end && (text[skip] & 0xc0) == 0x80)
        skip++; /* the tail of a character that began earlier */
    int64_t bad = str_utf8_error(text + skip, p->read_end - p->read_begin - skip);
    if (bad < 0 || p->read_begin + skip + bad >= p->end) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT, "%s: is not UTF-8 text: byte %" PRId64 " (0x%02x)", path,
                       p->read_begin + skip + bad, (unsigned char)text[skip + bad]);
}

static ott_status name_part(dataset *d, const file_reader *r, const part *p) {
    str name = {.account = d->account};
    str_append(&name, r->path);
    if (p->begin > 0 || p->end < r->bytes)
        str_printf(&name, " (bytes %" PRId64 " to %" PRId64 ")", p->begin, p->end);
    ott_status status = str_finish(&name);
    if (status == OTT_OK) status = mem_strdup(d->account, name.text, &d->name);
    str_free(&name);
    return status;
}

static ott_status read_part(dataset *d, const file_reader *r, const part *p) {
    int64_t bytes = p->read_end - p->read_begin;
    TRY(name_part(d, r, p));
    TRY(mem_take(d->account, MEM_DATA, bytes, r->path, &d->memory));
    TRY(file_reader_read(r, p->read_begin, d->memory, bytes));
    TRY(check_utf8(r->path, p, d->memory));
    d->bytes = (const unsigned char *)d->memory + (p->begin - p->read_begin);
    d->tokens = p->end - p->begin;
    d->vocab = 256;
    return OTT_OK;
}

ott_status dataset_open_text(mem *account, const char *path, double from_share, double to_share,
                             dataset **out) {
    file_reader r = {.descriptor = -1};
    dataset *d = NULL;
    part p = {0};
    ott_status status;
    *out = NULL;
    TRY(file_reader_open(path, &r));
    TRY_OUT(choose_part(&r, from_share, to_share, &p));
    TRY_OUT(dataset_new(account, &text_source, &d));
    TRY_OUT(read_part(d, &r, &p));
    *out = d;
out:
    if (status != OTT_OK) dataset_close(d);
    file_reader_close(&r);
    return status;
}

/* ---- synthetic ---- */

static void synthetic_read(const dataset *d, int64_t begin, int64_t count, int32_t *tokens) {
    const uint64_t stream = rng_stream("synthetic");
    for (int64_t i = 0; i < count; i++) {
        uint64_t word = rng_u32(d->seed, stream, (uint64_t)(begin + i));
        tokens[i] = (int32_t)(word * (uint64_t)d->vocab >> 32); /* word / 2^32 of the vocabulary */
    }
}

static const source synthetic_source = {synthetic_read};

ott_status dataset_open_synthetic(mem *account, int64_t vocab, uint64_t seed, int64_t count, dataset **out) {
    dataset *d;
    *out = NULL;
    if (vocab < 1 || vocab > INT32_MAX)
        return status_fail(OTT_ERR_ARGUMENT,
                           "synthetic tokens: a vocabulary of %" PRId64 " is not in [1, 2^31)", vocab);
    if (count < 0) return status_fail(OTT_ERR_ARGUMENT, "synthetic tokens: %" PRId64 " of them", count);
    TRY(dataset_new(account, &synthetic_source, &d));
    ott_status status = mem_strdup(account, "synthetic tokens", &d->name);
    if (status != OTT_OK) {
        dataset_close(d);
        return status;
    }
    d->tokens = count;
    d->vocab = vocab;
    d->seed = seed;
    *out = d;
    return OTT_OK;
}

/* ---- windows ---- */

const char *dataset_name(const dataset *d) {
    return d->name;
}

int64_t dataset_tokens(const dataset *d) {
    return d->tokens;
}

int64_t dataset_vocab(const dataset *d) {
    return d->vocab;
}

int64_t dataset_windows(const dataset *d, int64_t seq_len) {
    return seq_len >= 1 && d->tokens > seq_len ? (d->tokens - 1) / seq_len : 0;
}

ott_status dataset_check(const dataset *d, int64_t seq_len) {
    if (seq_len < 1)
        return status_fail(OTT_ERR_CONFIG, "train.seq_len = %" PRId64 " must be at least 1", seq_len);
    if (dataset_windows(d, seq_len) > 0) return OTT_OK;
    if (d->tokens < 2)
        return status_fail(OTT_ERR_CONFIG,
                           "train.seq_len = %" PRId64 " exceeds the %" PRId64
                           " tokens of %s; at least 2 are needed: give a longer text",
                           seq_len, d->tokens, d->name);
    return status_fail(OTT_ERR_CONFIG,
                       "train.seq_len = %" PRId64 " exceeds the %" PRId64
                       " tokens of %s; a sequence takes seq_len + 1 of them: set train.seq_len to %" PRId64
                       " or less, or give a longer text",
                       seq_len, d->tokens, d->name, d->tokens - 1);
}

ott_status dataset_window(const dataset *d, int64_t seq_len, int64_t index, int32_t *tokens,
                          int32_t *targets) {
    TRY(dataset_check(d, seq_len));
    if (index < 0 || index >= dataset_windows(d, seq_len))
        return status_fail(OTT_ERR_ARGUMENT, "%s: window %" PRId64 " is wanted of %" PRId64, d->name, index,
                           dataset_windows(d, seq_len));
    d->from->read(d, index * seq_len, seq_len, tokens);
    memcpy(targets, tokens + 1, (size_t)(seq_len - 1) * sizeof *targets);
    d->from->read(d, (index + 1) * seq_len, 1, &targets[seq_len - 1]);
    return OTT_OK;
}

/* ---- the loader ---- */

int64_t loader_epoch(const dataset *d, int64_t seq_len, int64_t sample) {
    int64_t windows = dataset_windows(d, seq_len);
    return windows > 0 ? sample / windows : 0;
}

ott_status loader_sample(const dataset *d, uint64_t seed, int64_t seq_len, int64_t sample, int32_t *tokens,
                         int32_t *targets) {
    TRY(dataset_check(d, seq_len));
    if (sample < 0)
        return status_fail(OTT_ERR_ARGUMENT, "%s: sample %" PRId64 " is negative", d->name, sample);
    uint64_t windows = (uint64_t)dataset_windows(d, seq_len);
    uint64_t stream = rng_stream("epoch") + (uint64_t)loader_epoch(d, seq_len, sample);
    uint64_t window = rng_permute(seed, stream, (uint64_t)sample % windows, windows);
    return dataset_window(d, seq_len, (int64_t)window, tokens, targets);
}
