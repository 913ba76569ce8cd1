/* cuda/attention/attention_plans: attention by cuDNN. Each plan is built once, while the memory plan is
   recorded, and kept with the device. */
#ifndef CUDA_ATTENTION_ATTENTION_PLANS_H
#define CUDA_ATTENTION_ATTENTION_PLANS_H

#include "cuda/attention/attention_graph.h"
#include "cuda/cuda.h"

/* A call of an attention op. tensors[name]: the tensor with this name in the graph; NULL if there is none. */
typedef struct attention_call {
    bool backward;
    int64_t head_dim, window, past, longest;
    float scale, softcap;
    const tensor *cu_seqlens, *tensors[ATTENTION_GRAD_V + 1];
} attention_call;

/* Bytes of workspace; 0 if cuDNN is not used for this call. Builds the plan on the first call. *refused: true
   if cuDNN is not used. */
int64_t attention_plans_workspace(cuda_device *c, const attention_call *call, bool *refused);
/* Queues the call. *refusal: why cuDNN is not used, and nothing was queued; NULL: the call was queued. */
ott_status attention_plans_run(exec *cx, const attention_call *call, void *workspace, const char **refusal);
/* Logs each refusal once. fast: Ottava's tensor-core kernels compute the call. */
void attention_plans_log(const exec *cx, const char *refusal, bool fast);
/* Compares the first run of each of Ottava's tensor-core kernels with the host. */
ott_status attention_plans_check_own(exec *cx, const attention_call *call);
/* Closes all plans of a device that is being closed. */
void attention_plans_close(cuda_device *c);

#endif
