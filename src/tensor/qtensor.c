/* tensor/qtensor: the layout of a quantized tensor. */
#include "tensor/qtensor.h"

/* Parts of a block, one after the other. */
typedef struct cursor {
    const backend_capabilities *can;
    qblock *block;
} cursor;

static void *place_part(cursor *c, int64_t bytes) {
    void *place = c->block->data ? (char *)c->block->data + c->block->bytes : NULL;
    c->block->bytes += backend_align(c->can, bytes);
    return place;
}

static void place_scales(qdata *d, cursor *c, granularity grain, int64_t mn, int64_t k) {
    int64_t bytes = granularity_groups(grain, mn, k) * (int64_t)sizeof(float);
    d->amax = place_part(c, bytes);
    d->scale = place_part(c, bytes);
    d->scale_inv = place_part(c, bytes);
    qtensor_order(d, grain, mn);
}

static void place_codes(qdata *d, cursor *c, const qtensor *q, bool transposed) {
    d->data = place_part(c, q->rows * q->columns);
    d->transposed = transposed;
    d->ld = transposed ? q->rows : q->columns;
}

static ott_status check_size(int64_t rows, int64_t columns) {
    int64_t most; /* of groups and of codes, when blocks at the ends are cut */
    if (rows >= 0 && columns >= 0 && rows < INT64_MAX && columns < INT64_MAX &&
        !__builtin_mul_overflow(rows + 1, columns + 1, &most) && most <= INT64_C(1) << 56)
        return OTT_OK;
    return status_fail(OTT_ERR_SHAPE,
                       "a quantized tensor of %lld x %lld elements is no size that memory can hold",
                       (long long)rows, (long long)columns);
}

ott_status qtensor_lay_out(qtensor *q, const backend_capabilities *can, qblocks *blocks) {
    TRY(check_size(q->rows, q->columns));
    blocks->rowwise.bytes = blocks->columnwise.bytes = 0;
    cursor row = {can, &blocks->rowwise}, column = {can, &blocks->columnwise};
    bool fp8 = cast_spec_is_fp8(&q->spec.rowwise), shares_scales = fp8 && quant_spec_shares_scales(&q->spec);
    bool shares_codes = shares_scales && !can->contiguous_contraction;
    q->rowwise = q->columnwise = (qdata){0};
    if (fp8) {
        place_scales(&q->rowwise, shares_scales ? &column : &row, q->spec.rowwise.grain, q->rows, q->columns);
        place_codes(&q->rowwise, shares_codes ? &column : &row, q, false);
    }
    if (shares_scales) q->columnwise = qtensor_shared_use(q->rowwise);
    if (!cast_spec_is_fp8(&q->spec.columnwise) || shares_codes) return OTT_OK;
    if (!shares_scales) place_scales(&q->columnwise, &column, q->spec.columnwise.grain, q->columns, q->rows);
    place_codes(&q->columnwise, &column, q, can->contiguous_contraction);
    return OTT_OK;
}
