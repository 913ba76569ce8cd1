/* cuda/ops: the table of ops. */
#include "cuda/ops.h"
#include "tensor/device.h"
#include "cuda/kernels/kernels.h"
#include "cuda/kernels/quantize.h"
#include <stddef.h>

static int64_t workspace(const device *d, enum op_index op, const void *args) {
    switch (op) {
    case OP_INDEX_gemm: return cuda_gemm_workspace(d, args);
    case OP_INDEX_sum: return sum_workspace(tensor_count(*((const sum_args *)args)->x));
    case OP_INDEX_quantize_statistics:
        return statistics_workspace(tensor_count(*((const quantize_statistics_args *)args)->x));
    case OP_INDEX_attention_forward: return cuda_attention_forward_workspace(d, args);
    case OP_INDEX_attention_backward: return cuda_attention_backward_workspace(d, args);
    default: return 0;
    }
}

static op_slowness slowness(const device *d, enum op_index op, const void *args) {
    switch (op) {
    case OP_INDEX_gemm: return cuda_gemm_slowness(d, args);
    case OP_INDEX_attention_forward:
    case OP_INDEX_attention_backward: return cuda_attention_slowness(d, op, args);
    default: return (op_slowness){0};
    }
}

const op_table cuda_ops = {
#define OP(name, fields) .name = cuda_##name,
#define MANY(name)       .name##_many = cuda_##name##_many,
#include "tensor/ops.def"
#undef OP
    .workspace = workspace,
    .slowness = slowness,
};
