/* tensor/qtensor: lays out a quantized tensor in memory. */
#include "tensor/qtensor.h"

static const cast_spec *spec_of(const qtensor *q, bool columnwise) {
    return columnwise ? &q->spec.columnwise : &q->spec.rowwise;
}

/* Returns the number of blocks of `block` rows. Rows after the last group need one more block. */
static int64_t row_blocks(const qtensor *q, int64_t block) {
    if (q->groups == 0 || block == 1) return granularity_blocks(q->rows, block);
    return qtensor_group_block(q->groups, q->rows, block) + 1;
}

scale_grid qtensor_order_use(qdata *d, const qtensor *q, bool columnwise) {
    granularity grain = spec_of(q, columnwise)->grain;
    scale_block block = granularity_block(grain);
    int64_t down = row_blocks(q, columnwise ? block.k : block.mn),
            across = granularity_blocks(q->columns, columnwise ? block.mn : block.k);
    scale_grid grid = columnwise ? (scale_grid){across, down} : (scale_grid){down, across};
    qtensor_order(d, grain, grid);
    return grid;
}

/* Makes the use begin at row `first`, and at position (mn, k) of the scales. */
static void move_use(qdata *d, ott_dtype format, int64_t first, int64_t mn, int64_t k) {
    int64_t entries = mn * d->mn_step + k * d->k_step;
    if (!d->scale_inv) return;
    if (d->data) d->data = (uint8_t *)d->data + dtype_count_bytes(format, qtensor_index(d, first, 0));
    if (d->amax) d->amax += entries;
    if (d->scale) d->scale += entries;
    d->scale_inv = (void *)scale_inv_view(d->scale_inv, d->mn_step, d->k_step, &d->tiles, mn, k);
}

qtensor qtensor_group(const qtensor *q, int64_t group, int64_t first, int64_t count) {
    qtensor part = *q;
    int64_t row = granularity_block(q->spec.rowwise.grain).mn,
            column = granularity_block(q->spec.columnwise.grain).k;
    part.rows = count;
    part.groups = 0;
    move_use(&part.rowwise, q->spec.rowwise.format, first, qtensor_group_block(group, first, row), 0);
    move_use(&part.columnwise, q->spec.columnwise.format, first, 0,
             qtensor_group_block(group, first, column));
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

/* casting: gets amax and scale; kept: gets scale_inv. */
static void place_use_scales(qdata *d, block_writer *casting, block_writer *kept, const qtensor *q,
                             bool columnwise) {
    scale_grid grid = qtensor_order_use(d, q, columnwise);
    int64_t bytes = dtype_count_bytes(OTT_F32, grid.mn * grid.k);
    d->amax = place_part(casting, bytes);
    d->scale = place_part(casting, bytes);
    d->scale_inv = place_part(kept, granularity_scale_bytes(spec_of(q, columnwise)->grain, grid));
}

static void place_use_codes(qdata *d, block_writer *c, const qtensor *q, bool columnwise) {
    bool transposed = columnwise && c->can->contiguous_contraction;
    d->data = place_part(c, dtype_count_bytes(spec_of(q, columnwise)->format, q->rows * q->columns));
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
        place_use_scales(&q->rowwise, &row, shares_scales ? &column : &row, q, false);
        place_use_codes(&q->rowwise, shares_codes ? &column : &row, q, false);
    }
    if (shares_scales) q->columnwise = qtensor_shared_use(q->rowwise);
    if (!cast_spec_is_fp8(&q->spec.columnwise) || shares_codes) return OTT_OK;
    if (!shares_scales) place_use_scales(&q->columnwise, &row, &column, q, true);
    place_use_codes(&q->columnwise, &column, q, true);
    return OTT_OK;
}
