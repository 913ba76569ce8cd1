/* backend/loader: finds the CUDA plugin (backend/plugin.h): where the environment variable OTTAVA_CUDA_PATH
   says, a file or a folder; else in the folder of this program or library, or in ../lib of that folder, and
   nowhere else. It is loaded once, on the first call, and stays. */
#ifndef BACKEND_LOADER_H
#define BACKEND_LOADER_H

#include "backend/plugin.h"

#define LOADER_FILE     "libottava_cuda.so"
#define LOADER_VARIABLE "OTTAVA_CUDA_PATH"
enum { LOADER_TEXT = 768 };

/* OTT_ERR_UNSUPPORTED says where it was looked for and why it is not there, and the way out. */
ott_status loader_find(const plugin **out);
/* What it is given of this library. */
const plugin_services *loader_services(void);
/* The names of the ops that it has not, "rope, adamw"; how many. */
int loader_list_missing(const plugin *p, char out[LOADER_TEXT]);

#endif
