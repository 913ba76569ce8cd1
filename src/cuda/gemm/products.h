/* cuda/gemm/products: cache of cuBLASLt plans, one plan per matmul_spec, kept with the device. */
#ifndef CUDA_GEMM_PRODUCTS_H
#define CUDA_GEMM_PRODUCTS_H

#include "cuda/cuda.h"
#include "cuda/gemm/matmul.h"

struct cuda_product {
    matmul_spec spec;
    matmul plan;
    bool refused; /* cuBLASLt suggests no algorithm; this never changes */
    bool failed;  /* the product did not run with any algorithm that cuBLASLt suggested */
    bool logged;  /* products_log has reported it */
    bool checked; /* results were compared with the host's (cuda/gemm/gemm_check.h) */
    cublasStatus_t status;
    int candidate; /* the first algorithm that cuBLASLt has not refused to run */
    cuda_product *next;
};

/* False if cuBLASLt is known to refuse the product. */
static inline bool products_can_run(const cuda_product *p) {
    return !p->refused && !p->failed;
}
/* Finds the product with this spec, or plans it. Specs are compared with memcmp: clear `spec` with memset
   before you fill it. The product may be `refused`. */
ott_status products_find(cuda_device *c, const matmul_spec *spec, cuda_product **out);
/* Queues the product with the first algorithm that works. If none works, sets p->failed. workspace:
   spec->workspace bytes. */
ott_status products_run(exec *cx, cuda_product *p, const matmul_data *data, void *workspace);
/* Logs once that cuBLASLt does not compute the product, and `instead`: what computes it. */
void products_log(const exec *cx, cuda_product *p, const char *instead);
/* Closes all products of a device that is being closed. */
void products_close(cuda_device *c);

#endif
