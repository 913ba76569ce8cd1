/*
 * bench/gpu/gpu: the common part of this folder's programs: options, device memory, timing with events,
 * errors of sampled results, and results as JSON lines.
 *
 * A program measures many cases. A failed case is a result with its status, and the next case follows. A
 * failed CUDA call ends the program with one line.
 */
#ifndef GPU_H
#define GPU_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct gpu {
    struct cudaDeviceProp properties;
    cudaStream_t stream;
    const char *stage; /* the program's name, in every result */
    const char *out;   /* file name of --out; not owned; NULL without */
    FILE *results;     /* the same file, opened */
    bool tiny;         /* small sizes and few samples: tests the program, measures nothing */
} gpu;

/* Reads the options ([--out FILE] [--tiny]; appends to FILE) and opens the first device. Ends the program
   with code 2 for an invalid option, and 1 without a device. */
void gpu_open(gpu *g, const char *stage, int argc, char **argv);
void gpu_close(gpu *g);

/* Unless `status` is success, ends the program with a line that gives the call, its place and the reason. */
void gpu_check(cudaError_t status, const char *call, const char *file, int line);
#define GPU_CHECK(call) gpu_check((call), #call, __FILE__, __LINE__)

/* ---- memory ---- */

/* Returns device memory, aligned to 256 bytes; ends the program if there is none. Free it with gpu_free. */
void *gpu_alloc(size_t bytes);
void gpu_free(void *data);
/* Returns zero-filled host memory; ends the program if there is none. Free it with free. */
void *gpu_host_alloc(size_t bytes);
/* Copy device memory to the host and back, after all queued work: `rows` rows of `width` bytes, `pitch` bytes
   apart on the device, dense on the host. */
void gpu_read(gpu *g, void *host, const void *device, size_t bytes);
void gpu_read_rows(gpu *g, void *host, const void *device, size_t pitch, size_t width, size_t rows);
void gpu_write(gpu *g, void *device, const void *host, size_t bytes);
/* Sets every byte to 0xFF, which is NaN in fp32, bf16 and E4M3, so that values a kernel does not write are
   noticed. */
void gpu_poison(gpu *g, void *device, size_t bytes);

/* ---- time ---- */

/* Microseconds per call of the work, over its samples. */
typedef struct gpu_time {
    double median, min, max;
} gpu_time;

/* Queues one run of the work on g->stream, with the input set `set`. */
typedef void gpu_work(gpu *g, void *context, int set);

/* Returns the number of input sets, 1 to 16, so that all sets of `bytes` each are twice as large as the L2
   cache. Then a set has left the cache before its next use. */
int gpu_sets(const gpu *g, size_t bytes);
/* Times the work, alternating between the sets: after 5 ms of warm-up, 15 samples or as many as fit into 0.1
   s, at least 5, of at least 200 us each. All are queued in advance, so the device never waits for the host.
   These are burst rates: too short for a card to reach its power limit. */
gpu_time gpu_measure(gpu *g, gpu_work *work, void *context, int sets);
/* Times two single calls after one warm-up call, to choose between algorithms. */
gpu_time gpu_measure_briefly(gpu *g, gpu_work *work, void *context, int sets);

/* ---- correctness ---- */

/* Root-mean-square and largest error relative to the reference's root mean square. Values are added one at a
   time. If a result is NaN or infinite and the reference is finite, both are infinite. */
typedef struct gpu_error {
    double difference2, reference2, worst;
    int64_t count;
} gpu_error;

void gpu_error_add(gpu_error *e, double got, double reference);
double gpu_error_rms(const gpu_error *e);   /* sqrt(sum (got - ref)^2 / sum ref^2) */
double gpu_error_worst(const gpu_error *e); /* max |got - ref| / rms(ref) */

/* ---- results ---- */

/* Write one JSON object per line: begin, members, end. Non-finite numbers become null. */
void result_begin(gpu *g);
void result_text(gpu *g, const char *key, const char *value);
void result_int(gpu *g, const char *key, int64_t value);
void result_number(gpu *g, const char *key, double value);
void result_time(gpu *g, const gpu_time *time); /* us, us_min, us_max */
void result_end(gpu *g);

#endif
