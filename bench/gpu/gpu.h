/*
 * bench/gpu/gpu: the common part of the programs in this folder: options, device memory, timing with events,
 * errors of sampled results, and results as JSON lines.
 *
 * A program measures many cases. If a case fails, its result has the status, and the next case follows. If a
 * CUDA call fails, the program prints one line and ends.
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
    const char *stage; /* name of the program; every result has it */
    const char *out;   /* name of the output file from --out; not owned; NULL without --out */
    FILE *results;     /* the output file, open for writing; NULL without --out */
    bool tiny;         /* small sizes and few samples, to test the program; times then mean nothing */
} gpu;

/* Reads the options ([--out FILE] [--tiny]; results are appended to FILE) and opens the first device. Ends
   the program with code 2 for an invalid option, and with code 1 if there is no device. */
void gpu_open(gpu *g, const char *stage, int argc, char **argv);
void gpu_close(gpu *g);

/* If `status` is not success, ends the program. Prints the CUDA call, its file and line, and the reason. */
void gpu_check(cudaError_t status, const char *call, const char *file, int line);
#define GPU_CHECK(call) gpu_check((call), #call, __FILE__, __LINE__)

/* ---- memory ---- */

/* Returns device memory, aligned to 256 bytes, or ends the program. Free the memory with gpu_free. */
void *gpu_alloc(size_t bytes);
void gpu_free(void *data);
/* Returns zero-filled host memory. Ends the program if there is not enough. Free it with free. */
void *gpu_host_alloc(size_t bytes);
/* Copy device memory to the host, or host memory to the device, after all queued work. gpu_read_rows copies
   `rows` rows of `width` bytes, which are `pitch` bytes apart on the device and contiguous on the host. */
void gpu_read(gpu *g, void *host, const void *device, size_t bytes);
void gpu_read_rows(gpu *g, void *host, const void *device, size_t pitch, size_t width, size_t rows);
void gpu_write(gpu *g, void *device, const void *host, size_t bytes);
/* Sets every byte to 0xFF, a NaN in fp32, bf16 and E4M3. So an element that no kernel writes is noticed. */
void gpu_poison(gpu *g, void *device, size_t bytes);

/* ---- time ---- */

/* Microseconds per call: the median, the least and the most of the samples. */
typedef struct gpu_time {
    double median, min, max;
} gpu_time;

/* A function to be timed: queues one call on CUDA stream g->stream. set: index of the input set to read. */
typedef void gpu_work(gpu *g, void *context, int set);

/* Returns how many input sets a timed function should use, 1 to 16. bytes: size of one set. If possible, all
   sets together are twice as large as the L2 cache, so no set is still in the cache when it is used again. */
int gpu_sets(const gpu *g, size_t bytes);
/* Times a function. Its calls use the input sets in turn. After 5 ms of warm-up the function takes 15
   samples, or as many as fit into 0.1 s, but at least 5. Each sample lasts at least 200 us. All calls are
   queued in advance, so the device does not wait for the host. In so short a time a GPU does not reach its
   power limit. */
gpu_time gpu_measure(gpu *g, gpu_work *work, void *context, int sets);
/* Like gpu_measure, but times only two calls after one warm-up call, to choose between algorithms. */
gpu_time gpu_measure_briefly(gpu *g, gpu_work *work, void *context, int sets);

/* ---- correctness ---- */

/* Sums up the errors of results that are added one at a time: the root-mean-square error and the largest
   error, both relative to the root mean square of the reference values. If a result is NaN or infinite but
   its reference value is finite, both errors are infinite. */
typedef struct gpu_error {
    double difference2, reference2, worst;
    int64_t count;
} gpu_error;

void gpu_error_add(gpu_error *e, double got, double reference);
double gpu_error_rms(const gpu_error *e);   /* sqrt(sum (got - ref)^2 / sum ref^2) */
double gpu_error_worst(const gpu_error *e); /* max |got - ref| / rms(ref) */

/* ---- results ---- */

/* Write one JSON object per line: call result_begin, then one function for each member, then result_end.
   Non-finite numbers become null. */
void result_begin(gpu *g);
void result_text(gpu *g, const char *key, const char *value);
void result_int(gpu *g, const char *key, int64_t value);
void result_number(gpu *g, const char *key, double value);
void result_time(gpu *g, const gpu_time *time); /* writes the members us, us_min and us_max */
void result_end(gpu *g);

#endif
