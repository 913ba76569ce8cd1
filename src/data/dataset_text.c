/* data/dataset_text: text files split into documents. */
#include "data/corpus.h"
#include "tokenizer/text/text.h"

/* Removes the incomplete characters at the ends of a share. */
static text_view complete_characters(const char *text, int64_t bytes) {
    text_view c = {text, bytes};
    for (int i = 0; i < TEXT_SLACK && c.bytes > 0 && ((unsigned char)*c.at & 0xc0) == 0x80; i++)
        c.at++, c.bytes--;
    int64_t bad = str_utf8_error(c.at, c.bytes);
    if (bad >= 0) c.bytes = bad;
    return c;
}

static ott_status add_text_document(corpus *c, const char *text, int64_t bytes) {
    TRY(cancellation_check(c->source->cancellation));
    if (c->source->limit > 0 && c->documents >= c->source->limit) return OTT_OK;
    return corpus_add_document(c, text, bytes);
}

static ott_status add_documents(corpus *c, text_view t) {
    const char *separator = c->source->separator, *end;
    int64_t size = (int64_t)strlen(separator);
    while (size > 0 && (end = memmem(t.at, (size_t)t.bytes, separator, (size_t)size))) {
        TRY(add_text_document(c, t.at, end - t.at));
        t.bytes -= end + size - t.at;
        t.at = end + size;
    }
    return add_text_document(c, t.at, t.bytes);
}

/* Adds the documents of file i that are in the byte range `share`. `before`: total bytes of earlier files. */
static ott_status add_text_file(corpus *c, int64_t i, const text_share *share, int64_t before) {
    void *memory;
    mem *account = c->ids.account;
    const char *path = c->source->paths[i];
    int64_t bytes = share->sizes[i], begin = share->begin > before ? share->begin : before;
    int64_t end = share->end < before + bytes ? share->end : before + bytes;
    if (begin >= end) return OTT_OK;
    TRY(mem_alloc(account, MEM_DATA, end - begin + 2 * TEXT_SLACK, path, &memory));
    char *text = (char *)memory + TEXT_SLACK;
    ott_status status =
        dataset_text_read(account, path, bytes, c->source->cancellation, before, begin, end, text);
    if (status == OTT_OK) {
        status = add_documents(c, complete_characters(text, end - begin));
        if (status != OTT_OK && status != OTT_ERR_STOPPED) status_context(status, "%s", path);
    }
    mem_free(account, memory);
    return status;
}

ott_status dataset_open_text(mem *account, const dataset_source *s, dataset **out) {
    text_share share;
    corpus c;
    *out = NULL;
    TRY(dataset_text_share(account, s, &share));
    ott_status status = corpus_open(account, s, false, &c);
    if (status != OTT_OK) return mem_free(account, share.sizes), status;
    for (int64_t i = 0, before = 0; i < s->count && status == OTT_OK; before += share.sizes[i++])
        status = add_text_file(&c, i, &share, before);
    if (status == OTT_OK) status = corpus_finish(&c, out);
    corpus_close(&c);
    mem_free(account, share.sizes);
    return status;
}
