/* cuda/hardware: a GPU's capabilities, by its compute capability and name. */
#ifndef CUDA_HARDWARE_H
#define CUDA_HARDWARE_H

#include "tensor/backend.h"

/* sm: ten times the compute capability, 90 for H100. name: *out keeps the pointer. emulates: formats and
   scales that the tensor cores lack are allowed. */
void hardware_fill_capabilities(int sm, const char *name, bool emulates, backend_capabilities *out);
/* Peak FLOP/s of dense products of a format, by the data sheet of the GPU with that name
   (cudaDeviceProp.name). 0 if the GPU is not in the table or does not support the format. */
double hardware_peak(const char *name, ott_dtype format);

#endif
