/* cuda/cuda: declarations that the backend's host code shares: the device of an execution context, and CUDA
   errors as status codes. An op is ott_status cuda_<op>(exec *, const <op>_args *), declared by cuda/ops.h.
   Its arguments are checked, and its tensors are on the device. It queues kernels on cuda_stream(cx). */
#ifndef CUDA_CUDA_H
#define CUDA_CUDA_H

#include "tensor/device.h"
#include "tensor/exec.h"
#include "tensor/gpus.h"
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

typedef struct cuda_block cuda_block;
typedef struct cuda_product cuda_product;
typedef struct attention_plans attention_plans;

typedef struct cuda_device {
    device base; /* must be first: device * is cast to cuda_device* */
    backend_capabilities can;
    int index; /* the CUDA runtime's device index */
    struct cudaDeviceProp properties;
    cudaMemPool_t pool;  /* the runtime's default memory pool */
    cudaStream_t stream; /* the stream on which ops, copies and events run in order */
    pthread_mutex_t lock;
    cuda_block *blocks; /* allocated device memory, which `taken` counts, and mapped host memory */
    mem_stats taken;
    bool own_products;        /* use no cuBLASLt (OTTAVA_CUDA_GEMM=own) */
    bool own_attention;       /* use no cuDNN (OTTAVA_CUDA_ATTENTION=own) */
    bool is_capturing;        /* a CUDA graph is being captured: queued work does not run */
    cublasLtHandle_t library; /* cuBLASLt's handle; NULL until the first product */
    cuda_product *products;   /* cached plans of products (cuda/gemm/products.h) */
    uint64_t
        own_checked[256]; /* a bit for each kind of product that Ottava's kernel has computed correctly */
    attention_plans *attentions; /* cached cuDNN plans; NULL before the first */
    char name[320];              /* "cuda:0 NVIDIA H200" */
    char libraries[64];          /* library names and versions */
    char about[512];             /* name, driver and libraries */
    /* the watchdog of this device's NCCL groups (cuda/nccl/group.h); NULL before the first group */
    struct nccl_watchdog *watchdog;
} cuda_device;

static inline cuda_device *cuda_device_of(const device *d) {
    return (cuda_device *)d;
}

/* Sets *out to the number of GPUs, at least 1. OTT_ERR_DEVICE if there is no GPU or no driver. */
ott_status cuda_count(int *out);
/* Opens GPU number `index`. Close it with device_close. `account` counts host memory and must outlive the
   device. emulates: allows formats and scales that the tensor cores lack; Ottava's own kernel multiplies
   them. OTT_ERR_DEVICE if there is no such GPU, OTT_ERR_UNSUPPORTED if the plugin has no code for it. */
ott_status cuda_open(mem *account, int index, bool emulates, device **out);

/* Returns OTT_ERR_DEVICE, naming `what` and CUDA's reason, unless `error` is cudaSuccess. */
ott_status cuda_check(cudaError_t error, const char *what);

/* The stream for the context's ops. Makes the stream's GPU the calling thread's current device. */
static inline cudaStream_t cuda_stream(const exec *cx) {
    const cuda_device *c = cuda_device_of(cx->device);
    cudaSetDevice(c->index); /* cudaSetDevice cannot fail for an open device */
    return c->stream;
}

#endif
