/* cuda/gemm/products: a linked list of plans, searched by spec. */
#include "cuda/gemm/products.h"
#include "base/log.h"
#include <string.h>

static ott_status check_cublas(cublasStatus_t status, const char *what) {
    if (status == CUBLAS_STATUS_SUCCESS) return OTT_OK;
    return status_fail(status == CUBLAS_STATUS_ALLOC_FAILED ? OTT_ERR_MEMORY : OTT_ERR_DEVICE,
                       "%s: cuBLASLt: %s", what, cublasLtGetStatusName(status));
}

static bool is_refusal(cublasStatus_t status) {
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
           status == CUBLAS_STATUS_ARCH_MISMATCH;
}

void products_log(const exec *cx, cuda_product *p, const char *instead) {
    const matmul_spec *s = &p->spec;
    if (p->logged) return;
    p->logged = true;
    log_warning(cx->log, "cuBLASLt has no product %lld x %lld x %lld of %s and %s to %s with %s (%s): %s",
                (long long)s->m, (long long)s->n, (long long)s->k, dtype_name(matmul_dtype(s->a)),
                dtype_name(matmul_dtype(s->b)), dtype_name(matmul_dtype(s->d)), matmul_scales_text(s->scales),
                cublasLtGetStatusName(p->status), instead);
}

static ott_status plan_product(cuda_device *c, const matmul_spec *spec, cuda_product **out) {
    cuda_product *p;
    TRY(cuda_check(cudaSetDevice(c->index), c->name));
    TRY(c->library ? OTT_OK : check_cublas(cublasLtCreate(&c->library), "opening cuBLASLt"));
    TRY(mem_alloc(c->base.account, MEM_OTHER, sizeof(cuda_product), "a product's plan", &p));
    memcpy(&p->spec, spec, sizeof *spec);
    p->next = c->products;
    c->products = p;
    p->status = matmul_plan(&p->plan, c->library, spec);
    p->refused = is_refusal(p->status);
    *out = p;
    return p->refused ? OTT_OK : check_cublas(p->status, "planning a product");
}

ott_status products_find(cuda_device *c, const matmul_spec *spec, cuda_product **out) {
    cuda_product *p = c->products;
    while (p && memcmp(&p->spec, spec, sizeof *spec) != 0) p = p->next;
    *out = p;
    return p ? OTT_OK : plan_product(c, spec, out);
}

ott_status products_run(exec *cx, cuda_product *p, const matmul_data *data, void *workspace) {
    for (; p->candidate < p->plan.candidates; p->candidate++) {
        p->status = matmul_run(&p->plan, p->candidate, &p->spec, data, workspace, cuda_stream(cx));
        if (!is_refusal(p->status)) return check_cublas(p->status, "a product");
    }
    p->failed = true;
    return OTT_OK;
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
