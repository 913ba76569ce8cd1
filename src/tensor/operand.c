/* tensor/operand: GEMM operands from the uses of a quantized tensor. */
#include "tensor/operand.h"

static operand operand_of(const qtensor *q, const qdata *d, const cast_spec *spec) {
    int64_t rows = d->transposed ? q->columns : q->rows, columns = d->transposed ? q->rows : q->columns;
    operand o = {.t = tensor_matrix(d->data, spec->format, rows, columns),
                 .scale_inv = d->scale_inv,
                 .grain = spec->grain,
                 .mn_step = d->mn_step,
                 .k_step = d->k_step,
                 .tiles = d->tiles};
    o.t.ld = d->ld;
    return o;
}

operand operand_rowwise(tensor high_precision, const qtensor *q) {
    if (!q || !cast_spec_is_fp8(&q->spec.rowwise)) return (operand){.t = high_precision};
    return operand_of(q, &q->rowwise, &q->spec.rowwise);
}

operand operand_columnwise(tensor high_precision, const qtensor *q) {
    if (!q || !cast_spec_is_fp8(&q->spec.columnwise))
        return (operand){.t = high_precision, .transposed = true};
    operand o = operand_of(q, &q->columnwise, &q->spec.columnwise);
    o.transposed = !q->columnwise.transposed;
    return o;
}

operand operand_group(const operand *o, bool deep, int64_t group, int64_t first, int64_t count) {
    operand part = *o;
    scale_block block = granularity_block(o->grain);
    bool down = deep == o->transposed;
    int64_t at = qtensor_group_block(group, first, deep ? block.k : block.mn);
    part.t = down ? tensor_rows(o->t, first, count) : tensor_columns(o->t, first, count);
    if (o->scale_inv)
        part.scale_inv =
            scale_inv_view(o->scale_inv, o->mn_step, o->k_step, &part.tiles, deep ? 0 : at, deep ? at : 0);
    return part;
}
