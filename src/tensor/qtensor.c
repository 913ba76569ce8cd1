/* tensor/qtensor: lays out a quantized tensor in memory. */
#include "tensor/qtensor.h"

/* Returns the number of blocks of `block` rows. Rows after the last group need one more block. */
static int64_t row_blocks(const qtensor *q, int64_t block) {
    if (q->groups == 0 || block == 1) return granularity_blocks(q->rows, block);
    return qtensor_group_block(q->groups, q->rows, block) + 1;
}

int64_t qtensor_order_use(qdata *d, const qtensor *q, bool columnwise) {
    scale_block block = granularity_block(columnwise ? q->spec.columnwise.grain : q->spec.rowwise.grain);
    int64_t down = row_blocks(q, columnwise ? block.k : block.mn),
            across = granularity_blocks(q->columns, columnwise ? block.mn : block.k);
    d->mn_step = 1;
    d->k_step = columnwise ? across : down;
    return down * across;
}

static void move_use(qdata *d, int64_t first, int64_t entries) {
    if (!d->scale) return;
    if (d->data) d->data = (uint8_t *)d->data + qtensor_index(d, first, 0);
    d->amax += entries;
    d->scale += entries;
    d->scale_inv += entries;
}

qtensor qtensor_group(const qtensor *q, int64_t group, int64_t first, int64_t count) {
    qtensor part = *q;
    int64_t row = granularity_block(q->spec.rowwise.grain).mn,
            column = granularity_block(q->spec.columnwise.grain).k;
    part.rows = count;
    part.groups = 0;
    move_use(&part.rowwise, first, qtensor_group_block(group, first, row) * q->rowwise.mn_step);
    move_use(&part.columnwise, first, qtensor_group_block(group, first, column) * q->columnwise.k_step);
    return part;
}

/* Assigns arrays to a block of memory, one after the other. */
typedef struct block_writer {
    const backend_capabilities *can;
    qblock *block;
} block_writer;

static void *place_part(block_writer *c, int64_t bytes) {
    void *place = c->block->data ? (char *)c->block->data + c->block->bytes : NULL;
    c->block->bytes += backend_align(c->can, bytes);
    return place;
}

static void place_use_scales(qdata *d, block_writer *c, const qtensor *q, bool columnwise) {
    int64_t bytes = qtensor_order_use(d, q, columnwise) * (int64_t)sizeof(float);
    d->amax = place_part(c, bytes);
    d->scale = place_part(c, bytes);
    d->scale_inv = place_part(c, bytes);
}

static void place_use_codes(qdata *d, block_writer *c, const qtensor *q, bool transposed) {
    d->data = place_part(c, q->rows * q->columns);
    d->transposed = transposed;
    d->ld = transposed ? q->rows : q->columns;
}

static ott_status check_shape(int64_t rows, int64_t columns) {
    int64_t most; /* upper bound of the number of scale blocks and of codes */
    if (rows >= 0 && columns >= 0 && rows < INT64_MAX && columns < INT64_MAX &&
        !__builtin_mul_overflow(rows + 1, columns + 1, &most) && most <= INT64_C(1) << 56)
        return OTT_OK;
    return status_fail(OTT_ERR_SHAPE, "a quantized tensor of %lld x %lld elements is too large, or negative",
                       (long long)rows, (long long)columns);
}

ott_status qtensor_lay_out(qtensor *q, const backend_capabilities *can, qblocks *blocks) {
    TRY(check_shape(q->rows, q->columns));
    blocks->rowwise.bytes = blocks->columnwise.bytes = 0;
    block_writer row = {can, &blocks->rowwise}, column = {can, &blocks->columnwise};
    bool fp8 = cast_spec_is_fp8(&q->spec.rowwise), shares_scales = fp8 && quant_spec_shares_scales(&q->spec);
    bool shares_codes = shares_scales && !can->contiguous_contraction;
    q->rowwise = q->columnwise = (qdata){0};
    if (fp8) {
        place_use_scales(&q->rowwise, shares_scales ? &column : &row, q, false);
        place_use_codes(&q->rowwise, shares_codes ? &column : &row, q, false);
    }
    if (shares_scales) q->columnwise = qtensor_shared_use(q->rowwise);
    if (!cast_spec_is_fp8(&q->spec.columnwise) || shares_codes) return OTT_OK;
    if (!shares_scales) place_use_scales(&q->columnwise, &column, q, true);
    place_use_codes(&q->columnwise, &column, q, can->contiguous_contraction);
    return OTT_OK;
}
