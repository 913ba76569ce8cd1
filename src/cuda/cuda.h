/*
 * cuda/cuda: what the host code of this backend shares: the device behind an execution context, and CUDA's errors as ours.
 * An op is ott_status cuda_<op>(exec *, const <op>_args *), declared by cuda/ops.h: its arguments are checked, its tensors lie
 * on the device; it queues kernels on cuda_stream(cx) and does not wait.
 */
#ifndef CUDA_CUDA_H
#define CUDA_CUDA_H

#include "tensor/device.h"
#include "tensor/exec.h"
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

enum { CUDA_ALIGNMENT = 256 }; /* bytes: of every tensor and of cuBLASLt's workspace */

typedef struct cuda_block cuda_block;
typedef struct cuda_product cuda_product;
typedef struct attention_plans attention_plans;

typedef struct cuda_device {
    device base; /* first: a device is cast to this */
    backend_capabilities can;
    int index; /* as the CUDA runtime counts */
    struct cudaDeviceProp properties;
    cudaMemPool_t pool;  /* where memory is taken: the runtime's own */
    cudaStream_t stream; /* ops, copies and events, in the order in which they are given */
    pthread_mutex_t lock;
    cuda_block *blocks; /* device memory that is taken, and its account */
    mem_stats taken;
    bool own_products;           /* none by cuBLASLt */
    bool own_attention;          /* none by cuDNN */
    bool records;                /* a graph: what is queued does not happen, and nothing can be waited for */
    cublasLtHandle_t library;    /* NULL: no product has been asked for */
    cuda_product *products;      /* that it has planned (cuda/products.h) */
    attention_plans *attentions; /* by cuDNN (cuda/attention_plans.h); NULL: none has been asked for */
    char name[320];              /* "cuda:0 NVIDIA H200" */
    char libraries[64];          /* and their versions */
    char about[512];             /* name, driver and libraries */
    struct nccl_watchdog *watchdog; /* over its groups (cuda/nccl_group.h); NULL: there was none */
} cuda_device;

static inline cuda_device *cuda_device_of(const device *d) {
    return (cuda_device *)d;
}

/* How many GPUs there are, at least one. OTT_ERR_DEVICE: none, or no driver for them. */
ott_status cuda_count(int *out);
/* Opens the GPU of that index. The device is closed with device_close; account (for the host's memory) outlives it. emulates:
   it takes formats and scales that its tensor cores do not have, whose products are then our own (cuda/gemm.cu).
   OTT_ERR_DEVICE: there is no such GPU, or nothing here was compiled for it. */
ott_status cuda_open(mem *account, int index, bool emulates, device **out);

/* OTT_ERR_DEVICE with what was done, and CUDA's reason, unless `error` is success. */
ott_status cuda_check(cudaError_t error, const char *what);

/* Where the context's ops are queued; its GPU is the calling thread's from now on. */
static inline cudaStream_t cuda_stream(const exec *cx) {
    const cuda_device *c = cuda_device_of(cx->device);
    cudaSetDevice(c->index); /* which a device that is open cannot be refused */
    return c->stream;
}

#endif
