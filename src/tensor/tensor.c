/* tensor/tensor: how a GEMM sees a tensor's two uses. */
#include "tensor/tensor.h"

static operand operand_side(tensor high_precision, const qtensor *q, const side_spec *spec,
                            const qside *side) {
    if (!q || !side_spec_is_fp8(spec)) return (operand){.t = high_precision};
    return (operand){.t = tensor_matrix(side->data, spec->format, q->rows, q->columns),
                     .scale_inv = side->scale_inv,
                     .grain = spec->grain,
                     .line_step = side->line_step,
                     .depth_step = side->depth_step};
}

operand operand_by_rows(tensor high_precision, const qtensor *q) {
    return operand_side(high_precision, q, q ? &q->spec.row : NULL, q ? &q->row : NULL);
}

operand operand_by_columns(tensor high_precision, const qtensor *q) {
    operand o = operand_side(high_precision, q, q ? &q->spec.column : NULL, q ? &q->column : NULL);
    o.transposed = true;
    return o;
}
