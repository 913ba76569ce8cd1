/*
 * bench/gpu/fp8_gemm: what cuBLASLt's FP8 products reach, and whether they are right.
 *
 * Recipe (bf16, tensorwise, rowwise, 1x128 with 128x128) x the linears of Llama 3.1 8B and Llama 3.2 1B at
 * 8192 tokens x the three products of a linear x fast and split accumulation x D in bf16 and fp32 x D written
 * or added to. Each is timed with the algorithm the library puts first and with the best of those it offers,
 * and 64 of its results are compared with float64 dot products of the same codes.
 *
 * The products (T tokens; a linear [N,K]): output Y[T,N] = X[T,K] W[N,K]^T; grad_input dX[T,K] = dY[T,N]
 * W[N,K]; grad_weight dW[N,K] = dY[T,N]^T X[T,K]. FP8 operands are given with the contraction contiguous, as
 * the chip wants them; bf16 ones as they lie. tensorwise has its grad_output in E5M2 (torchao,
 * TransformerEngine's HYBRID).
 */
#include "base/rng.h"
#include "fill.h"
#include "fp8/cast.h"
#include "gpu.h"
#include "blas.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is measured ---- */

typedef struct linear {
    const char *model, *name;
    int64_t n, k;
} linear;

static const linear linears[] = {
    {"8b", "qkv", 6144, 4096},    {"8b", "o", 4096, 4096},        {"8b", "gate_up", 28672, 4096},
    {"8b", "down", 4096, 14336},  {"8b", "head", 128256, 4096},   {"1b", "qkv", 3072, 2048},
    {"1b", "o", 2048, 2048},      {"1b", "gate_up", 16384, 2048}, {"1b", "down", 2048, 8192},
    {"1b", "head", 128256, 2048},
};
static const linear tiny_linears[] = {{"tiny", "even", 256, 384}, {"tiny", "odd", 400, 272}};

typedef enum product { OUTPUT, GRAD_INPUT, GRAD_WEIGHT } product;
static const char *const product_names[] = {"output", "grad_input", "grad_weight"};

typedef enum recipe { BF16, TENSORWISE, ROWWISE, BLOCK } recipe;
static const char *const recipe_names[] = {"bf16", "tensorwise", "rowwise", "block"};

typedef struct test_case {
    const linear *linear;
    product product;
    recipe recipe;
    matmul_spec spec;
} test_case;

static int64_t token_count(const gpu *g) {
    return g->tiny ? 144 : 8192;
}

static matmul_scales scales_of(recipe r, product p) {
    if (r == BLOCK) return p == GRAD_WEIGHT ? SCALES_BLOCK_1D : SCALES_BLOCK_2D;
    return r == ROWWISE ? SCALES_ROW : r == TENSORWISE ? SCALES_TENSOR : SCALES_NONE;
}

static test_case make_case(const gpu *g, const linear *l, product p, recipe r) {
    int64_t t = token_count(g);
    test_case c = {.linear = l, .product = p, .recipe = r};
    c.spec = (matmul_spec){
        .m = p == GRAD_WEIGHT ? l->n : t,
        .n = p == OUTPUT ? l->n : l->k,
        .k = p == OUTPUT       ? l->k
             : p == GRAD_INPUT ? l->n
                               : t,
        .a = r == BF16                        ? CUDA_R_16BF
             : r == TENSORWISE && p != OUTPUT ? CUDA_R_8F_E5M2
                                              : CUDA_R_8F_E4M3,
        .b = r == BF16 ? CUDA_R_16BF : CUDA_R_8F_E4M3,
        .d = CUDA_R_16BF,
        .a_transposed = r == BF16 && p == GRAD_WEIGHT,
        .b_transposed = r == BF16 && p != OUTPUT,
        .scales = scales_of(r, p),
        .workspace = BLAS_WORKSPACE_BYTES,
    };
    return c;
}

static size_t type_bytes(cudaDataType_t type) {
    return (size_t)dtype_bytes(matmul_dtype(type));
}

/* ---- operands ---- */

/* Operands of one case, in as many sets as keep them out of the cache. */
typedef struct operands {
    int sets;
    size_t a_bytes, b_bytes, d_bytes; /* of one set; d_bytes for fp32 */
    char *a, *b, *d;
    float *a_scale, *b_scale; /* the same in all sets */
    float *amax;
} operands;

static void fill(gpu *g, void *data, cudaDataType_t type, int64_t count, uint64_t seed) {
    /* At most 3.5 deviations: below 448 and 57344, and much of the range used, as after scaling. */
    float deviation = type == CUDA_R_8F_E4M3 ? 100 : type == CUDA_R_8F_E5M2 ? 10000 : 1;
    GPU_CHECK(fill_normal(data, matmul_dtype(type), (size_t)count, deviation, seed, g->stream));
}

/* Scales that bring the codes back to a deviation near 1, each another one. */
static float *make_scales(gpu *g, const matmul_spec *spec, bool of_b, uint64_t seed) {
    int64_t count = matmul_scale_count(spec, of_b);
    float *scales = gpu_alloc(4 * (size_t)(count ? count : 1));
    float exponent = (of_b ? spec->b : spec->a) == CUDA_R_8F_E5M2 ? -13.3f : -6.6f;
    GPU_CHECK(fill_scales(scales, (size_t)count, exponent - 1, exponent + 1, seed, g->stream));
    return scales;
}

static operands make_operands(gpu *g, const matmul_spec *spec) {
    operands o = {.a_bytes = type_bytes(spec->a) * (size_t)(spec->m * spec->k),
                  .b_bytes = type_bytes(spec->b) * (size_t)(spec->n * spec->k),
                  .d_bytes = sizeof(float) * (size_t)(spec->m * spec->n)};
    o.sets = gpu_sets(g, o.a_bytes + o.b_bytes);
    o.a = gpu_alloc(o.a_bytes * (size_t)o.sets);
    o.b = gpu_alloc(o.b_bytes * (size_t)o.sets);
    o.d = gpu_alloc(o.d_bytes * (size_t)o.sets);
    fill(g, o.a, spec->a, spec->m * spec->k * o.sets, 1);
    fill(g, o.b, spec->b, spec->n * spec->k * o.sets, 2);
    o.a_scale = make_scales(g, spec, false, 3);
    o.b_scale = make_scales(g, spec, true, 4);
    o.amax = gpu_alloc(sizeof(float));
    return o;
}

static void free_operands(operands *o) {
    gpu_free(o->a);
    gpu_free(o->b);
    gpu_free(o->d);
    gpu_free(o->a_scale);
    gpu_free(o->b_scale);
    gpu_free(o->amax);
}

static matmul_data data_of(const operands *o, int set) {
    size_t s = (size_t)set;
    return (matmul_data){
        o->a + s * o->a_bytes, o->b + s * o->b_bytes, o->d + s * o->d_bytes, o->a_scale, o->b_scale, o->amax};
}

/* ---- correctness: SAMPLE lines of A times SAMPLE lines of B ---- */

enum { SAMPLE = 8 };

/* Line i of `lines`: the first, the last, and random ones between. */
static int64_t sample_line(int64_t lines, int i, uint64_t stream) {
    if (i == 0) return 0;
    if (i == 1) return lines - 1;
    return (int64_t)(rng_u32(11, stream, (uint64_t)i) % (uint64_t)lines);
}

/* The sampled lines of an operand, scaled: out[SAMPLE][k]. */
static void read_lines(gpu *g, const matmul_spec *spec, const operands *o, bool of_b, double *out) {
    int64_t lines = of_b ? spec->n : spec->m, k = spec->k;
    cudaDataType_t type = of_b ? spec->b : spec->a;
    size_t bytes = type_bytes(type);
    bool transposed = of_b ? spec->b_transposed : spec->a_transposed;
    const char *data = of_b ? o->b : o->a;
    int64_t count = matmul_scale_count(spec, of_b);
    float *scales = gpu_host_alloc(sizeof(float) * (size_t)(count + 1));
    void *line = gpu_host_alloc(bytes * (size_t)k);
    if (count) gpu_read(g, scales, of_b ? o->b_scale : o->a_scale, sizeof(float) * (size_t)count);
    for (int s = 0; s < SAMPLE; s++) {
        int64_t at = sample_line(lines, s, of_b);
        if (transposed)
            gpu_read_rows(g, line, data + bytes * (size_t)at, bytes * (size_t)lines, bytes, (size_t)k);
        else
            gpu_read(g, line, data + bytes * (size_t)(at * k), bytes * (size_t)k);
        for (int64_t i = 0; i < k; i++) {
            double scale = count ? (double)scales[matmul_scale_index(spec, of_b, at, i)] : 1;
            out[s * k + i] = (double)cast_load(line, matmul_dtype(type), i) * scale;
        }
    }
    free(line);
    free(scales);
}

typedef struct samples {
    double exact[SAMPLE][SAMPLE]; /* float64 dot products */
} samples;

static samples exact_products(gpu *g, const matmul_spec *spec, const operands *o) {
    samples s;
    double *a = gpu_host_alloc(sizeof(double) * SAMPLE * (size_t)spec->k);
    double *b = gpu_host_alloc(sizeof(double) * SAMPLE * (size_t)spec->k);
    read_lines(g, spec, o, false, a);
    read_lines(g, spec, o, true, b);
    for (int i = 0; i < SAMPLE; i++)
        for (int j = 0; j < SAMPLE; j++) {
            double sum = 0;
            for (int64_t k = 0; k < spec->k; k++) sum += a[i * spec->k + k] * b[j * spec->k + k];
            s.exact[i][j] = sum;
        }
    free(a);
    free(b);
    return s;
}

/* The sampled elements of D, set 0. */
static void read_results(gpu *g, const matmul_spec *spec, const operands *o, double out[SAMPLE][SAMPLE]) {
    size_t bytes = type_bytes(spec->d);
    void *row = gpu_host_alloc(bytes * (size_t)spec->n);
    for (int i = 0; i < SAMPLE; i++) {
        int64_t at = sample_line(spec->m, i, 0);
        gpu_read(g, row, o->d + bytes * (size_t)(at * spec->n), bytes * (size_t)spec->n);
        for (int j = 0; j < SAMPLE; j++)
            out[i][j] = (double)cast_load(row, matmul_dtype(spec->d), sample_line(spec->n, j, 1));
    }
    free(row);
}

/* ---- one case ---- */

typedef struct run {
    matmul *plan;
    const test_case *c;
    const operands *o;
    void *workspace;
    int candidate;
    cublasStatus_t status; /* the last failure */
} run;

static void run_once(gpu *g, void *context, int set) {
    run *r = context;
    matmul_data data = data_of(r->o, set);
    cublasStatus_t status = matmul_run(r->plan, r->candidate, &r->c->spec, &data, r->workspace, g->stream);
    if (status != CUBLAS_STATUS_SUCCESS) r->status = status;
}

/* Runs the product once on set 0, D being poisoned, or known when it is added to. */
static gpu_error check(gpu *g, run *r, const samples *s) {
    const matmul_spec *spec = &r->c->spec;
    double before[SAMPLE][SAMPLE] = {{0}}, after[SAMPLE][SAMPLE];
    gpu_poison(g, r->o->d, type_bytes(spec->d) * (size_t)(spec->m * spec->n));
    if (spec->accumulate) {
        fill(g, r->o->d, spec->d, spec->m * spec->n, 5);
        read_results(g, spec, r->o, before);
    }
    run_once(g, r, 0);
    read_results(g, spec, r->o, after);
    gpu_error e = {0};
    for (int i = 0; i < SAMPLE; i++)
        for (int j = 0; j < SAMPLE; j++) gpu_error_add(&e, after[i][j], s->exact[i][j] + before[i][j]);
    return e;
}

static int best_candidate(gpu *g, run *r) {
    int best = 0;
    double best_us = INFINITY;
    for (int i = 0; i < r->plan->candidates; i++) {
        r->candidate = i;
        r->status = CUBLAS_STATUS_SUCCESS;
        gpu_time t = gpu_measure_briefly(g, run_once, r, r->o->sets);
        if (r->status == CUBLAS_STATUS_SUCCESS && t.min < best_us) {
            best_us = t.min;
            best = i;
        }
    }
    r->status = CUBLAS_STATUS_SUCCESS;
    return best;
}

/* What is known of a case. */
typedef struct outcome {
    cublasStatus_t status;
    gpu_time first, best; /* of the algorithm the library puts first, and of the fastest */
    int best_algorithm;
    gpu_error error, best_error;
} outcome;

/* A wrong layout is off by about 1, 13-bit sums by 0.01. */
static bool is_right(const gpu_error *e) {
    return gpu_error_rms(e) < 0.05;
}

static void measure_algorithms(gpu *g, run *r, const samples *s, outcome *out) {
    out->error = check(g, r, s);
    out->status = r->status;
    if (out->status != CUBLAS_STATUS_SUCCESS) return;
    out->first = out->best = gpu_measure(g, run_once, r, r->o->sets);
    out->best_error = out->error;
    r->candidate = best_candidate(g, r);
    if (r->candidate == 0) return;
    gpu_error error = check(g, r, s);
    gpu_time time = gpu_measure(g, run_once, r, r->o->sets);
    if (time.median >= out->first.median || !is_right(&error)) return;
    out->best = time;
    out->best_error = error;
    out->best_algorithm = r->candidate;
}

static void put_times(gpu *g, const test_case *c, const outcome *out) {
    double flops = 2 * (double)c->spec.m * (double)c->spec.n * (double)c->spec.k / 1e6;
    result_time(g, &out->first);
    result_number(g, "tflops", flops / out->first.median);
    result_number(g, "us_best", out->best.median);
    result_number(g, "tflops_best", flops / out->best.median);
    result_int(g, "best_algorithm", out->best_algorithm);
    result_number(g, "rel_error", gpu_error_rms(&out->error));
    result_number(g, "worst_error", gpu_error_worst(&out->error));
    result_number(g, "rel_error_best", gpu_error_rms(&out->best_error));
    printf("%8.1f us %7.1f TFLOP/s (best %7.1f), error %.2e\n", out->first.median, flops / out->first.median,
           flops / out->best.median, gpu_error_rms(&out->error));
}

static void put_case(gpu *g, const test_case *c, const outcome *out, int algorithms) {
    const matmul_spec *s = &c->spec;
    printf("%-4s %-8s %-11s %-10s %-5s %s beta %d: ", c->linear->model, c->linear->name,
           product_names[c->product], recipe_names[c->recipe], s->fast ? "fast" : "split",
           dtype_name(matmul_dtype(s->d)), s->accumulate);
    result_begin(g);
    result_text(g, "model", c->linear->model);
    result_text(g, "shape", c->linear->name);
    result_text(g, "gemm", product_names[c->product]);
    result_text(g, "recipe", recipe_names[c->recipe]);
    result_int(g, "fast_accum", s->fast);
    result_int(g, "M", s->m);
    result_int(g, "N", s->n);
    result_int(g, "K", s->k);
    result_text(g, "a", dtype_name(matmul_dtype(s->a)));
    result_text(g, "b", dtype_name(matmul_dtype(s->b)));
    result_text(g, "d", dtype_name(matmul_dtype(s->d)));
    result_int(g, "beta", s->accumulate);
    result_text(g, "status", matmul_status(out->status));
    result_int(g, "algorithms", algorithms);
    if (out->status == CUBLAS_STATUS_SUCCESS)
        put_times(g, c, out);
    else
        printf("%s\n", cublasLtGetStatusString(out->status));
    result_end(g);
}

/* Measures one case. False when its results are wrong. */
static bool measure(gpu *g, cublasLtHandle_t handle, const test_case *c, const operands *o, const samples *s,
                    void *workspace) {
    matmul plan;
    matmul_data data = data_of(o, 0);
    outcome out = {.status = matmul_plan(&plan, handle, &c->spec, &data)};
    run r = {.plan = &plan, .c = c, .o = o, .workspace = workspace};
    if (out.status == CUBLAS_STATUS_SUCCESS) measure_algorithms(g, &r, s, &out);
    put_case(g, c, &out, plan.candidates);
    matmul_close(&plan);
    return out.status != CUBLAS_STATUS_SUCCESS || is_right(&out.error);
}

/* ---- all cases ---- */

/* The eight ways to run a product with the same operands; block scales have no fast accumulation, bf16 none
   to choose. */
static int measure_variants(gpu *g, cublasLtHandle_t handle, test_case c, void *workspace) {
    operands o = make_operands(g, &c.spec);
    samples s = exact_products(g, &c.spec, &o);
    int wrong = 0;
    bool choice = c.recipe == TENSORWISE || c.recipe == ROWWISE;
    for (int fast = choice; fast >= 0; fast--)
        for (int wide = 0; wide < 2; wide++)
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                c.spec.fast = fast;
                c.spec.d = wide ? CUDA_R_32F : CUDA_R_16BF;
                c.spec.accumulate = accumulate;
                wrong += !measure(g, handle, &c, &o, &s, workspace);
            }
    free_operands(&o);
    return wrong;
}

/* Whether the library gives the largest |D| of a bf16 D as well, which its documentation promises for FP8
 * only. */
static void probe_amax(gpu *g, cublasLtHandle_t handle, const linear *l, void *workspace) {
    test_case c = make_case(g, l, OUTPUT, TENSORWISE);
    c.spec.amax = true;
    operands o = make_operands(g, &c.spec);
    matmul plan;
    matmul_data data = data_of(&o, 0);
    cublasStatus_t status = matmul_plan(&plan, handle, &c.spec, &data);
    if (status == CUBLAS_STATUS_SUCCESS) status = matmul_run(&plan, 0, &c.spec, &data, workspace, g->stream);
    result_begin(g);
    result_text(g, "case", "amax of a bf16 D");
    result_text(g, "status", matmul_status(status));
    float amax = NAN;
    gpu_read(g, &amax, o.amax, sizeof amax);
    result_number(g, "amax", (double)amax);
    result_end(g);
    printf("amax of a bf16 D: %s\n", cublasLtGetStatusString(status));
    matmul_close(&plan);
    free_operands(&o);
}

int main(int argc, char **argv) {
    gpu g;
    gpu_open(&g, "fp8_gemm", argc, argv);
    cublasLtHandle_t handle = blas_handle();
    void *workspace = gpu_alloc(BLAS_WORKSPACE_BYTES);
    const linear *list = g.tiny ? tiny_linears : linears;
    size_t count = g.tiny ? sizeof tiny_linears / sizeof *list : sizeof linears / sizeof *list;
    int wrong = 0;
    for (size_t i = 0; i < count; i++)
        for (int p = OUTPUT; p <= GRAD_WEIGHT; p++)
            for (int r = BF16; r <= BLOCK; r++)
                wrong += measure_variants(&g, handle, make_case(&g, &list[i], p, r), workspace);
    probe_amax(&g, handle, &list[0], workspace);
    if (wrong) printf("%d products are wrong\n", wrong);
    gpu_free(workspace);
    cublasLtDestroy(handle);
    gpu_close(&g);
    return wrong ? 1 : 0;
}
