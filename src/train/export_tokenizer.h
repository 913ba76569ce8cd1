/* train/export_tokenizer: the tokenizer of an exported model: that of its run. */
#ifndef TRAIN_EXPORT_TOKENIZER_H
#define TRAIN_EXPORT_TOKENIZER_H

#include "config/config.h"

/* Copies the tokenizer.json that the run read its text with, and the files that belong to it, into `folder`,
   over others of those names. *copied: how many; 0 when the run has none, or when it is model.hf_path's, whose
   files the caller copies. */
ott_status export_tokenizer(mem *account, const config *cfg, const char *folder, int64_t *copied);

#endif
