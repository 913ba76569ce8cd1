/* cuda/attention/attention_plans: attention by cuDNN. Each plan is built once, while the memory plan is
   recorded, and kept with the device. Refuses calls that cuDNN cannot compute with the same bits in every
   run. */
#ifndef CUDA_ATTENTION_ATTENTION_PLANS_H
#define CUDA_ATTENTION_ATTENTION_PLANS_H

#include "cuda/attention/attention_graph.h"
#include "cuda/cuda.h"

/* A call of an attention op. tensors[name]: the tensor with this name in the graph; NULL if there is none. */
typedef struct attention_call {
    bool backward;
    int64_t head_dim, window, past;
    float scale;
    const tensor *cu_seqlens, *tensors[ATTENTION_GRAD_V + 1];
} attention_call;

/* Bytes of workspace; 0 if cuDNN is not used for this call. Builds the plan on the first call. */
int64_t attention_plans_workspace(cuda_device *c, const attention_call *call);
/* Queues the call. *ran: false if cuDNN is not used; the log gives each reason once. */
ott_status attention_plans_run(exec *cx, const attention_call *call, void *workspace, bool *ran);
/* Closes all plans of a device that is being closed. */
void attention_plans_close(cuda_device *c);

#endif
