/* data/corpus: documents that are tokenized during opening and kept in memory. */
#include "data/corpus.h"
#include <string.h>

static ott_status corpus_read(const dataset *d, int64_t begin, int64_t count, int32_t *tokens) {
    memcpy(tokens, (const int32_t *)d->state + begin, (size_t)count * sizeof *tokens);
    return OTT_OK;
}

static const token_source corpus_source = {corpus_read, NULL};

ott_status corpus_open(mem *account, const dataset_source *s, bool samples, corpus *c) {
    *c = (corpus){.source = s, .samples = samples, .ids = {.account = account}};
    if (!s->tokenizer) return OTT_OK;
    TRY(tokenizer_scratch_open(account, s->tokenizer, &c->scratch));
    tokenizer_scratch_set_cancellation(c->scratch, s->cancellation);
    return OTT_OK;
}

void corpus_close(corpus *c) {
    mem *account = c->ids.account;
    tokenizer_scratch_close(c->scratch);
    tokenizer_ids_free(&c->ids);
    mem_free(account, c->begin);
    mem_free(account, c->learned);
    c->begin = NULL;
    c->learned = NULL;
    c->scratch = NULL;
}

ott_status corpus_add(corpus *c, const char *text, int64_t bytes, unsigned flags) {
    if (c->scratch) return tokenizer_encode(c->source->tokenizer, c->scratch, text, bytes, flags, &c->ids);
    TRY(tokenizer_ids_reserve(&c->ids, bytes));
    for (int64_t i = 0; i < bytes; i++) c->ids.ids[c->ids.count++] = (unsigned char)text[i];
    return OTT_OK;
}

ott_status corpus_add_ids(corpus *c, const tokenizer_ids *ids) {
    TRY(tokenizer_ids_reserve(&c->ids, ids->count));
    memcpy(c->ids.ids + c->ids.count, ids->ids, (size_t)ids->count * sizeof *ids->ids);
    c->ids.count += ids->count;
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

int64_t corpus_length(const corpus *c) {
    return c->ids.count - (c->documents > 0 ? c->begin[c->documents] : 0);
}

ott_status corpus_end(corpus *c, int64_t prompt, const uint8_t *learned) {
    mem *account = c->ids.account;
    int64_t length = corpus_length(c), first = c->ids.count - length;
    if (length == 0) return OTT_OK;
    if (length > INT32_MAX)
        return status_fail(OTT_ERR_UNSUPPORTED, "a document of %lld tokens", (long long)length);
    TRY(mem_reserve(account, MEM_DATA, c->documents + 2, "documents", &c->capacity, &c->begin));
    if (c->samples)
        TRY(mem_reserve(account, MEM_DATA, c->ids.count, "which tokens are targets", &c->samples_capacity,
                        &c->learned));
    c->begin[++c->documents] = c->ids.count;
    if (learned)
        memcpy(c->learned + first, learned, (size_t)length);
    else if (c->samples && prompt < length)
        memset(c->learned + first + prompt, 1, (size_t)(length - prompt));
    return OTT_OK;
}

ott_status corpus_add_document(corpus *c, const char *text, int64_t bytes) {
    if (bytes == 0) return OTT_OK;
    TRY(corpus_add_bos(c));
    TRY(corpus_add(c, text, bytes, 0));
    TRY(corpus_add_eos(c));
    return corpus_end(c, 0, NULL);
}

ott_status corpus_finish(corpus *c, dataset **out) {
    const bool samples = c->samples;
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
    d->learned = c->learned;
    c->learned = NULL;
    c->ids = (tokenizer_ids){.account = account};
    c->begin = NULL;
    return *out = d, OTT_OK;
}
