/*
 * model/cache: inference on one sequence that grows: keys and values of the tokens so far are kept, so that a
 * further token costs one token's work.
 *
 * Tokens go through the layers in chunks of 1, 2, 4, ... up to CACHE_CHUNK; memory for all of these is
 * planned when the cache is opened, and nothing is allocated after that. A token's arithmetic is that of one
 * forward over the whole sequence, bit for bit, wherever its numbers depend on its own row alone: in high
 * precision, and with scales of rows, of 1x128 and 1x32 blocks, or delayed ones, which are given. Current
 * tensorwise scaling takes one scale for all tokens that are computed together, which here are those of a
 * chunk: its results are near those of the whole forward, not the same.
 */
#ifndef MODEL_CACHE_H
#define MODEL_CACHE_H

#include "model/model.h"

#define CACHE_CHUNK 128

typedef struct model_cache model_cache;

/* For at most `capacity` tokens, of which rotary tables must hold as many positions. The model must be
   converted, and not be converted again while the cache is open; its compute weights are made at the first
   extension, and stay. */
ott_status model_cache_open(model *m, const logger *log, int64_t capacity, model_cache **out);
void model_cache_close(model_cache *c); /* before the model; NULL is allowed */
int64_t model_cache_length(const model_cache *c);
int64_t model_cache_capacity(const model_cache *c);
/* Forgets all tokens from position `length` on. */
void model_cache_truncate(model_cache *c, int64_t length);
/* Appends `count` tokens, which must fit, and leaves the logits of the last of them in logits[vocab]. */
ott_status model_cache_extend(model_cache *c, const int32_t *tokens, int64_t count, float *logits);
/* Matrix products of the output kind so far, and those of them in FP8. */
void model_cache_gemms(const model_cache *c, int64_t *all, int64_t *fp8);

#endif
