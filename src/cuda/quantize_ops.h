/* cuda/quantize_ops: quantizes the outputs of ops. */
#ifndef CUDA_QUANTIZE_OPS_H
#define CUDA_QUANTIZE_OPS_H

#include "cuda/kernels/quantize.h"
#include "tensor/ops.h"

/* OTT_ERR_UNSUPPORTED if q rounds stochastically, because CUDA rounds FP8 to nearest. */
ott_status cuda_check_rounding(const char *op, const qtensor *q);
/* q: the quantized copies of the op's output, or NULL. The op's kernel can do work only for the first copy.
   Sets *made to this work; made->count is 0 if there is none. */
ott_status cuda_quantize_begin(exec *cx, const char *op, const qlist *q, quantize_producer producer,
                               quantize_uses *made);
/* Call after the kernel that writes x is queued. Does the work of quantizing x that is not in *made. */
ott_status cuda_quantize_finish(exec *cx, const char *op, const tensor *x, const qlist *q,
                                const quantize_uses *made);

#endif
