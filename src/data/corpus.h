/* data/corpus: documents that are being read: their tokens in memory, and where each begins. Internal to this floor. */
#ifndef DATA_CORPUS_H
#define DATA_CORPUS_H

#include "data/dataset_internal.h"

typedef struct corpus {
    const dataset_source *source;
    tokenizer_ids ids;
    tokenizer_scratch *scratch;
    int64_t *begin;  /* [documents + 1] */
    int32_t *prompt; /* [documents] */
    int64_t documents, capacity;
} corpus;

ott_status corpus_open(mem *account, const dataset_source *s, corpus *c);
void corpus_close(corpus *c);
/* Appends the tokens of a text to the document. `flags`: of tokenizer_encode. */
ott_status corpus_add(corpus *c, const char *text, int64_t bytes, unsigned flags);
ott_status corpus_add_bos(corpus *c); /* where the source asks for it and the tokenizer has one */
ott_status corpus_add_eos(corpus *c);
/* How many tokens the document has so far. */
int64_t corpus_length(const corpus *c);
/* Ends the document; an empty one is none. Its first `prompt` tokens are no targets. */
ott_status corpus_end(corpus *c, int64_t prompt);
/* The dataset of it: samples, or running text. Takes the memory over. */
ott_status corpus_finish(corpus *c, bool samples, dataset **out);

#endif
