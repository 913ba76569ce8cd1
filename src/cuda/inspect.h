/* cuda/inspect: what of CUDA is on this machine: driver, GPUs, libraries and their versions. */
#ifndef CUDA_INSPECT_H
#define CUDA_INSPECT_H

#include "backend/plugin.h"

void inspect_machine(plugin_finding report, void *user);

#endif
