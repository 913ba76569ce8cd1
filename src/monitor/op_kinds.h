/* monitor/op_kinds: kinds of operations, by which profiles and benchmarks split a step's time. */
#ifndef MONITOR_OP_KINDS_H
#define MONITOR_OP_KINDS_H

#include "tensor/ops.h"

/* Arguments of X: constant, name in traces and JSON, text in tables. */
#define OP_KIND_MAP(X)                                                                                       \
    X(GEMM_FP8, "gemm_fp8", "FP8 matrix products (scaled_mm)")                                               \
    X(GEMM, "gemm", "other matrix products (gemm)")                                                          \
    X(QUANTIZE, "quantize", "quantization")                                                                  \
    X(CONVERT, "convert", "conversion between high-precision formats")                                       \
    X(ATTENTION, "attention", "attention and rotation")                                                      \
    X(NORM, "norm", "norms")                                                                                 \
    X(SWIGLU, "swiglu", "SwiGLU")                                                                            \
    X(LOSS, "loss", "loss")                                                                                  \
    X(OPTIMIZER, "optimizer", "optimizer")                                                                   \
    X(OTHER, "other", "other operations")

typedef enum op_kind {
#define X(constant, name, text) OP_KIND_##constant,
    OP_KIND_MAP(X)
#undef X
        OP_KINDS
} op_kind;

/* Kind of an operation; OP_KIND_GEMM for every matrix product. */
op_kind op_kind_of(enum op_index op);
/* Kind of a call of `op` with these arguments. A matrix product of two FP8 operands is OP_KIND_GEMM_FP8. */
op_kind op_kind_of_call(enum op_index op, const void *args);
const char *op_kind_name(op_kind k);
const char *op_kind_text(op_kind k);

#endif
