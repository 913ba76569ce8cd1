/* cuda/quantize_ops: the quantized forms that an op makes of its output. */
#ifndef CUDA_QUANTIZE_OPS_H
#define CUDA_QUANTIZE_OPS_H

#include "cuda/quantize.h"
#include "tensor/ops.h"

/* Only nearest is there. */
ott_status cuda_check_rounding(const char *op, const qtensor *q);
/* What the kernel that makes `op`'s output does of its forms q (NULL: none), of which it takes the first: to *made, count 0
   when there is nothing to do. */
ott_status cuda_quantize_begin(exec *cx, const char *op, const qlist *q, quantize_producer producer,
                               quantize_uses *made);
/* The rest of what op_quantize would make of the output x, which is queued already, for each form. */
ott_status cuda_quantize_finish(exec *cx, const char *op, const tensor *x, const qlist *q,
                                const quantize_uses *made);

#endif
