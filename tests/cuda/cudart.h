/*
 * tests/cuda/cudart: what the stand-ins for CUDA's libraries and kernels share: a stream that does nothing before somebody waits
 * for it, so that work which nobody waited for is seen to be missing.
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

/* run(argument) once all that was given to the stream before is done, and somebody waits for it; then drop(argument), NULL:
   nothing. In a stream that is captured: at each launch of the graph, and drop when that goes. The job's number in the
   stream. */
uint64_t cudart_queue(cudaStream_t stream, void (*run)(void *argument), void *argument,
                      void (*drop)(void *argument));
/* What the host has given to streams: kernels, products, copies, graphs. */
extern int64_t cudart_queued;
/* Waits until so many of the stream's jobs are done. */
void cudart_run(cudaStream_t stream, uint64_t done);
/* Of all that is here; jobs run with it. A thread may take it again. cudart_wait gives it up until cudart_tell is called, or
   a job is queued or done. */
void cudart_lock(void);
void cudart_unlock(void);
void cudart_wait(void);
void cudart_tell(void);
/* A job gives it up for something that takes time, and takes it again: as often as cudart_leave says. */
int cudart_leave(void);
void cudart_return(int held);
/* Ends the program with a message unless all `bytes` from `data` on are in one block of memory of the thread's GPU. */
void cudart_require_device(const char *what, const void *data, size_t bytes);
/* The same unless `address`, which the kernel is given, is NULL or in, or just behind, memory that a GPU reaches. */
void cudart_require_memory(const char *kernel, const void *address);
/* Kernels of ours that were launched, and how often the host waited for a stream. */
extern int64_t cudart_launches, cudart_waits;
/* Environment variables: how many devices there are (1), and their compute capability times ten (90). */
#define CUDART_DEVICES    "CUDART_DEVICES"
#define CUDART_CAPABILITY "CUDART_CAPABILITY"
int cudart_capability(void);
/* Bytes that the stand-in for NCCL has brought from one GPU to another: of all-gathers and broadcasts, of messages. */
extern int64_t nccl_bytes_gathered, nccl_bytes_sent;
/* Products that the stand-in for cuBLASLt was given and did not refuse. */
extern int cublaslt_products;
/* It has no algorithm for anything. */
extern bool cublaslt_refuses;
/* Its products are twice what they should be. */
extern bool cublaslt_lies;

#ifdef __cplusplus
}
#endif

#endif
