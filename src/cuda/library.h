/* cuda/library: functions that the plugin borrows from the library that opened it, under their names there
   (cuda/status.c, cuda/mem.c). Tests link the backend with the library itself, without these two files and
   cuda/plugin.c. */
#ifndef CUDA_LIBRARY_H
#define CUDA_LIBRARY_H

#include "backend/plugin.h"

extern const plugin_services *cuda_library;

#endif
