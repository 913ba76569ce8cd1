/* cuda/gemm/products: a linked list of plans, searched by spec. */
#include "cuda/gemm/products.h"
#include "base/log.h"
#include <string.h>

struct cuda_product {
    matmul_spec spec;
    matmul plan;
    bool refused; /* the library cannot compute this product */
    bool checked;
    cuda_product *next;
};

static ott_status check_cublas(cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return OTT_OK;
    return status_fail(status == CUBLAS_STATUS_ALLOC_FAILED ? OTT_ERR_MEMORY : OTT_ERR_DEVICE,
                       "%s: cuBLASLt: %s", what, cublasLtGetStatusName(status));
}

static bool is_refusal(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
           status == CUBLAS_STATUS_ARCH_MISMATCH;
}

static void log_refusal(const exec *cx, const matmul_spec *s, cublasStatus_t status) {
    log_warning(cx->log,
                "cuBLASLt has no product %lld x %lld x %lld of %s and %s (%s): a slow kernel of Ottava "
                "computes it",
                (long long)s->m, (long long)s->n, (long long)s->k, dtype_name(matmul_dtype(s->a)),
                dtype_name(matmul_dtype(s->b)), cublasLtGetStatusName(status));
}

static ott_status plan_product(exec *cx, const matmul_spec *spec, const matmul_data *data,
                               cuda_product **out) {
    cuda_device *c = cuda_device_of(cx->device);
    cuda_product *p;
    TRY(c->library ? OTT_OK : check_cublas(cublasLtCreate(&c->library), "opening cuBLASLt"));
    TRY(mem_alloc(c->base.account, MEM_OTHER, sizeof(cuda_product), "a product's plan", &p));
    memcpy(&p->spec, spec, sizeof *spec);
    p->next = c->products;
    c->products = p;
    cublasStatus_t status = matmul_plan(&p->plan, c->library, spec, data);
    p->refused = is_refusal(status);
    if (p->refused) log_refusal(cx, spec, status);
    *out = p;
    return p->refused ? OTT_OK : check_cublas(status, "planning a product");
}

ott_status products_find(exec *cx, const matmul_spec *spec, const matmul_data *data, cuda_product **out) {
    cuda_product *p = cuda_device_of(cx->device)->products;
    while (p && memcmp(&p->spec, spec, sizeof *spec) != 0) p = p->next;
    if (!p) TRY(plan_product(cx, spec, data, &p));
    *out = p->refused ? NULL : p;
    return OTT_OK;
}

ott_status products_run(exec *cx, cuda_product *p, const matmul_data *data, void *workspace, bool *ran) {
    cublasStatus_t status = matmul_run(&p->plan, 0, &p->spec, data, workspace, cuda_stream(cx));
    p->refused = is_refusal(status);
    *ran = !p->refused;
    if (p->refused) log_refusal(cx, &p->spec, status);
    return p->refused ? OTT_OK : check_cublas(status, "a product");
}

bool *products_checked(cuda_product *p) {
    return &p->checked;
}

void products_close(cuda_device *c) {
    while (c->products) {
        cuda_product *p = c->products;
        c->products = p->next;
        matmul_close(&p->plan);
        mem_free(c->base.account, p);
    }
    if (c->library) cublasLtDestroy(c->library);
}
