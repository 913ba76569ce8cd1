/* generate/generate: text from a trained model, in the precision it was trained in or in BF16. */
#ifndef GENERATE_GENERATE_H
#define GENERATE_GENERATE_H

#include "base/log.h"
#include "base/mem.h"
#include "ottava/ottava.h"

/*
 * A model with a cache of the tokens so far (model/cache.h: how its numbers compare with those of one forward
 * over all of them). When the window of train.seq_len tokens is full, the newer half of it is computed anew
 * from its first token, at positions from 0: no token ever stands where training had none, and a token still
 * costs two tokens' work on average.
 */
typedef struct text_generator text_generator;

/* `options` is copied, its prompt is not read. */
ott_status generate_open(mem *account, const logger *log, const char *run,
                         const ott_generate_options *options, text_generator **out);
void generate_close(text_generator *g); /* NULL is allowed */
/* See ott_generator_continue. */
ott_status generate_continue(text_generator *g, const char *text, ott_text_fn write, void *user);

/* See ott_generate. */
ott_status generate_run(mem *account, const logger *log, const char *run, const ott_generate_options *options,
                        ott_text_fn write, void *user);

#endif
