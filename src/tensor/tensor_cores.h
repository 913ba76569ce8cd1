/* tensor/tensor_cores: what NVIDIA's tensor cores can do, for GPUs that are here and for those that are only planned for. */
#ifndef TENSOR_TENSOR_CORES_H
#define TENSOR_TENSOR_CORES_H

#include "tensor/backend.h"

/* What those of a compute capability, 90 for 9.0, cannot do, into no_format and no_granularity. */
void tensor_cores_limit(int capability, backend_capabilities *out);

#endif
