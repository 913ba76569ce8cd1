/* monitor/op_kinds: maps operations to kinds. */
#include "monitor/op_kinds.h"

op_kind op_kind_of(enum op_index op) {
    switch (op) {
    case OP_INDEX_gemm:
    case OP_INDEX_grouped_gemm:
    case OP_INDEX_grouped_gemm_weight: return OP_KIND_GEMM;
    case OP_INDEX_quantize:
    case OP_INDEX_grouped_quantize:
    case OP_INDEX_amax:
    case OP_INDEX_scale:
    case OP_INDEX_cast:
    case OP_INDEX_dequantize:
    case OP_INDEX_transpose:
    case OP_INDEX_quantize_statistics:
    case OP_INDEX_amax_record:
    case OP_INDEX_amax_update: return OP_KIND_QUANTIZE;
    case OP_INDEX_convert: return OP_KIND_CONVERT;
    case OP_INDEX_rope:
    case OP_INDEX_attention_forward:
    case OP_INDEX_attention_backward: return OP_KIND_ATTENTION;
    case OP_INDEX_rmsnorm_forward:
    case OP_INDEX_rmsnorm_backward:
    case OP_INDEX_layernorm_forward:
    case OP_INDEX_layernorm_backward: return OP_KIND_NORM;
    case OP_INDEX_swiglu_forward:
    case OP_INDEX_swiglu_backward:
    case OP_INDEX_activate_forward:
    case OP_INDEX_activate_backward: return OP_KIND_SWIGLU;
    case OP_INDEX_cross_entropy:
    case OP_INDEX_cross_entropy_part:
    case OP_INDEX_cross_entropy_finish:
    case OP_INDEX_softcap_forward:
    case OP_INDEX_softcap_backward: return OP_KIND_LOSS;
    case OP_INDEX_block_squares:
    case OP_INDEX_sum_blocks:
    case OP_INDEX_grad_norm:
    case OP_INDEX_adamw:
    case OP_INDEX_adamw_fp8:
    case OP_INDEX_lion:
    case OP_INDEX_sgd:
    case OP_INDEX_adam:
    case OP_INDEX_schedule_free:
    case OP_INDEX_lerp:
    case OP_INDEX_muon_momentum:
    case OP_INDEX_muon_direction:
    case OP_INDEX_muon_normalize:
    case OP_INDEX_muon: return OP_KIND_OPTIMIZER;
    default: return OP_KIND_OTHER;
    }
}

static op_kind product_kind(const operand *a, const operand *b) {
    return dtype_is_fp8(a->t.dtype) && dtype_is_fp8(b->t.dtype) ? OP_KIND_GEMM_FP8 : OP_KIND_GEMM;
}

op_kind op_kind_of_call(enum op_index op, const void *args) {
    const gemm_args *gemm = args;
    const grouped_gemm_args *grouped = args;
    const grouped_gemm_weight_args *weight = args;
    switch (op) {
    case OP_INDEX_gemm: return product_kind(gemm->a, gemm->b);
    case OP_INDEX_grouped_gemm: return product_kind(grouped->a, grouped->b);
    case OP_INDEX_grouped_gemm_weight: return product_kind(weight->a, weight->b);
    default: return op_kind_of(op);
    }
}

static const struct {
    const char *name, *text;
} kinds[OP_KINDS] = {
#define X(constant, name, text) {name, text},
    OP_KIND_MAP(X)
#undef X
};

const char *op_kind_name(op_kind k) {
    return kinds[k].name;
}

const char *op_kind_text(op_kind k) {
    return kinds[k].text;
}
