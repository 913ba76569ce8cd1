/* generate/sampler: chooses the next token from logits. */
#ifndef GENERATE_SAMPLER_H
#define GENERATE_SAMPLER_H

#include "base/mem.h"
#include "ottava/ottava.h"
#include <stdbool.h>

typedef struct sampler {
    mem *account;
    const ott_generate_options *options; /* borrowed from the caller */
    int64_t choices;                     /* tokens with a smaller id can be chosen; at most vocab */
    float *logits;  /* [vocab]; the caller fills it before each sampler_choose, which overwrites it */
    int32_t *heap;  /* [choices]: token ids, used by top_k and top_p */
    bool *seen;     /* [vocab]: true if the text so far has this token */
    uint64_t drawn; /* number of tokens chosen so far; counter of the random numbers */
} sampler;

ott_status sampler_open(mem *account, const ott_generate_options *o, int64_t vocab, int64_t choices,
                        sampler *out);
void sampler_close(sampler *s);
/* Marks tokens of the prompt as seen, for repetition_penalty. sampler_choose marks the chosen ones. */
void sampler_note(sampler *s, const int32_t *tokens, int64_t count);
/*
 * Chooses a token, in Hugging Face's order: repetition_penalty divides positive logits of seen tokens and
 * multiplies negative ones; then temperature, top_k and top_p apply. Equally likely tokens are ordered by id.
 * temperature 0 takes the most likely token. OTT_ERR_DIVERGED if a logit is NaN or +infinity.
 */
ott_status sampler_choose(sampler *s, int32_t *token);

#endif
