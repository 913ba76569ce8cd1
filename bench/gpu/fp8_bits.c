/*
 * bench/gpu/fp8_bits: compares FP8 matrix products of cuBLASLt bit by bit with the model of a tensor core in
 * src/fp8/tensorcore.h. The model of fast accumulation adds all products along K to one accumulator. The
 * model of split accumulation begins a new accumulator every 128 elements of K. tensor_core.c compares single
 * instructions; the results of this program also depend on the order in which cuBLASLt adds.
 *
 * A difference is no failure, because cuBLASLt may split K in another way. The program writes how many
 * outputs equal the model's, and the errors of cuBLASLt and of the model against float64.
 */
#include "base/rng.h"
#include "fill.h"
#include "fp8/cast.h"
#include "fp8/tensorcore.h"
#include "gpu.h"
#include "blas.h"
#include <stdlib.h>

enum { SIDE = 256, SAMPLES = 512, K_MAX = 4096 };

typedef struct bits {
    gpu g;
    cublasLtHandle_t handle;
    void *workspace;
    uint8_t *a, *b;           /* [SIDE,K] codes on the device */
    float *d, *one;           /* d: output [SIDE,SIDE]; one: the number 1, a scale */
    uint8_t *host_a, *host_b; /* host copies of a and b */
    float *host_d;
} bits;

static const int64_t lengths[] = {32, 64, 128, 256, 512, 1024, 2048, 4096};

static void open_bits(bits *p, int argc, char **argv) {
    gpu_open(&p->g, "fp8_bits", argc, argv);
    p->handle = blas_handle();
    size_t codes = (size_t)SIDE * K_MAX, results = sizeof(float) * SIDE * SIDE;
    p->workspace = gpu_alloc(BLAS_WORKSPACE_BYTES);
    p->a = gpu_alloc(codes);
    p->b = gpu_alloc(codes);
    p->d = gpu_alloc(results);
    p->one = gpu_alloc(sizeof(float));
    p->host_a = gpu_host_alloc(codes);
    p->host_b = gpu_host_alloc(codes);
    p->host_d = gpu_host_alloc(results);
    float one = 1;
    gpu_write(&p->g, p->one, &one, sizeof one);
}

static void close_bits(bits *p) {
    gpu_free(p->workspace);
    gpu_free(p->a);
    gpu_free(p->b);
    gpu_free(p->d);
    gpu_free(p->one);
    free(p->host_a);
    free(p->host_b);
    free(p->host_d);
    cublasLtDestroy(p->handle);
    gpu_close(&p->g);
}

static void fill_codes(bits *p, const matmul_spec *spec) {
    cudaStream_t stream = p->g.stream;
    size_t count = (size_t)(SIDE * spec->k);
    GPU_CHECK(fill_normal(p->a, matmul_dtype(spec->a), count, 1, 1, stream));
    GPU_CHECK(fill_normal(p->b, OTT_E4M3, count, 1, 2, stream));
    gpu_read(&p->g, p->host_a, p->a, count);
    gpu_read(&p->g, p->host_b, p->b, count);
}

static cublasStatus_t multiply(bits *p, const matmul_spec *spec) {
    matmul plan;
    matmul_data data = {p->a, p->b, p->d, p->one, p->one};
    gpu_poison(&p->g, p->d, sizeof(float) * SIDE * SIDE);
    cublasStatus_t status = matmul_plan(&plan, p->handle, spec);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = matmul_run(&plan, 0, spec, &data, p->workspace, p->g.stream);
    matmul_close(&plan);
    gpu_read(&p->g, p->host_d, p->d, sizeof(float) * SIDE * SIDE);
    return status;
}

static double exact_dot(const uint8_t *a, ott_dtype da, const uint8_t *b, int64_t k) {
    double sum = 0;
    for (int64_t i = 0; i < k; i++)
        sum += (double)cast_from_fp8(a[i], da) * (double)cast_from_fp8(b[i], OTT_E4M3);
    return sum;
}

typedef struct comparison {
    int64_t equal;
    gpu_error product, model; /* errors of the library's product and of the model against float64 */
} comparison;

static comparison compare(const bits *p, const matmul_spec *spec) {
    comparison c = {0};
    ott_dtype da = matmul_dtype(spec->a);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        uint32_t at = rng_u32(17, 0, i) % (SIDE * SIDE);
        const uint8_t *a = p->host_a + at / SIDE * spec->k, *b = p->host_b + at % SIDE * spec->k;
        float model =
            (spec->fast ? tensorcore_fp8_dot_fast : tensorcore_fp8_dot_split)(a, da, b, OTT_E4M3, spec->k);
        double exact = exact_dot(a, da, b, spec->k);
        c.equal += fmath_bits(model) == fmath_bits(p->host_d[at]);
        gpu_error_add(&c.product, (double)p->host_d[at], exact);
        gpu_error_add(&c.model, (double)model, exact);
    }
    return c;
}

static void measure(bits *p, const matmul_spec *spec) {
    gpu *g = &p->g;
    cublasStatus_t status = multiply(p, spec);
    const char *formats = spec->a == CUDA_R_8F_E5M2 ? "e5m2 x e4m3" : "e4m3 x e4m3";
    result_begin(g);
    result_text(g, "formats", formats);
    result_text(g, "mode", spec->fast ? "fast" : "split");
    result_int(g, "K", spec->k);
    result_text(g, "status", matmul_status(status));
    printf("%s, %s, K %lld: ", formats, spec->fast ? "fast" : "split", (long long)spec->k);
    if (status == CUBLAS_STATUS_SUCCESS) {
        comparison c = compare(p, spec);
        result_int(g, "samples", SAMPLES);
        result_int(g, "equal", c.equal);
        result_number(g, "rms_error", gpu_error_rms(&c.product));
        result_number(g, "model_rms_error", gpu_error_rms(&c.model));
        printf("%lld of %d equal the model; rms error %.2e, of the model %.2e\n", (long long)c.equal, SAMPLES,
               gpu_error_rms(&c.product), gpu_error_rms(&c.model));
    } else
        printf("%s\n", cublasLtGetStatusString(status));
    result_end(g);
}

int main(int argc, char **argv) {
    bits p;
    open_bits(&p, argc, argv);
    size_t count = p.g.tiny ? 3 : sizeof lengths / sizeof *lengths;
    for (size_t i = 0; i < count; i++)
        for (int e5m2 = 0; e5m2 < 2; e5m2++) {
            matmul_spec spec = {.m = SIDE,
                                .n = SIDE,
                                .k = lengths[i],
                                .b = CUDA_R_8F_E4M3,
                                .d = CUDA_R_32F,
                                .workspace = BLAS_WORKSPACE_BYTES};
            spec.a = e5m2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
            spec.scales = SCALES_TENSOR;
            fill_codes(&p, &spec);
            for (int fast = 1; fast >= 0; fast--) {
                spec.fast = fast;
                measure(&p, &spec);
            }
        }
    close_bits(&p);
    return 0;
}
