/* cuda/gemm/products: cache of cuBLASLt plans, one plan per matmul_spec, kept with the device. */
#ifndef CUDA_GEMM_PRODUCTS_H
#define CUDA_GEMM_PRODUCTS_H

#include "cuda/cuda.h"
#include "cuda/gemm/matmul.h"

/* Finds the product with this spec, or plans it. Specs are compared with memcmp: clear `spec` with memset
   before you fill it. *out is NULL if cuBLASLt has no algorithm; the log reports each such spec once. */
ott_status products_find(exec *cx, const matmul_spec *spec, const matmul_data *data, cuda_product **out);
/* Queues the product. *ran: false if cuBLASLt refuses it. workspace: spec->workspace bytes. */
ott_status products_run(exec *cx, cuda_product *p, const matmul_data *data, void *workspace, bool *ran);
/* Returns a pointer to the flag that p's results were checked (cuda/gemm/gemm_check.h). The caller sets
   it. */
bool *products_checked(cuda_product *p);
/* Closes all products of a device that is being closed. */
void products_close(cuda_device *c);

#endif
