/* cuda/gemm/gemm: the gemm op. Prepares the operands for the product's method (cuda/gemm/method.h) and runs
   it. If cuBLASLt refuses the product at run time, the next method whose workspace fits computes it, and the
   log reports this once. */
#include "cuda/gemm/gemm.h"
#include "cuda/gemm/gemm_check.h"
#include "cuda/gemm/products.h"
#include "cuda/gemm/method.h"
#include "cuda/ops.h"

enum { FP8_MULTIPLE = 16 };

int64_t cuda_gemm_workspace(const device *d, const gemm_args *g) {
    gemm_choice w;
    if (method_choose(cuda_device_of(d), g, &w) != OTT_OK) return 0; /* cuda_gemm reports the error */
    return w.bytes;
}

/* ---- operands for the library ---- */

/* Returns the largest power of two that divides the product's addresses and the alignment of its rows. */
static int common_alignment(const matmul_spec *s, const matmul_data *data) {
    uintptr_t bits = (uintptr_t)data->a | (uintptr_t)data->b | (uintptr_t)data->d | (uintptr_t)s->alignment;
    return (int)(bits & -bits);
}

/* Copies the codes to rows of k codes. Adds zeros to the rows, and rows of zeros up to `rows`. */
static ott_status copy_codes(exec *cx, const operand *o, int64_t rows, int64_t k, char *to) {
    const tensor *t = &o->t;
    TRY(cuda_check(cudaMemsetAsync(to, 0, (size_t)(rows * k), cuda_stream(cx)), "gemm"));
    return cuda_check(cudaMemcpy2DAsync(to, (size_t)k, t->data, (size_t)t->ld, (size_t)t->columns,
                                        (size_t)t->rows, cudaMemcpyDeviceToDevice, cuda_stream(cx)),
                      "gemm");
}

/* *out: the operand that cuBLASLt reads: the operand itself, or its padded or widened copy. */
static ott_status place_library_operand(exec *cx, const gemm_choice *w, const operand *o, bool of_b,
                                        const void **out) {
    const matmul_spec *s = &w->spec;
    int64_t at = of_b ? w->b_copy_at : w->a_copy_at, ld = of_b ? s->ldb : s->lda;
    char *copy = (char *)cx->workspace + at;
    *out = at < 0 ? o->t.data : copy;
    if (at < 0) return OTT_OK;
    if (w->method != METHOD_WIDENED) return copy_codes(cx, o, of_b ? s->n : s->m, ld, copy);
    tensor wide = {.data = copy, .dtype = matmul_dtype(s->a), .ld = ld};
    return cuda_check(gemm_widen_launch(&o->t, &wide, cuda_stream(cx)), "gemm");
}

/* Describes a copy of an operand's scales from their own strides to the strides that cuBLASLt requires. */
static gemm_scales describe_scales(const matmul_spec *s, const operand *o, bool of_b, void *to) {
    scale_block block = granularity_block(o->grain);
    int64_t mn = operand_mn(o);
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

/* True if cuBLASLt can read the scales where they are. padded: cuBLASLt reads more rows than the operand has.
   *first: the scales' address. */
static bool find_scales_in_place(const matmul_spec *s, const gemm_scales *g, bool padded,
                                 const void **first) {
    bool along_mn = g->mn == 1 || (g->mn_step == g->to_mn_step && !padded),
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
    bool padded = (of_b ? s->n : s->m) != operand_mn(o);
    if (find_scales_in_place(s, &scales, padded, out)) return OTT_OK;
    *out = scales.to;
    return cuda_check(s->scales == SCALES_MX ? gemm_tiles_launch(&scales, matmul_mx_tiles(s), cuda_stream(cx))
                                             : gemm_scales_launch(&scales, cuda_stream(cx)),
                      "gemm");
}

static ott_status place_operands(exec *cx, const gemm_args *g, const gemm_choice *w, matmul_data *out) {
    char *workspace = cx->workspace;
    *out = (matmul_data){.d = w->sum_at < 0 ? g->c->data : workspace + w->sum_at};
    TRY(place_library_operand(cx, w, g->a, false, &out->a));
    TRY(place_library_operand(cx, w, g->b, true, &out->b));
    if (w->a_scales_at < 0 || w->spec.scales == SCALES_ONE) return OTT_OK;
    TRY(place_library_scales(cx, w, g->a, false, &out->a_scale));
    return place_library_scales(cx, w, g->b, true, &out->b_scale);
}

/* ---- the op ---- */

static ott_status launch_own(exec *cx, const gemm_args *g, bool exact) {
    return cuda_check((exact ? gemm_exact_launch : gemm_launch)(g->a, g->b, g->bias, g->c, g->accumulate,
                                                                g->spec.order, cuda_stream(cx)),
                      "gemm");
}

/* A number below 2^14 for the formats, scales and layouts of a product. */
static int kind_of(const gemm_args *g) {
    const operand *a = g->a, *b = g->b;
    int formats = a->t.dtype | b->t.dtype << 3, layouts = a->transposed | b->transposed << 1;
    return formats | (int)a->grain << 6 | (int)b->grain << 9 | layouts << 12;
}

/* Runs Ottava's kernel. Compares the first product of each kind with the host's, as for cuBLASLt. */
static ott_status multiply_by_kernel(exec *cx, const gemm_args *g) {
    cuda_device *c = cuda_device_of(cx->device);
    uint64_t *word = &c->own_checked[kind_of(g) / 64], bit = UINT64_C(1) << kind_of(g) % 64;
    bool is_checked = c->own_products || c->is_capturing || *word & bit || operand_k(g->a) == 0;
    gemm_check check;
    if (is_checked) return launch_own(cx, g, c->own_products);
    bool conclusive = false;
    TRY(gemm_check_begin(&check, cx, g));
    TRY(launch_own(cx, g, false));
    TRY(gemm_check_end(&check, cx, g, &conclusive));
    if (conclusive) *word |= bit;
    return OTT_OK;
}

/* True if an FP8 product's operands or result are not 16-byte aligned. */
static bool is_misaligned(const gemm_choice *w, const matmul_data *data) {
    uintptr_t bits = (uintptr_t)data->a | (uintptr_t)data->b | (uintptr_t)data->d;
    return w->spec.scales != SCALES_NONE && bits % FP8_MULTIPLE != 0;
}

/* Scales of a sum's row and column; NULL: cuBLASLt has multiplied by the scales. */
static gemm_factors factors_of(const gemm_args *g, const gemm_choice *w) {
    if (w->method != METHOD_UNSCALED && w->method != METHOD_WIDENED) return (gemm_factors){0};
    return (gemm_factors){.a = g->a->scale_inv,
                          .b = g->b->scale_inv,
                          .a_step = g->a->grain == GRANULARITY_ROW ? g->a->mn_step : 0,
                          .b_step = g->b->grain == GRANULARITY_ROW ? g->b->mn_step : 0};
}

/* Runs cuBLASLt's product, then the epilogue if the product is a matrix of sums. cuBLASLt's own epilogue of a
   bias rounds differently. */
static ott_status run_product(exec *cx, const gemm_args *g, const gemm_choice *w, cuda_product *p,
                              const matmul_data *data) {
    gemm_factors factors = factors_of(g, w);
    TRY(products_run(cx, p, data, (char *)cx->workspace + w->library_at));
    if (p->failed || w->sum_at < 0) return OTT_OK;
    return cuda_check(
        gemm_epilogue_launch(data->d, w->spec.ldd, &factors, g->bias, g->c, g->accumulate, cuda_stream(cx)),
        "gemm");
}

static ott_status run_checked(exec *cx, const gemm_args *g, const gemm_choice *w, cuda_product *p,
                              const matmul_data *data) {
    gemm_check check;
    TRY(gemm_check_begin(&check, cx, g));
    TRY(run_product(cx, g, w, p, data));
    return p->failed ? OTT_OK : gemm_check_end(&check, cx, g, &p->checked);
}

/* Runs the product by a method of cuBLASLt, which has an algorithm for w->spec. *p: the product with the
   alignment of this call; NULL: cuBLASLt does not support the addresses. */
static ott_status run_on_library(exec *cx, const gemm_args *g, gemm_choice *w, cuda_product **p) {
    matmul_data data;
    cuda_device *c = cuda_device_of(cx->device);
    *p = NULL;
    TRY(place_operands(cx, g, w, &data));
    if (is_misaligned(w, &data)) return OTT_OK;
    w->spec.alignment = common_alignment(&w->spec, &data);
    TRY(products_find(c, &w->spec, p));
    if (!products_can_run(*p)) return OTT_OK;
    return ((*p)->checked || c->is_capturing ? run_product : run_checked)(cx, g, w, *p, &data);
}

ott_status cuda_check_accumulate(exec *cx, const char *op, const gemm_spec *spec) {
    const char *refused = cx->device->can->no_accumulate[spec->accumulate];
    if (!refused) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED, "%s: accumulation \"%s\" %s", op,
                       recipe_accumulate_name(spec->accumulate), refused);
}

ott_status cuda_gemm(exec *cx, const gemm_args *g) {
    cuda_device *c = cuda_device_of(cx->device);
    int64_t reserved = cuda_gemm_workspace(cx->device, g);
    cuda_product *refused = NULL, *p;
    gemm_choice w;
    TRY(cuda_check_accumulate(cx, "gemm", &g->spec));
    if (tensor_count(*g->c) == 0) return OTT_OK;
    for (int method = 0; method < METHOD_OWN; method++) {
        if (!method_describe(c, g, (product_method)method, &w)) continue;
        TRY(products_find(c, &w.spec, &p));
        if (products_can_run(p)) {
            if (w.bytes > reserved) continue;
            TRY(run_on_library(cx, g, &w, &p));
        }
        if (p && products_can_run(p)) {
            if (refused) products_log(cx, refused, method_text((product_method)method));
            return OTT_OK;
        }
        if (!refused) refused = p;
    }
    if (refused) products_log(cx, refused, method_text(METHOD_OWN));
    return multiply_by_kernel(cx, g);
}
