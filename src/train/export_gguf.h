/* train/export_gguf: what a GGUF file says of a run's tokenizer. Internal to the export. */
#ifndef TRAIN_EXPORT_GGUF_H
#define TRAIN_EXPORT_GGUF_H

#include "base/log.h"
#include "config/config.h"
#include "formats/gguf_write.h"

/*
 * Adds the tokenizer of a model with so many rows of the vocabulary: that of the folder `from`, the run's where it is NULL, bytes
 * where the run's text is bytes, none where `from` is "" or the run has none. *said: where it came from, in a buffer of
 * the caller's, "" for none. OTT_ERR_UNSUPPORTED: llama.cpp would cut a text otherwise.
 */
ott_status export_gguf_tokenizer(mem *account, const logger *log, const config *cfg, const char *from,
                                 int64_t vocab, gguf_metadata *m, str *source);

#endif
