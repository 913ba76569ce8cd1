/* cuda/inspect: reports the driver, the GPUs, and the libraries with their versions, for `ottava doctor`. */
#ifndef CUDA_INSPECT_H
#define CUDA_INSPECT_H

#include "backend/plugin.h"

void inspect_machine(plugin_finding report, void *user);

#endif
