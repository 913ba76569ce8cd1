/*
 * bench/gpu/ceilings: the numbers of which others are shares: a device's copy bandwidth and its rate of bf16
 * products, on random data; and the versions of what is measured.
 */
#include "fill.h"
#include "gpu.h"
#include "blas.h"

/* ---- copy ---- */

typedef struct copy {
    char *from, *to;
    size_t bytes;
} copy;

static void copy_once(gpu *g, void *context, int set) {
    copy *c = context;
    (void)set;
    GPU_CHECK(cudaMemcpyAsync(c->to, c->from, c->bytes, cudaMemcpyDeviceToDevice, g->stream));
}

static void measure_copy(gpu *g) {
    copy c = {.bytes = g->tiny ? 1 << 16 : (size_t)4 << 30};
    c.from = gpu_alloc(c.bytes);
    c.to = gpu_alloc(c.bytes);
    GPU_CHECK(fill_normal(c.from, OTT_BF16, c.bytes / 2, 1, 1, g->stream));
    gpu_time t = gpu_measure(g, copy_once, &c, 1);
    double rate = 2 * (double)c.bytes / t.median / 1e3; /* read and written */
    result_begin(g);
    result_text(g, "case", "copy");
    result_int(g, "bytes", (int64_t)(2 * c.bytes));
    result_time(g, &t);
    result_number(g, "gb_per_s", rate);
    result_end(g);
    printf("copy: %.0f GB/s, read and written\n", rate);
    gpu_free(c.from);
    gpu_free(c.to);
}

/* ---- bf16 product ---- */

typedef struct product {
    matmul plan;
    matmul_spec spec;
    matmul_data data;
    void *workspace;
    cublasStatus_t status;
} product;

static void multiply_once(gpu *g, void *context, int set) {
    product *p = context;
    (void)set;
    cublasStatus_t status = matmul_run(&p->plan, 0, &p->spec, &p->data, p->workspace, g->stream);
    if (status != CUBLAS_STATUS_SUCCESS) p->status = status;
}

/* D[n,n] = A[n,n] B[n,n]^T. */
static cublasStatus_t time_product(gpu *g, cublasLtHandle_t handle, product *p, int64_t n, gpu_time *t) {
    p->spec = (matmul_spec){.m = n,
                            .n = n,
                            .k = n,
                            .a = CUDA_R_16BF,
                            .b = CUDA_R_16BF,
                            .d = CUDA_R_16BF,
                            .workspace = BLAS_WORKSPACE_BYTES};
    p->status = matmul_plan(&p->plan, handle, &p->spec, &p->data);
    if (p->status == CUBLAS_STATUS_SUCCESS) *t = gpu_measure(g, multiply_once, p, 1);
    matmul_close(&p->plan);
    return p->status;
}

static void measure_product(gpu *g, cublasLtHandle_t handle) {
    int64_t n = g->tiny ? 64 : 8192;
    size_t bytes = 2 * (size_t)(n * n);
    void *a = gpu_alloc(bytes), *b = gpu_alloc(bytes), *d = gpu_alloc(bytes);
    GPU_CHECK(fill_normal(a, OTT_BF16, bytes / 2, 1, 1, g->stream));
    GPU_CHECK(fill_normal(b, OTT_BF16, bytes / 2, 1, 2, g->stream));
    product p = {.data = {.a = a, .b = b, .d = d}, .workspace = gpu_alloc(BLAS_WORKSPACE_BYTES)};
    gpu_time t = {0};
    cublasStatus_t status = time_product(g, handle, &p, n, &t);
    double rate = 2 * (double)n * (double)n * (double)n / t.median / 1e6;
    result_begin(g);
    result_text(g, "case", "bf16 product");
    result_int(g, "N", n);
    result_text(g, "status", matmul_status(status));
    result_time(g, &t);
    result_number(g, "tflops", rate);
    result_end(g);
    printf("bf16 product of %lld: %.1f TFLOP/s, %s\n", (long long)n, rate, cublasLtGetStatusString(status));
    gpu_free(a);
    gpu_free(b);
    gpu_free(d);
    gpu_free(p.workspace);
}

/* ---- what is measured ---- */

static void put_device(gpu *g) {
    int driver = 0, runtime = 0;
    GPU_CHECK(cudaDriverGetVersion(&driver));
    GPU_CHECK(cudaRuntimeGetVersion(&runtime));
    const struct cudaDeviceProp *p = &g->properties;
    result_begin(g);
    result_text(g, "case", "device");
    result_text(g, "name", p->name);
    result_int(g, "sm", p->major * 10 + p->minor);
    result_int(g, "multiprocessors", p->multiProcessorCount);
    result_int(g, "l2_bytes", p->l2CacheSize);
    result_number(g, "memory_gib", (double)p->totalGlobalMem / (1 << 30));
    result_int(g, "cuda_driver", driver);
    result_int(g, "cuda_runtime", runtime);
    result_int(g, "cublaslt", (int64_t)cublasLtGetVersion());
    result_end(g);
    printf("%s, sm_%d%d, %d multiprocessors, CUDA driver %d, runtime %d, cuBLASLt %zu\n", p->name, p->major,
           p->minor, p->multiProcessorCount, driver, runtime, cublasLtGetVersion());
}

int main(int argc, char **argv) {
    gpu g;
    gpu_open(&g, "ceilings", argc, argv);
    put_device(&g);
    measure_copy(&g);
    cublasLtHandle_t handle = blas_handle();
    measure_product(&g, handle);
    cublasLtDestroy(handle);
    gpu_close(&g);
    return 0;
}
