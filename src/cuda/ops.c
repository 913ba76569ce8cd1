/* cuda/ops: the op table. An op that is not in it is refused by its name. */
#include "cuda/ops.h"
#include "cuda/quantize.h"
#include <stddef.h>

/* The block sums of what is summed in order. */
static int64_t workspace(const device *d, enum op_index op, const void *args) {
    (void)d;
    switch (op) {
    case OP_INDEX_quantize_statistics:
        return statistics_workspace(tensor_count(*((const quantize_statistics_args *)args)->x));
    default: return 0;
    }
}

const op_table cuda_ops = {
    .quantize = cuda_quantize,
    .amax = cuda_amax,
    .scale = cuda_scale,
    .cast = cuda_cast,
    .dequantize = cuda_dequantize,
    .transpose = cuda_transpose,
    .quantize_statistics = cuda_quantize_statistics,
    .pack = cuda_pack,
    .workspace = workspace,
};
