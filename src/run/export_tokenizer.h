/* run/export_tokenizer: copies the run's tokenizer to an exported model. */
#ifndef RUN_EXPORT_TOKENIZER_H
#define RUN_EXPORT_TOKENIZER_H

#include "config/config.h"

/* Copies the tokenizer file of data.tokenizer_path and its companion files to `folder`, over files of these
   names. If that path or model.hf_path is a GGUF file, writes the tokenizer that the file contains. `from`: a
   folder or GGUF file that is used instead; NULL: none. *copied = number of files. It is 0 if the run trains
   on bytes, or if a folder of a model has the tokenizer; then the caller copies the files of this folder. */
ott_status export_tokenizer(mem *account, const config *cfg, const char *from, const char *folder,
                            int64_t *copied);

#endif
