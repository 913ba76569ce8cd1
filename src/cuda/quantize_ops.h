/* cuda/quantize_ops: quantizes the outputs of ops. */
#ifndef CUDA_QUANTIZE_OPS_H
#define CUDA_QUANTIZE_OPS_H

#include "cuda/quantize.h"
#include "tensor/ops.h"

/* OTT_ERR_UNSUPPORTED if q rounds stochastically, because CUDA rounds FP8 to nearest. */
ott_status cuda_check_rounding(const char *op, const qtensor *q);
/* Sets *made to the work that the op's kernel does for q's first quantized copy of its output. made->count is
   0 if the kernel does no such work. q may be NULL. */
ott_status cuda_quantize_begin(exec *cx, const char *op, const qlist *q, quantize_producer producer,
                               quantize_uses *made);
/* Does the work that *made lacks, for all quantized copies of x. The kernel that makes x must be queued. */
ott_status cuda_quantize_finish(exec *cx, const char *op, const tensor *x, const qlist *q,
                                const quantize_uses *made);

#endif
