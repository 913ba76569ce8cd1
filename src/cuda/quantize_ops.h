/* cuda/quantize_ops: the quantized forms that an op makes of its output. */
#ifndef CUDA_QUANTIZE_OPS_H
#define CUDA_QUANTIZE_OPS_H

#include "tensor/ops.h"

/* What op_quantize would make of x, which is queued already, for each form; q NULL: none. `op` is whose output x is. */
ott_status cuda_quantize_list(exec *cx, const char *op, const tensor *x, const qlist *q);

#endif
