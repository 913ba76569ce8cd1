/* bench/gpu/matmul: implements matmul.h. */
#include "matmul.h"
#include <stdio.h>
#include <stdlib.h>

cublasLtHandle_t matmul_handle(void) {
    cublasLtHandle_t handle = NULL;
    cublasStatus_t status = cublasLtCreate(&handle);
    if (status == CUBLAS_STATUS_SUCCESS) return handle;
    fprintf(stderr, "cublasLtCreate: %s\n", cublasLtGetStatusString(status));
    exit(1);
}

const char *matmul_status(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "ok" : cublasLtGetStatusName(status);
}

ott_dtype matmul_dtype(cudaDataType_t type) {
    switch ((int)type) {
    case CUDA_R_8F_E4M3: return OTT_E4M3;
    case CUDA_R_8F_E5M2: return OTT_E5M2;
    case CUDA_R_16BF: return OTT_BF16;
    default: return OTT_F32;
    }
}

/* ---- scales ---- */

enum { BLOCK_DEPTH = 128 };

static int64_t blocks(int64_t n) {
    return (n + BLOCK_DEPTH - 1) / BLOCK_DEPTH;
}

/* Scales of a 128-line band of a 128x128-scaled operand, padded to four. */
static int64_t band(const matmul_spec *spec) {
    return (blocks(spec->k) + 3) / 4 * 4;
}

int64_t matmul_scale_count(const matmul_spec *spec, bool of_b) {
    int64_t lines = of_b ? spec->n : spec->m;
    switch (spec->scales) {
    case SCALES_NONE: return 0;
    case SCALES_TENSOR: return 1;
    case SCALES_ROW: return lines;
    case SCALES_BLOCK_2D: return of_b ? blocks(lines) * band(spec) : blocks(spec->k) * lines;
    case SCALES_BLOCK_1D: return blocks(spec->k) * lines;
    }
    return 0;
}

int64_t matmul_scale_index(const matmul_spec *spec, bool of_b, int64_t line, int64_t depth) {
    int64_t lines = of_b ? spec->n : spec->m;
    switch (spec->scales) {
    case SCALES_NONE:
    case SCALES_TENSOR: return 0;
    case SCALES_ROW: return line;
    case SCALES_BLOCK_2D:
        if (of_b) return line / BLOCK_DEPTH * band(spec) + depth / BLOCK_DEPTH;
        return depth / BLOCK_DEPTH * lines + line;
    case SCALES_BLOCK_1D: return depth / BLOCK_DEPTH * lines + line;
    }
    return 0;
}

/* ---- planning ---- */

static cublasStatus_t set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                          const void *value, size_t bytes) {
    return cublasLtMatmulDescSetAttribute(operation, attribute, value, bytes);
}
#define SET(attribute, value) set(p->operation, CUBLASLT_MATMUL_DESC_##attribute, &(value), sizeof(value))

#define TRY(call)                                                                                            \
    do {                                                                                                     \
        cublasStatus_t status_ = (call);                                                                     \
        if (status_ != CUBLAS_STATUS_SUCCESS) return status_;                                                \
    } while (0)

/* How our A's (or B's) scales are called; cuBLAS' A is our B. */
static int32_t scale_mode(matmul_scales scales, bool of_b) {
    switch (scales) {
    case SCALES_ROW: return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    case SCALES_BLOCK_2D:
        return of_b ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case SCALES_BLOCK_1D: return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case SCALES_NONE:
    case SCALES_TENSOR: break;
    }
    return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

static cublasStatus_t set_pointers(matmul *p, const matmul_spec *spec, const matmul_data *data) {
    if (spec->scales != SCALES_NONE) {
        TRY(SET(A_SCALE_POINTER, data->b_scale));
        TRY(SET(B_SCALE_POINTER, data->a_scale));
    }
    if (spec->amax) TRY(SET(AMAX_D_POINTER, data->amax));
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t describe(matmul *p, const matmul_spec *spec, const matmul_data *data) {
    TRY(cublasLtMatmulDescCreate(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    cublasOperation_t a = spec->b_transposed ? CUBLAS_OP_N : CUBLAS_OP_T;
    cublasOperation_t b = spec->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    TRY(SET(TRANSA, a));
    TRY(SET(TRANSB, b));
    if (spec->scales != SCALES_NONE) {
        int8_t fast = spec->fast;
        int32_t a_mode = scale_mode(spec->scales, true), b_mode = scale_mode(spec->scales, false);
        TRY(SET(FAST_ACCUM, fast));
        TRY(SET(A_SCALE_MODE, a_mode));
        TRY(SET(B_SCALE_MODE, b_mode));
    }
    return set_pointers(p, spec, data);
}

/* A row-major [lines, k] matrix, or [k, lines] when transposed, as cuBLAS sees it. */
static cublasStatus_t layout(cublasLtMatrixLayout_t *out, cudaDataType_t type, int64_t lines, int64_t k,
                             bool transposed) {
    if (transposed) return cublasLtMatrixLayoutCreate(out, type, (uint64_t)lines, (uint64_t)k, lines);
    return cublasLtMatrixLayoutCreate(out, type, (uint64_t)k, (uint64_t)lines, k);
}

static cublasStatus_t find_algorithms(matmul *p) {
    cublasLtMatmulPreference_t preference;
    TRY(cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t status =
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &matmul_workspace_bytes, sizeof matmul_workspace_bytes);
    if (status == CUBLAS_STATUS_SUCCESS) /* C and D have one layout object: in place */
        status = cublasLtMatmulAlgoGetHeuristic(p->handle, p->operation, p->a, p->b, p->d, p->d, preference,
                                                MATMUL_CANDIDATES, p->candidate, &p->candidates);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS && p->candidates == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    return status;
}

cublasStatus_t matmul_plan(matmul *p, cublasLtHandle_t handle, const matmul_spec *spec,
                           const matmul_data *data) {
    *p = (matmul){.handle = handle};
    TRY(describe(p, spec, data));
    TRY(layout(&p->a, spec->b, spec->n, spec->k, spec->b_transposed));
    TRY(layout(&p->b, spec->a, spec->m, spec->k, spec->a_transposed));
    TRY(layout(&p->d, spec->d, spec->m, spec->n, false));
    return find_algorithms(p);
}

cublasStatus_t matmul_run(matmul *p, int candidate, const matmul_spec *spec, const matmul_data *data,
                          void *workspace, cudaStream_t stream) {
    float alpha = 1, beta = spec->accumulate;
    TRY(set_pointers(p, spec, data));
    return cublasLtMatmul(p->handle, p->operation, &alpha, data->b, p->a, data->a, p->b, &beta, data->d, p->d,
                          data->d, p->d, &p->candidate[candidate].algo, workspace, matmul_workspace_bytes,
                          stream);
}

void matmul_close(matmul *p) {
    if (p->d) cublasLtMatrixLayoutDestroy(p->d);
    if (p->b) cublasLtMatrixLayoutDestroy(p->b);
    if (p->a) cublasLtMatrixLayoutDestroy(p->a);
    if (p->operation) cublasLtMatmulDescDestroy(p->operation);
    *p = (matmul){0};
}
