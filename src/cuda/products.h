/* cuda/products: the products of a run, each planned with cuBLASLt once and kept with the device. */
#ifndef CUDA_PRODUCTS_H
#define CUDA_PRODUCTS_H

#include "cuda/cuda.h"
#include "cuda/matmul.h"

/* Queues the product by the library. *ran false: it has no algorithm for it, which the log says the first time. `spec` was cleared
   with memset before it was filled. workspace: spec->workspace bytes. */
ott_status products_run(exec *cx, const matmul_spec *spec, const matmul_data *data, void *workspace,
                        bool *ran);
/* Of a device that is closed. */
void products_close(cuda_device *c);

#endif
