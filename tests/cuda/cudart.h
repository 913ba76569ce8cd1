/*
 * tests/cuda/cudart: additional functions of the CUDA runtime stand-in, for the stand-ins of other CUDA
 * libraries and for the emulated kernels. A stream runs its work only when a thread waits for it, so that
 * tests detect missing waits.
 */
#ifndef CUDART_H
#define CUDART_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDART_DEVICES_MAX = 16 };

/* Queues a job: when a thread waits, run(argument) is called after all earlier jobs of the stream, and then
   drop(argument), unless drop is NULL. If the stream is being captured, run is called at each launch of the
   graph, and drop when the graph is destroyed. Returns the job's number in the stream. */
uint64_t cudart_queue(cudaStream_t stream, void (*run)(void *argument), void *argument,
                      void (*drop)(void *argument));
/* Number of kernels, products, copies and graphs that the host has queued. */
extern int64_t cudart_queued;
/* Waits until the stream has done `done` jobs. */
void cudart_run(cudaStream_t stream, uint64_t done);
/* The emulator's recursive lock, which is held while a job runs. `cudart_wait` releases the lock until
   `cudart_notify` is called, a job is queued, or a job is done. */
void cudart_lock(void);
void cudart_unlock(void);
void cudart_wait(void);
void cudart_notify(void);
/* A job calls cudart_leave before slow work, to release the lock, and cudart_return afterwards, to take the
   lock again. cudart_return needs the result of cudart_leave. */
int cudart_leave(void);
void cudart_return(int held);
/* Aborts with a message unless `bytes` bytes from `data` are in one block of the current GPU's memory. */
void cudart_require_device(const char *what, const void *data, size_t bytes);
/* Aborts unless a kernel's argument is NULL, or in memory that a GPU can access, or at its end. */
void cudart_require_memory(const char *kernel, const void *address);
/* Number of launches of Ottava's kernels, and how often the host waited for a stream. */
extern int64_t cudart_launches, cudart_waits;
/* Environment variables: number of GPUs (default 1), ten times their compute capability (default 90), and the
   driver's version as cudaDriverGetVersion gives it (default: the runtime's). */
#define CUDART_DEVICES    "CUDART_DEVICES"
#define CUDART_DRIVER     "CUDART_DRIVER"
#define CUDART_CAPABILITY "CUDART_CAPABILITY"
int cudart_capability(void);
/* Bytes that the NCCL stand-in moved between GPUs: by all-gathers and broadcasts; by send and receive. */
extern int64_t nccl_bytes_gathered, nccl_bytes_sent;
/* Number of matrix products that the cuBLASLt stand-in accepted. */
extern int cublaslt_products;
/* Products for which the cuBLASLt stand-in has no algorithm, a mask. CUBLASLT_REFUSES_RUN: it refuses to run
   the product, after it has suggested algorithms. CUBLASLT_REFUSES_FIRST: it refuses the first algorithm. */
enum {
    CUBLASLT_REFUSES_ALL = 1,
    CUBLASLT_REFUSES_16_BIT = 2, /* results in 16 bits */
    CUBLASLT_REFUSES_SCALES = 4, /* FP8 operands with scales */
    CUBLASLT_REFUSES_FP8 = 8,
    CUBLASLT_REFUSES_RUN = 16,
    CUBLASLT_REFUSES_FIRST = 32
};
extern unsigned cublaslt_refuses;
/* If true, the cuBLASLt stand-in's results are twice the correct ones. */
extern bool cublaslt_wrong_results;
/* The addresses of the scales of Ottava's A and B in the last product. */
extern const void *cublaslt_scales[2];

#ifdef __cplusplus
}
#endif

#endif
