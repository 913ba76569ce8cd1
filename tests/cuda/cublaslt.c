/*
 * tests/cuda/cublaslt: a CPU stand-in for the cuBLASLt functions that Ottava uses, to check layouts, scales
 * and pointers without a GPU. It refuses the cases that cuBLAS 13 documents as unsupported: FP8 before
 * compute capability 8.9, row and block scales outside of 9.0, MX scales before 10.0, FP8 operands with
 * non-contiguous contraction, E5M2 times E5M2, sizes and pointers not aligned to 16 bytes,
 * block scales with fast accumulation, and in-place C with another layout than D. It sums in the order of
 * fp8/reference.h, so its bits match the CPU backend. A sum with row scales is multiplied by the product of
 * the two scales. A sum with block scales is multiplied by the scale of Ottava's A, then by the scale of
 * Ottava's B.
 */
#include "cudart.h"
#include "fp8/cast.h"
#include <cublasLt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct operation {
    cublasOperation_t transa, transb;
    int8_t fast;
    int32_t a_mode, b_mode;
    const float *a_scale, *b_scale;
    float *amax;
} operation;

typedef struct layout {
    cudaDataType_t type;
    int64_t rows, columns, ld;
} layout;

/* What the caller states when it plans a product: alignments that all addresses will have, and the reduction
   schemes that the plan may use. The plan's algorithm (cublasLtMatmulAlgo_t) stores both. */
typedef struct promise {
    uint32_t alignment[4]; /* guaranteed alignments of A, B, C and D; 0: none */
    uint32_t schemes;
    uint32_t candidate; /* the algorithm's number */
} promise;

_Static_assert(sizeof(promise) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits the opaque type");
_Static_assert(sizeof(promise) <= sizeof(((cublasLtMatmulAlgo_t *)0)->data), "goes with the algorithm");
_Static_assert(sizeof(operation) <= sizeof(cublasLtMatmulDescOpaque_t), "fits the opaque type");
_Static_assert(sizeof(layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits the opaque type");

size_t cublasLtGetVersion(void) {
    return 0;
}

const char *cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    default: return "another status";
    }
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    return cublasLtGetStatusName(status);
}

/* A handle has no content, so it may have any address. */
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    static char nothing;
    *handle = (cublasLtHandle_t)(void *)&nothing;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    (void)handle;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- descriptors ---- */

static cublasStatus_t create(void *out, size_t bytes, const void *value, size_t value_bytes) {
    void *made = calloc(1, bytes);
    if (!made) return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(made, value, value_bytes);
    *(void **)out = made;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_INVALID_VALUE;
    operation o = {.transa = CUBLAS_OP_N, .transb = CUBLAS_OP_N};
    return create(out, sizeof(cublasLtMatmulDescOpaque_t), &o, sizeof o);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

#define FIELD(name, member)                                                                                  \
    case CUBLASLT_MATMUL_DESC_##name: return set_field(&o->member, sizeof o->member, value, bytes);

static cublasStatus_t set_field(void *member, size_t wanted, const void *value, size_t bytes) {
    if (bytes != wanted) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(member, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t bytes) {
    operation *o = (operation *)(void *)desc;
    switch ((int)attribute) {
        FIELD(TRANSA, transa)
        FIELD(TRANSB, transb)
        FIELD(FAST_ACCUM, fast)
        FIELD(A_SCALE_MODE, a_mode)
        FIELD(B_SCALE_MODE, b_mode)
        FIELD(A_SCALE_POINTER, a_scale)
        FIELD(B_SCALE_POINTER, b_scale)
        FIELD(AMAX_D_POINTER, amax)
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld) {
    if (ld < (int64_t)rows) return CUBLAS_STATUS_INVALID_VALUE;
    layout l = {type, (int64_t)rows, (int64_t)columns, ld};
    return create(out, sizeof(cublasLtMatrixLayoutOpaque_t), &l, sizeof l);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
    free(l);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
    return create(out, sizeof(cublasLtMatmulPreferenceOpaque_t), "", 0);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
    promise *p = (promise *)(void *)preference;
    uint32_t word = 0;
    if (bytes == sizeof word) memcpy(&word, value, sizeof word);
    switch ((int)attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return bytes == sizeof(uint64_t) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: p->schemes = word; break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: p->alignment[0] = word; break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: p->alignment[1] = word; break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: p->alignment[2] = word; break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: p->alignment[3] = word; break;
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
    return bytes == sizeof word ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- supported products ---- */

int cublaslt_products;
unsigned cublaslt_refuses;
bool cublaslt_wrong_results;
const void *cublaslt_scales[2];

static bool is_fp8(cudaDataType_t type) {
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

static bool aligned(const void *p) {
    return p && (uintptr_t)p % 16 == 0;
}

static bool scales_fit(const operation *o, const layout *a, const layout *b) {
    int row = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F, vec = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    int square = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    if ((o->a_mode == row) != (o->b_mode == row)) return false;
    int mx = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    if (o->a_mode == mx || o->b_mode == mx)
        return o->a_mode == o->b_mode && cudart_capability() >= 100 && a->rows % 32 == 0 &&
               aligned(o->a_scale) && aligned(o->b_scale);
    bool block_a = o->a_mode == vec || o->a_mode == square, block_b = o->b_mode == vec || o->b_mode == square;
    if ((block_a || o->a_mode == row) && cudart_capability() != 90) return false;
    if (block_a != block_b || (o->a_mode == square && o->b_mode == square)) return false;
    if (block_a && (o->fast || a->columns % 4 || b->columns % 4)) return false;
    bool scalars = o->a_mode != row && !block_a && !o->a_scale && !o->b_scale; /* NULL: both are 1 */
    return scalars || (aligned(o->a_scale) && aligned(o->b_scale));
}

static bool supported(const operation *o, const layout *a, const layout *b, const layout *c,
                      const layout *d) {
    if (c->type != d->type || c->ld != d->ld || is_fp8(d->type)) return false;
    if (!is_fp8(a->type))
        return a->type == b->type && (d->type == a->type || d->type == CUDA_R_32F) && !o->a_scale &&
               !o->b_scale;
    if (cudart_capability() < 89 || !is_fp8(b->type) ||
        (a->type == CUDA_R_8F_E5M2 && b->type == CUDA_R_8F_E5M2))
        return false;
    if (o->transa != CUBLAS_OP_T || o->transb != CUBLAS_OP_N) return false;
    if (a->ld % 16 || b->ld % 16 || a->columns % 16 || o->amax) return false;
    return scales_fit(o, a, b);
}

/* True if the test asks for a refusal of this product. */
static bool is_planted(const operation *o, const layout *a, const layout *d) {
    return (cublaslt_refuses & CUBLASLT_REFUSES_ALL) ||
           ((cublaslt_refuses & CUBLASLT_REFUSES_16_BIT) && d->type != CUDA_R_32F) ||
           ((cublaslt_refuses & CUBLASLT_REFUSES_SCALES) && o->a_scale) ||
           ((cublaslt_refuses & CUBLASLT_REFUSES_FP8) && is_fp8(a->type));
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found) {
    (void)handle;
    *found = 0;
    if (is_planted((void *)desc, (void *)a, (void *)d) ||
        !supported((void *)desc, (void *)a, (void *)b, (void *)c, (void *)d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *found = wanted < 2 ? wanted : 2;
    memset(results, 0, sizeof *results * (size_t)*found);
    for (int i = 0; i < *found; i++) {
        memcpy(results[i].algo.data, preference, sizeof(promise));
        ((promise *)(void *)results[i].algo.data)->candidate = (uint32_t)i;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ---- */

static ott_dtype dtype_of(cudaDataType_t type) {
    switch ((int)type) {
    case CUDA_R_8F_E4M3: return OTT_E4M3;
    case CUDA_R_8F_E5M2: return OTT_E5M2;
    case CUDA_R_16BF: return OTT_BF16;
    case CUDA_R_16F: return OTT_F16;
    default: return OTT_F32;
    }
}

typedef struct operand {
    const void *data;
    layout l;
    bool contiguous; /* the contracted dimension is contiguous in memory */
    const float *scale;
    int32_t mode;
    int64_t mn;
} operand;

/* The product d = alpha a b^T + beta c. c and d are column-major. Their rows are the rows of a, and their
   columns are the rows of b. */
typedef struct product {
    operand a, b;
    float alpha, beta;
    bool split; /* sums the two halves of the contraction separately, as a GPU may: the rounding differs */
    const void *c;
    void *d;
    layout out;
    int64_t k;
} product;

/* Returns an MX scale. The E8M0 scales are stored in tiles of 128 rows and 4 blocks. */
static float mx_scale_at(const operand *x, int64_t k, int64_t mn_index, int64_t block) {
    const unsigned char *codes = (const void *)x->scale;
    int64_t tile = mn_index / 128 * ((k + 127) / 128) + block / 4;
    return cast_from_e8m0(codes[tile * 512 + mn_index % 32 * 16 + mn_index / 32 % 4 * 4 + block % 4]);
}

static float scale_at(const operand *x, int64_t blocks, int64_t mn_index, int64_t depth) {
    if (!x->scale) return 1;
    if (x->mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F) return x->scale[mn_index];
    if (x->mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) return x->scale[depth / 128 * x->mn + mn_index];
    if (x->mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F)
        return x->scale[mn_index / 128 * ((blocks + 3) / 4 * 4) + depth / 128];
    return x->scale[0];
}

static float *need_floats(int64_t count) {
    float *out = malloc(sizeof(float) * (size_t)(count + 1));
    if (out) return out;
    fprintf(stderr, "cuBLASLt stand-in: out of memory\n");
    abort();
}

/* Returns an operand's values as [k][rows]. The caller frees them. */
static float *float_values(const operand *x, int64_t k) {
    float *out = need_floats(x->mn * k);
    for (int64_t p = 0; p < k; p++)
        for (int64_t i = 0; i < x->mn; i++)
            out[p * x->mn + i] =
                cast_load(x->data, dtype_of(x->l.type), x->contiguous ? i * x->l.ld + p : p * x->l.ld + i);
    return out;
}

/* sum[i] = sum of a[p][i] * b[p][j] over p in [from, to), added in order by fmaf. */
__attribute__((target_clones("fma", "default"))) static void
add_products(int64_t mn, int64_t from, int64_t to, const float *a, const float *b, int64_t b_mn, float *sum) {
    for (int64_t i = 0; i < mn; i++) sum[i] = 0;
    for (int64_t p = from; p < to; p++) {
        const float *column = a + p * mn;
        float right = b[p * b_mn];
        for (int64_t i = 0; i < mn; i++) sum[i] = fmaf(column[i], right, sum[i]);
    }
}

static bool is_mx(const operand *x) {
    return x->scale && x->mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
}

/* Computes column j of a product. Sums blocks of 128 terms (MX: 32), multiplies each block's sum by the
   block's scales, and adds the block sums. Ottava's A is cuBLAS' B, so the scale of b is multiplied first.
   With MX, also multiplies the scales of the padding by 0, as a GPU does. */
static void add_blocks(const product *w, int64_t j, const float *a, const float *b, float *sum, float *y) {
    int64_t m = w->a.mn, blocks = (w->k + 127) / 128, deep = is_mx(&w->a) ? 32 : 128;
    int64_t end = is_mx(&w->a) ? blocks * 128 : w->k;
    for (int64_t i = 0; i < m; i++) y[i] = 0;
    for (int64_t p = 0; p < end; p += deep) {
        add_products(m, p, p + deep < w->k ? p + deep : w->k, a, b + j, w->b.mn, sum);
        float right = is_mx(&w->b) ? mx_scale_at(&w->b, w->k, j, p / 32) : scale_at(&w->b, blocks, j, p);
        for (int64_t i = 0; i < m; i++) {
            float left = is_mx(&w->a) ? mx_scale_at(&w->a, w->k, i, p / 32) : scale_at(&w->a, blocks, i, p);
            y[i] = fmaf(sum[i] * right, left, y[i]);
        }
    }
}

static bool by_blocks(const operand *x) {
    return is_mx(x) || (x->scale && (x->mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ||
                                     x->mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F));
}

static void scaled_column(const product *w, int64_t j, const float *a, const float *b, float *sum, float *y) {
    if (by_blocks(&w->a)) {
        add_blocks(w, j, a, b, sum, y);
        return;
    }
    int64_t half = w->split ? w->k / 2 : 0;
    add_products(w->a.mn, half, w->k, a, b + j, w->b.mn, y);
    if (half > 0) add_products(w->a.mn, 0, half, a, b + j, w->b.mn, sum);
    for (int64_t i = 0; half > 0 && i < w->a.mn; i++) y[i] += sum[i];
    for (int64_t i = 0; i < w->a.mn; i++) y[i] *= scale_at(&w->b, 0, j, 0) * scale_at(&w->a, 0, i, 0);
}

static void run_product(void *argument) {
    product *w = argument;
    int64_t m = w->a.mn;
    float *a = float_values(&w->a, w->k), *b = float_values(&w->b, w->k), *sum = need_floats(m),
          *y = need_floats(m);
    ott_dtype d = dtype_of(w->out.type);
    for (int64_t j = 0; j < w->b.mn; j++) {
        scaled_column(w, j, a, b, sum, y);
        for (int64_t i = 0; i < m; i++) {
            int64_t at = j * w->out.ld + i;
            float value = w->alpha * y[i];
            if (w->beta != 0) value += w->beta * cast_load(w->c, d, at);
            cast_store(w->d, d, at, value);
        }
    }
    free(a);
    free(b);
    free(sum);
    free(y);
}

static int64_t layout_bytes(const layout *l) {
    return ((l->columns - 1) * l->ld + l->rows) * dtype_bytes(dtype_of(l->type));
}

static void require_device(const product *w) {
    cudart_require_device("cublasLtMatmul: A is not all in device memory", w->a.data,
                          (size_t)layout_bytes(&w->a.l));
    cudart_require_device("cublasLtMatmul: B is not all in device memory", w->b.data,
                          (size_t)layout_bytes(&w->b.l));
    cudart_require_device("cublasLtMatmul: D is not all in device memory", w->d,
                          (size_t)layout_bytes(&w->out));
}

/* Aborts if an address lacks the alignment that the caller guaranteed. On a GPU, cuBLASLt would fail. */
static void require_promised(const promise *p, const void *a, const void *b, const void *d) {
    const void *address[] = {a, b, d, d};
    for (int i = 0; i < 4; i++)
        if (p->alignment[i] && (uintptr_t)address[i] % p->alignment[i]) {
            fprintf(stderr, "CUDA stand-in: cublasLtMatmul: %c is not aligned to the guaranteed %u bytes\n",
                    "ABCD"[i], p -> alignment[i]);
            abort();
        }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
    (void)handle;
    const promise *promised = (const void *)algorithm->data;
    const operation *o = (const void *)desc;
    const layout *la = (const void *)a_layout, *lb = (const void *)b_layout, *lc = (const void *)c_layout;
    const layout *ld = (const void *)d_layout;
    bool refused = (cublaslt_refuses & CUBLASLT_REFUSES_RUN) ||
                   ((cublaslt_refuses & CUBLASLT_REFUSES_FIRST) && promised->candidate == 0);
    if (refused || !supported(o, la, lb, lc, ld)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (is_fp8(la->type) && (!aligned(a) || !aligned(b) || !aligned(d))) return CUBLAS_STATUS_INVALID_VALUE;
    if (workspace_bytes && (uintptr_t)workspace % 256) return CUBLAS_STATUS_INVALID_VALUE;
    bool a_contiguous = o->transa == CUBLAS_OP_T, b_contiguous = o->transb == CUBLAS_OP_N;
    int64_t k = a_contiguous ? la->rows : la->columns;
    if ((a_contiguous ? la->columns : la->rows) != ld->rows ||
        (b_contiguous ? lb->columns : lb->rows) != ld->columns ||
        (b_contiguous ? lb->rows : lb->columns) != k)
        return CUBLAS_STATUS_INVALID_VALUE;
    require_promised(promised, a, b, d);
    product *w = malloc(sizeof *w);
    if (!w) return CUBLAS_STATUS_ALLOC_FAILED;
    *w = (product){.a = {a, *la, a_contiguous, o->a_scale, o->a_mode, ld->rows},
                   .b = {b, *lb, b_contiguous, o->b_scale, o->b_mode, ld->columns},
                   .alpha = *(const float *)alpha * (cublaslt_wrong_results ? 2 : 1),
                   .beta = *(const float *)beta,
                   .split = promised->schemes != CUBLASLT_REDUCTION_SCHEME_NONE,
                   .c = c,
                   .d = d,
                   .out = *ld,
                   .k = k};
    require_device(w);
    cublaslt_products++;
    cublaslt_scales[0] = o->b_scale;
    cublaslt_scales[1] = o->a_scale;
    cudart_queue(stream, run_product, w, free);
    return CUBLAS_STATUS_SUCCESS;
}
