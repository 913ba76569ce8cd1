/* data/dataset_bytes: datasets of text bytes and of random tokens. */
#include "base/rng.h"
#include "data/dataset_internal.h"
#include "data/text_file/text_file.h"
#include <inttypes.h>
#include <math.h>

static ott_status bytes_read(const dataset *d, int64_t begin, int64_t count, int32_t *tokens) {
    const unsigned char *bytes = (const unsigned char *)d->state + TEXT_SLACK;
    for (int64_t i = 0; i < count; i++) tokens[i] = bytes[begin + i];
    return OTT_OK;
}

static const token_source bytes_source = {bytes_read, NULL};

/* Range [begin, end) of a file, and the range to read, with up to TEXT_SLACK extra bytes on each side. The
   extra bytes complete the characters at the range's ends, so that these characters can be checked. */
typedef struct part {
    int64_t begin, end, read_begin, read_end;
} part;

static int64_t clamp_to_file(int64_t x, int64_t least, int64_t most) {
    return x < least ? least : x > most ? most : x;
}

/* Returns which bytes of this file are in [begin, end). begin and end count from the first file's start. */
static part part_of_file(int64_t bytes, int64_t before, int64_t begin, int64_t end) {
    part p = {.begin = clamp_to_file(begin - before, 0, bytes), .end = clamp_to_file(end - before, 0, bytes)};
    p.read_begin = p.begin > TEXT_SLACK ? p.begin - TEXT_SLACK : 0;
    p.read_end = bytes - p.end > TEXT_SLACK ? p.end + TEXT_SLACK : bytes;
    return p;
}

static ott_status check_part_utf8(const char *path, const part *p, const char *text) {
    int64_t skip = 0;
    while (p->read_begin > 0 && skip < TEXT_SLACK && p->read_begin + skip < p->read_end &&
           (text[skip] & 0xc0) == 0x80)
        skip++; /* the end of a character that began before the range */
    int64_t bad = str_utf8_error(text + skip, p->read_end - p->read_begin - skip);
    if (bad < 0 || p->read_begin + skip + bad >= p->end) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT, "%s: is not UTF-8 text: byte %" PRId64 " (0x%02x)", path,
                       p->read_begin + skip + bad, (unsigned char)text[skip + bad]);
}

static ott_status choose_share(const dataset_source *s, int64_t total, text_share *out) {
    *out = (text_share){.begin = (int64_t)floor(s->from_share * (double)total), .end = total, .total = total};
    if (s->to_share < 1) out->end = (int64_t)floor(s->to_share * (double)total);
    if (out->end - out->begin <= TEXT_LIMIT) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "%s: %" PRId64
                       " bytes are more than the 4 GiB of text held in memory; split the text, or make token "
                       "files of it",
                       s->paths[0], out->end - out->begin);
}

ott_status dataset_text_share(mem *account, const dataset_source *s, text_share *out) {
    int64_t total = 0, *sizes;
    *out = (text_share){0};
    TRY(dataset_check_share(s));
    TRY(mem_alloc_array(account, MEM_OTHER, s->count, sizeof *sizes, "sizes of files", &sizes));
    ott_status status = OTT_OK;
    for (int64_t i = 0; i < s->count && status == OTT_OK; i++) {
        status = text_file_bytes(account, s->paths[i], s->cancellation, &sizes[i]);
        if (status == OTT_OK && sizes[i] == 0)
            status = status_fail(OTT_ERR_FORMAT, "%s: is empty", s->paths[i]);
        total += sizes[i];
    }
    if (status == OTT_OK) status = choose_share(s, total, out);
    out->sizes = sizes;
    if (status != OTT_OK) mem_free(account, sizes);
    return status;
}

enum { BYTES_BETWEEN_CHECKS = 16 << 20 };

static ott_status read_watched(text_file *f, const char *path, const cancellation *w, char *to,
                               int64_t bytes) {
    for (int64_t at = 0, count; at < bytes; at += count) {
        count = bytes - at < BYTES_BETWEEN_CHECKS ? bytes - at : BYTES_BETWEEN_CHECKS;
        TRY(cancellation_check(w));
        TRY(text_file_read(f, to + at, count, &count));
        if (count == 0) return status_fail(OTT_ERR_IO, "%s: the file became shorter", path);
    }
    return OTT_OK;
}

ott_status dataset_text_read(mem *account, const char *path, int64_t bytes, const cancellation *w,
                             int64_t before, int64_t begin, int64_t end, char *text) {
    text_file *f;
    int64_t skipped;
    part p = part_of_file(bytes, before, begin, end);
    char *to = text + (before + p.read_begin - begin);
    if (p.begin >= p.end) return OTT_OK;
    TRY(text_file_open(account, path, &f));
    ott_status status = text_file_skip(f, w, p.read_begin, &skipped);
    if (status == OTT_OK) status = read_watched(f, path, w, to, p.read_end - p.read_begin);
    text_file_close(f);
    return status == OTT_OK ? check_part_utf8(path, &p, to) : status;
}

/* Adds the byte range to the dataset's name, unless all bytes are read. */
static ott_status name_byte_range(dataset *d, const text_share *p) {
    char *files = d->name;
    if (p->end - p->begin == p->total) return OTT_OK;
    ott_status status =
        str_format(d->account, &d->name, "%s (bytes %" PRId64 " to %" PRId64 ")", files, p->begin, p->end);
    mem_free(d->account, files);
    return status;
}

static ott_status read_bytes(dataset *d, const dataset_source *s, const text_share *p) {
    int64_t before = 0;
    TRY(dataset_name_files(d, s));
    TRY(name_byte_range(d, p));
    TRY(mem_alloc(d->account, MEM_DATA, p->end - p->begin + 2 * TEXT_SLACK, s->paths[0], &d->state));
    for (int64_t i = 0; i < s->count; before += p->sizes[i++])
        TRY(dataset_text_read(d->account, s->paths[i], p->sizes[i], s->cancellation, before, p->begin, p->end,
                              (char *)d->state + TEXT_SLACK));
    d->tokens = p->end - p->begin;
    d->vocab = 256;
    return OTT_OK;
}

ott_status dataset_open_bytes(mem *account, const dataset_source *s, dataset **out) {
    text_share p;
    dataset *d = NULL;
    *out = NULL;
    TRY(dataset_text_share(account, s, &p));
    ott_status status = dataset_new(account, &bytes_source, &dataset_windows, &d);
    if (status == OTT_OK) status = read_bytes(d, s, &p);
    mem_free(account, p.sizes);
    if (status != OTT_OK) return dataset_close(d), status;
    return *out = d, OTT_OK;
}

static ott_status synthetic_read(const dataset *d, int64_t begin, int64_t count, int32_t *tokens) {
    const uint64_t stream = rng_stream("synthetic");
    for (int64_t i = 0; i < count; i++) {
        uint64_t word = rng_u32(d->seed, stream, (uint64_t)(begin + i));
        tokens[i] = (int32_t)(word * (uint64_t)d->vocab >> 32); /* scales word / 2^32 to the vocabulary */
    }
    return OTT_OK;
}

static const token_source synthetic_source = {synthetic_read, NULL};

ott_status dataset_open_synthetic(mem *account, int64_t vocab, uint64_t seed, int64_t count, dataset **out) {
    dataset *d;
    *out = NULL;
    if (vocab < 1 || vocab > INT32_MAX)
        return status_fail(OTT_ERR_ARGUMENT,
                           "synthetic tokens: a vocabulary of %" PRId64 " is not in [1, 2^31)", vocab);
    if (count < 0)
        return status_fail(OTT_ERR_ARGUMENT, "synthetic tokens: a count of %" PRId64 " is negative", count);
    TRY(dataset_new(account, &synthetic_source, &dataset_windows, &d));
    ott_status status = mem_strdup(account, "synthetic tokens", &d->name);
    if (status != OTT_OK) return dataset_close(d), status;
    d->tokens = count;
    d->vocab = vocab;
    d->seed = seed;
    return *out = d, OTT_OK;
}
