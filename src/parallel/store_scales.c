/* parallel/store: scales of sharded FP8 weights. Shards may split scale blocks. So each rank computes the
   amaxes of its rows, the ranks reduce the amaxes (max), and every rank computes the full weight's scales. */
#include "parallel/store.h"

/* ---- pieces of a shard ---- */

/* Number of rows of q that share a scale in the rowwise or columnwise copy. */
static int64_t rows_per_scale(const qtensor *q, bool columnwise) {
    return columnwise ? granularity_block(q->spec.columnwise.grain).k
                      : granularity_block(q->spec.rowwise.grain).mn;
}

/* A piece starts at `first`. Returns its end: the next scale block if `first` is inside one, else `end`. */
static int64_t piece_end(int64_t first, int64_t end, int64_t block) {
    if (block == INT64_MAX || first % block == 0) return end;
    int64_t next = (first / block + 1) * block;
    return next < end ? next : end;
}

/* Returns rows [first, first + count) of q's rowwise or columnwise copy. codes: their row-major codes. */
static qtensor quantized_rows(const qtensor *q, bool columnwise, int64_t first, int64_t count, void *codes) {
    qtensor part = {.rows = count, .columns = q->columns, .spec = q->spec};
    qdata *d = columnwise ? &part.columnwise : &part.rowwise;
    *d = columnwise ? q->columnwise : q->rowwise;
    int64_t block = rows_per_scale(q, columnwise), step = columnwise ? d->k_step : d->mn_step;
    int64_t skip = block == INT64_MAX ? 0 : first / block * step;
    d->amax += skip;
    d->scale += skip;
    d->scale_inv += skip;
    d->data = codes;
    d->ld = q->columns;
    d->transposed = false;
    (columnwise ? &part.spec.rowwise : &part.spec.columnwise)->format = OTT_F32;
    return part;
}

/* Called for each piece of this rank's rows of a weight. x: the piece; q: its rowwise or columnwise codes. */
typedef ott_status (*piece_call)(exec *cx, const linear *l, const tensor *x, const qtensor *q);

static ott_status for_pieces(exec *cx, const linear *l, bool columnwise, void *codes, piece_call call) {
    const parameter *p = l->weight;
    const qtensor *q = &l->quantized;
    int64_t block = rows_per_scale(q, columnwise), first = p->shard.first;
    int64_t end = first + p->shard.value.rows;
    for (int64_t row = first, next; row < end; row = next) {
        next = piece_end(row, end, block);
        tensor x = tensor_rows(p->shard.value, row - first, next - row);
        char *place = codes ? (char *)codes + (row - first) * q->columns : NULL;
        qtensor part = quantized_rows(q, columnwise, row, next - row, place);
        TRY(call(cx, l, &x, &part));
    }
    return OTT_OK;
}

/* ---- codes ---- */

ott_status store_call_hook(exec *cx, const linear *l, const tensor *x, const qtensor *q) {
    bool second = cast_spec_is_fp8(&l->spec.weight.rowwise) && !cast_spec_is_fp8(&q->spec.rowwise);
    if (cx->phase != PHASE_TRAIN || !cx->is_first_microbatch || second) return OTT_OK;
    return exec_hook_quantized(cx, l->name, TENSOR_WEIGHT, x, q);
}

static ott_status cast_piece(exec *cx, const linear *l, const tensor *x, const qtensor *q) {
    TRY(op_cast(cx, &(cast_args){.x = x, .q = q}));
    return store_call_hook(cx, l, x, q);
}

ott_status store_cast(exec *cx, const linear *l, bool columnwise, void *codes) {
    return for_pieces(cx, l, columnwise, codes, cast_piece);
}

/* ---- amax ---- */

static ott_status compute_piece_amax(exec *cx, const linear *l, const tensor *x, const qtensor *q) {
    (void)l;
    return op_amax(cx, &(amax_args){.x = x, .q = q});
}

static ott_status compute_use_amax(exec *cx, const linear *l, bool columnwise) {
    return for_pieces(cx, l, columnwise, NULL, compute_piece_amax);
}

static ott_status compute_amax(exec *cx, linear *l) {
    const quant_spec *w = &l->spec.weight;
    bool rowwise = cast_spec_is_fp8(&w->rowwise);
    if (rowwise) TRY(compute_use_amax(cx, l, false));
    if (!cast_spec_is_fp8(&w->columnwise) || (rowwise && quant_spec_shares_scales(w))) return OTT_OK;
    return compute_use_amax(cx, l, true);
}

static ott_status set_scales(exec *cx, linear *l) {
    tensor_shard shard = linear_shard(l, TENSOR_WEIGHT);
    TRY(shard_reduce_amax(cx, &shard, &l->quantized));
    TRY(op_scale(cx, &(scale_args){.q = &l->quantized}));
    if (!plan_recording(cx->plan)) l->compute_step = cx->step;
    return OTT_OK;
}

/* ---- scales over ranks ---- */

static bool has_stale_scales(const exec *cx, const store_unit *u) {
    for (int i = 0; i < u->linear_count; i++)
        if (linear_casts_weight(u->linears[i]) &&
            (plan_recording(cx->plan) || !linear_weight_is_fresh(cx, u->linears[i])))
            return true;
    return false;
}

typedef ott_status (*weight_call)(exec *cx, linear *l);

static ott_status for_weights(exec *cx, const store_unit *units, int count, weight_call call) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < units[i].linear_count; k++)
            if (linear_casts_weight(units[i].linears[k])) TRY(call(cx, units[i].linears[k]));
    return OTT_OK;
}

/* True if the optimizer has already computed the amaxes of this rank's rows of all weights of the units. */
static bool are_quantized_by_optimizer(const exec *cx, const store_unit *units, int count) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < units[i].linear_count; k++) {
            const linear *l = units[i].linears[k];
            if (linear_casts_weight(l) && !linear_is_quantized_by_optimizer(cx, l)) return false;
        }
    return true;
}

static ott_status compute_amaxes(exec *cx, const store_unit *units, int count, const tensor *amax) {
    if (!plan_recording(cx->plan)) TRY(device_zero(cx->device, amax->data, tensor_bytes(*amax)));
    return for_weights(cx, units, count, compute_amax);
}

/* Computes the scales of `count` consecutive units with one all-reduce. The units' scales are contiguous. */
static ott_status compute_scales(exec *cx, parameter_store *s, const store_unit *units, int count) {
    const store_unit *last = &units[count - 1];
    tensor amax = tensor_vector((float *)s->scales + units->scale_first, OTT_F32,
                                last->scale_first + last->scale_count - units->scale_first);
    if (!plan_recording(cx->plan)) s->traffic.amax += tensor_bytes(amax);
    if (!are_quantized_by_optimizer(cx, units, count)) TRY(compute_amaxes(cx, units, count, &amax));
    TRY(group_all_reduce(s->ranks, cx, &amax, REDUCE_MAX));
    return for_weights(cx, units, count, set_scales);
}

ott_status store_refresh_scales(exec *cx, parameter_store *s, store_unit *u) {
    if (!has_stale_scales(cx, u)) return OTT_OK;
    return s->options.precompute_scales ? compute_scales(cx, s, s->units, s->unit_count)
                                        : compute_scales(cx, s, u, 1);
}
