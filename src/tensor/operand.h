/* tensor/operand: a GEMM operand: a high-precision tensor, or one use of a quantized tensor. */
#ifndef TENSOR_OPERAND_H
#define TENSOR_OPERAND_H

#include "tensor/qtensor.h"

/* t is mn x k, or k x mn if `transposed`. If `packed`, t.data is the output of op_pack, but t.rows x
   t.columns are still mn x k. Only operand b can be packed, and then it is not transposed. scale_inv (NULL:
   no scales), mn_step, k_step and tiles are as in qdata (tensor/qtensor.h). */
typedef struct operand {
    tensor t;
    bool transposed, packed;
    granularity grain;
    const void *scale_inv;
    int64_t mn_step, k_step;
    scale_tiles tiles;
} operand;

static inline int64_t operand_mn(const operand *o) {
    return o->transposed ? o->t.columns : o->t.rows;
}
static inline int64_t operand_k(const operand *o) {
    return o->transposed ? o->t.rows : o->t.columns;
}
/* Returns the scale_inv of scale block (mn, k). The operand must have scales. */
static inline float operand_scale_inv(const operand *o, int64_t mn, int64_t k) {
    return scale_inv_at(o->scale_inv, o->mn_step, o->k_step, o->tiles, mn, k);
}
/* Returns the view of one group of an operand: elements [first, first + count) along MN (deep: along K). */
operand operand_group(const operand *o, bool deep, int64_t group, int64_t first, int64_t count);
/* Return the operand for the rowwise or columnwise use: q's FP8 codes if q (may be NULL) has FP8 codes for
   this use, else the high-precision tensor. */
operand operand_rowwise(tensor high_precision, const qtensor *q);
operand operand_columnwise(tensor high_precision, const qtensor *q);

#endif
