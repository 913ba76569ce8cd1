/* tensor/operand: what a GEMM multiplies: a tensor, or one use of a quantized one. */
#ifndef TENSOR_OPERAND_H
#define TENSOR_OPERAND_H

#include "tensor/qtensor.h"

/* A GEMM operand: t is mn x k, or, transposed, k x mn. packed: t.data is what op_pack made of it, t.rows x t.columns are
   still mn x k; only for b, not transposed. scale_inv NULL: no scale; else that of (mn, k) is where qdata says. */
typedef struct operand {
    tensor t;
    bool transposed, packed;
    granularity grain;
    const float *scale_inv;
    int64_t mn_step, k_step;
} operand;

static inline int64_t operand_mn(const operand *o) {
    return o->transposed ? o->t.columns : o->t.rows;
}
static inline int64_t operand_k(const operand *o) {
    return o->transposed ? o->t.rows : o->t.columns;
}
/* Of an operand whose MN, or, deep, whose K are groups of rows of a tensor (tensor/qtensor.h): those of one, [first, first + count). */
operand operand_group(const operand *o, bool deep, int64_t group, int64_t first, int64_t count);
/* The operand a GEMM sees: FP8 codes where the spec has them, else the high-precision tensor. q may be NULL. */
operand operand_rowwise(tensor high_precision, const qtensor *q);
operand operand_columnwise(tensor high_precision, const qtensor *q);

#endif
