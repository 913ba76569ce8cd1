/* tensor/tensor_cores: capabilities of NVIDIA's tensor cores, for real GPUs and for `ottava plan`. */
#ifndef TENSOR_TENSOR_CORES_H
#define TENSOR_TENSOR_CORES_H

#include "tensor/backend.h"

/* Sets no_format and no_granularity for a compute capability; 90 means 9.0. */
void tensor_cores_limit(int capability, backend_capabilities *out);

#endif
