/* run/folder/sources: records data and tokenizer files for checkpoints, and warns if they have changed. */
#ifndef RUN_FOLDER_SOURCES_H
#define RUN_FOLDER_SOURCES_H

#include "base/log.h"
#include "base/text/str.h"
#include "checkpoint/run_sources.h"
#include "config/config.h"

/* Fills an empty `out` with the run's data and tokenizer files, with sizes and hashes. */
ott_status sources_collect(const config *cfg, run_sources *out);
/* Appends a line for each file, with its size and hash. Ranks compare these lines. */
ott_status sources_describe(const run_sources *s, str *out);
/* Appends the text of sources.json. Warns about files that differ from the checkpoint's (NULL: none). */
ott_status sources_open(const run_sources *now, const logger *log, const char *checkpoint, str *text);
/* Warns if the tokenizer differs from the checkpoint's. */
ott_status sources_check_tokenizer(mem *account, const logger *log, const char *checkpoint,
                                   const char *tokenizer_path);

#endif
