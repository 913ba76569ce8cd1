/* run/export_tokenizer: copies the run's tokenizer to an exported model. */
#ifndef RUN_EXPORT_TOKENIZER_H
#define RUN_EXPORT_TOKENIZER_H

#include "config/config.h"

/* Copies the tokenizer file of data.tokenizer_path and its companion files to `folder`, over files of these
   names. *copied = number of copied files. It is 0 if the run trains on bytes, or if the path is empty; then
   the caller copies the files of model.hf_path. */
ott_status export_tokenizer(mem *account, const config *cfg, const char *folder, int64_t *copied);

#endif
