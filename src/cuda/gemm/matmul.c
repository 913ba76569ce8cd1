/* cuda/gemm/matmul: describes a product to cuBLASLt, asks for algorithms, and runs one. */
#include "cuda/gemm/matmul.h"
#include "fp8/scale_tiles.h"
#include "tensor/gpus.h"

const char *matmul_status(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "ok" : cublasLtGetStatusName(status);
}

const char *matmul_scales_text(matmul_scales scales) {
    static const char *const texts[] = {[SCALES_NONE] = "no scales",
                                        [SCALES_ONE] = "no scales",
                                        [SCALES_TENSOR] = "scales of tensors",
                                        [SCALES_ROW] = "scales of rows",
                                        [SCALES_BLOCK_2D] = "scales of 1x128 and 128x128 blocks",
                                        [SCALES_BLOCK_1D] = "scales of 1x128 blocks",
                                        [SCALES_MX] = "scales of 1x32 blocks"};
    return texts[scales];
}

ott_dtype matmul_dtype(cudaDataType_t type) {
    switch ((int)type) {
    case CUDA_R_8F_E4M3: return OTT_E4M3;
    case CUDA_R_8F_E5M2: return OTT_E5M2;
    case CUDA_R_16BF: return OTT_BF16;
    case CUDA_R_16F: return OTT_F16;
    default: return OTT_F32;
    }
}

cudaDataType_t matmul_type(ott_dtype d) {
    switch (d) {
    case OTT_E4M3: return CUDA_R_8F_E4M3;
    case OTT_E5M2: return CUDA_R_8F_E5M2;
    case OTT_BF16: return CUDA_R_16BF;
    case OTT_F16: return CUDA_R_16F;
    default: return CUDA_R_32F;
    }
}

/* ---- scales ---- */

enum { BLOCK_DEPTH = 128, MX_DEPTH = 32 };

static int64_t scale_blocks(int64_t n) {
    return (n + BLOCK_DEPTH - 1) / BLOCK_DEPTH;
}

int64_t matmul_mx_tiles(const matmul_spec *spec) {
    int64_t depth = MX_DEPTH * SCALE_TILE_K;
    return (spec->k + depth - 1) / depth;
}

/* Number of scales for 128 rows of an operand with 128x128 blocks, padded to a multiple of four. */
static int64_t band(const matmul_spec *spec) {
    return (scale_blocks(spec->k) + 3) / 4 * 4;
}

int64_t matmul_scale_count(const matmul_spec *spec, bool of_b) {
    int64_t mn = of_b ? spec->n : spec->m;
    switch (spec->scales) {
    case SCALES_NONE:
    case SCALES_ONE: return 0;
    case SCALES_TENSOR: return 1;
    case SCALES_ROW: return mn;
    case SCALES_BLOCK_2D: return of_b ? scale_blocks(mn) * band(spec) : scale_blocks(spec->k) * mn;
    case SCALES_BLOCK_1D: return scale_blocks(spec->k) * mn;
    case SCALES_MX: return scale_tiles_bytes(mn, matmul_mx_tiles(spec));
    }
    return 0;
}

int64_t matmul_scale_bytes(matmul_scales scales) {
    return scales == SCALES_MX ? 1 : 4;
}

int64_t matmul_scale_index(const matmul_spec *spec, bool of_b, int64_t mn_index, int64_t depth) {
    int64_t mn = of_b ? spec->n : spec->m;
    switch (spec->scales) {
    case SCALES_NONE:
    case SCALES_ONE:
    case SCALES_TENSOR: return 0;
    case SCALES_ROW: return mn_index;
    case SCALES_BLOCK_2D:
        if (of_b) return mn_index / BLOCK_DEPTH * band(spec) + depth / BLOCK_DEPTH;
        return depth / BLOCK_DEPTH * mn + mn_index;
    case SCALES_BLOCK_1D: return depth / BLOCK_DEPTH * mn + mn_index;
    case SCALES_MX: break; /* tiles have no strides */
    }
    return 0;
}

/* ---- planning ---- */

#define SET(attribute, value)                                                                                \
    cublasLtMatmulDescSetAttribute(p->operation, CUBLASLT_MATMUL_DESC_##attribute, &(value), sizeof(value))

#define LT_TRY(call)                                                                                         \
    do {                                                                                                     \
        cublasStatus_t status_ = (call);                                                                     \
        if (status_ != CUBLAS_STATUS_SUCCESS) return status_;                                                \
    } while (0)

/* cuBLAS' scale mode of our A (or B). Our B is cuBLAS' A. */
static int32_t scale_mode(matmul_scales scales, bool of_b) {
    switch (scales) {
    case SCALES_ROW: return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    case SCALES_BLOCK_2D:
        return of_b ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case SCALES_BLOCK_1D: return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case SCALES_MX: return CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    case SCALES_NONE:
    case SCALES_ONE:
    case SCALES_TENSOR: break;
    }
    return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

static cublasStatus_t set_scales(matmul *p, const matmul_spec *spec, const void *a, const void *b) {
    if (spec->scales == SCALES_NONE || spec->scales == SCALES_ONE) return CUBLAS_STATUS_SUCCESS;
    LT_TRY(SET(A_SCALE_POINTER, b));
    LT_TRY(SET(B_SCALE_POINTER, a));
    return CUBLAS_STATUS_SUCCESS;
}

/* The scales' addresses are known when the product runs. Here they only show that there are scales. */
static cublasStatus_t describe_product(matmul *p, const matmul_spec *spec) {
    const void *scales = (const void *)(uintptr_t)GPU_ALIGNMENT;
    LT_TRY(cublasLtMatmulDescCreate(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    cublasOperation_t a = spec->b_transposed ? CUBLAS_OP_N : CUBLAS_OP_T;
    cublasOperation_t b = spec->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    LT_TRY(SET(TRANSA, a));
    LT_TRY(SET(TRANSB, b));
    if (spec->scales != SCALES_NONE) {
        int8_t fast = spec->fast;
        int32_t a_mode = scale_mode(spec->scales, true), b_mode = scale_mode(spec->scales, false);
        LT_TRY(SET(FAST_ACCUM, fast));
        LT_TRY(SET(A_SCALE_MODE, a_mode));
        LT_TRY(SET(B_SCALE_MODE, b_mode));
    }
    return set_scales(p, spec, scales, scales);
}

/* Layout of a row-major [mn, k] matrix, or [k, mn] if transposed, as cuBLAS describes it. */
static cublasStatus_t layout(cublasLtMatrixLayout_t *out, cudaDataType_t type, int64_t mn, int64_t k,
                             bool transposed, int64_t ld) {
    int64_t inner = transposed ? mn : k, outer = transposed ? k : mn;
    return cublasLtMatrixLayoutCreate(out, type, (uint64_t)inner, (uint64_t)outer, ld ? ld : inner);
}

/* Excludes algorithms that split the contraction: they round partial sums, which are added in any order. */
static cublasStatus_t limit_algorithms(cublasLtMatmulPreference_t p, const matmul_spec *spec) {
    uint64_t workspace = (uint64_t)spec->workspace;
    uint32_t alignment = (uint32_t)spec->alignment, schemes = CUBLASLT_REDUCTION_SCHEME_NONE;
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                sizeof workspace));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                                sizeof schemes));
    for (int i = 0; alignment && i < 4; i++)
        LT_TRY(cublasLtMatmulPreferenceSetAttribute(p, alignments[i], &alignment, sizeof alignment));
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t find_algorithms(matmul *p, const matmul_spec *spec) {
    cublasLtMatmulPreference_t preference;
    LT_TRY(cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t status = limit_algorithms(preference, spec);
    if (status == CUBLAS_STATUS_SUCCESS) /* C and D are one matrix: pass its layout twice */
        status = cublasLtMatmulAlgoGetHeuristic(p->handle, p->operation, p->a, p->b, p->d, p->d, preference,
                                                MATMUL_CANDIDATES, p->candidate, &p->candidates);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS && p->candidates == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    return status;
}

cublasStatus_t matmul_plan(matmul *p, cublasLtHandle_t handle, const matmul_spec *spec) {
    *p = (matmul){.handle = handle};
    LT_TRY(describe_product(p, spec));
    LT_TRY(layout(&p->a, spec->b, spec->n, spec->k, spec->b_transposed, spec->ldb));
    LT_TRY(layout(&p->b, spec->a, spec->m, spec->k, spec->a_transposed, spec->lda));
    LT_TRY(layout(&p->d, spec->d, spec->m, spec->n, false, spec->ldd));
    return find_algorithms(p, spec);
}

cublasStatus_t matmul_run(matmul *p, int candidate, const matmul_spec *spec, const matmul_data *data,
                          void *workspace, cudaStream_t stream) {
    float alpha = 1, beta = spec->accumulate;
    LT_TRY(set_scales(p, spec, data->a_scale, data->b_scale));
    return cublasLtMatmul(p->handle, p->operation, &alpha, data->b, p->a, data->a, p->b, &beta, data->d, p->d,
                          data->d, p->d, &p->candidate[candidate].algo, workspace, (size_t)spec->workspace,
                          stream);
}

void matmul_close(matmul *p) {
    if (p->d) cublasLtMatrixLayoutDestroy(p->d);
    if (p->b) cublasLtMatrixLayoutDestroy(p->b);
    if (p->a) cublasLtMatrixLayoutDestroy(p->a);
    if (p->operation) cublasLtMatmulDescDestroy(p->operation);
    *p = (matmul){0};
}
