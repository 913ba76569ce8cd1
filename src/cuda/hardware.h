/* cuda/hardware: what a GPU can do, by its compute capability and its name. */
#ifndef CUDA_HARDWARE_H
#define CUDA_HARDWARE_H

#include "tensor/backend.h"

/* sm: compute capability times ten, 90 for H100. name: borrowed. emulates: formats and scales that its tensor cores do not have
   are none that it cannot. */
void hardware_fill_capabilities(int sm, const char *name, bool emulates, backend_capabilities *out);
/* FLOP/s of dense products of operands of a format, as the data sheet of the GPU of that name (cudaDeviceProp.name) states
   them; 0: it is not in the table, or has no such products. */
double hardware_peak(const char *name, ott_dtype format);

#endif
