/* train/generate: text from a trained model, in the precision it was trained in. */
#ifndef TRAIN_GENERATE_H
#define TRAIN_GENERATE_H

#include "base/log.h"
#include "base/mem.h"
#include "ottava/ottava.h"

/* See ott_generate. Every token is one forward pass over the last train.seq_len tokens. */
ott_status generate_run(mem *account, const logger *log, const char *run, const ott_generate_options *options,
                        ott_text_fn write, void *user);

#endif
