/* train/bench: GEMM throughput by format, layout and shape. */
#include "train/bench.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/str.h"
#include "cpu/cpu.h"
#include "tensor/exec.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench_shape {
    int64_t m, n, k;
} bench_shape;

/* cpu.md's square and oblong shapes of a small transformer, then the demo model's. */
static const bench_shape shapes[] = {{512, 512, 512},   {1024, 1024, 1024}, {2048, 2048, 2048},
                                     {2048, 768, 768},  {2048, 3072, 768},  {2048, 768, 3072},
                                     {512, 4096, 4096}, {2048, 512, 192},   {2048, 192, 512}};
#define SHAPES (int)(sizeof shapes / sizeof *shapes)

typedef struct bench_format {
    const char *name;
    ott_dtype a, b;
} bench_format;

static const bench_format formats[] = {{"e4m3 x e4m3", OTT_E4M3, OTT_E4M3},
                                       {"e5m2 x e4m3", OTT_E5M2, OTT_E4M3},
                                       {"bf16", OTT_BF16, OTT_BF16},
                                       {"fp32", OTT_F32, OTT_F32}};
#define FORMATS (int)(sizeof formats / sizeof *formats)

/* The three GEMMs of a linear layer. */
typedef struct bench_layout {
    const char *name;
    bool a_transposed, b_transposed;
} bench_layout;

static const bench_layout layouts[] = {
    {"output", false, false}, {"grad_input", false, true}, {"grad_weight", true, true}};
#define LAYOUTS (int)(sizeof layouts / sizeof *layouts)

#define MAX_REPEATS 101

typedef struct bench {
    exec cx;
    int repeats;
    void *a[FORMATS], *b[FORMATS], *c; /* buffers of the largest operand, one a format; fp32 output */
    double seconds[SHAPES][LAYOUTS][FORMATS][MAX_REPEATS];
} bench;

static int64_t largest_operand(void) {
    int64_t most = 0;
    for (int s = 0; s < SHAPES; s++) {
        const int64_t sizes[] = {shapes[s].m * shapes[s].k, shapes[s].n * shapes[s].k,
                                 shapes[s].m * shapes[s].n};
        for (int i = 0; i < 3; i++) most = sizes[i] > most ? sizes[i] : most;
    }
    return most;
}

static void fill(void *data, ott_dtype d, int64_t count, uint64_t stream) {
    for (int64_t i = 0; i < count; i++)
        dtype_store(data, d, i, 2.0f * rng_uniform(1, stream, (uint64_t)i) - 1.0f);
}

static ott_status open_buffers(bench *b) {
    int64_t count = largest_operand();
    device *d = b->cx.device;
    for (int f = 0; f < FORMATS; f++) {
        TRY(device_allocate(d, MEM_DATA, count * dtype_bytes(formats[f].a), "operand a", &b->a[f]));
        TRY(device_allocate(d, MEM_DATA, count * dtype_bytes(formats[f].b), "operand b", &b->b[f]));
        fill(b->a[f], formats[f].a, count, 1);
        fill(b->b[f], formats[f].b, count, 2);
    }
    return device_allocate(d, MEM_DATA, count * 4, "result", &b->c);
}

static void close_buffers(bench *b) {
    for (int f = 0; f < FORMATS; f++) {
        device_release(b->cx.device, b->a[f]);
        device_release(b->cx.device, b->b[f]);
    }
    device_release(b->cx.device, b->c);
}

static operand make_operand(void *data, ott_dtype d, int64_t lines, int64_t k, bool transposed) {
    return (operand){.t = transposed ? tensor_matrix(data, d, k, lines) : tensor_matrix(data, d, lines, k),
                     .transposed = transposed};
}

static ott_status run_once(bench *b, int s, int l, int f, double *seconds) {
    const bench_shape *size = &shapes[s];
    operand x = make_operand(b->a[f], formats[f].a, size->m, size->k, layouts[l].a_transposed);
    operand y = make_operand(b->b[f], formats[f].b, size->n, size->k, layouts[l].b_transposed);
    tensor c = tensor_matrix(b->c, OTT_F32, size->m, size->n);
    double started = clock_seconds();
    TRY(op_gemm(&b->cx, &(gemm_args){.a = &x, .b = &y, .c = &c}));
    TRY(device_synchronize(b->cx.device));
    *seconds = clock_seconds() - started;
    return OTT_OK;
}

/* Repeats outermost: every format meets the same disturbances of a shared machine. The first round warms up.
 */
static ott_status measure(bench *b) {
    for (int r = -1; r < b->repeats; r++)
        for (int s = 0; s < SHAPES; s++)
            for (int l = 0; l < LAYOUTS; l++)
                for (int f = 0; f < FORMATS; f++) {
                    double seconds;
                    TRY(run_once(b, s, l, f, &seconds));
                    if (r >= 0) b->seconds[s][l][f][r] = seconds;
                }
    return OTT_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double gflops(bench *b, int s, int l, int f) {
    double *times = b->seconds[s][l][f];
    qsort(times, (size_t)b->repeats, sizeof *times, by_value);
    return 2.0 * (double)(shapes[s].m * shapes[s].n * shapes[s].k) / times[b->repeats / 2] / 1e9;
}

static double geometric_mean(bench *b, int f) {
    double sum = 0;
    for (int s = 0; s < SHAPES; s++)
        for (int l = 0; l < LAYOUTS; l++) sum += log(gflops(b, s, l, f));
    return exp(sum / (SHAPES * LAYOUTS));
}

static void write_table(bench *b, double peak, str *out) {
    str_printf(out,
               "%s, fp32 multiply-add peak %.1f GFLOP/s measured now; medians of %d interleaved repeats\n\n",
               b->cx.device->name, peak / 1e9, b->repeats);
    str_printf(out, "%6s %6s %6s  %-12s", "M", "N", "K", "GEMM");
    for (int f = 0; f < FORMATS; f++) str_printf(out, " %18s", formats[f].name);
    str_append(out, "\n");
    for (int s = 0; s < SHAPES; s++)
        for (int l = 0; l < LAYOUTS; l++) {
            str_printf(out, "%6lld %6lld %6lld  %-12s", (long long)shapes[s].m, (long long)shapes[s].n,
                       (long long)shapes[s].k, layouts[l].name);
            for (int f = 0; f < FORMATS; f++) {
                double rate = gflops(b, s, l, f);
                str_printf(out, " %8.1f (%5.1f%%)", rate, 100e9 * rate / peak);
            }
            str_append(out, "\n");
        }
    str_printf(out, "%-34s", "geometric mean, GFLOP/s (of peak)");
    for (int f = 0; f < FORMATS; f++)
        str_printf(out, " %8.1f (%5.1f%%)", geometric_mean(b, f), 100e9 * geometric_mean(b, f) / peak);
    str_append(out, "\n");
}

static void write_json(bench *b, double peak, str *out) {
    str_append(out, "{\"bench\":\"gemm\",\"device\":");
    str_append_json(out, b->cx.device->name, (int64_t)strlen(b->cx.device->name));
    str_printf(out, ",\"peak_gflops\":%.1f,\"repeats\":%d,\"results\":[", peak / 1e9, b->repeats);
    for (int s = 0; s < SHAPES; s++)
        for (int l = 0; l < LAYOUTS; l++)
            for (int f = 0; f < FORMATS; f++)
                str_printf(
                    out,
                    "%s{\"m\":%lld,\"n\":%lld,\"k\":%lld,\"gemm\":\"%s\",\"format\":\"%s\",\"gflops\":%.2f}",
                    s + l + f ? "," : "", (long long)shapes[s].m, (long long)shapes[s].n,
                    (long long)shapes[s].k, layouts[l].name, formats[f].name, gflops(b, s, l, f));
    str_append(out, "],\"geometric_mean\":{");
    for (int f = 0; f < FORMATS; f++)
        str_printf(out, "%s\"%s\":%.2f", f ? "," : "", formats[f].name, geometric_mean(b, f));
    str_append(out, "}}\n");
}

static ott_status report(bench *b, double peak, bool json, mem *account, ott_text_fn write, void *user) {
    str text = {.account = account};
    if (json)
        write_json(b, peak, &text);
    else
        write_table(b, peak, &text);
    ott_status status = str_finish(&text);
    if (status == OTT_OK) write(user, text.text);
    str_free(&text);
    return status;
}

ott_status bench_gemm(mem *account, const logger *log, const ott_bench_options *options, ott_text_fn write,
                      void *user) {
    void *memory;
    if (options->repeats < 1 || options->repeats > MAX_REPEATS)
        return status_fail(OTT_ERR_ARGUMENT, "repeats = %d is not in [1, %d]", options->repeats, MAX_REPEATS);
    TRY(mem_take(account, MEM_OTHER, sizeof(bench), "benchmark", &memory));
    bench *b = memory;
    b->repeats = options->repeats;
    b->cx.log = log;
    ott_status status = OTT_OK;
    TRY_OUT(cpu_open(account, options->threads, NULL, &b->cx.device));
    TRY_OUT(open_buffers(b));
    TRY_OUT(measure(b));
    TRY_OUT(report(b, cpu_measure_peak(b->cx.device), options->json, account, write, user));
out:
    if (b->cx.device) {
        close_buffers(b);
        device_close(b->cx.device);
    }
    mem_give(account, b);
    return status;
}
