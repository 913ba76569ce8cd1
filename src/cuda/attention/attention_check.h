/* cuda/attention/attention_check: compares the results of the first run of each cuDNN plan, and of each of
   Ottava's tensor-core kernels, with attention on the host, for sampled rows of that run's operands. Finds
   misplaced masks, wrong document starts, wrong key heads and scratch that is not cleared. */
#ifndef CUDA_ATTENTION_ATTENTION_CHECK_H
#define CUDA_ATTENTION_ATTENTION_CHECK_H

#include "cuda/attention/attention_plans.h"

/* Waits for the queued run of `call` and compares its outputs. *conclusive: false if a sampled output is all
   zeros or has overflowed. by: who computed the call, for the message. Returns OTT_ERR_DEVICE if an output is
   wrong; the message names the output and its error. */
ott_status attention_check(exec *cx, const attention_call *call, const char *by, bool *conclusive);

#endif
