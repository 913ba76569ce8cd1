/* train/sources: the files a run reads, marked for its checkpoints, and what of them has changed since one. */
#ifndef TRAIN_SOURCES_H
#define TRAIN_SOURCES_H

#include "base/log.h"
#include "base/str.h"
#include "config/config.h"

/* Marks data and tokenizer, appends the text that a checkpoint keeps of them (run_sources.h), and warns of what
   is not as it was in `checkpoint` (NULL: none). */
ott_status sources_open(mem *account, const logger *log, const config *cfg, const char *checkpoint,
                        str *text);
/* Warns when the tokenizer is not that of the checkpoint's run. */
ott_status sources_check_tokenizer(mem *account, const logger *log, const char *checkpoint,
                                   const char *tokenizer_path);

#endif
