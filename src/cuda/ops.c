/* cuda/ops: the table of ops. Calling an op that the table lacks is an error that names the op. */
#include "cuda/ops.h"
#include "tensor/device.h"
#include "cuda/kernels.h"
#include "cuda/quantize.h"
#include <stddef.h>

static int64_t workspace(const device *d, enum op_index op, const void *args) {
    switch (op) {
    case OP_INDEX_gemm: return cuda_gemm_workspace(d->can, args);
    case OP_INDEX_sum: return sum_workspace(tensor_count(*((const sum_args *)args)->x));
    case OP_INDEX_quantize_statistics:
        return statistics_workspace(tensor_count(*((const quantize_statistics_args *)args)->x));
    case OP_INDEX_attention_forward: return cuda_attention_forward_workspace(d, args);
    case OP_INDEX_attention_backward: return cuda_attention_backward_workspace(d, args);
    default: return 0;
    }
}

const op_table cuda_ops = {
    .convert = cuda_convert,
    .quantize = cuda_quantize,
    .amax = cuda_amax,
    .scale = cuda_scale,
    .cast = cuda_cast,
    .dequantize = cuda_dequantize,
    .transpose = cuda_transpose,
    .quantize_statistics = cuda_quantize_statistics,
    .amax_record = cuda_amax_record,
    .amax_update = cuda_amax_update,
    .gemm = cuda_gemm,
    .pack = cuda_pack,
    .multiply_columns = cuda_multiply_columns,
    .channel_scales = cuda_channel_scales,
    .column_sum = cuda_column_sum,
    .add = cuda_add,
    .multiply = cuda_multiply,
    .dropout = cuda_dropout,
    .embedding_forward = cuda_embedding_forward,
    .embedding_backward = cuda_embedding_backward,
    .rmsnorm_forward = cuda_rmsnorm_forward,
    .rmsnorm_backward = cuda_rmsnorm_backward,
    .rope = cuda_rope,
    .join_heads = cuda_join_heads,
    .sum_heads = cuda_sum_heads,
    .attention_forward = cuda_attention_forward,
    .attention_backward = cuda_attention_backward,
    .layernorm_forward = cuda_layernorm_forward,
    .layernorm_backward = cuda_layernorm_backward,
    .activate_forward = cuda_activate_forward,
    .activate_backward = cuda_activate_backward,
    .softcap_forward = cuda_softcap_forward,
    .softcap_backward = cuda_softcap_backward,
    .swiglu_forward = cuda_swiglu_forward,
    .swiglu_backward = cuda_swiglu_backward,
    .cross_entropy = cuda_cross_entropy,
    .cross_entropy_part = cuda_cross_entropy_part,
    .cross_entropy_finish = cuda_cross_entropy_finish,
    .route = cuda_route,
    .route_balance = cuda_route_balance,
    .route_backward = cuda_route_backward,
    .route_sort = cuda_route_sort,
    .permute = cuda_permute,
    .unpermute = cuda_unpermute,
    .weigh = cuda_weigh,
    .weigh_backward = cuda_weigh_backward,
    .grouped_quantize = cuda_grouped_quantize,
    .grouped_gemm = cuda_grouped_gemm,
    .grouped_gemm_weight = cuda_grouped_gemm_weight,
    .dot = cuda_dot,
    .balance_bias = cuda_balance_bias,
    .sum = cuda_sum,
    .block_squares = cuda_block_squares,
    .sum_blocks = cuda_sum_blocks,
    .count_nonfinite = cuda_count_nonfinite,
    .grad_norm = cuda_grad_norm,
    .adamw = cuda_adamw,
    .adamw_fp8 = cuda_adamw_fp8,
    .lion = cuda_lion,
    .sgd = cuda_sgd,
    .adam = cuda_adam,
    .schedule_free = cuda_schedule_free,
    .lerp = cuda_lerp,
    .muon_momentum = cuda_muon_momentum,
    .muon_direction = cuda_muon_direction,
    .muon_normalize = cuda_muon_normalize,
    .muon = cuda_muon,
#define OP(name, fields)
#define MANY(name) .name##_many = cuda_##name##_many,
#include "tensor/ops.def"
#undef OP
    .workspace = workspace,
};
