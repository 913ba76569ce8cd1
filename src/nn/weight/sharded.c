/* nn/weight/sharded: weights whose master is sharded over data-parallel ranks. */
#include "nn/weight/sharded.h"

/* ---- the kind ---- */

/* True if each FP8 use is tensorwise. */
static bool has_one_scale(const quant_spec *q) {
    return (!cast_spec_is_fp8(&q->rowwise) || q->rowwise.grain == GRANULARITY_TENSOR) &&
           (!cast_spec_is_fp8(&q->columnwise) || q->columnwise.grain == GRANULARITY_TENSOR);
}

/* Only the amax of a weight with one scale. */
static qtensor fused_sharded(const weight_source *w) {
    qtensor q = w->quantized;
    q.rowwise.data = q.columnwise.data = NULL;
    return has_one_scale(&q.spec) ? q : (qtensor){0};
}

/* The values are not here when it is observed: weight_part_finish and for_pieces call the hook. */
const weight_kind weight_sharded = {
    .open = weight_open_copy, .observe = weight_record_amax, .fused = fused_sharded};

/* True if each rank casts its rows to FP8 codes. */
static bool is_cast(const weight_source *w) {
    return w->kind == &weight_sharded && quant_spec_is_fp8(&w->quantized.spec);
}

/* ---- the parts that ranks send ---- */

int weight_list_parts(weight_source *w, bool masters, weight_part parts[WEIGHT_PARTS]) {
    const quant_spec *q = &w->quantized.spec;
    const ott_dtype master = w->parameter->shard.value.dtype;
    const int both = WEIGHT_ROWWISE | WEIGHT_COLUMNWISE;
    int cast = is_cast(w) ? (cast_spec_is_fp8(&q->rowwise) ? WEIGHT_ROWWISE : 0) |
                                (cast_spec_is_fp8(&q->columnwise) ? WEIGHT_COLUMNWISE : 0)
                          : 0;
    int sent = masters && has_one_scale(q) ? 0 : cast; /* the uses that are sent as codes */
    bool alike = cast == both && quant_spec_shares_scales(q);
    bool is_sharded = w->kind == &weight_sharded;
    const weight_part all[] = {
        {.content = WEIGHT_VALUES,
         .format = is_sharded ? w->high_precision : master,
         .uses = both & ~cast,
         .values = is_sharded ? &w->copy : &w->parameter->value},
        {.content = WEIGHT_MASTER, .format = master, .uses = cast & ~sent, .values = &w->parameter->value},
        {.content = WEIGHT_CODES, .format = q->rowwise.format, .uses = alike ? sent : sent & WEIGHT_ROWWISE},
        {.content = WEIGHT_CODES_COLUMNWISE,
         .format = q->columnwise.format,
         .uses = alike ? 0 : sent & WEIGHT_COLUMNWISE}};
    int count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i].uses) continue;
        parts[count] = all[i];
        parts[count].p = w->parameter;
        parts[count++].w = w;
    }
    return count;
}

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
    qtensor part = qtensor_group(q, 0, first, count);
    qdata *d = columnwise ? &part.columnwise : &part.rowwise;
    d->data = codes;
    d->ld = q->columns;
    d->transposed = false;
    (columnwise ? &part.spec.rowwise : &part.spec.columnwise)->format = OTT_F32;
    return part;
}

/* Passes rows x of a weight and their codes q to cx->hook, in the first micro-batch of a training step. If
   the weight has both a rowwise and a columnwise FP8 copy, only the rowwise codes are passed. */
static ott_status call_hook(exec *cx, const weight_source *w, const tensor *x, const qtensor *q) {
    bool second = cast_spec_is_fp8(&w->quantized.spec.rowwise) && !cast_spec_is_fp8(&q->spec.rowwise);
    if (cx->phase != PHASE_TRAIN || !cx->is_first_microbatch || second) return OTT_OK;
    return exec_hook_quantized(cx, w->name, TENSOR_WEIGHT, x, q);
}

/* For each piece of this rank's rows: casts it to rowwise or columnwise codes, or only computes the amaxes.
   codes: memory for the codes of all pieces, row-major; NULL if casts is false. */
static ott_status for_pieces(exec *cx, const weight_source *w, bool columnwise, bool casts, void *codes) {
    const parameter_shard *s = &w->parameter->shard;
    const qtensor *q = &w->quantized;
    int64_t block = rows_per_scale(q, columnwise), end = s->first + s->value.rows;
    for (int64_t row = s->first, next; row < end; row = next) {
        next = piece_end(row, end, block);
        const tensor x = tensor_rows(s->value, row - s->first, next - row);
        char *place = codes ? (char *)codes + (row - s->first) * q->columns : NULL;
        const qtensor part = quantized_rows(q, columnwise, row, next - row, place);
        TRY(casts ? op_cast(cx, &(cast_args){.x = &x, .q = &part})
                  : op_amax(cx, &(amax_args){.x = &x, .q = &part}));
        if (casts) TRY(call_hook(cx, w, &x, &part));
    }
    return OTT_OK;
}

ott_status weight_part_pack(exec *cx, const weight_part *part, void *to) {
    const tensor *shard = &part->p->shard.value;
    int64_t count = tensor_count(*shard);
    if (count == 0) return OTT_OK;
    if (part->p->codes)
        return plan_recording(cx->plan) ? OTT_OK : device_copy(cx->device, to, shard->data, count);
    if (dtype_is_fp8(part->format))
        return for_pieces(cx, part->w, part->content == WEIGHT_CODES_COLUMNWISE, true, to);
    tensor from = tensor_vector(shard->data, shard->dtype, count);
    tensor packed = tensor_vector(to, part->format, count);
    return op_convert(cx, &(convert_args){.x = &from, .y = &packed});
}

/* ---- received parts ---- */

static bool shares_codes(const qtensor *q) {
    return quant_spec_shares_scales(&q->spec) && !q->columnwise.transposed;
}

static ott_status open_codes(exec *cx, weight_part *part, int uses) {
    qtensor *q = &part->w->quantized;
    bool rowwise = part->content != WEIGHT_CODES_COLUMNWISE && (uses & part->uses & WEIGHT_ROWWISE);
    bool columnwise = uses & part->uses & WEIGHT_COLUMNWISE;
    int64_t bytes = dtype_count_bytes(part->format, q->rows * q->columns);
    if (rowwise || (columnwise && shares_codes(q)))
        TRY(plan_open(cx->plan, "gathered codes", bytes, &part->rowwise));
    if (columnwise && !shares_codes(q)) TRY(plan_open(cx->plan, "gathered codes", bytes, &part->columnwise));
    if (part->rowwise.data) q->rowwise.data = part->rowwise.data;
    if (columnwise) q->columnwise.data = shares_codes(q) ? part->rowwise.data : part->columnwise.data;
    return OTT_OK;
}

ott_status weight_part_open(exec *cx, weight_part *part, int uses) {
    const parameter_part *local = &part->p->local;
    if (!part->values) return open_codes(cx, part, uses);
    return exec_open(cx, part->content == WEIGHT_MASTER ? "gathered master" : "gathered parameter",
                     part->format, local->rows, local->columns, part->values, &part->full);
}

static ott_status fill_in_order(exec *cx, void *to, int64_t element_bytes, const weight_shard *shards,
                                int count) {
    device_piece pieces[WEIGHT_SHARDS];
    for (int i = 0; i < count; i++)
        pieces[i] = (device_piece){.to = (char *)to + shards[i].first * element_bytes,
                                   .from = shards[i].data,
                                   .bytes = shards[i].count * element_bytes};
    return device_copy_many(cx->device, pieces, count);
}

static ott_status fill_transposed(exec *cx, const weight_part *part, const weight_shard *shards, int count) {
    const qdata *d = &part->w->quantized.columnwise;
    int64_t columns = part->p->local.columns;
    const tensor all = tensor_matrix(d->data, part->format, columns, d->ld);
    tensor x[WEIGHT_SHARDS], y[WEIGHT_SHARDS];
    transpose_args calls[WEIGHT_SHARDS];
    for (int i = 0; i < count; i++) {
        x[i] = tensor_matrix(shards[i].data, part->format, shards[i].count / columns, columns);
        y[i] = tensor_columns(all, shards[i].first / columns, x[i].rows);
        calls[i] = (transpose_args){.x = &x[i], .y = &y[i]};
    }
    return op_transpose_many(cx, calls, count);
}

ott_status weight_part_fill(exec *cx, const weight_part *part, const weight_shard *shards, int count) {
    int64_t size = dtype_bytes(part->format);
    void *to = part->values ? part->values->data : part->rowwise.data;
    if (to) TRY(fill_in_order(cx, to, size, shards, count));
    if (!part->columnwise.data) return OTT_OK;
    const qdata *d = &part->w->quantized.columnwise;
    return d->transposed ? fill_transposed(cx, part, shards, count)
                         : fill_in_order(cx, d->data, 1, shards, count);
}

/* Casts a gathered master to FP8 codes. */
ott_status weight_part_finish(exec *cx, weight_part *part, int uses) {
    tensor *master = part->values;
    if (part->content != WEIGHT_MASTER) return OTT_OK;
    TRY(open_codes(cx, part, uses));
    qtensor q = part->w->quantized;
    bool shared = shares_codes(&q);
    if (!part->rowwise.data) q.spec.rowwise.format = OTT_F32;
    if (!part->columnwise.data && !shared) q.spec.columnwise.format = OTT_F32;
    if (shared) q.columnwise.data = q.rowwise.data;
    TRY(op_cast(cx, &(cast_args){.x = master, .q = &q}));
    TRY(call_hook(cx, part->w, master, &q));
    master->data = NULL;
    return plan_close(cx->plan, &part->full);
}

void weight_part_drop(const weight_part *part) {
    if (part->values) part->values->data = NULL;
    if (part->content != WEIGHT_VALUES)
        part->w->quantized.rowwise.data = part->w->quantized.columnwise.data = NULL;
}

/* ---- scales ---- */

static void place_use(qdata *d, const cast_spec *spec, int64_t mn, int64_t depth, weight_scales *memory) {
    scale_grid grid = granularity_grid(spec->grain, mn, depth);
    if (!cast_spec_is_fp8(spec)) return;
    if (memory->amax) {
        d->amax = memory->amax + memory->entries;
        d->scale = memory->scale + memory->entries;
        d->scale_inv = memory->scale_inv + memory->bytes;
    }
    memory->entries += grid.mn * grid.k;
    memory->bytes += granularity_scale_bytes(spec->grain, grid);
}

void weight_place_scales(weight_source *w, weight_scales *memory) {
    qtensor *q = &w->quantized;
    if (!is_cast(w)) return;
    place_use(&q->rowwise, &q->spec.rowwise, q->rows, q->columns, memory);
    if (!quant_spec_shares_scales(&q->spec)) {
        place_use(&q->columnwise, &q->spec.columnwise, q->columns, q->rows, memory);
        return;
    }
    q->columnwise.amax = q->rowwise.amax;
    q->columnwise.scale = q->rowwise.scale;
    q->columnwise.scale_inv = q->rowwise.scale_inv;
}

bool weight_needs_scales(const exec *cx, const weight_source *w) {
    return is_cast(w) && (plan_recording(cx->plan) || !weight_is_fresh(cx, w));
}

bool weight_needs_amax(const exec *cx, const weight_source *w) {
    return is_cast(w) && !weight_is_quantized(cx, w);
}

ott_status weight_compute_amax(exec *cx, weight_source *w) {
    const quant_spec *q = &w->quantized.spec;
    bool rowwise = cast_spec_is_fp8(&q->rowwise), columnwise = cast_spec_is_fp8(&q->columnwise);
    if (is_cast(w) && rowwise) TRY(for_pieces(cx, w, false, false, NULL));
    if (!is_cast(w) || !columnwise || (rowwise && quant_spec_shares_scales(q))) return OTT_OK;
    return for_pieces(cx, w, true, false, NULL);
}

ott_status weight_compute_scales(exec *cx, weight_source *w) {
    if (!is_cast(w)) return OTT_OK;
    TRY(shard_reduce_amax(cx, &w->shard, &w->quantized));
    TRY(op_scale(cx, &(scale_args){.q = &w->quantized}));
    if (!plan_recording(cx->plan)) w->made_step = cx->step;
    return OTT_OK;
}
