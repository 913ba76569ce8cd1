/* cuda/attention_check: compares the first run of each cuDNN plan with the host's attention, on sampled rows
   of the run's own operands. Finds misplaced masks, wrong document starts, wrong key heads and scratch that
   is not cleared. */
#ifndef CUDA_ATTENTION_CHECK_H
#define CUDA_ATTENTION_CHECK_H

#include "cuda/attention_plans.h"

/* Call after the run: synchronizes and compares. *conclusive: false if a sampled output was all zero or
   overflowed. version: cuDNN's, for the message. OTT_ERR_DEVICE if an output is wrong; the message names it
   and its error. */
ott_status attention_check(exec *cx, const attention_call *call, size_t version, bool *conclusive);

#endif
