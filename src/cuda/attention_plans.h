/*
 * cuda/attention_plans: attention by cuDNN: the plans of a run, each built once, before its first step where the memory plan is
 * recorded, and kept with the device. What cuDNN cannot, or not with the bits of every run equal, is refused.
 */
#ifndef CUDA_ATTENTION_PLANS_H
#define CUDA_ATTENTION_PLANS_H

#include "cuda/attention_graph.h"
#include "cuda/cuda.h"

/* The tensors of an op by their names in the graph; those that it has not are NULL. */
typedef struct attention_call {
    bool backward;
    int64_t head_dim, window, past;
    float scale;
    const tensor *cu_seqlens, *tensors[ATTENTION_GRAD_V + 1];
} attention_call;

/* Bytes of workspace; 0: cuDNN is not used. */
int64_t attention_plans_workspace(cuda_device *c, const attention_call *call);
/* Queues it. *ran false: cuDNN is not used, which the log says once for each reason. */
ott_status attention_plans_run(exec *cx, const attention_call *call, void *workspace, bool *ran);
/* Of a device that is closed. */
void attention_plans_close(cuda_device *c);

#endif
