/*
 * bench/gpu/gpu: what the programs of this folder share: options, device memory, timing by events, the error
 * of sampled results, and results as JSON lines.
 *
 * A program measures many cases. A case that fails is a result too (its status says why) and the next one
 * goes on; a CUDA call that must not fail ends the program with one line.
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
    const char *out;   /* --out's file; borrowed; NULL without */
    FILE *results;     /* the same, open */
    bool tiny;         /* small sizes and few samples: proves that a program works, measures nothing */
} gpu;

/* Reads the options ([--out FILE] [--tiny]; FILE is appended to) and opens the first device. Ends the
   program with code 2 for a wrong option and 1 without a device. */
void gpu_open(gpu *g, const char *stage, int argc, char **argv);
void gpu_close(gpu *g);

/* Ends the program with one line that names the call, its place and the reason, unless `status` is success.
 */
void gpu_check(cudaError_t status, const char *call, const char *file, int line);
#define GPU_CHECK(call) gpu_check((call), #call, __FILE__, __LINE__)

/* ---- memory ---- */

/* Device memory, aligned to 256 bytes; ends the program when there is none. Freed by gpu_free. */
void *gpu_alloc(size_t bytes);
void gpu_free(void *data);
/* Host memory, zero; ends the program when there is none. Freed by free. */
void *gpu_host_alloc(size_t bytes);
/* Host copies of device memory and back, after all queued work. `rows` rows of `width` bytes, `pitch` bytes
   apart on the device, dense on the host. */
void gpu_read(gpu *g, void *host, const void *device, size_t bytes);
void gpu_read_rows(gpu *g, void *host, const void *device, size_t pitch, size_t width, size_t rows);
void gpu_write(gpu *g, void *device, const void *host, size_t bytes);
/* Every byte 0xFF: NaN in fp32, bf16 and E4M3, so that what a kernel leaves out is seen. */
void gpu_poison(gpu *g, void *device, size_t bytes);

/* ---- time ---- */

/* Microseconds of one call of the work, over its samples. */
typedef struct gpu_time {
    double median, min, max;
} gpu_time;

/* Queues one run of the work on g->stream, with the inputs of set `set`. */
typedef void gpu_work(gpu *g, void *context, int set);

/* How many input sets of `bytes` each are needed so that a set has left the L2 cache before its next turn
   (all of them twice as large as the cache): 1 to 16. */
int gpu_sets(const gpu *g, size_t bytes);
/* Times the work, the sets taking turns: after 5 ms of it, samples of at least 200 us (several calls where
   one is shorter), 15 of them or as many as fit 0.1 s, at least 5. All are queued at once, so that the device
   never waits for the host. These are burst rates: too short for a card to reach its power limit. */
gpu_time gpu_measure(gpu *g, gpu_work *work, void *context, int sets);
/* The same from two single calls, after one to warm up: to choose between ways. */
gpu_time gpu_measure_briefly(gpu *g, gpu_work *work, void *context, int sets);

/* ---- correctness ---- */

/* Root mean square and largest error relative to the reference's root mean square, over values added one at a
   time. A result that is NaN or infinite where the reference is not makes both infinite. */
typedef struct gpu_error {
    double difference2, reference2, worst;
    int64_t count;
} gpu_error;

void gpu_error_add(gpu_error *e, double got, double reference);
double gpu_error_rms(const gpu_error *e);   /* sqrt(sum (got - ref)^2 / sum ref^2) */
double gpu_error_worst(const gpu_error *e); /* max |got - ref| / rms(ref) */

/* ---- results ---- */

/* One JSON object a line: begin, any number of members, end. Numbers that are not finite become null. */
void result_begin(gpu *g);
void result_text(gpu *g, const char *key, const char *value);
void result_int(gpu *g, const char *key, int64_t value);
void result_number(gpu *g, const char *key, double value);
void result_time(gpu *g, const gpu_time *time); /* us, us_min, us_max */
void result_end(gpu *g);

#endif
