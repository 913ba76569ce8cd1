/* formats/gguf/gguf_config: the config.json that describes the model of a GGUF file. */
#ifndef FORMATS_GGUF_GGUF_CONFIG_H
#define FORMATS_GGUF_GGUF_CONFIG_H

#include "base/mem.h"

/* Makes the text of config.json from the file's metadata and tensors. Free *text with mem_free.
   OTT_ERR_UNSUPPORTED: an architecture or feature that Ottava does not read. */
ott_status gguf_config_text(mem *account, const char *path, char **text);

#endif
