/* data/corpus: documents that are being read: their tokens in memory, and where each begins. Internal to this floor. */
#ifndef DATA_CORPUS_H
#define DATA_CORPUS_H

#include "data/dataset_internal.h"

typedef struct corpus {
    const dataset_source *source;
    tokenizer_ids ids;
    tokenizer_scratch *scratch;
    int64_t *begin;   /* [documents + 1] */
    uint8_t *learned; /* [room] of samples: 1 for each token that is a target; NULL: running text */
    int64_t documents, capacity, room;
    bool samples;
} corpus;

/* Of samples, or of running text. */
ott_status corpus_open(mem *account, const dataset_source *s, bool samples, corpus *c);
void corpus_close(corpus *c);
/* Appends the tokens of a text to the document. `flags`: of tokenizer_encode. */
ott_status corpus_add(corpus *c, const char *text, int64_t bytes, unsigned flags);
ott_status corpus_add_ids(corpus *c, const tokenizer_ids *ids); /* tokens as they are */
ott_status corpus_add_bos(corpus *c); /* where the source asks for it and the tokenizer has one */
ott_status corpus_add_eos(corpus *c);
/* How many tokens the document has so far. */
int64_t corpus_length(const corpus *c);
/* Ends the document; an empty one is none. Its first `prompt` tokens are no targets. */
ott_status corpus_end(corpus *c, int64_t prompt);
/* The same; learned[corpus_length]: 1 for each that is one. Samples only. */
ott_status corpus_end_learned(corpus *c, const uint8_t *learned);
/* The dataset of it. Takes the memory over. */
ott_status corpus_finish(corpus *c, dataset **out);

#endif
