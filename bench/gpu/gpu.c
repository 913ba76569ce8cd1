/* bench/gpu/gpu: implements gpu.h. */
#include "gpu.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void fail(int code, const char *message) {
    fprintf(stderr, "%s\n", message);
    exit(code);
}

void gpu_check(cudaError_t status, const char *call, const char *file, int line) {
    if (status == cudaSuccess) return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, cudaGetErrorString(status));
    exit(1);
}

/* ---- the device ---- */

static void read_options(gpu *g, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--tiny"))
            g->tiny = true;
        else if (!strcmp(argv[i], "--out") && i + 1 < argc) {
            g->out = argv[++i];
            g->results = fopen(g->out, "a");
            if (!g->results) {
                perror(g->out);
                exit(2);
            }
        } else {
            fprintf(stderr, "%s: unknown option '%s' (there are: --out FILE, --tiny)\n", g->stage, argv[i]);
            exit(2);
        }
    }
}

void gpu_open(gpu *g, const char *stage, int argc, char **argv) {
    *g = (gpu){.stage = stage};
    read_options(g, argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    int devices = 0; /* initialized, because cudaGetDeviceCount does not set `devices` if it fails */
    cudaError_t status = cudaGetDeviceCount(&devices);
    if (status != cudaSuccess || devices == 0) {
        fprintf(stderr, "%s: no CUDA device: %s\n", stage, cudaGetErrorString(status));
        exit(1);
    }
    GPU_CHECK(cudaSetDevice(0));
    GPU_CHECK(cudaGetDeviceProperties(&g->properties, 0));
    GPU_CHECK(cudaStreamCreate(&g->stream));
}

void gpu_close(gpu *g) {
    GPU_CHECK(cudaStreamSynchronize(g->stream));
    GPU_CHECK(cudaStreamDestroy(g->stream));
    if (g->results && fclose(g->results)) fail(1, "the results could not be written: is the disk full?");
}

/* ---- memory ---- */

void *gpu_alloc(size_t bytes) {
    void *data = NULL;
    cudaError_t status = cudaMalloc(&data, bytes ? bytes : 1);
    if (status == cudaSuccess) return data;
    fprintf(stderr, "%.1f MiB of device memory: %s\n", (double)bytes / (1 << 20), cudaGetErrorString(status));
    exit(1);
}

void gpu_free(void *data) {
    GPU_CHECK(cudaFree(data));
}

void *gpu_host_alloc(size_t bytes) {
    void *data = calloc(bytes ? bytes : 1, 1);
    if (data) return data;
    fprintf(stderr, "%.1f MiB of host memory: out of memory\n", (double)bytes / (1 << 20));
    exit(1);
}

void gpu_read(gpu *g, void *host, const void *device, size_t bytes) {
    GPU_CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, g->stream));
    GPU_CHECK(cudaStreamSynchronize(g->stream));
}

void gpu_read_rows(gpu *g, void *host, const void *device, size_t pitch, size_t width, size_t rows) {
    GPU_CHECK(cudaMemcpy2DAsync(host, width, device, pitch, width, rows, cudaMemcpyDeviceToHost, g->stream));
    GPU_CHECK(cudaStreamSynchronize(g->stream));
}

void gpu_write(gpu *g, void *device, const void *host, size_t bytes) {
    GPU_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, g->stream));
    GPU_CHECK(cudaStreamSynchronize(g->stream));
}

void gpu_poison(gpu *g, void *device, size_t bytes) {
    GPU_CHECK(cudaMemsetAsync(device, 0xFF, bytes, g->stream));
}

/* ---- time ---- */

enum { SAMPLES_MIN = 5, SAMPLES_MAX = 15, SETS_MAX = 16, CALLS_MAX = 1000 };
static const double warm_up_us = 5e3, sample_us = 200, budget_us = 1e5;

int gpu_sets(const gpu *g, size_t bytes) {
    size_t wanted = 2 * (size_t)g->properties.l2CacheSize;
    size_t sets = bytes ? 1 + wanted / bytes : 1;
    if (g->tiny && sets > 2) return 2;
    return sets > SETS_MAX ? SETS_MAX : (int)sets;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static gpu_time summarize(double *sample, int samples) {
    qsort(sample, (size_t)samples, sizeof *sample, by_value);
    double median = samples % 2 ? sample[samples / 2] : (sample[samples / 2 - 1] + sample[samples / 2]) / 2;
    return (gpu_time){median, sample[0], sample[samples - 1]};
}

/* A function to be timed, and the number of its input sets. Its calls use the sets in turn. */
typedef struct turns {
    gpu_work *work;
    void *context;
    int sets, next;
} turns;

static void queue_calls(gpu *g, turns *t, int calls) {
    for (int i = 0; i < calls; i++) {
        t->work(g, t->context, t->next);
        t->next = (t->next + 1) % t->sets;
    }
}

/* Takes `samples` samples, each of `calls` calls, after one call that is not measured. us[i]: microseconds
   per call in sample i. All calls are queued in advance, so the device does not wait for the host. */
static void take_samples(gpu *g, turns *t, int samples, int calls, double *us) {
    cudaEvent_t at[SAMPLES_MAX + 1];
    for (int i = 0; i <= samples; i++) GPU_CHECK(cudaEventCreate(&at[i]));
    if (!g->tiny) queue_calls(g, t, 1);
    GPU_CHECK(cudaEventRecord(at[0], g->stream));
    for (int i = 0; i < samples; i++) {
        queue_calls(g, t, calls);
        GPU_CHECK(cudaEventRecord(at[i + 1], g->stream));
    }
    GPU_CHECK(cudaEventSynchronize(at[samples]));
    GPU_CHECK(cudaGetLastError());
    for (int i = 0; i < samples; i++) {
        float ms = 0;
        GPU_CHECK(cudaEventElapsedTime(&ms, at[i], at[i + 1]));
        us[i] = 1e3 * (double)ms / calls;
    }
    for (int i = 0; i <= samples; i++) GPU_CHECK(cudaEventDestroy(at[i]));
}

/* Calls the timed function until the GPU's clocks have risen. Returns the microseconds of the last call. */
static double warm_up(gpu *g, turns *t) {
    double us = 0, spent = 0;
    do {
        take_samples(g, t, 1, 1, &us);
        spent += us;
    } while (!g->tiny && spent < warm_up_us);
    return us;
}

static int between(double value, int low, int high) {
    return value < low ? low : value > high ? high : (int)value;
}

gpu_time gpu_measure(gpu *g, gpu_work *work, void *context, int sets) {
    turns t = {work, context, sets, 0};
    double once = warm_up(g, &t), sample[SAMPLES_MAX];
    int calls = between(ceil(sample_us / once), 1, CALLS_MAX);
    int samples = between(budget_us / (once * calls), SAMPLES_MIN, SAMPLES_MAX);
    if (g->tiny) calls = samples = 1;
    take_samples(g, &t, samples, calls, sample);
    return summarize(sample, samples);
}

gpu_time gpu_measure_briefly(gpu *g, gpu_work *work, void *context, int sets) {
    turns t = {work, context, sets, 0};
    double sample[2];
    int samples = g->tiny ? 1 : 2;
    take_samples(g, &t, samples, 1, sample);
    return summarize(sample, samples);
}

/* ---- correctness ---- */

void gpu_error_add(gpu_error *e, double got, double reference) {
    double difference = isfinite(got) || !isfinite(reference) ? got - reference : INFINITY;
    e->difference2 += difference * difference;
    e->reference2 += reference * reference;
    if (!(fabs(difference) <= e->worst)) e->worst = fabs(difference);
    e->count++;
}

double gpu_error_rms(const gpu_error *e) {
    return sqrt(e->difference2 / e->reference2);
}

double gpu_error_worst(const gpu_error *e) {
    return e->worst / sqrt(e->reference2 / (double)e->count);
}

/* ---- results ---- */

static void put_text(FILE *f, const char *text) {
    fputc('"', f);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(f, "\\%c", *p);
        else if (*p < ' ')
            fprintf(f, "\\u%04x", *p);
        else
            fputc(*p, f);
    }
    fputc('"', f);
}

static void put_key(gpu *g, const char *key) {
    fputs(", ", g->results);
    put_text(g->results, key);
    fputs(": ", g->results);
}

void result_begin(gpu *g) {
    if (!g->results) return;
    fputs("{\"stage\": ", g->results);
    put_text(g->results, g->stage);
}

void result_text(gpu *g, const char *key, const char *value) {
    if (!g->results) return;
    put_key(g, key);
    put_text(g->results, value);
}

void result_int(gpu *g, const char *key, int64_t value) {
    if (!g->results) return;
    put_key(g, key);
    fprintf(g->results, "%lld", (long long)value);
}

void result_number(gpu *g, const char *key, double value) {
    if (!g->results) return;
    put_key(g, key);
    if (isfinite(value))
        fprintf(g->results, "%.6g", value);
    else
        fputs("null", g->results);
}

void result_time(gpu *g, const gpu_time *time) {
    result_number(g, "us", time->median);
    result_number(g, "us_min", time->min);
    result_number(g, "us_max", time->max);
}

void result_end(gpu *g) {
    if (!g->results) return;
    fputs("}\n", g->results);
    if (fflush(g->results)) fail(1, "the results could not be written: is the disk full?");
}
