/* cuda/attention/attention_cudnn: builds and runs a graph of cuda/attention/attention_graph with cuDNN's
   backend API. The library is opened at run time. A plan can also be built without a GPU, from a description
   of a GPU. */
#ifndef CUDA_ATTENTION_ATTENTION_CUDNN_H
#define CUDA_ATTENTION_ATTENTION_CUDNN_H

#include "base/status.h"
#include "cuda/attention/attention_graph.h"
#include "cuda/packages.h"
#include <cudnn.h>

enum { ATTENTION_TEXT = 512, ATTENTION_DESCRIPTORS_MOST = 256 };
/* cuDNN versions, encoded as by cudnnGetVersion. The oldest supported version is 9.18.1: it is the first that
   clears its workspace in the backward pass of packed documents. 9.25 is the first that allows empty
   documents. */
enum { ATTENTION_CUDNN_LEAST = 91801, ATTENTION_CUDNN_EMPTY_DOCUMENTS = 92500 };

#define ATTENTION_CUDNN_FILE    "libcudnn.so.9"
#define ATTENTION_CUDNN_INSTALL CUDA_INSTALL("nvidia-cudnn", "cudnn")

/* cuDNN functions that Ottava calls; GetVersion is cudnnGetVersion. */
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
    void *file; /* NULL: cuDNN is not open */
    cudnn_calls calls;
    size_t version;
    cudnnHandle_t handle; /* NULL: there is no GPU; plans can be built but not run */
    cudnnBackendDescriptor_t properties;
    char error[ATTENTION_TEXT]; /* why cuDNN is not open */
} attention_library;

/* Opens cuDNN for the current CUDA device and `stream`, or for the device that `json` describes
   (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). Returns OTT_ERR_DEVICE if cuDNN is missing or too old. The
   caller must close `l` even after an error. */
ott_status attention_library_open(attention_library *l, cudaStream_t stream);
ott_status attention_library_describe(attention_library *l, const char *json);
void attention_library_close(attention_library *l);

typedef struct attention_plan {
    int64_t workspace;          /* bytes of workspace that a run needs */
    char error[ATTENTION_TEXT]; /* why the plan could not be built */

    int uids[ATTENTION_NAMED], uid_count; /* uids of tensors with memory and of scalars */
    cudnnBackendDescriptor_t plan, descriptors[ATTENTION_DESCRIPTORS_MOST];
    int descriptor_count;
} attention_plan;

/* An engine of cuDNN with all of its knobs (cudnnBackendKnobType_t). */
enum { ATTENTION_KNOBS_MOST = 6 };
typedef struct attention_engine {
    int64_t index;
    int knob_count;
    struct {
        int type, value;
    } knobs[ATTENTION_KNOBS_MOST];
} attention_engine;

/* Builds a plan for g with the engine. engine NULL: with the first suggestion of cuDNN's heuristics that can
   be built. If there is none, returns OTT_ERR_UNSUPPORTED, and p->error has the reason. Close the plan even
   after an error. */
ott_status attention_plan_build(attention_plan *p, const attention_library *l, const graph *g,
                                const attention_engine *engine);
/* Queues a run. data[uid]: a tensor's device memory, or a scalar's host memory. Needs p->workspace bytes. */
ott_status attention_plan_run(attention_plan *p, const attention_library *l,
                              void *const data[ATTENTION_NAMED], void *workspace);
void attention_plan_close(attention_plan *p, const attention_library *l);

#endif
