/* tensor/operand: a GEMM operand: a high-precision tensor, or one use of a quantized tensor. */
#ifndef TENSOR_OPERAND_H
#define TENSOR_OPERAND_H

#include "tensor/qtensor.h"

/* t is mn x k, or k x mn if `transposed`. packed: t.data is the output of op_pack, while t.rows x t.columns
   stay mn x k; only for operand b, not transposed. scale_inv: as in qdata (tensor/qtensor.h); NULL: none. */
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
/* Returns group `group`, rows [first, first + count), of an operand with grouped rows (tensor/qtensor.h)
   along MN, or along K if `deep`. */
operand operand_group(const operand *o, bool deep, int64_t group, int64_t first, int64_t count);
/* Returns q's FP8 codes if that use is FP8, else the high-precision tensor. q may be NULL. */
operand operand_rowwise(tensor high_precision, const qtensor *q);
operand operand_columnwise(tensor high_precision, const qtensor *q);

#endif
