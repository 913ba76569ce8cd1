/*
 * cuda/attention_check: no attention of a library is believed unseen. The first run of each plan, on the run's own operands, is held
 * against the host's on sampled rows. What it finds: masks that are not where they should be, documents
 * that begin elsewhere, heads that share other keys, scratch that is not cleared.
 */
#ifndef CUDA_ATTENTION_CHECK_H
#define CUDA_ATTENTION_CHECK_H

#include "cuda/attention_plans.h"

/* Behind the run: waits, and compares. *told: whether the samples could tell right from wrong. version: cuDNN's.
   OTT_ERR_DEVICE: an output is wrong; what of, and how far off it is. */
ott_status attention_check(exec *cx, const attention_call *call, size_t version, bool *conclusive);

#endif
