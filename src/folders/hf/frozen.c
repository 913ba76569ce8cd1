/* folders/hf/frozen: checks that a parameter can keep a folder's FP8 codes, and copies their scales. */
#include "folders/hf/frozen.h"
#include <inttypes.h>

/* Rows of a scale block that belong to an hf_place. */
typedef struct range {
    int64_t first, end;
} range;

static range clip_range(int64_t index, int64_t size, int64_t first, int64_t end) {
    range r = {index * size, (index + 1) * size};
    if (r.first < first) r.first = first;
    if (r.end > end) r.end = end;
    return r;
}

/* Returns the row of the matrix (one expert's, if there are experts) at which the rows `at` begin. */
static int64_t first_matrix_row(const hf_place *at) {
    return at->first % at->parameter->codes->rows;
}

/* Converts a row of the parameter's matrix to a row of the folder's tensor. */
static int64_t row_in_tensor(const hf_place *at, int64_t row) {
    return row - first_matrix_row(at) + at->tensor_row;
}

static bool rows_fit(const hf_place *at, int64_t own, int64_t folder) {
    int64_t first = first_matrix_row(at), end = first + at->count;
    for (int64_t b = first / own; b * own < end; b++) {
        range r = clip_range(b, own, first, end);
        if (row_in_tensor(at, r.first) / folder != row_in_tensor(at, r.end - 1) / folder) return false;
    }
    return true;
}

ott_status hf_frozen_check(const hf_place *at, const shard_tensor *t, const hf_dequantize *scales) {
    const frozen_codes *c = at->parameter->codes;
    if (t->entry->dtype != OTT_E4M3)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "%s is %s, and only E4M3 can stay in FP8: remove train.frozen_dtype = fp8",
                           at->name, t->entry->format);
    if (rows_fit(at, c->block_rows, scales->block_rows) &&
        (c->block_columns >= at->columns ? scales->block_columns >= at->columns
                                         : scales->block_columns % c->block_columns == 0))
        return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "%s has a scale per %" PRId64 " x %" PRId64
                       " block, but train.frozen_granularity keeps one per %" PRId64 " x %" PRId64
                       ", which would round codes twice: remove that key, or set a finer one",
                       at->name, scales->block_rows, scales->block_columns, c->block_rows, c->block_columns);
}

static ott_status take_scale(const hf_place *at, float *to, float scale, bool begins) {
    if (!begins && *to != scale)
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "%s: the fused tensors have different scales, and one scale would round codes twice: set "
            "model.fused_qkv = false and model.fused_gate_up = false, or train.frozen_granularity = channel",
            at->parameter->name);
    return *to = scale, OTT_OK;
}

ott_status hf_frozen_take_scales(const hf_place *at, const hf_dequantize *scales) {
    const frozen_codes *c = at->parameter->codes;
    int64_t first = first_matrix_row(at), end = first + at->count;
    float *own = c->scale_inv + frozen_block_at(c, at->first - first) * c->scale_columns;
    for (int64_t b = first / c->block_rows; b * c->block_rows < end; b++) {
        range r = clip_range(b, c->block_rows, first, end);
        const float *from =
            scales->scale + row_in_tensor(at, r.first) / scales->block_rows * scales->scale_columns;
        for (int64_t k = 0; k < c->scale_columns; k++)
            TRY(take_scale(at, &own[b * c->scale_columns + k],
                           from[k * c->block_columns / scales->block_columns], r.first == b * c->block_rows));
    }
    return OTT_OK;
}
