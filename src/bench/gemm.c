/* bench/gemm: matrix products: the three GEMMs of a linear layer, and products of a few rows with weights
   that are read from memory, not from a cache. */
#include "bench/harness.h"
#include "base/text/size.h"
#include <stdio.h>
#include <unistd.h>

typedef struct gemm_format {
    const char *name;
    ott_dtype a, b;
} gemm_format;

static const gemm_format formats[] = {{"e4m3 x e4m3", OTT_E4M3, OTT_E4M3},
                                      {"e5m2 x e4m3", OTT_E5M2, OTT_E4M3},
                                      {"bf16", OTT_BF16, OTT_BF16},
                                      {"fp32", OTT_F32, OTT_F32}};
enum { FORMATS = sizeof formats / sizeof *formats };

/* Which operands of the three GEMMs of a linear layer are transposed. */
typedef struct gemm_layout {
    const char *name;
    bool a_transposed, b_transposed;
} gemm_layout;

static const gemm_layout layouts[] = {
    {"output", false, false}, {"grad_input", false, true}, {"grad_weight", true, true}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

typedef struct product {
    operand a, b;
    tensor c;
    /* gemv: number of packed weights in memory, bytes of each, and which weight the next run reads */
    int64_t weights, packed_bytes, at;
} product;

static ott_status run_gemm_case(bench *b, void *state) {
    const product *p = state;
    return op_gemm(&b->cx, &(gemm_args){.a = &p->a, .b = &p->b, .c = &p->c});
}

static operand make_operand(void *data, ott_dtype d, int64_t mn, int64_t k, bool transposed) {
    return (operand){.t = transposed ? tensor_matrix(data, d, k, mn) : tensor_matrix(data, d, mn, k),
                     .transposed = transposed};
}

/* One buffer for each operand and format. All shapes share the buffers. */
typedef struct gemm_buffers {
    tensor a[FORMATS], b[FORMATS], c, scale;
} gemm_buffers;

static ott_status open_gemm_buffers(bench *b, const bench_shapes *s, gemm_buffers *out) {
    int64_t most_a = 0, most_b = 0, most_c = 0;
    for (int i = 0; i < s->products; i++) {
        const bench_product *p = &s->product[i];
        most_a = size_max(most_a, p->m * p->k);
        most_b = size_max(most_b, p->n * p->k);
        most_c = size_max(most_c, p->m * p->n);
    }
    for (int f = 0; f < FORMATS; f++) {
        TRY(bench_tensor(b, formats[f].a, 1, most_a, &out->a[f]));
        TRY(bench_tensor(b, formats[f].b, 1, most_b, &out->b[f]));
    }
    TRY(bench_tensor(b, OTT_F32, 1, 1, &out->scale));
    return bench_tensor(b, OTT_F32, 1, most_c, &out->c);
}

/* Makes an operand, in the layout that the device requires. FP8 codes get one scale. */
static operand gemm_operand(const bench *b, const gemm_buffers *from, tensor data, int64_t mn, int64_t k,
                            bool transposed) {
    bool fp8 = dtype_is_fp8(data.dtype), contiguous = fp8 && b->cx.device->can->contiguous_contraction;
    operand o = make_operand(data.data, data.dtype, mn, k, transposed && !contiguous);
    if (fp8) o.scale_inv = from->scale.data;
    return o;
}

static ott_status add_gemm_case(bench *b, const gemm_buffers *from, const bench_product *p, int l, int f) {
    product *state;
    TRY(bench_alloc(b, sizeof(product), &state));
    state->a = gemm_operand(b, from, from->a[f], p->m, p->k, layouts[l].a_transposed);
    state->b = gemm_operand(b, from, from->b[f], p->n, p->k, layouts[l].b_transposed);
    state->c = tensor_matrix(from->c.data, OTT_F32, p->m, p->n);
    bench_case c = {.what = layouts[l].name,
                    .variant = formats[f].name,
                    .flops = 2.0 * (double)(p->m * p->n * p->k),
                    .format = formats[f].a,
                    .run = run_gemm_case,
                    .state = state};
    snprintf(c.shape, sizeof c.shape, "%lld x %lld x %lld", (long long)p->m, (long long)p->n,
             (long long)p->k);
    return bench_add(b, &c);
}

static ott_status add_gemm(bench *b) {
    const bench_shapes *s;
    gemm_buffers buffers;
    TRY(bench_find_shapes(b, &s));
    TRY(open_gemm_buffers(b, s, &buffers));
    for (int i = 0; i < s->products; i++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int f = 0; f < FORMATS; f++) TRY(add_gemm_case(b, &buffers, &s->product[i], l, f));
    return OTT_OK;
}

const bench_entry bench_gemm = {
    .name = "gemm", .compares_bf16 = true, .accepts = BENCH_ACCEPTS_SHAPES, .add = add_gemm};

static const int64_t gemv_rows[] = {1, 2, 4, 8};
enum { GEMV_ROWS = sizeof gemv_rows / sizeof *gemv_rows };

static const gemm_format weights[] = {
    {"e4m3", OTT_E4M3, OTT_E4M3}, {"bf16", OTT_BF16, OTT_BF16}, {"fp32", OTT_F32, OTT_F32}};
enum { WEIGHTS = sizeof weights / sizeof *weights };

static int64_t packed_elements(const bench *b, const bench_product *p, ott_dtype d) {
    operand weight = make_operand(NULL, d, p->n, p->k, false);
    return op_packed_count(&b->cx, &weight);
}

/* Returns a number of elements that exceeds the last-level cache, so that runs read weights from memory. */
static int64_t region_elements(const bench *b, const bench_shapes *s, ott_dtype d) {
    const int64_t least = INT64_C(64) << 20, most = INT64_C(640) << 20;
#ifdef _SC_LEVEL3_CACHE_SIZE
    int64_t wanted = sysconf(_SC_LEVEL3_CACHE_SIZE) / 4 * 5;
#else
    int64_t wanted = most; /* musl cannot report the size of the cache */
#endif
    int64_t elements = size_max(least, wanted < most ? wanted : most) / dtype_bytes(d);
    for (int i = 0; i < s->products; i++)
        elements = size_max(elements, 2 * packed_elements(b, &s->product[i], d));
    return elements;
}

/* Multiplies by the next weight in memory. It was never packed: any bytes are a valid packed weight. */
static ott_status run_next(bench *b, void *state) {
    product *p = state;
    operand weight = p->b;
    weight.t.data = (char *)weight.t.data + p->at * p->packed_bytes;
    p->at = (p->at + 1) % p->weights;
    return op_gemm(&b->cx, &(gemm_args){.a = &p->a, .b = &weight, .c = &p->c});
}

static ott_status add_gemv_case(bench *b, const bench_product *p, int64_t m, int w, const tensor *region) {
    product *state;
    tensor x;
    TRY(bench_alloc(b, sizeof(product), &state));
    TRY(bench_tensor(b, weights[w].a, m, p->k, &x));
    TRY(bench_tensor(b, OTT_F32, m, p->n, &state->c));
    state->a = (operand){.t = x};
    state->b = make_operand(region->data, weights[w].b, p->n, p->k, false);
    state->b.packed = true;
    state->packed_bytes = packed_elements(b, p, weights[w].b) * dtype_bytes(weights[w].b);
    state->weights = tensor_bytes(*region) / state->packed_bytes;
    bench_case c = {.what = "weights read",
                    .variant = weights[w].name,
                    .bytes = (double)tensor_bytes(state->b.t),
                    .region = tensor_bytes(*region),
                    .run = run_next,
                    .state = state};
    snprintf(c.shape, sizeof c.shape, "%lld x %lld x %lld", (long long)m, (long long)p->n, (long long)p->k);
    return bench_add(b, &c);
}

/* True if an earlier product in the list has a weight of the same size. Only M differs. */
static bool is_repeated(const bench_shapes *s, int i) {
    for (int j = 0; j < i; j++)
        if (s->product[j].n == s->product[i].n && s->product[j].k == s->product[i].k) return true;
    return false;
}

static ott_status add_gemv(bench *b) {
    const bench_shapes *s;
    tensor region[WEIGHTS];
    TRY(bench_find_shapes(b, &s));
    for (int w = 0; w < WEIGHTS; w++)
        TRY(bench_tensor(b, weights[w].b, 1, region_elements(b, s, weights[w].b), &region[w]));
    for (int i = 0; i < s->products; i++)
        for (int l = 0; l < GEMV_ROWS && !is_repeated(s, i); l++)
            for (int w = 0; w < WEIGHTS; w++)
                TRY(add_gemv_case(b, &s->product[i], gemv_rows[l], w, &region[w]));
    return OTT_OK;
}

const bench_entry bench_gemv = {
    .name = "gemv", .compares_bf16 = true, .accepts = BENCH_ACCEPTS_SHAPES, .add = add_gemv};
