/* generate/generate: generates text with a trained model, in its training precision or another one. */
#ifndef GENERATE_GENERATE_H
#define GENERATE_GENERATE_H

#include "base/log.h"
#include "base/mem.h"
#include "ottava/ottava.h"

/*
 * A model with a KV cache (model/cache.h). When the window of train.seq_len tokens is full, its older half is
 * dropped, and the newer half runs again at positions from 0. So positions stay below train.seq_len, and on
 * average the model computes each token twice.
 */
typedef struct text_generator text_generator;

/* Opens a run folder, checkpoint or Hugging Face folder. Copies `options`; options->prompt is not used. */
ott_status generate_open(mem *account, const logger *log, const char *run,
                         const ott_generate_options *options, text_generator **out);
void generate_close(text_generator *g); /* does nothing for NULL */
/* Appends `text` (in a chat, the user's message) and generates what follows. See ott_generator_continue. */
ott_status generate_continue(text_generator *g, const char *text, ott_text_fn write, void *user);

/* Opens a generator, continues options->prompt and closes it; see ott_generate. */
ott_status generate_run(mem *account, const logger *log, const char *run, const ott_generate_options *options,
                        ott_text_fn write, void *user);

#endif
