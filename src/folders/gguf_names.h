/* folders/gguf_names: names of tensors in GGUF files, and how their elements differ from the parameters.
   Internal to src/folders. */
#ifndef FOLDERS_GGUF_NAMES_H
#define FOLDERS_GGUF_NAMES_H

#include "formats/gguf/gguf_arch.h"
#include "formats/gguf/gguf_write.h"
#include "model/modules.h"

/* Writes the name of the tensor with the rows of role `part` of a module's weight or bias. */
void gguf_tensor_name(const gguf_arch *a, const model_module *m, module_role part, bool is_bias,
                      char out[GGUF_NAME_BYTES]);
/* Rows per head if the file interleaves the halves of each head: rows r and r + half of a head are rows 2r
   and 2r + 1 in the file. 0: the file has the parameter's order. */
int64_t gguf_head_rows(const gguf_arch *a, const model_options *o, module_role role);
/* True if the file has 1 + the parameter's values: llama.cpp does not add the 1 of norms that multiply by
   1 + weight. */
bool gguf_has_one(const model_options *o, const model_module *m);

#endif
