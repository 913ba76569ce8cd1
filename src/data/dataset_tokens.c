/* data/dataset_tokens: datasets of token files, which are read window by window. */
#include "base/file/file.h"
#include "base/little.h"
#include "data/dataset_internal.h"
#include "data/token_file.h"
#include <inttypes.h>
#include <stdio.h>
#include <math.h>

/* Maximum number of files that stay open. With more files, each read opens its file. */
#define KEPT_OPEN 128

typedef struct shard {
    token_file file;
    char *path;
    file_reader reader; /* .descriptor is -1 if the file is not kept open */
    int64_t before;     /* tokens in earlier shards */
} shard;

typedef struct shards {
    shard *shard; /* [count] shards */
    int64_t count, tokens;
    int64_t first; /* first token of the dataset, counted over all shards */
} shards;

/* ---- reading ---- */

static int64_t extend_id(const unsigned char *at, const token_file *f) {
    uint64_t value = little_load(at, f->width);
    if (!f->is_signed) return value > INT64_MAX ? INT64_MAX : (int64_t)value;
    int shift = 64 - 8 * f->width;
    return (int64_t)(value << shift) >> shift;
}

enum { BUFFER = 16384 };

/* Returns the largest id in the 64 MiB of the file from token `at` on, for an error message. */
static int64_t largest_id(const shard *s, const file_reader *r, int64_t at) {
    unsigned char buffer[BUFFER];
    const int64_t width = s->file.width, per_read = BUFFER / width;
    int64_t largest = 0, end = at + (INT64_C(64) << 20) / width;
    if (end > s->file.count) end = s->file.count;
    for (int64_t count; at < end; at += count) {
        count = end - at < per_read ? end - at : per_read;
        if (file_reader_read(r, s->file.offset + at * width, buffer, count * width) != OTT_OK) break;
        for (int64_t i = 0; i < count; i++) {
            int64_t id = extend_id(buffer + i * width, &s->file);
            if (id > largest) largest = id;
        }
    }
    return largest;
}

static ott_status check_id(const dataset *d, const shard *s, const file_reader *r, int64_t id, int64_t at) {
    char advice[160] = "";
    if (id >= 0 && id < d->vocab) return OTT_OK;
    int64_t largest = largest_id(s, r, at);
    if (id >= 0 && largest < INT32_MAX)
        snprintf(advice, sizeof advice,
                 ": set model.vocab_size to the vocabulary of the tokenizer that made the file, %" PRId64
                 " or more",
                 largest + 1);
    return status_fail(OTT_ERR_FORMAT,
                       "%s: token %" PRId64 " is %" PRId64 ", and model.vocab_size is %" PRId64
                       " (the file is read as tokens of %d bytes, %s)%s",
                       s->path, at, id, d->vocab, s->file.width, s->file.kind, advice);
}

/* Reads tokens [at, at + count) of the shard, and converts them from the file's integer type. */
static ott_status read_open(const dataset *d, const shard *s, const file_reader *r, int64_t at, int64_t count,
                            int32_t *tokens) {
    unsigned char buffer[BUFFER];
    int64_t width = s->file.width, per_read = BUFFER / width;
    while (count > 0) {
        int64_t part = count < per_read ? count : per_read;
        TRY(file_reader_read(r, s->file.offset + at * width, buffer, part * width));
        for (int64_t i = 0; i < part; i++) {
            int64_t id = extend_id(buffer + i * width, &s->file);
            TRY(check_id(d, s, r, id, at + i));
            tokens[i] = (int32_t)id;
        }
        at += part;
        tokens += part;
        count -= part;
    }
    return OTT_OK;
}

static ott_status read_shard(const dataset *d, const shard *s, int64_t at, int64_t count, int32_t *tokens) {
    file_reader r;
    if (s->reader.descriptor >= 0) return read_open(d, s, &s->reader, at, count, tokens);
    TRY(file_reader_open(s->path, &r));
    ott_status status = read_open(d, s, &r, at, count, tokens);
    file_reader_close(&r);
    return status;
}

/* Returns the shard that contains token `at`, counted over all shards. */
static const shard *find_shard(const shards *all, int64_t at) {
    int64_t after = dataset_lower_bound(&all->shard->before, sizeof(shard), all->count, at + 1);
    return &all->shard[after - 1];
}

static ott_status tokens_read(const dataset *d, int64_t begin, int64_t count, int32_t *tokens) {
    const shards *all = d->state;
    const shard *s = find_shard(all, begin += all->first);
    for (; count > 0; s++) {
        int64_t left = s->before + s->file.count - begin, part = count < left ? count : left;
        if (part > 0) TRY(read_shard(d, s, begin - s->before, part, tokens));
        begin += part;
        tokens += part;
        count -= part;
    }
    return OTT_OK;
}

static void tokens_close(dataset *d) {
    shards *all = d->state;
    for (int64_t i = 0; all && i < all->count; i++) {
        file_reader_close(&all->shard[i].reader);
        mem_free(d->account, all->shard[i].path);
        mem_free(d->account, all->shard[i].file.begin);
    }
    if (all) mem_free(d->account, all->shard);
}

static const token_source tokens_source = {tokens_read, tokens_close};

/* ---- checking all ids ---- */

/* Ids of files up to this size are all checked before training, ids of larger files when they are read. */
#define CHECKED_BYTES (INT64_C(1) << 30)

/* Returns the index of the first id outside [0, vocab), or count. */
static int64_t find_bad(const dataset *d, const token_file *f, const unsigned char *at, int64_t count) {
    int64_t i = 0;
#define SCAN(type)                                                                                           \
    for (const type *ids = (const void *)at; i < count && (uint64_t)ids[i] < (uint64_t)d->vocab;) i++;       \
    break
    switch (f->width * (f->is_signed ? -1 : 1)) {
    case 1: SCAN(uint8_t);
    case 2: SCAN(uint16_t);
    case 4: SCAN(uint32_t);
    case 8: SCAN(uint64_t);
    case -1: SCAN(int8_t);
    case -2: SCAN(int16_t);
    case -4: SCAN(int32_t);
    default: SCAN(int64_t);
    }
#undef SCAN
    return i;
}

/* Checks tokens [at, end) of the shard. */
static ott_status check_open(const dataset *d, const cancellation *w, const shard *s, const file_reader *r,
                             int64_t at, int64_t end, unsigned char *buffer, int64_t buffer_bytes) {
    for (int64_t width = s->file.width, part; at < end; at += part) {
        TRY(cancellation_check(w));
        part = end - at < buffer_bytes / width ? end - at : buffer_bytes / width;
        TRY(file_reader_read(r, s->file.offset + at * width, buffer, part * width));
        int64_t bad = find_bad(d, &s->file, buffer, part);
        if (bad < part) return check_id(d, s, r, extend_id(buffer + bad * width, &s->file), at + bad);
    }
    return OTT_OK;
}

static ott_status check_shard(const dataset *d, const cancellation *w, const shard *s, int64_t at,
                              int64_t end, void *buffer, int64_t buffer_bytes) {
    file_reader r = s->reader;
    if (r.descriptor < 0) TRY(file_reader_open(s->path, &r));
    ott_status status = check_open(d, w, s, &r, at, end, buffer, buffer_bytes);
    if (s->reader.descriptor < 0) file_reader_close(&r);
    return status;
}

/* Checks all ids, so that the run does not stop at the step that reads an invalid one. */
static ott_status check_file_ids(const dataset *d, const cancellation *w) {
    enum { BUFFER_BYTES = 1 << 18 };
    const shards *all = d->state;
    int64_t bytes = 0, end = all->first + d->tokens;
    ott_status status = OTT_OK;
    void *buffer;
    for (int64_t i = 0; i < all->count; i++) bytes += all->shard[i].file.count * all->shard[i].file.width;
    if (bytes > CHECKED_BYTES) return OTT_OK;
    TRY(mem_alloc(d->account, MEM_OTHER, BUFFER_BYTES, "tokens to check", &buffer));
    for (int64_t i = 0; i < all->count && status == OTT_OK; i++) {
        const shard *s = &all->shard[i];
        int64_t from = s->before < all->first ? all->first - s->before : 0;
        int64_t to = s->before + s->file.count > end ? end - s->before : s->file.count;
        if (from < to) status = check_shard(d, w, s, from, to, buffer, BUFFER_BYTES);
    }
    mem_free(d->account, buffer);
    return status;
}

/* ---- opening ---- */

static ott_status open_shards(dataset *d, const dataset_source *s) {
    TRY(mem_alloc(d->account, MEM_DATA, sizeof(shards), "token files", &d->state));
    shards *all = d->state;
    TRY(mem_alloc_array(d->account, MEM_DATA, s->count, sizeof(shard), "token files", &all->shard));
    for (int64_t i = 0; i < s->count; i++) {
        shard *next = &all->shard[all->count++];
        const char *path = s->paths[i];
        next->reader.descriptor = -1;
        TRY(mem_strdup(d->account, path, &next->path));
        TRY(token_file_inspect(d->account, path, &next->file));
        if (s->count <= KEPT_OPEN) TRY(file_reader_open(next->path, &next->reader));
        next->before = all->tokens;
        all->tokens += next->file.count;
    }
    return OTT_OK;
}

/* Counts the documents of all files; -1 if a file does not specify its documents. */
static int64_t count_documents(const shards *all) {
    int64_t count = 0;
    for (int64_t i = 0; i < all->count; i++) {
        if (!all->shard[i].file.begin) return -1;
        count += all->shard[i].file.documents;
    }
    return count;
}

/* Sets d->begin: the first token of each document. Documents that the dataset does not use become empty. */
static ott_status join_documents(dataset *d) {
    const shards *all = d->state;
    int64_t count = count_documents(all), at = 0;
    if (count < 0) return OTT_OK;
    TRY(mem_alloc_array(d->account, MEM_DATA, count + 1, sizeof *d->begin, "documents", &d->begin));
    d->documents = count;
    for (int64_t i = 0; i < all->count; i++)
        for (int64_t j = 0; j < all->shard[i].file.documents; j++) {
            int64_t begin = all->shard[i].before + all->shard[i].file.begin[j] - all->first;
            d->begin[at++] = begin < 0 ? 0 : begin > d->tokens ? d->tokens : begin;
        }
    d->begin[count] = d->tokens;
    return OTT_OK;
}

static ott_status fill_dataset(dataset *d, const dataset_source *s) {
    TRY(dataset_name_files(d, s));
    TRY(open_shards(d, s));
    shards *all = d->state;
    all->first = (int64_t)floor(s->from_share * (double)all->tokens);
    int64_t end = s->to_share < 1 ? (int64_t)floor(s->to_share * (double)all->tokens) : all->tokens;
    d->tokens = end - all->first;
    TRY(join_documents(d));
    d->vocab = s->vocab;
    if (!d->begin && s->tokenizer) d->last_token = tokenizer_eos(s->tokenizer);
    return check_file_ids(d, s->cancellation);
}

ott_status dataset_open_tokens(mem *account, const dataset_source *s, dataset **out) {
    dataset *d;
    *out = NULL;
    TRY(dataset_check_share(s));
    if (s->vocab < 1 || s->vocab > INT32_MAX)
        return status_fail(OTT_ERR_ARGUMENT, "%s: a vocabulary of %" PRId64 " is not in [1, 2^31)",
                           s->paths[0], s->vocab);
    TRY(dataset_new(account, &tokens_source, &dataset_windows, &d));
    ott_status status = fill_dataset(d, s);
    if (status != OTT_OK) return dataset_close(d), status;
    return *out = d, OTT_OK;
}
