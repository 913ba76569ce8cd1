/*
 * cuda/attention_cudnn: builds and runs a graph of cuda/attention_graph with cuDNN's backend API. The library is opened when it
 * is used. A plan can be built for a device that is only described, elsewhere.
 */
#ifndef CUDA_ATTENTION_CUDNN_H
#define CUDA_ATTENTION_CUDNN_H

#include "base/status.h"
#include "cuda/attention_graph.h"
#include <cudnn.h>

enum { ATTENTION_TEXT = 512, ATTENTION_DESCRIPTORS_MOST = 256 };
/* Since 9.18.1 backward of packed documents clears its workspace; since 9.25 a document may be empty, and backward adds in
   one order without a workspace of length^2. */
enum { ATTENTION_CUDNN_LEAST = 91801, ATTENTION_CUDNN_DETERMINISTIC = 92500 };

#define ATTENTION_CUDNN_FILE    "libcudnn.so.9"
#define ATTENTION_CUDNN_PACKAGE "nvidia-cudnn-cu13"

/* What we use of it: cudnnGetVersion and so on. */
#define CUDNN_CALLS(X)                                                                                       \
    X(GetVersion)                                                                                            \
    X(Create)                                                                                                \
    X(Destroy)                                                                                               \
    X(SetStream)                                                                                             \
    X(GetErrorString)                                                                                        \
    X(GetLastErrorString)                                                                                    \
    X(BackendCreateDescriptor)                                                                               \
    X(BackendDestroyDescriptor)                                                                              \
    X(BackendSetAttribute)                                                                                   \
    X(BackendGetAttribute)                                                                                   \
    X(BackendFinalize)                                                                                       \
    X(BackendExecute)

typedef struct cudnn_calls {
#define X(name) __typeof__(&cudnn##name) name;
    CUDNN_CALLS(X)
#undef X
} cudnn_calls;

typedef struct attention_library {
    void *file; /* NULL: not opened */
    cudnn_calls calls;
    size_t version;
    cudnnHandle_t handle; /* NULL: plans can be built, not run */
    cudnnBackendDescriptor_t properties;
    char error[ATTENTION_TEXT]; /* why it is not open */
} attention_library;

/* For the current CUDA device, work in `stream`; or for the device that cuDNN described in JSON. OTT_ERR_DEVICE: it is not
   there or too old. Close it in all cases. */
ott_status attention_library_open(attention_library *l, cudaStream_t stream);
ott_status attention_library_describe(attention_library *l, const char *json);
void attention_library_close(attention_library *l);

typedef struct attention_plan {
    int64_t workspace;          /* bytes that a run needs */
    char error[ATTENTION_TEXT]; /* why there is none */

    int uids[ATTENTION_NAMED], uid_count; /* the tensors with memory, and by-value ones */
    cudnnBackendDescriptor_t plan, descriptors[ATTENTION_DESCRIPTORS_MOST];
    int descriptor_count;
} attention_plan;

/* Backward, since 9.25, the plan of Hopper's engine with its sums in one order; else the one that cuDNN's heuristics put first
   and that can be built. OTT_ERR_UNSUPPORTED, and p->error: there is none. Close the plan in all cases. */
ott_status attention_plan_build(attention_plan *p, const attention_library *l, const graph *g);
/* Queues a run. data[uid]: device memory of each tensor, host memory of each scalar. */
ott_status attention_plan_run(attention_plan *p, const attention_library *l,
                              void *const data[ATTENTION_NAMED], void *workspace);
void attention_plan_close(attention_plan *p, const attention_library *l);

#endif
