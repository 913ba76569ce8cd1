/*
 * model/cache: a cache for inference on one growing sequence. It keeps what the layers' mixers need of
 * earlier tokens (for attention, keys and values), so that earlier tokens are not computed again.
 *
 * Tokens run through the layers in chunks of 1, 2, 4, ... up to CACHE_CHUNK tokens. model_cache_open plans
 * the memory of every chunk size; nothing is allocated later.
 *
 * Logits have the same bits as if one forward pass computed the full sequence. This holds in high precision,
 * and for FP8 with rowwise, 1x128, 1x32 or delayed scales. Current tensorwise scaling uses one scale for all
 * tokens of a chunk, so its logits are only close to those of one pass.
 */
#ifndef MODEL_CACHE_H
#define MODEL_CACHE_H

#include "model/model.h"

#define CACHE_CHUNK 128

typedef struct model_cache model_cache;

/* Opens a cache for at most `capacity` tokens. The model must be converted, and its rotary tables must have
   at least `capacity` rows. Close the cache before the model is converted again or its weights change. The
   first call of model_cache_extend computes the weights in the GEMMs' formats. `log` is borrowed. */
ott_status model_cache_open(model *m, const logger *log, int64_t capacity, model_cache **out);
void model_cache_close(model_cache *c); /* may be called after model_close; c may be NULL */
int64_t model_cache_length(const model_cache *c);
int64_t model_cache_capacity(const model_cache *c);
/* Sets the number of training steps of the weights (exec.step). The default is 0. Call it before
   model_cache_extend. */
void model_cache_set_step(model_cache *c, int64_t step);
/* Removes all tokens from position `length` on. */
void model_cache_truncate(model_cache *c, int64_t length);
/* Appends tokens[count] within the capacity. Writes the last token's logits[vocab] in fp32 to the host. */
ott_status model_cache_extend(model_cache *c, const int32_t *tokens, int64_t count, float *logits);
/* *all: number of forward GEMMs so far; *fp8: number of FP8 GEMMs among them. */
void model_cache_gemms(const model_cache *c, int64_t *all, int64_t *fp8);

#endif
