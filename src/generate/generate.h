/* generate/generate: generates text with a trained model, in its training precision or another one. */
#ifndef GENERATE_GENERATE_H
#define GENERATE_GENERATE_H

#include "base/log.h"
#include "base/mem.h"
#include "ottava/ottava.h"
#include "run/inference.h"

/*
 * A model with a KV cache (model/cache.h). When the window of train.seq_len tokens is full, its older half is
 * dropped, and the newer half runs again at positions from 0. So positions stay below train.seq_len, and on
 * average the model computes each token twice.
 */
typedef struct text_generator text_generator;

/* Opens the model of a folder (see ott_generate), or takes *live, a model that is open for training; live
   NULL: the folder `run`. Copies *live and `options`; options->prompt is not used. */
ott_status generate_open(mem *account, const logger *log, const char *run, const live_model *live,
                         const ott_generate_options *options, text_generator **out);
void generate_close(text_generator *g); /* does nothing for NULL; may be called after the model is closed */
/* For a model that is open for training: call it before each generate_continue, because the model may have
   changed. Drops the keys and values of earlier tokens, and plans the memory of the passes. */
ott_status generate_refresh(text_generator *g, const live_model *now);
/* Appends `text` (in a chat, the user's message) and generates what follows. See ott_generator_continue. */
ott_status generate_continue(text_generator *g, const char *text, ott_text_fn write, void *user);

/* Opens a generator, continues options->prompt and closes it; see ott_generate. */
ott_status generate_run(mem *account, const logger *log, const char *run, const live_model *live,
                        const ott_generate_options *options, ott_text_fn write, void *user);

#endif
