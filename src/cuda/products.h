/* cuda/products: the products of a run, each planned with cuBLASLt once and kept with the device. */
#ifndef CUDA_PRODUCTS_H
#define CUDA_PRODUCTS_H

#include "cuda/cuda.h"
#include "cuda/matmul.h"

/* The product of this spec, planned the first time. `spec` was cleared with memset before it was filled. *out NULL: the library
   has no algorithm for it, which the log says once. */
ott_status products_find(exec *cx, const matmul_spec *spec, const matmul_data *data, cuda_product **out);
/* Queues it. *ran false: the library refuses it after all. workspace: spec->workspace bytes. */
ott_status products_run(exec *cx, cuda_product *p, const matmul_data *data, void *workspace, bool *ran);
/* Whether it was held against the host (cuda/gemm_check.h). */
bool *products_checked(cuda_product *p);
/* Of a device that is closed. */
void products_close(cuda_device *c);

#endif
