/*
 * bench/gpu/elementwise: what the CUDA backend's kernels that read, compute little and write reach of the device's copy, at the
 * sizes of Llama 3.1 8B. That they are right the tests of the backend say (cuda.ops).
 */
#include "cuda/kernels.h"
#include "fill.h"
#include "fp8/recipe.h"
#include "gpu.h"
#include <math.h>
#include <string.h>

/* ---- what a case works on ---- */

enum { ARRAYS = 5 };

/* Tensors of [rows, columns], a vector for each dimension, and a quantized form of each of up to two outputs. */
typedef struct arrays {
    tensor t[ARRAYS], weight, rstd;
    qtensor form[2];
    void *blocks[2][2];
} arrays;

typedef struct kernel_case {
    const char *name, *recipe; /* recipe NULL: without quantized forms */
    recipe_tensor which;       /* of the recipe */
    cudaError_t (*run)(const struct kernel_case *c, const arrays *a, cudaStream_t stream);
    int64_t rows, columns;
    int forms;
    double bytes; /* read and written for each of the elements, scales left out */
} kernel_case;

static const quant_spec *spec_of(const kernel_case *c) {
    const recipe *r = recipe_find(c->recipe);
    return c->which == TENSOR_INPUT ? &r->input : c->which == TENSOR_WEIGHT ? &r->weight : &r->grad_output;
}

static tensor open_tensor(gpu *g, ott_dtype d, int64_t rows, int64_t columns, uint64_t seed) {
    tensor t = tensor_matrix(gpu_alloc((size_t)(rows * columns * dtype_bytes(d))), d, rows, columns);
    GPU_CHECK(fill_normal(t.data, d, (size_t)(rows * columns), 1, seed, g->stream));
    return t;
}

static void open_form(gpu *g, const kernel_case *c, const tensor *t, arrays *a, int i) {
    const backend_capabilities can = {.alignment = 256, .contiguous_contraction = true};
    qblocks blocks = {{NULL, 0}, {NULL, 0}};
    qtensor *q = &a->form[i];
    *q = (qtensor){.rows = t->rows, .columns = t->columns, .spec = quant_spec_from(*spec_of(c), t->dtype)};
    if (qtensor_lay_out(q, &can, &blocks) != OTT_OK) return;
    qblock *parts[] = {&blocks.rowwise, &blocks.columnwise};
    for (int k = 0; k < 2; k++) {
        if (parts[k]->bytes == 0) continue;
        a->blocks[i][k] = parts[k]->data = gpu_alloc((size_t)parts[k]->bytes);
        GPU_CHECK(fill_normal(parts[k]->data, OTT_F32, (size_t)parts[k]->bytes / 4, 1, 9, g->stream));
        parts[k]->bytes = 0;
    }
    qtensor_lay_out(q, &can, &blocks);
}

static void open_arrays(gpu *g, const kernel_case *c, int64_t rows, int64_t columns, uint64_t seed,
                        arrays *a) {
    *a = (arrays){.weight = open_tensor(g, OTT_F32, 1, columns, seed),
                  .rstd = open_tensor(g, OTT_F32, 1, rows, seed)};
    ott_dtype d = c->which == TENSOR_WEIGHT ? OTT_F32 : OTT_BF16;
    for (int i = 0; i < ARRAYS; i++) a->t[i] = open_tensor(g, d, rows, columns, seed + (uint64_t)i);
    for (int i = 0; i < c->forms; i++) open_form(g, c, &a->t[0], a, i);
}

static void close_arrays(const arrays *a) {
    for (int i = 0; i < ARRAYS; i++) gpu_free(a->t[i].data);
    for (int i = 0; i < 4; i++) gpu_free(a->blocks[i / 2][i % 2]);
    gpu_free(a->weight.data);
    gpu_free(a->rstd.data);
}

/* ---- the kernels, each with what the backend's op queues ---- */

static const quantize_uses nothing = {.count = 0};

static cudaError_t run_copy(const kernel_case *c, const arrays *a, cudaStream_t stream) {
    (void)c;
    return cudaMemcpyAsync(a->t[1].data, a->t[0].data, (size_t)tensor_bytes(a->t[0]),
                           cudaMemcpyDeviceToDevice, stream);
}

static cudaError_t run_amax(const kernel_case *c, const arrays *a, cudaStream_t stream) {
    (void)c;
    return quantize_work(&a->t[0], &a->form[0], QUANTIZE_AMAX, stream);
}

static cudaError_t run_quantize(const kernel_case *c, const arrays *a, cudaStream_t stream) {
    (void)c;
    return quantize_finish(&a->t[0], &a->form[0], &nothing, stream);
}

/* Of the case's forms what the kernel makes. */
static cudaError_t begin(const kernel_case *c, const arrays *a, quantize_producer producer,
                         quantize_uses made[2], cudaStream_t stream) {
    made[0] = made[1] = nothing;
    cudaError_t status = cudaSuccess;
    for (int i = 0; i < c->forms && status == cudaSuccess; i++)
        status = quantize_begin(&a->form[i], producer, &made[i], stream);
    return status;
}

static cudaError_t finish(const kernel_case *c, const arrays *a, const tensor *const made_of[2],
                          const quantize_uses made[2], cudaError_t status, cudaStream_t stream) {
    for (int i = 0; i < c->forms && status == cudaSuccess; i++)
        status = quantize_finish(made_of[i], &a->form[i], &made[i], stream);
    return status;
}

static cudaError_t run_norm(const kernel_case *c, const arrays *a, cudaStream_t stream) {
    const tensor *t = a->t, *const out[2] = {&t[3], NULL};
    quantize_uses made[2];
    cudaError_t status = begin(c, a, QUANTIZE_BY_ROWS, made, stream);
    if (status == cudaSuccess)
        status =
            norm_forward_launch(&t[0], &t[1], &a->weight, &t[2], &t[3], &a->rstd, 1e-5f, &made[0], stream);
    return finish(c, a, out, made, status, stream);
}

static cudaError_t run_norm_backward(const kernel_case *c, const arrays *a, cudaStream_t stream) {
    const tensor *t = a->t, *const out[2] = {&t[3], NULL};
    quantize_uses made[2];
    cudaError_t status = begin(c, a, QUANTIZE_BY_ROWS, made, stream);
    if (status == cudaSuccess)
        status = norm_backward_launch(&t[0], &t[1], &a->weight, &a->rstd, &t[2], &t[3], &made[0], stream);
    return finish(c, a, out, made, status, stream);
}

static cudaError_t run_swiglu(const kernel_case *c, const arrays *a, cudaStream_t stream) {
    const tensor *t = a->t, *const out[2] = {&t[2], NULL};
    quantize_uses made[2];
    cudaError_t status = begin(c, a, QUANTIZE_BY_TILES, made, stream);
    if (status == cudaSuccess) status = swiglu_forward_launch(&t[0], &t[1], &t[2], &made[0], stream);
    return finish(c, a, out, made, status, stream);
}

static cudaError_t run_swiglu_backward(const kernel_case *c, const arrays *a, cudaStream_t stream) {
    const tensor *t = a->t, *const out[2] = {&t[3], &t[4]};
    quantize_uses made[2];
    cudaError_t status = begin(c, a, QUANTIZE_BY_TILES, made, stream);
    if (status == cudaSuccess)
        status = swiglu_backward_launch(&t[0], &t[1], &t[2], &t[3], &t[4], made, stream);
    return finish(c, a, out, made, status, stream);
}

/* ---- the cases ---- */

#define D      8192, 4096
#define FF     8192, 14336
#define WEIGHT 14336, 4096

/* A form of current scaling is made in a second pass over what it is made of, with the amax of columns in one before it. */
static const kernel_case cases[] = {
    {"copy", NULL, TENSOR_INPUT, run_copy, FF, 0, 4},
    {"amax", "tensorwise", TENSOR_INPUT, run_amax, FF, 1, 2},
    {"quantize, tensorwise", "tensorwise", TENSOR_INPUT, run_quantize, FF, 1, 6},
    {"quantize, delayed", "delayed", TENSOR_INPUT, run_quantize, FF, 1, 4},
    {"quantize, rowwise", "rowwise", TENSOR_INPUT, run_quantize, FF, 1, 6},
    {"quantize, block", "block", TENSOR_INPUT, run_quantize, FF, 1, 4},
    {"quantize weight, tensorwise", "tensorwise", TENSOR_WEIGHT, run_quantize, WEIGHT, 1, 10},
    {"quantize weight, block", "block", TENSOR_WEIGHT, run_quantize, WEIGHT, 1, 6},
    {"norm", NULL, TENSOR_INPUT, run_norm, D, 0, 8},
    {"norm, tensorwise", "tensorwise", TENSOR_INPUT, run_norm, D, 1, 12},
    {"norm, delayed", "delayed", TENSOR_INPUT, run_norm, D, 1, 12},
    {"norm, rowwise", "rowwise", TENSOR_INPUT, run_norm, D, 1, 14},
    {"norm backward", NULL, TENSOR_INPUT, run_norm_backward, D, 0, 8},
    {"norm backward, tensorwise", "tensorwise", TENSOR_GRAD_OUTPUT, run_norm_backward, D, 1, 12},
    {"swiglu", NULL, TENSOR_INPUT, run_swiglu, FF, 0, 6},
    {"swiglu, tensorwise", "tensorwise", TENSOR_INPUT, run_swiglu, FF, 1, 10},
    {"swiglu, delayed", "delayed", TENSOR_INPUT, run_swiglu, FF, 1, 8},
    {"swiglu, rowwise", "rowwise", TENSOR_INPUT, run_swiglu, FF, 1, 10},
    {"swiglu backward", NULL, TENSOR_INPUT, run_swiglu_backward, FF, 0, 10},
    {"swiglu backward, tensorwise", "tensorwise", TENSOR_GRAD_OUTPUT, run_swiglu_backward, FF, 2, 18},
    {"swiglu backward, delayed", "delayed", TENSOR_GRAD_OUTPUT, run_swiglu_backward, FF, 2, 14},
};

/* ---- measuring ---- */

enum { SETS_MOST = 16 };

typedef struct run {
    const kernel_case *c;
    cudaError_t status;
    arrays set[SETS_MOST];
} run;

static void run_set(gpu *g, void *context, int set) {
    run *r = context;
    cudaError_t status = r->c->run(r->c, &r->set[set], g->stream);
    if (status != cudaSuccess) r->status = status;
}

/* GB/s; *copy_rate: those of the copy, of which others are a share. */
static void measure(gpu *g, const kernel_case *c, double *copy_rate) {
    int64_t rows = g->tiny ? 32 : c->rows, columns = g->tiny ? 1040 : c->columns;
    double bytes = c->bytes * (double)(rows * columns);
    run r = {.c = c, .status = cudaSuccess};
    int sets = gpu_sets(g, (size_t)bytes);
    for (int i = 0; i < sets; i++) open_arrays(g, c, rows, columns, (uint64_t)i + 1, &r.set[i]);
    gpu_time time = gpu_measure(g, run_set, &r, sets);
    for (int i = 0; i < sets; i++) close_arrays(&r.set[i]);
    double rate = bytes / time.median / 1e3;
    const char *status = r.status == cudaSuccess ? "ok" : cudaGetErrorString(r.status);
    if (c == cases) *copy_rate = rate;
    result_begin(g);
    result_text(g, "case", c->name);
    result_int(g, "rows", rows);
    result_int(g, "columns", columns);
    result_number(g, "bytes_per_element", c->bytes);
    if (r.status == cudaSuccess) {
        result_time(g, &time);
        result_number(g, "gb_per_s", rate);
        result_number(g, "share", rate / *copy_rate);
    }
    result_text(g, "status", status);
    result_end(g);
    printf("%-30s %5lld x %5lld %8.1f us %7.0f GB/s %5.1f %%  %s\n", c->name, (long long)rows,
           (long long)columns, time.median, rate, 100 * rate / *copy_rate, status);
}

int main(int argc, char **argv) {
    gpu g;
    double copy_rate = 0;
    gpu_open(&g, "elementwise", argc, argv);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) measure(&g, &cases[i], &copy_rate);
    gpu_close(&g);
    return 0;
}
