/* backend/loader: loads the CUDA plugin (backend/plugin.h). base/library finds the plugin's file, or
   OTTAVA_CUDA_PATH names the file. The plugin stays loaded. */
#ifndef BACKEND_LOADER_H
#define BACKEND_LOADER_H

#include "backend/plugin.h"
#include "base/library.h"

#define LOADER_FILE     "libottava_cuda.so"
#define LOADER_VARIABLE "OTTAVA_CUDA_PATH"

/* Loads the plugin on the first call. OTT_ERR_UNSUPPORTED if that fails; the text has the searched places,
   the reason, and what to do. */
ott_status loader_find(const plugin **out);
/* Returns the library's functions that the plugin calls. */
const plugin_services *loader_services(void);
/* Writes the names of the ops that the plugin lacks, "rope, adamw". Returns the number of these ops. */
int loader_list_missing(const plugin *p, char out[LIBRARY_TEXT]);

#endif
