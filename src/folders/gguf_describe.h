/* folders/gguf_describe: the architecture of a model, and GGUF metadata. Internal to src/folders. */
#ifndef FOLDERS_GGUF_DESCRIBE_H
#define FOLDERS_GGUF_DESCRIBE_H

#include "formats/gguf/gguf_arch.h"
#include "formats/gguf/gguf_write.h"
#include "model/options.h"

/* Finds the architecture for a model. OTT_ERR_UNSUPPORTED, with the reason, if llama.cpp has none. */
ott_status gguf_describe_arch(const model_options *o, const gguf_arch **out);
/* Appends the metadata: general.* and the architecture's keys. `type` is the format of the matrices. */
void gguf_describe(const model_options *o, const gguf_arch *arch, gguf_type type, gguf_metadata *m);

#endif
