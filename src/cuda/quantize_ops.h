/* cuda/quantize_ops: quantizes the outputs of ops. */
#ifndef CUDA_QUANTIZE_OPS_H
#define CUDA_QUANTIZE_OPS_H

#include "cuda/quantize.h"
#include "tensor/ops.h"

/* OTT_ERR_UNSUPPORTED for stochastic rounding of FP8: CUDA only rounds to nearest. */
ott_status cuda_check_rounding(const char *op, const qtensor *q);
/* Sets *made to the work that op's kernel does for the first of the quantized copies q (NULL: none) of its
   output. made->count is 0 if there is none. */
ott_status cuda_quantize_begin(exec *cx, const char *op, const qlist *q, quantize_producer producer,
                               quantize_uses *made);
/* Does the rest of the work for each quantized copy of x. The kernel that produces x is queued already. */
ott_status cuda_quantize_finish(exec *cx, const char *op, const tensor *x, const qlist *q,
                                const quantize_uses *made);

#endif
