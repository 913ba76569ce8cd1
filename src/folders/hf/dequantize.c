/* folders/hf/dequantize: finds, checks and applies the scales of FP8 weights. */
#include "folders/hf/dequantize.h"
#include "base/text/str.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

bool hf_dequantize_weight_of(const char *name, char weight[HF_NAME_MOST]) {
    static const struct {
        const char *tail, *becomes;
    } tails[] = {{"_scale_inv", ""}, {".input_scale", ".weight"}, {"_scale", ""}};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        if (!str_ends_with(name, tails[i].tail)) continue;
        int kept = (int)(length - strlen(tails[i].tail));
        return snprintf(weight, HF_NAME_MOST, "%.*s%s", kept, name, tails[i].becomes) < HF_NAME_MOST;
    }
    return false;
}

static ott_status find_scale(const shards *s, const shard_tensor *weight, const shard_tensor **out) {
    char plain[HF_NAME_MOST], scale_inv[HF_NAME_MOST];
    const char *name = weight->entry->name;
    snprintf(plain, sizeof plain, "%s_scale", name);
    if (snprintf(scale_inv, sizeof scale_inv, "%s_scale_inv", name) >= HF_NAME_MOST)
        return status_fail(OTT_ERR_FORMAT, "%s: the tensor '%.60s...' has too long a name", shards_path(s),
                           name);
    const shard_tensor *a = shards_find(s, plain), *b = shards_find(s, scale_inv);
    *out = a ? a : b;
    if (!a != !b) return OTT_OK;
    return status_fail(OTT_ERR_FORMAT, "%s: tensor '%s' is %s and has %s, '%s' %s '%s'", shards_path(s), name,
                       weight->entry->format, a ? "two scales" : "no scale", plain, a ? "and" : "or",
                       scale_inv);
}

static int64_t block_count(int64_t size) {
    return (size + HF_BLOCK - 1) / HF_BLOCK;
}

static ott_status set_layout(const shards *s, const shard_tensor *weight, const shard_tensor *scale,
                             hf_dequantize *d) {
    const safetensors_entry *w = weight->entry, *e = scale->entry;
    int64_t rows = w->shape[0], columns = w->rank > 1 ? w->shape[1] : 1,
            scale_rows = e->rank > 0 ? e->shape[0] : 1, scale_columns = e->rank > 1 ? e->shape[1] : 1;
    bool is_matrix = w->rank <= 2 && e->rank <= 2;
    *d = (hf_dequantize){.account = d->account, .columns = columns, .scale_columns = scale_columns};
    if (is_matrix && scale_rows == 1 && scale_columns == 1)
        d->block_rows = rows, d->block_columns = columns;
    else if (is_matrix && scale_rows == rows && scale_columns == 1)
        d->block_rows = 1, d->block_columns = columns;
    else if (is_matrix && scale_rows == block_count(rows) && scale_columns == block_count(columns))
        d->block_rows = d->block_columns = HF_BLOCK;
    else
        return status_fail(OTT_ERR_SHAPE,
                           "%s: '%s' has %" PRId64 " x %" PRId64 " scales for the %" PRId64 " x %" PRId64
                           " weight: expected one scale, one per row, or one per block of %d x %d",
                           shards_path(s), e->name, scale_rows, scale_columns, rows, columns, HF_BLOCK,
                           HF_BLOCK);
    return OTT_OK;
}

static ott_status read_scales(shards *s, const shard_tensor *scale, hf_dequantize *d) {
    const safetensors_entry *e = scale->entry;
    const shard_tensor *checked;
    int64_t count = 1;
    for (int i = 0; i < e->rank; i++) count *= e->shape[i];
    TRY(shards_expect(s, e->name, e->rank, e->shape, &checked));
    TRY(mem_alloc_array(d->account, MEM_OTHER, count, sizeof(float), "scales of a weight", &d->scale));
    TRY(shards_read_floats(s, scale, 0, count, d->scale));
    for (int64_t i = 0; i < count; i++)
        if (!(d->scale[i] >= 0 && isfinite(d->scale[i])))
            return status_fail(OTT_ERR_FORMAT, "%s: '%s' has the value %g, which is not a valid scale",
                               shards_path(s), e->name, (double)d->scale[i]);
    return OTT_OK;
}

ott_status hf_dequantize_open(mem *account, shards *s, const shard_tensor *weight, hf_dequantize *out) {
    const shard_tensor *scale;
    *out = (hf_dequantize){.account = account};
    TRY(find_scale(s, weight, &scale));
    TRY(set_layout(s, weight, scale, out));
    ott_status status = read_scales(s, scale, out);
    if (status != OTT_OK) hf_dequantize_close(out);
    return status;
}

void hf_dequantize_close(hf_dequantize *d) {
    mem_free(d->account, d->scale);
    d->scale = NULL;
}

void hf_dequantize_apply(const hf_dequantize *d, int64_t first, int64_t count, float *values) {
    for (int64_t i = 0, run; i < count; i += run) {
        int64_t row = (first + i) / d->columns, column = (first + i) % d->columns;
        int64_t end = (column / d->block_columns + 1) * d->block_columns;
        float scale = d->scale[row / d->block_rows * d->scale_columns + column / d->block_columns];
        if (end > d->columns) end = d->columns;
        run = end - column < count - i ? end - column : count - i;
        for (int64_t j = i; j < i + run; j++) values[j] *= scale;
    }
}
