/* cuda/gemm/method: checks what each method supports, and lays out its workspace. The rules of cuBLASLt are
   from cuBLAS 13's documentation ("cublasLtMatmul", "Narrow Precision Data Types Usage"). */
#include "cuda/gemm/method.h"
#include "cuda/gemm/gemm.h"
#include "cuda/gemm/products.h"
#include "cuda/ops.h"
#include <string.h>

enum { FP8_MULTIPLE = 16, MX_MULTIPLE = 32, BLOCK_MULTIPLE = 4, WIDE_MULTIPLE = 8 };
enum { ADA = 89, HOPPER = 90, BLACKWELL = 100 }; /* compute capabilities times ten */
#define LIBRARY_WORKSPACE ((int64_t)32 << 20)    /* bytes that NVIDIA recommends for Hopper */

const char *method_text(product_method method) {
    static const char *const texts[METHOD_COUNT] = {
        [METHOD_LIBRARY] = "cuBLASLt computes it",
        [METHOD_SUMS] = "cuBLASLt computes its sums in fp32, and one more kernel rounds them",
        [METHOD_UNSCALED] =
            "cuBLASLt computes it without scales, and one more kernel multiplies by the scales",
        [METHOD_WIDENED] = "cuBLASLt computes it from wider copies of the operands",
        [METHOD_OWN] = "a slower kernel of Ottava computes it",
    };
    return texts[method];
}

static int capability_of(const cuda_device *c) {
    return 10 * c->properties.major + c->properties.minor;
}

static int64_t round_up(int64_t n, int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

static int64_t reserve_workspace(gemm_choice *w, int64_t bytes) {
    int64_t at = w->bytes;
    w->bytes = round_up(w->bytes + bytes, GPU_ALIGNMENT);
    return at;
}

/* ---- what cuBLASLt supports ---- */

static bool has_scales_of_rows(const gemm_args *g) {
    granularity a = g->a->grain, b = g->b->grain;
    return (a == GRANULARITY_TENSOR || a == GRANULARITY_ROW) &&
           (b == GRANULARITY_TENSOR || b == GRANULARITY_ROW) && g->spec.order == SCALE_PRODUCT;
}

/* Finds cuBLASLt's scale mode for FP8 operands. False if the GPU or cuBLASLt has no such mode. */
static bool choose_scales(int capability, const gemm_args *g, matmul_scales *out) {
    granularity a = g->a->grain, b = g->b->grain;
    bool hopper = capability == HOPPER;
    if (a == GRANULARITY_TENSOR && b == GRANULARITY_TENSOR)
        *out = SCALES_TENSOR;
    else if (a == GRANULARITY_ROW && b == GRANULARITY_ROW && gpu_multiplies_row_scales(capability))
        *out = SCALES_ROW;
    else if (a == GRANULARITY_1X128 && b == GRANULARITY_1X128 && hopper)
        *out = SCALES_BLOCK_1D;
    else if (a == GRANULARITY_1X128 && b == GRANULARITY_128X128 && hopper)
        *out = SCALES_BLOCK_2D;
    else if (a == GRANULARITY_1X32 && b == GRANULARITY_1X32 && capability >= BLACKWELL)
        *out = SCALES_MX;
    else
        return false;
    /* MX scales are powers of two, so their order does not matter */
    return *out == SCALES_MX || g->spec.order == (granularity_is_block(a) ? SCALE_A_THEN_B : SCALE_PRODUCT);
}

/* True if cuBLASLt multiplies these codes, whatever their scales are. */
static bool multiplies_codes(int capability, const gemm_args *g, const matmul_spec *s) {
    bool both_e5m2 = g->a->t.dtype == OTT_E5M2 && g->b->t.dtype == OTT_E5M2;
    bool scaled = g->a->scale_inv && g->b->scale_inv;
    return capability >= ADA && dtype_is_fp8(g->b->t.dtype) && scaled && !both_e5m2 && !g->a->transposed &&
           !g->b->transposed && s->n % FP8_MULTIPLE == 0 &&
           s->ldd * dtype_bytes(matmul_dtype(s->d)) % FP8_MULTIPLE == 0;
}

static bool describe_scaled(int capability, const gemm_args *g, matmul_spec *s) {
    if (!multiplies_codes(capability, g, s) || !choose_scales(capability, g, &s->scales)) return false;
    bool blocks = s->scales == SCALES_BLOCK_1D || s->scales == SCALES_BLOCK_2D;
    s->fast = g->spec.fast_accumulate && !granularity_is_block(g->a->grain);
    return !blocks || s->m % BLOCK_MULTIPLE == 0;
}

static bool describe_unscaled(int capability, const gemm_args *g, matmul_spec *s) {
    s->scales = SCALES_ONE;
    s->fast = g->spec.fast_accumulate;
    return multiplies_codes(capability, g, s) && has_scales_of_rows(g);
}

/* Copies of FP8 codes are in bf16, copies of other formats in fp32. */
static bool describe_widened(const gemm_args *g, matmul_spec *s) {
    bool narrow = dtype_is_fp8(g->a->t.dtype) && dtype_is_fp8(g->b->t.dtype);
    s->a = s->b = narrow ? CUDA_R_16BF : CUDA_R_32F;
    s->lda = round_up(g->a->t.columns, WIDE_MULTIPLE);
    s->ldb = round_up(g->b->t.columns, WIDE_MULTIPLE);
    return has_scales_of_rows(g);
}

static bool describe_high_precision(const gemm_args *g, const matmul_spec *s) {
    ott_dtype d = g->a->t.dtype, result = matmul_dtype(s->d);
    return g->b->t.dtype == d && !dtype_is_fp8(d) && (result == d || result == OTT_F32);
}

static bool describe_operands(int capability, const gemm_args *g, gemm_choice *w) {
    matmul_spec *s = &w->spec;
    bool fp8 = dtype_is_fp8(g->a->t.dtype);
    switch (w->method) {
    case METHOD_LIBRARY:
        if (g->bias) return false;
        return fp8 ? describe_scaled(capability, g, s) : describe_high_precision(g, s);
    case METHOD_SUMS: return fp8 ? describe_scaled(capability, g, s) : describe_high_precision(g, s);
    case METHOD_UNSCALED: return fp8 && describe_unscaled(capability, g, s);
    case METHOD_WIDENED: return describe_widened(g, s);
    default: return true;
    }
}

/* ---- workspace ---- */

/* If cuBLASLt cannot read the codes in place, reserves workspace for copies. The copies have zeros as padding
   at the ends of M, N and K. */
static void stage_codes(gemm_choice *w, const tensor *c) {
    matmul_spec *s = &w->spec;
    int64_t multiple = s->scales == SCALES_MX ? MX_MULTIPLE : FP8_MULTIPLE;
    if (s->m == c->rows && s->n == c->columns && s->k % multiple == 0 && s->lda % FP8_MULTIPLE == 0 &&
        s->ldb % FP8_MULTIPLE == 0)
        return;
    s->k = s->lda = s->ldb = round_up(s->k, multiple);
    w->a_copy_at = reserve_workspace(w, s->m * s->k);
    w->b_copy_at = reserve_workspace(w, s->n * s->k);
}

static void plan_workspace(gemm_choice *w, const gemm_args *g) {
    matmul_spec *s = &w->spec;
    int64_t parts = 16 * s->m * s->n;
    s->workspace = parts < LIBRARY_WORKSPACE ? round_up(parts, GPU_ALIGNMENT) : LIBRARY_WORKSPACE;
    w->library_at = reserve_workspace(w, s->workspace);
    if (w->method == METHOD_WIDENED) {
        int64_t bytes = dtype_bytes(matmul_dtype(s->a));
        w->a_copy_at = reserve_workspace(w, bytes * g->a->t.rows * s->lda);
        w->b_copy_at = reserve_workspace(w, bytes * g->b->t.rows * s->ldb);
    } else if (s->scales != SCALES_NONE) {
        stage_codes(w, g->c);
        w->a_scales_at = reserve_workspace(w, matmul_scale_bytes(s->scales) * matmul_scale_count(s, false));
        w->b_scales_at = reserve_workspace(w, matmul_scale_bytes(s->scales) * matmul_scale_count(s, true));
    }
    if (w->method != METHOD_LIBRARY) w->sum_at = reserve_workspace(w, 4 * s->m * s->n);
}

/* Returns the largest power of two, at most GPU_ALIGNMENT, that divides the row strides in bytes. */
static int align_strides(const matmul_spec *s) {
    uint64_t bits = GPU_ALIGNMENT;
    bits |= (uint64_t)(s->lda * dtype_bytes(matmul_dtype(s->a)));
    bits |= (uint64_t)(s->ldb * dtype_bytes(matmul_dtype(s->b)));
    bits |= (uint64_t)(s->ldd * dtype_bytes(matmul_dtype(s->d)));
    return (int)(bits & -bits);
}

/* ---- the choice ---- */

static void describe_call(const gemm_args *g, gemm_choice *w) {
    matmul_spec *s = &w->spec;
    bool sums = w->method != METHOD_LIBRARY, pads = sums && w->method != METHOD_WIDENED;
    s->m = g->c->rows;
    s->n = g->c->columns;
    if (pads && granularity_is_block(g->a->grain)) s->m = round_up(s->m, BLOCK_MULTIPLE);
    if (pads && dtype_is_fp8(g->a->t.dtype)) s->n = round_up(s->n, FP8_MULTIPLE);
    s->k = operand_k(g->a);
    s->lda = g->a->t.ld;
    s->ldb = g->b->t.ld;
    s->ldd = sums ? s->n : g->c->ld;
    s->a = matmul_type(g->a->t.dtype);
    s->b = matmul_type(g->b->t.dtype);
    s->d = sums ? CUDA_R_32F : matmul_type(g->c->dtype);
    s->a_transposed = g->a->transposed;
    s->b_transposed = g->b->transposed;
    s->scales = SCALES_NONE;
    s->accumulate = !sums && g->accumulate;
}

bool method_describe(const cuda_device *c, const gemm_args *g, product_method method, gemm_choice *out) {
    memset(out, 0, sizeof *out); /* also clears padding: specs are compared with memcmp */
    out->library_at = out->a_scales_at = out->b_scales_at = out->a_copy_at = out->b_copy_at = out->sum_at =
        -1;
    out->method = method;
    if (method == METHOD_OWN) return true;
    describe_call(g, out);
    if (c->own_products || out->spec.m == 0 || out->spec.n == 0 || out->spec.k == 0) return false;
    if (!describe_operands(capability_of(c), g, out)) return false;
    plan_workspace(out, g);
    out->spec.alignment = align_strides(&out->spec);
    return true;
}

ott_status method_choose(cuda_device *c, const gemm_args *g, gemm_choice *out) {
    cuda_product *p;
    for (int method = 0; method < METHOD_COUNT; method++) {
        if (!method_describe(c, g, (product_method)method, out)) continue;
        if (method == METHOD_OWN) break;
        TRY(products_find(c, &out->spec, &p));
        if (!p->refused) break;
    }
    return OTT_OK;
}

/* Slowness of Ottava's kernels, from their counted instructions (docs/explanation/estimates.md). */
static op_slowness own_slowness(const gemm_args *g, bool fp8) {
    if (!gemm_is_for_tensor_cores(g->a, g->b))
        return (op_slowness){500, "Ottava's kernel without tensor cores computes some"};
    return (op_slowness){fp8 ? 5 : 3, "Ottava's kernel computes some, because cuBLASLt refuses them"};
}

op_slowness cuda_gemm_slowness(const device *d, const gemm_args *g) {
    gemm_choice w;
    cuda_device *c = cuda_device_of(d);
    bool fp8 = dtype_is_fp8(g->a->t.dtype) && capability_of(c) >= ADA;
    op_slowness fast = {.times = 1};
    if (c->own_products || operand_k(g->a) == 0 || method_choose(c, g, &w) != OTT_OK) return fast;
    if (w.method == METHOD_OWN) return own_slowness(g, fp8);
    return w.method == METHOD_WIDENED && fp8
               ? (op_slowness){2, "cuBLASLt computes some from bf16 copies of the codes"}
               : fast;
}
