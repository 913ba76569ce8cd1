/* data/corpus: collects the tokens of documents in memory while they are read. Internal to src/data. */
#ifndef DATA_CORPUS_H
#define DATA_CORPUS_H

#include "data/dataset_internal.h"

typedef struct corpus {
    const dataset_source *source; /* the dataset's source, borrowed */
    tokenizer_ids ids;            /* token ids of all documents so far */
    tokenizer_scratch *scratch;   /* NULL: bytes are tokens */
    int64_t *begin;               /* [documents + 1] first token of each document */
    uint8_t *learned;             /* [samples_capacity] 1 if the token is a target; NULL for running text */
    int64_t documents, capacity, samples_capacity; /* complete documents; capacities of begin and learned */
    bool samples;
} corpus;

/* samples: true for samples, false for running text. */
ott_status corpus_open(mem *account, const dataset_source *s, bool samples, corpus *c);
void corpus_close(corpus *c);
/* Appends a text's tokens to the current document. `flags` as in tokenizer_encode. */
ott_status corpus_add(corpus *c, const char *text, int64_t bytes, unsigned flags);
ott_status corpus_add_ids(corpus *c, const tokenizer_ids *ids); /* appends tokens to the current document */
ott_status corpus_add_bos(corpus *c); /* appends the BOS if source->add_bos and the tokenizer has one */
ott_status corpus_add_eos(corpus *c);
/* Number of tokens in the current document. */
int64_t corpus_length(const corpus *c);
/* Ends the current document, unless it is empty. In samples the targets are the tokens k with learned[k] = 1,
   or all but the first `prompt` tokens if `learned` is NULL. */
ott_status corpus_end(corpus *c, int64_t prompt, const uint8_t *learned);
/* Adds a text as a document, with BOS and EOS, unless it is empty. */
ott_status corpus_add_document(corpus *c, const char *text, int64_t bytes);
/* Makes a dataset of the documents. The dataset takes ownership of the memory. */
ott_status corpus_finish(corpus *c, dataset **out);

#endif
