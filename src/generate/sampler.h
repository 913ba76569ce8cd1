/* generate/sampler: the next token, chosen from logits. */
#ifndef GENERATE_SAMPLER_H
#define GENERATE_SAMPLER_H

#include "base/mem.h"
#include "ottava/ottava.h"
#include <stdbool.h>

typedef struct sampler {
    mem *account;
    const ott_generate_options *options; /* borrowed */
    int64_t choices;                     /* ids [0, choices) may be chosen */
    float *logits;  /* [vocab], of the next token: the caller fills it before each choice */
    int32_t *heap;  /* [choices] */
    bool *seen;     /* [vocab] the text so far has this token */
    uint64_t drawn; /* tokens chosen so far */
} sampler;

ott_status sampler_open(mem *account, const ott_generate_options *o, int64_t vocab, int64_t choices,
                        sampler *out);
void sampler_close(sampler *s);
/* Tokens of the prompt; those chosen are noted by themselves. */
void sampler_note(sampler *s, const int32_t *tokens, int64_t count);
/*
 * In Hugging Face's order: the logits of tokens that the text has are divided by repetition_penalty where
 * they are positive and multiplied where they are negative; then temperature, top_k, top_p. Of equally likely
 * tokens the lower id comes first, so that top_k keeps no more than it says. Spoils the logits.
 * OTT_ERR_DIVERGED when one of them is NaN or +infinity.
 */
ott_status sampler_choose(sampler *s, int32_t *token);

#endif
