/* nn/shard: reduces amaxes over the ranks that share a tensor. */
#include "nn/shard.h"

/* One way in which a tensor may be split over ranks. */
typedef struct axis {
    group *ranks;  /* ranks that split this dimension; NULL: none */
    int64_t block; /* how many elements along the dimension share a scale; INT64_MAX: all */
} axis;

enum { AXES = 3 };

/* Fills `out` for one use. rows_are_mn: the rowwise use, in which a GEMM contracts the tensor's columns. */
static void use_axes(const tensor_shard *c, const cast_spec *s, bool rows_are_mn, axis out[AXES]) {
    scale_block block = granularity_block(s->grain);
    int64_t along_rows = rows_are_mn ? block.mn : block.k, along_columns = rows_are_mn ? block.k : block.mn;
    out[0] = (axis){c->row_ranks, along_rows};
    out[1] = (axis){c->sequence_ranks, along_rows};
    out[2] = (axis){c->column_ranks, along_columns};
}

static ott_status reduce_amax(exec *cx, const tensor_shard *c, const qdata *d, const cast_spec *s, int64_t mn,
                              int64_t k, bool rows_are_mn) {
    axis axes[AXES];
    if (!cast_spec_is_fp8(s) || s->policy == AMAX_DELAYED) return OTT_OK;
    use_axes(c, s, rows_are_mn, axes);
    tensor amax = tensor_vector(d->amax, OTT_F32, granularity_groups(s->grain, mn, k));
    for (int i = 0; i < AXES; i++)
        if (axes[i].ranks && axes[i].block == INT64_MAX)
            TRY(group_all_reduce(axes[i].ranks, cx, &amax, REDUCE_MAX));
    return OTT_OK;
}

ott_status shard_reduce_amax(exec *cx, const tensor_shard *c, const qtensor *q) {
    TRY(reduce_amax(cx, c, &q->rowwise, &q->spec.rowwise, q->rows, q->columns, true));
    if (quant_spec_shares_scales(&q->spec))
        return OTT_OK; /* compare specs, not addresses of scales: in a dry run all addresses are equal */
    return reduce_amax(cx, c, &q->columnwise, &q->spec.columnwise, q->columns, q->rows, false);
}

ott_status shard_quantize(exec *cx, const tensor_shard *c, const tensor *x, const qtensor *q) {
    if (shard_is_full(c)) return op_quantize(cx, &(quantize_args){.x = x, .q = q});
    int64_t block;
    if (!shard_fits_blocks(c, &q->spec, q->rows, q->columns, &block))
        return status_fail(
            OTT_ERR_CONFIG,
            "a rank's part of a tensor, %lld x %lld, splits scale blocks of %lld: choose distributed.cp so "
            "that each rank's tokens (train.batch_size x train.seq_len / cp) are divisible by the block size",
            (long long)q->rows, (long long)q->columns, (long long)block);
    TRY(op_amax(cx, &(amax_args){.x = x, .q = q}));
    TRY(shard_reduce_amax(cx, c, q));
    TRY(op_scale(cx, &(scale_args){.q = q}));
    return op_cast(cx, &(cast_args){.x = x, .q = q});
}

static bool use_fits(const tensor_shard *c, const cast_spec *s, int64_t rows, int64_t columns,
                     bool rows_are_mn, int64_t *block) {
    const int64_t length[AXES] = {rows, rows, columns};
    axis axes[AXES];
    if (!cast_spec_is_fp8(s)) return true;
    use_axes(c, s, rows_are_mn, axes);
    for (int i = 0; i < AXES; i++) {
        *block = axes[i].block;
        if (axes[i].ranks && *block != INT64_MAX && length[i] % *block != 0) return false;
    }
    return true;
}

bool shard_fits_blocks(const tensor_shard *c, const quant_spec *s, int64_t rows, int64_t columns,
                       int64_t *block) {
    return use_fits(c, &s->rowwise, rows, columns, true, block) &&
           use_fits(c, &s->columnwise, rows, columns, false, block);
}
