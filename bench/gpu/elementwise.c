/*
 * bench/gpu/elementwise: what kernels that read, compute little and write reach of the device's copy, at the
 * sizes of Llama 3.1 8B; each is checked against src/fp8/reference.h first. Ends with code 1 when a check
 * fails.
 */
#include "elementwise_case.h"
#include "elementwise_check.h"
#include <math.h>

/* ---- the cases ---- */

enum { SHAPE_D = 1, SHAPE_FF = 2, SHAPE_WEIGHT = 4, SHAPES = 3 };

/* [rows, columns] of SHAPE_D, _FF, _WEIGHT. */
static const int64_t shapes[SHAPES][2] = {{8192, 4096}, {8192, 14336}, {14336, 4096}};
static const int64_t tiny_shapes[SHAPES][2] = {{32, 1040}, {32, 4112}, {272, 144}};

/* Both sides' inverse scales of blocks of 1 x 128 elements. */
#define BLOCK_SCALES (2 * 4 / 128.0)
#define BOTH         (WRITES_Q | WRITES_QT)
#define TORCHAO                                                                                              \
    { .rule = SCALE_TORCHAO, .power_of_two = true }
/* As the recipe "block" has it; power_of_two off is the other choice that TransformerEngine leaves. */
#define TE(pow2)                                                                                             \
    { .rule = SCALE_TE, .power_of_two = (pow2), .infinite = 0x1.fep127f }

#define CASE(text, from, what, where, moved, ...)                                                            \
    {                                                                                                        \
        .name = (text), .source = SOURCE_##from, .writes = (what), .shapes = (where), .bytes = (moved),      \
        __VA_ARGS__                                                                                          \
    }
#define TENSOR(d, run) .grain = GRANULARITY_TENSOR, .format = OTT_##d, .kernel = (run)
#define ROW(...)       .grain = GRANULARITY_ROW, .format = OTT_E4M3, .rule = TORCHAO, __VA_ARGS__
#define BLOCK(granule, pow2, run)                                                                            \
    .grain = GRANULARITY_##granule, .format = OTT_E4M3, .rule = TE(pow2), .kernel = (run)

static cudaError_t copy_by_runtime(const elementwise_args *a, cudaStream_t stream) {
    if (a->columns % 8) return cudaErrorInvalidValue; /* as the others */
    size_t bytes = (size_t)(2 * a->rows * a->columns);
    return cudaMemcpyAsync(a->y, a->x, bytes, cudaMemcpyDeviceToDevice, stream);
}

/* The copies come first: the others' share is of the faster one. */
enum { COPIES = 2 };
static const kernel_case cases[] = {
    CASE("memcpy", X, WRITES_Y, SHAPE_FF, 4, TENSOR(E4M3, copy_by_runtime)),
    CASE("copy", X, WRITES_Y, SHAPE_FF, 4, TENSOR(E4M3, quantize_copy)),
    CASE("amax", X, WRITES_AMAX, SHAPE_FF, 2, TENSOR(E4M3, quantize_amax)),
    CASE("cast e4m3", X, WRITES_Q, SHAPE_FF, 3, TENSOR(E4M3, quantize_cast)),
    CASE("cast e5m2", X, WRITES_Q, SHAPE_FF, 3, TENSOR(E5M2, quantize_cast)),
    CASE("cast, transposed e4m3", X, BOTH | WRITES_AMAX, SHAPE_D | SHAPE_FF, 4,
         TENSOR(E4M3, quantize_tensor)),
    CASE("cast, transposed e5m2", X, BOTH | WRITES_AMAX, SHAPE_D, 4, TENSOR(E5M2, quantize_tensor)),

    CASE("rows", X, WRITES_Q, SHAPE_D | SHAPE_FF, 3, ROW(.kernel = quantize_rows)),
    CASE("rows, column amax", X, WRITES_Q | WRITES_COLUMN_AMAX, SHAPE_D | SHAPE_FF, 3,
         ROW(.kernel = quantize_rows)),
    CASE("column amax", X, WRITES_COLUMN_AMAX, SHAPE_D | SHAPE_FF, 2, ROW(.kernel = quantize_column_amax)),
    CASE("columns", X, WRITES_QT | WRITES_COLUMN_AMAX, SHAPE_D | SHAPE_FF, 3,
         ROW(.before = quantize_column_amax, .kernel = quantize_columns)),
    CASE("rows, then columns", X, BOTH | WRITES_COLUMN_AMAX, SHAPE_D | SHAPE_FF, 6,
         ROW(.kernel = quantize_rows, .then = quantize_columns)),

    CASE("blocks 1x128", X, BOTH, SHAPE_D | SHAPE_FF, 4 + BLOCK_SCALES, BLOCK(1X128, false, quantize_blocks)),
    CASE("blocks 1x128, powers of two", X, BOTH, SHAPE_D | SHAPE_FF, 4 + BLOCK_SCALES,
         BLOCK(1X128, true, quantize_blocks)),
    CASE("weight, blocks 128x128", WEIGHT, BOTH, SHAPE_WEIGHT, 6,
         BLOCK(128X128, false, quantize_weight_blocks)),
    CASE("weight, blocks 128x128, powers of two", WEIGHT, BOTH, SHAPE_WEIGHT, 6,
         BLOCK(128X128, true, quantize_weight_blocks)),
    CASE("weight", WEIGHT, BOTH, SHAPE_WEIGHT, 6, TENSOR(E4M3, quantize_weight)),

    CASE("norm", NORM, WRITES_Y, SHAPE_D, 8, TENSOR(E4M3, norm_forward)),
    CASE("norm, amax", NORM, WRITES_Y | WRITES_AMAX, SHAPE_D, 8, TENSOR(E4M3, norm_forward)),
    CASE("norm, cast, transposed", NORM, BOTH | WRITES_AMAX, SHAPE_D, 8, TENSOR(E4M3, norm_tensor)),
    CASE("norm, rows, column amax", NORM, WRITES_Y | WRITES_Q | WRITES_COLUMN_AMAX, SHAPE_D, 9,
         ROW(.kernel = norm_rows)),

    CASE("swiglu", SWIGLU, WRITES_Y, SHAPE_FF, 6, TENSOR(E4M3, swiglu_forward)),
    CASE("swiglu, amax", SWIGLU, WRITES_Y | WRITES_AMAX, SHAPE_FF, 6, TENSOR(E4M3, swiglu_forward)),
    CASE("swiglu, cast, transposed", SWIGLU, BOTH | WRITES_AMAX, SHAPE_FF, 6, TENSOR(E4M3, swiglu_tensor)),
    CASE("swiglu backward", SWIGLU_BACKWARD, WRITES_Y, SHAPE_FF, 10, TENSOR(E5M2, swiglu_backward)),
    CASE("swiglu backward, amax", SWIGLU_BACKWARD, WRITES_Y | WRITES_AMAX, SHAPE_FF, 10,
         TENSOR(E5M2, swiglu_backward)),
    CASE("swiglu backward, cast, transposed", SWIGLU_BACKWARD, BOTH | WRITES_AMAX, SHAPE_FF, 10,
         TENSOR(E5M2, swiglu_backward_tensor)),
};

/* ---- measuring ---- */

enum { SETS_MOST = 16 };

typedef struct run {
    const kernel_case *c;
    int sets;
    elementwise_args set[SETS_MOST];
} run;

static void run_set(gpu *g, void *context, int set) {
    const run *r = context;
    GPU_CHECK(case_run(g, r->c, &r->set[set]));
}

typedef struct outcome {
    case_check check;
    gpu_time time;
    double rate; /* GB/s */
} outcome;

static bool is_sound(const outcome *o) {
    return o->check.status == cudaSuccess && o->check.mismatches == 0;
}

/* Checks and times a case. `check`: what its small shapes gave. */
static outcome measure(gpu *g, const kernel_case *c, int64_t rows, int64_t columns, case_check check) {
    outcome o = {.check = check};
    double bytes = c->bytes * (double)(rows * columns);
    run r = {.c = c, .sets = gpu_sets(g, (size_t)bytes)};
    for (int i = 0; i < r.sets; i++) case_open(g, c, rows, columns, (uint64_t)i + 1, &r.set[i]);
    check_case(g, c, &r.set[0], &o.check);
    for (int i = 0; i < r.sets; i++)
        if (o.check.status == cudaSuccess) o.check.status = case_prepare(g, c, &r.set[i]);
    if (o.check.status == cudaSuccess) {
        o.time = gpu_measure(g, run_set, &r, r.sets);
        o.rate = bytes / o.time.median / 1e3;
    }
    for (int i = 0; i < r.sets; i++) case_close(&r.set[i]);
    return o;
}

static void write_result(gpu *g, const kernel_case *c, const int64_t shape[2], const outcome *o,
                         double share) {
    const char *failure = o->check.status == cudaSuccess ? "mismatch" : cudaGetErrorString(o->check.status);
    const char *status = is_sound(o) ? "ok" : failure;
    result_begin(g);
    result_text(g, "case", c->name);
    result_int(g, "rows", shape[0]);
    result_int(g, "columns", shape[1]);
    result_number(g, "bytes_per_element", c->bytes);
    result_int(g, "bytes", (int64_t)(c->bytes * (double)(shape[0] * shape[1])));
    if (o->check.status == cudaSuccess) {
        result_time(g, &o->time);
        result_number(g, "gb_per_s", o->rate);
        result_number(g, "share", share);
    }
    result_text(g, "status", status);
    result_int(g, "mismatches", o->check.mismatches);
    if (c->source >= SOURCE_NORM) result_number(g, "rel_error", o->check.rel_error);
    result_end(g);
    printf("%-40s %5lld x %5lld %8.1f us %7.0f GB/s %5.1f %%  %s\n", c->name, (long long)shape[0],
           (long long)shape[1], o->time.median, o->rate, 100 * share, status);
}

/* Whether all of it was as it should be. *copy_rate: GB/s of the fastest copy so far. */
static bool run_shapes(gpu *g, const kernel_case *c, double *copy_rate) {
    case_check small = {0};
    bool sound = true, copies = c - cases < COPIES;
    check_small(g, c, &small);
    for (int s = 0; s < SHAPES; s++) {
        if (!(c->shapes & 1u << s)) continue;
        const int64_t *shape = (g->tiny ? tiny_shapes : shapes)[s];
        outcome o = measure(g, c, shape[0], shape[1], small);
        if (copies && o.rate > *copy_rate) *copy_rate = o.rate;
        write_result(g, c, shape, &o, *copy_rate > 0 ? o.rate / *copy_rate : NAN);
        sound = sound && is_sound(&o);
    }
    return sound;
}

int main(int argc, char **argv) {
    gpu g;
    gpu_open(&g, "elementwise", argc, argv);
    double copy_rate = 0;
    bool sound = true;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        sound = run_shapes(&g, &cases[i], &copy_rate) && sound;
    gpu_close(&g);
    return sound ? 0 : 1;
}
