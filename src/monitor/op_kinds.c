/* monitor/op_kinds: maps operations to kinds. */
#include "monitor/op_kinds.h"

op_kind op_kind_of(enum op_index op) {
    switch (op) {
#define OP(name, fields) case OP_INDEX_##name:
#define KIND(kind)       return OP_KIND_##kind;
#include "tensor/ops.def"
#undef OP
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
