/* train/export_tokenizer: copies the run's tokenizer to an exported model. */
#ifndef TRAIN_EXPORT_TOKENIZER_H
#define TRAIN_EXPORT_TOKENIZER_H

#include "config/config.h"

/* Copies tokenizer.json of data.tokenizer_path and its companion files into `folder`, replacing files there.
   *copied = number of copied files; 0 if the path is empty (the caller copies model.hf_path's files) or the
   run trains on bytes. */
ott_status export_tokenizer(mem *account, const config *cfg, const char *folder, int64_t *copied);

#endif
