/* folders/gguf_names: names of tensors in GGUF files. Internal to src/folders. */
#ifndef FOLDERS_GGUF_NAMES_H
#define FOLDERS_GGUF_NAMES_H

#include "formats/gguf/gguf_arch.h"
#include "formats/gguf/gguf_write.h"
#include "model/modules.h"

/* Writes the name of the tensor with the rows of role `part` of a module's weight or bias. */
void gguf_tensor_name(const gguf_arch *a, const model_module *m, module_role part, bool is_bias,
                      char out[GGUF_NAME_BYTES]);

#endif
