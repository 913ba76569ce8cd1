/* export/export_gguf: writes the tokenizer into a GGUF file's metadata. Internal to export/export. */
#ifndef EXPORT_EXPORT_GGUF_H
#define EXPORT_EXPORT_GGUF_H

#include "base/log.h"
#include "config/config.h"
#include "formats/gguf/gguf_write.h"

/* Adds the tokenizer of folder `from` to *m. from NULL: the run's tokenizer, or one token per byte if the run
   trains on bytes. from "": no tokenizer. vocab: rows of the model's embedding. Appends the tokenizer's path,
   or why it has none, to *source. OTT_ERR_UNSUPPORTED if llama.cpp would tokenize differently. */
ott_status export_gguf_tokenizer(mem *account, const logger *log, const config *cfg, const char *from,
                                 int64_t vocab, gguf_metadata *m, str *source);

#endif
