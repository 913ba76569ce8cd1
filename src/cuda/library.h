/*
 * cuda/library: what the plugin borrows of the library that opened it, under the names it has there: cuda/status.c and
 * cuda/mem.c. (Tests link the backend with the library itself, without these two and cuda/plugin.c.)
 */
#ifndef CUDA_LIBRARY_H
#define CUDA_LIBRARY_H

#include "backend/plugin.h"

extern const plugin_services *cuda_library;

#endif
