/* data/dataset_corpus: documents that are tokenized when they are opened, and kept in memory. */
#define _GNU_SOURCE /* memmem */
#include "base/file.h"
#include "data/dataset_parts.h"
#include <string.h>

/* ---- reading ---- */

static ott_status corpus_read(const dataset *d, int64_t begin, int64_t count, int32_t *tokens) {
    memcpy(tokens, (const int32_t *)d->state + begin, (size_t)count * sizeof *tokens);
    return OTT_OK;
}

static const token_source corpus_source = {corpus_read, NULL};

/* ---- building ---- */

ott_status corpus_open(mem *account, const dataset_source *s, corpus *c) {
    *c = (corpus){.source = s, .ids = {.account = account}};
    return s->tokenizer ? tokenizer_scratch_open(account, s->tokenizer, &c->scratch) : OTT_OK;
}

void corpus_close(corpus *c) {
    mem *account = c->ids.account;
    tokenizer_scratch_close(c->scratch);
    tokenizer_ids_free(&c->ids);
    mem_free(account, c->begin);
    mem_free(account, c->prompt);
    c->begin = NULL;
    c->prompt = NULL;
    c->scratch = NULL;
}

ott_status corpus_add(corpus *c, const char *text, int64_t bytes, unsigned flags) {
    if (c->scratch) return tokenizer_encode(c->source->tokenizer, c->scratch, text, bytes, flags, &c->ids);
    TRY(tokenizer_ids_reserve(&c->ids, bytes));
    for (int64_t i = 0; i < bytes; i++) c->ids.ids[c->ids.count++] = (unsigned char)text[i];
    return OTT_OK;
}

static ott_status add_id(corpus *c, int32_t id) {
    return id < 0 ? OTT_OK : tokenizer_ids_append(&c->ids, id);
}

ott_status corpus_add_bos(corpus *c) {
    return c->scratch && c->source->add_bos ? add_id(c, tokenizer_bos(c->source->tokenizer)) : OTT_OK;
}

ott_status corpus_add_eos(corpus *c) {
    return c->scratch && c->source->add_eos ? add_id(c, tokenizer_eos(c->source->tokenizer)) : OTT_OK;
}

static int64_t document_begin(const corpus *c) {
    return c->documents > 0 ? c->begin[c->documents] : 0;
}

int64_t corpus_length(const corpus *c) {
    return c->ids.count - document_begin(c);
}

static ott_status reserve_document(corpus *c) {
    int64_t capacity = c->capacity ? 2 * c->capacity : 256;
    void *begin = c->begin, *prompt = c->prompt;
    if (c->documents < c->capacity) return OTT_OK;
    TRY(mem_grow(c->ids.account, MEM_DATA, (capacity + 1) * (int64_t)sizeof *c->begin, "documents", &begin));
    c->begin = begin;
    TRY(mem_grow(c->ids.account, MEM_DATA, capacity * (int64_t)sizeof *c->prompt, "documents", &prompt));
    c->prompt = prompt;
    c->capacity = capacity;
    return OTT_OK;
}

ott_status corpus_end(corpus *c, int64_t prompt) {
    int64_t length = corpus_length(c);
    if (length == 0) return OTT_OK;
    if (length > INT32_MAX)
        return status_fail(OTT_ERR_UNSUPPORTED, "a document of %lld tokens", (long long)length);
    TRY(reserve_document(c));
    c->prompt[c->documents++] = (int32_t)prompt;
    c->begin[c->documents] = c->ids.count;
    return OTT_OK;
}

ott_status corpus_finish(corpus *c, bool samples, dataset **out) {
    mem *account = c->ids.account;
    dataset *d;
    TRY(dataset_new(account, &corpus_source, samples ? &dataset_packs : &dataset_windows, &d));
    ott_status status = dataset_name_files(d, c->source);
    if (status != OTT_OK) return dataset_close(d), status;
    d->state = c->ids.ids;
    d->tokens = c->ids.count;
    d->vocab = c->scratch ? tokenizer_vocab(c->source->tokenizer) : 256;
    d->documents = c->documents;
    d->begin = c->begin;
    d->has_samples = samples;
    for (int64_t i = 0; samples && i < d->documents; i++)
        if (d->begin[i + 1] - d->begin[i] > d->longest) d->longest = d->begin[i + 1] - d->begin[i];
    if (samples) d->prompt = c->prompt;
    if (samples) c->prompt = NULL;
    c->ids = (tokenizer_ids){.account = account};
    c->begin = NULL;
    *out = d;
    return OTT_OK;
}

/* ---- text ---- */

/* A text that is cut into documents. */
typedef struct cutting {
    const char *text; /* [bytes] */
    int64_t bytes;
} cutting;

/* Ends of a share may cut a character: what is left of it belongs to no part. */
static cutting whole_characters(const char *text, int64_t bytes) {
    cutting c = {text, bytes};
    for (int i = 0; i < TEXT_SLACK && c.bytes > 0 && ((unsigned char)*c.text & 0xc0) == 0x80; i++)
        c.text++, c.bytes--;
    int64_t cut = str_utf8_error(c.text, c.bytes);
    if (cut >= 0) c.bytes = cut;
    return c;
}

static ott_status add_document(corpus *c, const char *text, int64_t bytes) {
    if (bytes == 0 || (c->source->limit > 0 && c->documents >= c->source->limit)) return OTT_OK;
    TRY(corpus_add_bos(c));
    TRY(corpus_add(c, text, bytes, 0));
    TRY(corpus_add_eos(c));
    return corpus_end(c, 0);
}

static ott_status add_documents(corpus *c, cutting t) {
    const char *separator = c->source->separator, *end;
    int64_t size = (int64_t)strlen(separator);
    while (size > 0 && (end = memmem(t.text, (size_t)t.bytes, separator, (size_t)size))) {
        TRY(add_document(c, t.text, end - t.text));
        t.bytes -= end + size - t.text;
        t.text = end + size;
    }
    return add_document(c, t.text, t.bytes);
}

/* What of the share lies in this file. */
static ott_status add_file(corpus *c, const char *path, const text_share *share, int64_t before,
                           int64_t *bytes) {
    void *memory;
    TRY(file_size(path, bytes));
    int64_t begin = share->begin > before ? share->begin : before;
    int64_t end = share->end < before + *bytes ? share->end : before + *bytes;
    if (begin >= end) return OTT_OK;
    TRY(mem_alloc(c->ids.account, MEM_DATA, end - begin + 2 * TEXT_SLACK, path, &memory));
    char *text = (char *)memory + TEXT_SLACK;
    ott_status status = text_file_read(path, before, begin, end, text, bytes);
    if (status == OTT_OK) {
        status = add_documents(c, whole_characters(text, end - begin));
        if (status != OTT_OK) status_context(status, "%s", path);
    }
    mem_free(c->ids.account, memory);
    return status;
}

ott_status dataset_open_text(mem *account, const dataset_source *s, dataset **out) {
    text_share share;
    corpus c;
    ott_status status = OTT_OK;
    *out = NULL;
    TRY(text_share_of(s, &share));
    TRY(corpus_open(account, s, &c));
    for (int64_t i = 0, before = 0, bytes = 0; i < s->count && status == OTT_OK; i++, before += bytes)
        status = add_file(&c, s->paths[i], &share, before, &bytes);
    if (status == OTT_OK) status = corpus_finish(&c, false, out);
    corpus_close(&c);
    return status;
}
