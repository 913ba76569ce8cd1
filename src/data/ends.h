/* data/ends: the log line about the tokens that begin and end texts. */
#ifndef DATA_ENDS_H
#define DATA_ENDS_H

#include "base/log.h"
#include "tokenizer/tokenizer.h"

/* Logs "Each `what` begins with <s> and ends with </s> (`how`)"; nothing if bos and eos are -1. */
void ends_log(const logger *log, const tokenizer *t, const char *what, int32_t bos, int32_t eos,
              const char *how);

#endif
