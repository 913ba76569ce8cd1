/* cuda/quantize_uses: describes a quantized tensor to kernels, and decides which pass does which work. */
#include "cuda/kernels/quantize.h"

/* ---- descriptions for kernels ---- */

static int shift_of(int64_t block) {
    return block == INT64_MAX ? QUANTIZE_SPAN_ALL : __builtin_ctzll((unsigned long long)block);
}

static quantize_codes codes_of(const qdata *d) {
    return (quantize_codes){.data = d->data, .ld = d->ld, .transposed = d->transposed};
}

quantize_use quantize_use_of(const qtensor *q, bool columnwise) {
    const cast_spec *spec = columnwise ? &q->spec.columnwise : &q->spec.rowwise;
    const qdata *d = columnwise ? &q->columnwise : &q->rowwise;
    scale_block block = granularity_block(spec->grain);
    return (quantize_use){
        .row_shift = shift_of(columnwise ? block.k : block.mn),
        .column_shift = shift_of(columnwise ? block.mn : block.k),
        .row_step = columnwise ? d->k_step : d->mn_step,
        .column_step = columnwise ? d->mn_step : d->k_step,
        .groups = columnwise ? granularity_groups(spec->grain, q->columns, q->rows)
                             : granularity_groups(spec->grain, q->rows, q->columns),
        .amax = d->amax,
        .scale = d->scale,
        .scale_inv = d->scale_inv,
        .tiles = d->tiles,
        .columnwise = columnwise,
        .next = d->next,
        .delayed = spec->policy == AMAX_DELAYED,
        .format = spec->format,
        .mode = spec->mode,
        .options = spec->scale,
        .copies = 1,
        .codes = {codes_of(d)},
    };
}

/* Returns the uses (rowwise, columnwise) of q that are FP8. If both have the same scales but store their
   codes separately (one transposed), returns one use that writes codes twice. */
quantize_uses quantize_uses_of(const qtensor *q) {
    quantize_uses uses = {.count = 0};
    if (cast_spec_is_fp8(&q->spec.rowwise)) uses.use[uses.count++] = quantize_use_of(q, false);
    if (!qtensor_shares_scales(q)) {
        if (cast_spec_is_fp8(&q->spec.columnwise)) uses.use[uses.count++] = quantize_use_of(q, true);
    } else if (!qtensor_shares_codes(q))
        uses.use[0].codes[uses.use[0].copies++] = codes_of(&q->columnwise);
    return uses;
}

/* ---- passes ---- */

/* True if casts must wait for all tiles: a scale group spans several tiles, and scaling is not delayed. */
static bool waits_for_amax(const quantize_use *u) {
    return !quantize_is_local(u) && !u->delayed;
}

static cudaError_t launch_pass(const tensor *x, const quantize_uses *uses, cudaStream_t stream) {
    for (int i = 0; i < uses->count; i++)
        if (uses->use[i].work) return quantize_pass(x, uses, stream);
    return cudaSuccess;
}

/* Sets the amaxes of groups that extend beyond a tile to 0, because atomicMax can only raise them. */
static cudaError_t clear_amax(const quantize_uses *uses, cudaStream_t stream) {
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < uses->count && error == cudaSuccess; i++) {
        const quantize_use *u = &uses->use[i];
        if (u->work & QUANTIZE_AMAX && !quantize_is_local(u))
            error = cudaMemsetAsync(u->amax, 0, (size_t)u->groups * sizeof(float), stream);
    }
    return error;
}

cudaError_t quantize_work(const tensor *x, const qtensor *q, int work, cudaStream_t stream) {
    quantize_uses uses = quantize_uses_of(q);
    for (int i = 0; i < uses.count; i++) uses.use[i].work = work;
    cudaError_t error = clear_amax(&uses, stream);
    return error == cudaSuccess ? launch_pass(x, &uses, stream) : error;
}

/* ---- work of the kernel that produces the tensor ---- */

static int producer_work(const quantize_use *u, quantize_producer producer) {
    const int all = QUANTIZE_AMAX | QUANTIZE_SCALE | QUANTIZE_CAST;
    if (producer == QUANTIZE_BY_TILES) return waits_for_amax(u) ? QUANTIZE_AMAX : all;
    bool of_rows = u->column_shift == QUANTIZE_SPAN_ALL && !u->delayed;
    if (!of_rows || (u->row_shift != QUANTIZE_SPAN_ALL && u->row_shift != 0)) return 0;
    bool casts =
        producer == QUANTIZE_BY_ROWS && u->row_shift == 0 && u->copies == 1 && !u->codes[0].transposed;
    return casts ? all : QUANTIZE_AMAX;
}

quantize_uses quantize_by_tiles(const qtensor *q) {
    quantize_uses uses = quantize_uses_of(q);
    bool casts = qtensor_has_codes(q);
    for (int i = 0; i < uses.count; i++)
        uses.use[i].work = casts ? producer_work(&uses.use[i], QUANTIZE_BY_TILES) : QUANTIZE_AMAX;
    return uses;
}

quantize_uses quantize_after_tiles(const qtensor *q) {
    quantize_uses uses = quantize_uses_of(q);
    bool any = false;
    for (int i = 0; i < uses.count; i++) {
        uses.use[i].work = waits_for_amax(&uses.use[i]) ? QUANTIZE_SCALE | QUANTIZE_CAST : 0;
        any = any || uses.use[i].work;
    }
    if (!any || !qtensor_has_codes(q)) uses.count = 0;
    return uses;
}

cudaError_t quantize_begin(const qtensor *q, quantize_producer producer, quantize_uses *made,
                           cudaStream_t stream) {
    *made = quantize_uses_of(q);
    for (int i = 0; i < made->count; i++) made->use[i].work = producer_work(&made->use[i], producer);
    return clear_amax(made, stream);
}

/* The first pass casts for uses that need no amax of another tile, and the second pass for the other uses. */
static cudaError_t finish_uses(const tensor *x, const quantize_uses *uses, const quantize_uses *made,
                               cudaStream_t stream) {
    quantize_uses first = *uses, second = first;
    for (int i = 0; i < first.count; i++) {
        int done = i < made->count ? made->use[i].work : 0, cast = QUANTIZE_SCALE | QUANTIZE_CAST;
        bool late = waits_for_amax(&first.use[i]);
        first.use[i].work = (late ? QUANTIZE_AMAX : QUANTIZE_AMAX | cast) & ~done;
        second.use[i].work = (late ? cast : 0) & ~done;
    }
    cudaError_t error = clear_amax(&first, stream);
    if (error == cudaSuccess) error = launch_pass(x, &first, stream);
    return error == cudaSuccess ? launch_pass(x, &second, stream) : error;
}

cudaError_t quantize_finish(const tensor *x, const qtensor *q, const quantize_uses *made,
                            cudaStream_t stream) {
    quantize_uses uses = quantize_uses_of(q);
    return finish_uses(x, &uses, made, stream);
}

/* If each row has its own scale, the groups do not matter, because no scale block has rows of two groups. */
cudaError_t quantize_groups(const tensor *x, const tensor *end, const qtensor *q, cudaStream_t stream) {
    quantize_uses uses = quantize_uses_of(q), rows = {.count = 0}, nothing = {.count = 0};
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < uses.count && error == cudaSuccess; i++)
        if (uses.use[i].row_shift == 0)
            rows.use[rows.count++] = uses.use[i];
        else
            error = quantize_groups_launch(x, end, q->groups, &uses.use[i], stream);
    return error == cudaSuccess ? finish_uses(x, &rows, &nothing, stream) : error;
}
