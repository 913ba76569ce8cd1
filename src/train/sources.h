/* train/sources: the files a run reads, marked for its checkpoints, and what of them has changed since one. */
#ifndef TRAIN_SOURCES_H
#define TRAIN_SOURCES_H

#include "base/log.h"
#include "base/str.h"
#include "checkpoint/run_sources.h"
#include "config/config.h"

/* Marks data and tokenizer in an empty `out`. */
ott_status sources_collect(const config *cfg, run_sources *out);
/* Appends a line for each file, with its size and a hash: what ranks compare. */
ott_status sources_describe(const run_sources *s, str *out);
/* Appends the text that a checkpoint keeps of the files, and warns of what is not as it was in `checkpoint` (NULL:
   none). */
ott_status sources_open(const run_sources *now, const logger *log, const char *checkpoint, str *text);
/* Warns when the tokenizer is not that of the checkpoint's run. */
ott_status sources_check_tokenizer(mem *account, const logger *log, const char *checkpoint,
                                   const char *tokenizer_path);

#endif
