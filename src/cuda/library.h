/* cuda/library: the functions that the plugin receives from the library that opened it. cuda/status.c and
   cuda/mem.c define these functions in the plugin under the library's names. Tests link the backend with the
   library itself, without these two files and cuda/plugin.c. */
#ifndef CUDA_LIBRARY_H
#define CUDA_LIBRARY_H

#include "backend/plugin.h"

extern const plugin_services *cuda_library;

#endif
