/* cuda/gemm/gemm: the gemm op. cuBLASLt computes the products that it supports. Ottava's kernel
   (cuda/gemm/gemm.h) computes all others, and logs once if cuBLASLt refuses a product at run time. The choice
   depends only on shapes, formats and scalars (alignment is checked at run time), so the workspace is known
   beforehand. */
#include "cuda/gemm/gemm.h"
#include "base/log.h"
#include "cuda/cuda.h"
#include "cuda/gemm/gemm_check.h"
#include "cuda/gemm/matmul.h"
#include "cuda/ops.h"
#include "cuda/gemm/products.h"
#include <string.h>

enum { FP8_MULTIPLE = 16, MX_MULTIPLE = 32, BLOCK_MULTIPLE = 4, BLOCK = 128 };
#define LIBRARY_WORKSPACE ((int64_t)32 << 20) /* bytes that NVIDIA recommends for Hopper */

/* ---- choice of the implementation ---- */

/* How to compute a product. A field with _at is the byte offset of a buffer in the workspace; -1: none. */
typedef struct gemm_choice {
    bool by_cublaslt;
    matmul_spec spec; /* spec.alignment is set at run time */
    int64_t library_at, a_scales_at, b_scales_at, a_codes_at, b_codes_at, sum_at;
    int64_t bytes;
} gemm_choice;

static int64_t round_up(int64_t n, int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

static int64_t reserve_workspace(gemm_choice *w, int64_t bytes) {
    int64_t at = w->bytes;
    w->bytes = round_up(w->bytes + bytes, GPU_ALIGNMENT);
    return at;
}

/* Finds cuBLASLt's scale mode for FP8 operands. False if the GPU or cuBLASLt has no such mode. */
static bool choose_scales(const backend_capabilities *can, const gemm_args *g, matmul_scales *out) {
    granularity a = g->a->grain, b = g->b->grain;
    if (!g->a->scale_inv || !g->b->scale_inv || can->no_granularity[a] || can->no_granularity[b])
        return false;
    if (a == GRANULARITY_TENSOR && b == GRANULARITY_TENSOR)
        *out = SCALES_TENSOR;
    else if (a == GRANULARITY_ROW && b == GRANULARITY_ROW)
        *out = SCALES_ROW;
    else if (a == GRANULARITY_1X128 && b == GRANULARITY_1X128)
        *out = SCALES_BLOCK_1D;
    else if (a == GRANULARITY_1X128 && b == GRANULARITY_128X128)
        *out = SCALES_BLOCK_2D;
    else if (a == GRANULARITY_1X32 && b == GRANULARITY_1X32)
        *out = SCALES_MX;
    else
        return false;
    return g->spec.order == (granularity_is_block(a) ? SCALE_A_THEN_B : SCALE_PRODUCT);
}

/* True if cuBLASLt supports these FP8 operands. Sets the scale mode and whether accumulation is fast. */
static bool describe_fp8(const backend_capabilities *can, const gemm_args *g, matmul_spec *s) {
    bool both_e5m2 = g->a->t.dtype == OTT_E5M2 && g->b->t.dtype == OTT_E5M2;
    if (!dtype_is_fp8(g->b->t.dtype) || both_e5m2 || g->a->transposed || g->b->transposed) return false;
    if (s->n % FP8_MULTIPLE || s->ldd * dtype_bytes(g->c->dtype) % FP8_MULTIPLE ||
        !choose_scales(can, g, &s->scales))
        return false;
    bool blocks = s->scales == SCALES_BLOCK_1D || s->scales == SCALES_BLOCK_2D;
    s->fast = g->spec.fast_accumulate && !granularity_is_block(g->a->grain);
    return !blocks || s->m % BLOCK_MULTIPLE == 0;
}

static bool describe_high_precision(const gemm_args *g) {
    ott_dtype d = g->a->t.dtype;
    return g->b->t.dtype == d && (g->c->dtype == d || g->c->dtype == OTT_F32);
}

/* If cuBLASLt cannot read the codes in place, reserves workspace for copies. The copies have zeros as padding
   at the end of K, which do not change the product. */
static void stage_codes(gemm_choice *w) {
    matmul_spec *s = &w->spec;
    int64_t multiple = s->scales == SCALES_MX ? MX_MULTIPLE : FP8_MULTIPLE;
    if (s->k % multiple == 0 && s->lda % FP8_MULTIPLE == 0 && s->ldb % FP8_MULTIPLE == 0) return;
    s->k = s->lda = s->ldb = round_up(s->k, multiple);
    w->a_codes_at = reserve_workspace(w, s->m * s->k);
    w->b_codes_at = reserve_workspace(w, s->n * s->k);
}

static void plan_workspace(gemm_choice *w, const gemm_args *g) {
    matmul_spec *s = &w->spec;
    int64_t parts = 16 * s->m * s->n;
    s->workspace = parts < LIBRARY_WORKSPACE ? round_up(parts, GPU_ALIGNMENT) : LIBRARY_WORKSPACE;
    w->library_at = reserve_workspace(w, s->workspace);
    if (s->scales != SCALES_NONE) {
        stage_codes(w);
        w->a_scales_at = reserve_workspace(w, matmul_scale_bytes(s->scales) * matmul_scale_count(s, false));
        w->b_scales_at = reserve_workspace(w, matmul_scale_bytes(s->scales) * matmul_scale_count(s, true));
    }
    if (!g->bias) return;
    w->sum_at = reserve_workspace(w, 4 * s->m * s->n);
    s->d = CUDA_R_32F;
    s->ldd = s->n;
    s->accumulate = false;
}

static void choose_implementation(const backend_capabilities *can, const gemm_args *g, gemm_choice *w) {
    memset(w, 0, sizeof *w); /* also clears padding: specs are compared with memcmp */
    w->library_at = w->a_scales_at = w->b_scales_at = w->a_codes_at = w->b_codes_at = w->sum_at = -1;
    matmul_spec *s = &w->spec;
    s->m = g->c->rows;
    s->n = g->c->columns;
    s->k = operand_k(g->a);
    s->lda = g->a->t.ld;
    s->ldb = g->b->t.ld;
    s->ldd = g->c->ld;
    s->a = matmul_type(g->a->t.dtype);
    s->b = matmul_type(g->b->t.dtype);
    s->d = matmul_type(g->c->dtype);
    s->a_transposed = g->a->transposed;
    s->b_transposed = g->b->transposed;
    s->scales = SCALES_NONE;
    s->accumulate = g->accumulate;
    if (s->m == 0 || s->n == 0 || s->k == 0) return;
    w->by_cublaslt = dtype_is_fp8(g->a->t.dtype) ? describe_fp8(can, g, s) : describe_high_precision(g);
    if (w->by_cublaslt) plan_workspace(w, g);
}

int64_t cuda_gemm_workspace(const backend_capabilities *can, const gemm_args *g) {
    gemm_choice w;
    choose_implementation(can, g, &w);
    return w.bytes;
}

/* ---- operands for the library ---- */

/* Returns the largest power of two, at most 256, that divides the product's addresses and row strides. */
static int common_alignment(const gemm_args *g, const matmul_data *data) {
    uintptr_t bits = (uintptr_t)data->a | (uintptr_t)data->b | (uintptr_t)data->d | GPU_ALIGNMENT;
    bits |= (uintptr_t)(g->a->t.ld * dtype_bytes(g->a->t.dtype));
    bits |= (uintptr_t)(g->b->t.ld * dtype_bytes(g->b->t.dtype));
    bits |= (uintptr_t)(g->c->ld * dtype_bytes(g->c->dtype));
    return (int)(bits & -bits);
}

static ott_status copy_codes(exec *cx, const operand *o, int64_t k, char *to) {
    const tensor *t = &o->t;
    TRY(cuda_check(cudaMemsetAsync(to, 0, (size_t)(t->rows * k), cuda_stream(cx)), "gemm"));
    return cuda_check(cudaMemcpy2DAsync(to, (size_t)k, t->data, (size_t)t->ld, (size_t)t->columns,
                                        (size_t)t->rows, cudaMemcpyDeviceToDevice, cuda_stream(cx)),
                      "gemm");
}

/* *out: the codes that cuBLASLt reads, which are the operand's own codes or their padded copy. */
static ott_status place_library_codes(exec *cx, const operand *o, int64_t at, int64_t k, const void **out) {
    char *copy = (char *)cx->workspace + at;
    *out = at < 0 ? o->t.data : copy;
    return at < 0 ? OTT_OK : copy_codes(cx, o, k, copy);
}

/* Describes a copy of an operand's scales from their own strides to the strides that cuBLASLt requires. */
static gemm_scales describe_scales(const matmul_spec *s, const operand *o, bool of_b, void *to) {
    scale_block block = granularity_block(o->grain);
    int64_t mn = of_b ? s->n : s->m;
    return (gemm_scales){.from = o->scale_inv,
                         .to = to,
                         .mn = block.mn == INT64_MAX ? 1 : (mn + block.mn - 1) / block.mn,
                         .k = block.k == INT64_MAX ? 1 : (operand_k(o) + block.k - 1) / block.k,
                         .mn_step = o->mn_step,
                         .k_step = o->k_step,
                         .tiles = o->tiles,
                         .to_mn_step = matmul_scale_index(s, of_b, block.mn == INT64_MAX ? 0 : block.mn, 0),
                         .to_k_step = matmul_scale_index(s, of_b, 0, block.k == INT64_MAX ? 0 : block.k)};
}

/* True if cuBLASLt can read the scales where they are. *first: their address. */
static bool find_scales_in_place(const matmul_spec *s, const gemm_scales *g, const void **first) {
    bool along_mn = g->mn == 1 || g->mn_step == g->to_mn_step,
         along_k = g->k == 1 || g->k_step == g->to_k_step;
    *first = g->from;
    if (s->scales == SCALES_MX) { /* a view must begin with a tile */
        along_mn = g->tiles.mn % SCALE_TILE_MN == 0;
        along_k = g->tiles.k % SCALE_TILE_K == 0 && g->tiles.along_k == matmul_mx_tiles(s);
        *first = (const char *)g->from + scale_tiles_index(g->tiles, 0, 0);
    }
    return along_mn && along_k && (uintptr_t)*first % FP8_MULTIPLE == 0;
}

/* *out: the operand's scales in cuBLASLt's order. They are copied unless they are stored in this order. */
static ott_status place_library_scales(exec *cx, const gemm_choice *w, const operand *o, bool of_b,
                                       const void **out) {
    const matmul_spec *s = &w->spec;
    gemm_scales scales =
        describe_scales(s, o, of_b, (char *)cx->workspace + (of_b ? w->b_scales_at : w->a_scales_at));
    if (find_scales_in_place(s, &scales, out)) return OTT_OK;
    *out = scales.to;
    return cuda_check(s->scales == SCALES_MX ? gemm_tiles_launch(&scales, matmul_mx_tiles(s), cuda_stream(cx))
                                             : gemm_scales_launch(&scales, cuda_stream(cx)),
                      "gemm");
}

static ott_status place_operands(exec *cx, const gemm_args *g, const gemm_choice *w, matmul_data *out) {
    char *workspace = cx->workspace;
    *out = (matmul_data){.d = w->sum_at < 0 ? g->c->data : workspace + w->sum_at};
    TRY(place_library_codes(cx, g->a, w->a_codes_at, w->spec.k, &out->a));
    TRY(place_library_codes(cx, g->b, w->b_codes_at, w->spec.k, &out->b));
    if (w->spec.scales == SCALES_NONE) return OTT_OK;
    TRY(place_library_scales(cx, w, g->a, false, &out->a_scale));
    return place_library_scales(cx, w, g->b, true, &out->b_scale);
}

/* ---- the op ---- */

static ott_status multiply_by_kernel(exec *cx, const gemm_args *g) {
    bool exact = cuda_device_of(cx->device)->own_products;
    return cuda_check((exact ? gemm_exact_launch : gemm_launch)(g->a, g->b, g->bias, g->c, g->accumulate,
                                                                g->spec.order, cuda_stream(cx)),
                      "gemm");
}

/* True if an FP8 product's operands or result are not 16-byte aligned. */
static bool is_misaligned(const gemm_args *g, const matmul_data *data) {
    uintptr_t bits = (uintptr_t)data->a | (uintptr_t)data->b | (uintptr_t)data->d;
    return dtype_is_fp8(g->a->t.dtype) && bits % FP8_MULTIPLE != 0;
}

/* Runs cuBLASLt's product, then adds the bias, because cuBLASLt's epilogue rounds differently. */
static ott_status run_product(exec *cx, const gemm_args *g, const gemm_choice *w, cuda_product *p,
                              const matmul_data *data, bool *ran) {
    TRY(products_run(cx, p, data, (char *)cx->workspace + w->library_at, ran));
    if (!*ran || !g->bias) return OTT_OK;
    return cuda_check(gemm_epilogue_launch(data->d, g->bias, g->c, g->accumulate, cuda_stream(cx)), "gemm");
}

static ott_status run_checked(exec *cx, const gemm_args *g, const gemm_choice *w, cuda_product *p,
                              const matmul_data *data, bool *ran) {
    gemm_check check;
    TRY(gemm_check_begin(&check, cx, g));
    TRY(run_product(cx, g, w, p, data, ran));
    return *ran ? gemm_check_end(&check, cx, g, products_checked(p)) : OTT_OK;
}

static ott_status run_on_library(exec *cx, const gemm_args *g, gemm_choice *w) {
    matmul_data data;
    cuda_product *p;
    bool ran = false;
    TRY(place_operands(cx, g, w, &data));
    if (is_misaligned(g, &data)) return multiply_by_kernel(cx, g);
    w->spec.alignment = common_alignment(g, &data);
    TRY(products_find(cx, &w->spec, &data, &p));
    bool is_checked = p && (*products_checked(p) || cuda_device_of(cx->device)->is_capturing);
    if (p) TRY((is_checked ? run_product : run_checked)(cx, g, w, p, &data, &ran));
    return ran ? OTT_OK : multiply_by_kernel(cx, g);
}

ott_status cuda_check_accumulate(exec *cx, const char *op, const gemm_spec *spec) {
    const char *refused = cx->device->can->no_accumulate[spec->accumulate];
    if (!refused) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED, "%s: accumulation \"%s\" %s", op,
                       recipe_accumulate_name(spec->accumulate), refused);
}

ott_status cuda_gemm(exec *cx, const gemm_args *g) {
    gemm_choice w;
    TRY(cuda_check_accumulate(cx, "gemm", &g->spec));
    if (tensor_count(*g->c) == 0) return OTT_OK;
    choose_implementation(cx->device->can, g, &w);
    bool own = !w.by_cublaslt || cuda_device_of(cx->device)->own_products;
    return own ? multiply_by_kernel(cx, g) : run_on_library(cx, g, &w);
}
