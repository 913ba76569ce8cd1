/*
 * bench/gpu/attention_cudnn: builds and runs a graph of attention_graph.h with cuDNN's backend API (9.8 or
 * newer: the graph needs no handle, so plans can be built for a device that is only described).
 */
#ifndef ATTENTION_CUDNN_H
#define ATTENTION_CUDNN_H

#include "attention_graph.h"
#include <cudnn.h>

/* The device that plans are for: a handle, or a description of a device elsewhere. */
typedef struct attention_device {
    cudnnHandle_t handle; /* NULL: plans can be built, not run */
    cudnnBackendDescriptor_t properties;
    char error[ATTENTION_TEXT];
} attention_device;

/* The current CUDA device, work in `stream`; or the device that cuDNN described in JSON. False: d->error.
   Close the device in both cases. */
bool attention_device_open(attention_device *d, cudaStream_t stream);
bool attention_device_describe(attention_device *d, const char *json);
void attention_device_close(attention_device *d);
/* cuDNN's description of the device, for attention_device_describe: free() it; NULL: d->error. */
char *attention_device_json(attention_device *d);

enum { ATTENTION_DESCRIPTORS_MOST = 256 };

typedef struct attention_plan {
    size_t workspace; /* bytes that a run needs */
    int64_t engine;   /* cuDNN's number of the kernel family */
    char notes[128];  /* what cuDNN says of the engine: words */
    double seconds;   /* that building took */
    char error[ATTENTION_TEXT];

    int uids[ATTENTION_NAMED], uid_count; /* the tensors with memory, and by-value ones */
    cudnnBackendDescriptor_t plan, descriptors[ATTENTION_DESCRIPTORS_MOST];
    int descriptor_count;
} attention_plan;

/* Builds the plan that cuDNN's heuristics put first and that can be built. False: p->error says why there is
   none. Close the plan in both cases. */
bool attention_plan_build(attention_plan *p, const attention_device *d, const graph *g);
/* Queues a run. data[uid]: device memory of each tensor, host memory of each scalar. False: p->error. */
bool attention_plan_run(attention_plan *p, const attention_device *d, void *const data[ATTENTION_NAMED],
                        void *workspace);
void attention_plan_close(attention_plan *p);

#endif
