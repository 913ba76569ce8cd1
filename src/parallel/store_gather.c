/* parallel/store: gathers a unit. Each rank packs its shards of the unit's tensors into one buffer. After the
   all-gather, the shards of all ranks are copied to the tensors that the layers read. */
#include "parallel/store.h"

/* Ranks send tensors of every format as bytes: an FP8 element is one byte. */
#define BYTES OTT_E4M3

static int64_t packed_bytes(const exec *cx, const store_part *part, int rank) {
    return backend_align(cx->device->can, store_count_at(part->p, rank) * dtype_bytes(part->format));
}

static void count_bytes(store_traffic *t, ott_dtype format, int64_t bytes) {
    int64_t *count = dtype_is_fp8(format) ? &t->fp8
                     : format == OTT_BF16 ? &t->bf16
                     : format == OTT_F16  ? &t->f16
                                          : &t->fp32;
    *count += bytes;
}

static ott_status pack_part(exec *cx, const store_part *part, void *to) {
    const tensor *shard = &part->p->shard.value;
    int64_t count = tensor_count(*shard);
    if (count == 0) return OTT_OK;
    if (part->p->codes)
        return plan_recording(cx->plan) ? OTT_OK : device_copy(cx->device, to, shard->data, count);
    if (dtype_is_fp8(part->format))
        return store_cast(cx, part->l, part->content == STORE_CODES_COLUMNWISE, to);
    tensor from = tensor_vector(shard->data, shard->dtype, count);
    tensor packed = tensor_vector(to, part->format, count);
    return op_convert(cx, &(convert_args){.x = &from, .y = &packed});
}

/* ---- in flight ---- */

/* Sets u->rows[r] to the number of bytes that rank r sends, for each rank. Returns their sum. */
static int64_t measure_unit(const exec *cx, parameter_store *s, store_unit *u) {
    int64_t all = 0;
    for (int r = 0; r < s->ranks->size; r++) {
        u->rows[r] = 0;
        for (int i = 0; i < u->part_count; i++) {
            if (!(u->parts[i].uses & u->uses)) continue;
            int64_t bytes = packed_bytes(cx, &u->parts[i], r);
            u->rows[r] += bytes;
            if (!plan_recording(cx->plan)) count_bytes(&s->traffic, u->parts[i].format, bytes);
        }
        all += u->rows[r];
    }
    return all;
}

static ott_status start_gather(exec *cx, parameter_store *s, store_unit *u, int uses) {
    TRY(store_refresh_scales(cx, s, u));
    u->uses = uses;
    u->gathered = false;
    TRY(exec_open(cx, "gathered shards", BYTES, measure_unit(cx, s, u), 1, &u->received,
                  &u->received_buffer));
    char *to = (char *)u->received.data + group_part_first(u->rows, 0, s->ranks->rank, s->ranks->rank);
    for (int i = 0; i < u->part_count; i++) {
        if (!(u->parts[i].uses & u->uses)) continue;
        TRY(pack_part(cx, &u->parts[i], to));
        to += packed_bytes(cx, &u->parts[i], s->ranks->rank);
    }
    int64_t first = group_part_first(u->rows, 0, s->ranks->rank, s->ranks->rank);
    return group_start(s->ranks, cx,
                       &(collective){.kind = COLLECTIVE_ALL_GATHER,
                                     .input = tensor_rows(u->received, first, u->rows[s->ranks->rank]),
                                     .output = u->received,
                                     .output_rows = u->rows},
                       &u->request);
}

/* ---- unpacking ---- */

/* Copies elements [first, first + count) of a gathered tensor from `from`, the received shard of one rank. */
typedef ott_status (*unpack_shard)(exec *cx, store_part *part, void *from, int64_t first, int64_t count);

static ott_status for_each_shard(exec *cx, const parameter_store *s, const store_unit *u, store_part *part,
                                 unpack_shard unpack) {
    char *from = u->received.data;
    int64_t first = 0;
    if (plan_recording(cx->plan)) return OTT_OK;
    for (int r = 0; r < s->ranks->size; r++) {
        char *shard = from;
        for (const store_part *before = u->parts; before < part; before++)
            if (before->uses & u->uses) shard += packed_bytes(cx, before, r);
        int64_t count = store_count_at(part->p, r);
        if (count > 0) TRY(unpack(cx, part, shard, first, count));
        first += count;
        from += u->rows[r];
    }
    return OTT_OK;
}

static ott_status unpack_values(exec *cx, store_part *part, void *from, int64_t first, int64_t count) {
    int64_t size = dtype_bytes(part->format);
    const tensor *full = part->content == STORE_COMPUTE ? &part->l->compute : &part->p->value;
    return device_copy(cx->device, (char *)full->data + first * size, from, count * size);
}

static ott_status unpack_rowwise(exec *cx, store_part *part, void *from, int64_t first, int64_t count) {
    return device_copy(cx->device, (char *)part->l->quantized.rowwise.data + first, from, count);
}

static ott_status unpack_columnwise(exec *cx, store_part *part, void *from, int64_t first, int64_t count) {
    const linear *l = part->l;
    const qdata *d = &l->quantized.columnwise;
    if (!d->transposed) return device_copy(cx->device, (char *)d->data + first, from, count);
    int64_t rows = count / part->p->local.columns, row = first / part->p->local.columns;
    tensor x = tensor_matrix(from, part->format, rows, part->p->local.columns);
    tensor y = tensor_matrix(d->data, part->format, x.columns, d->ld);
    y = tensor_columns(y, row, rows);
    return op_transpose(cx, &(transpose_args){.x = &x, .y = &y});
}

/* ---- codes ---- */

/* True if this part is gathered for its rowwise use. */
static bool fills_rowwise(const store_unit *u, const store_part *part) {
    return part->content != STORE_CODES_COLUMNWISE && (u->uses & part->uses & STORE_ROWWISE);
}

static bool shares_codes(const linear *l) {
    return quant_spec_shares_scales(&l->spec.weight) && !l->quantized.columnwise.transposed;
}

static ott_status open_gathered_codes(exec *cx, const store_unit *u, store_part *part) {
    linear *l = part->l;
    qtensor *q = &l->quantized;
    bool rowwise = fills_rowwise(u, part), columnwise = u->uses & part->uses & STORE_COLUMNWISE;
    int64_t bytes = q->rows * q->columns;
    if (rowwise || (columnwise && shares_codes(l)))
        TRY(plan_open(cx->plan, "gathered codes", bytes, &part->rowwise));
    if (columnwise && !shares_codes(l)) TRY(plan_open(cx->plan, "gathered codes", bytes, &part->columnwise));
    if (part->rowwise.data) q->rowwise.data = part->rowwise.data;
    if (columnwise) q->columnwise.data = shares_codes(l) ? part->rowwise.data : part->columnwise.data;
    return OTT_OK;
}

static ott_status unpack_codes(exec *cx, const parameter_store *s, const store_unit *u, store_part *part) {
    TRY(open_gathered_codes(cx, u, part));
    if (part->rowwise.data) TRY(for_each_shard(cx, s, u, part, unpack_rowwise));
    return part->columnwise.data ? for_each_shard(cx, s, u, part, unpack_columnwise) : OTT_OK;
}

/* Casts a gathered master to FP8 codes, in the buffers that open_codes has opened. */
static ott_status cast_master(exec *cx, const store_part *part, const tensor *master) {
    qtensor q = part->l->quantized;
    if (!(part->rowwise.data)) q.spec.rowwise.format = OTT_F32;
    if (!(part->columnwise.data) && !shares_codes(part->l)) q.spec.columnwise.format = OTT_F32;
    if (shares_codes(part->l)) q.columnwise.data = q.rowwise.data;
    TRY(op_cast(cx, &(cast_args){.x = master, .q = &q}));
    return store_call_hook(cx, part->l, master, &q);
}

static ott_status unpack_master(exec *cx, const parameter_store *s, const store_unit *u, store_part *part) {
    const parameter *p = part->p;
    tensor *full = &part->p->value;
    TRY(exec_open(cx, "gathered master", part->format, p->local.rows, p->local.columns, full, &part->full));
    TRY(for_each_shard(cx, s, u, part, unpack_values));
    TRY(open_gathered_codes(cx, u, part));
    TRY(cast_master(cx, part, full));
    full->data = NULL;
    return plan_close(cx->plan, &part->full);
}

/* ---- gather and release ---- */

static ott_status unpack_part(exec *cx, const parameter_store *s, const store_unit *u, store_part *part) {
    const parameter *p = part->p;
    switch (part->content) {
    case STORE_CODES:
    case STORE_CODES_COLUMNWISE: return unpack_codes(cx, s, u, part);
    case STORE_MASTER: return unpack_master(cx, s, u, part);
    case STORE_VALUE:
    case STORE_COMPUTE: break;
    }
    TRY(exec_open(cx, "gathered parameter", part->format, p->local.rows, p->local.columns,
                  part->content == STORE_COMPUTE ? &part->l->compute : &part->p->value, &part->full));
    return for_each_shard(cx, s, u, part, unpack_values);
}

static ott_status gather_unit(exec *cx, parameter_store *s, store_unit *u, int uses) {
    if (store_ranks(s) == 1) return OTT_OK;
    if (u->gathered) {
        STATUS_REQUIRE((u->uses & uses) == uses);
        return OTT_OK;
    }
    if (!u->uses) TRY(start_gather(cx, s, u, uses));
    STATUS_REQUIRE((u->uses & uses) == uses);
    TRY(group_wait(cx, &u->request));
    for (int i = 0; i < u->part_count; i++)
        if (u->parts[i].uses & u->uses) TRY(unpack_part(cx, s, u, &u->parts[i]));
    u->gathered = true;
    return plan_close(cx->plan, &u->received_buffer);
}

ott_status store_gather(exec *cx, parameter_store *s, int unit, int uses) {
    for (; s; s = s->expert_store) TRY(gather_unit(cx, s, &s->units[unit], uses));
    return OTT_OK;
}

static ott_status prefetch_unit(exec *cx, parameter_store *s, store_unit *u, int uses) {
    if (store_ranks(s) == 1 || s->options.no_prefetch || u->uses) return OTT_OK;
    return start_gather(cx, s, u, uses);
}

ott_status store_prefetch(exec *cx, parameter_store *s, int unit, int uses) {
    for (; s; s = s->expert_store) TRY(prefetch_unit(cx, s, &s->units[unit], uses));
    return OTT_OK;
}

/* Sets the pointers to gathered values and codes to NULL. */
static void drop_full_part(store_part *part) {
    qtensor *q = part->l ? &part->l->quantized : NULL;
    if (part->content == STORE_VALUE)
        part->p->value.data = NULL;
    else if (part->content == STORE_COMPUTE)
        part->l->compute.data = NULL;
    else
        q->rowwise.data = q->columnwise.data = NULL;
}

static ott_status release_unit(exec *cx, store_unit *u) {
    for (int i = 0; u->gathered && i < u->part_count; i++) {
        store_part *part = &u->parts[i];
        drop_full_part(part);
        TRY(plan_close(cx->plan, &part->full));
        TRY(plan_close(cx->plan, &part->rowwise));
        TRY(plan_close(cx->plan, &part->columnwise));
    }
    u->gathered = false;
    u->uses = 0;
    return OTT_OK;
}

ott_status store_release(exec *cx, parameter_store *s, int unit) {
    for (; s; s = s->expert_store) TRY(release_unit(cx, &s->units[unit]));
    return OTT_OK;
}

/* ---- after a failure ---- */

static void abandon_unit(exec *cx, store_unit *u, bool wait) {
    if (wait) (void)group_wait(cx, &u->request);
    for (int i = 0; i < u->part_count; i++) {
        store_part *part = &u->parts[i];
        drop_full_part(part);
        part->full = part->rowwise = part->columnwise = PLAN_NONE;
    }
    u->gathered = false;
    u->uses = 0;
}

static void drop_gradients(const store_unit *u) {
    for (int i = 0; i < u->parameter_count; i++) u->parameters[i]->grad_buffer = PLAN_NONE;
}

static void abandon_gathers(exec *cx, parameter_store *s, ott_status why) {
    bool wait = why == OTT_ERR_STOPPED;
    for (int i = 0; i < s->unit_count; i++) drop_gradients(&s->units[i]);
    if (store_ranks(s) == 1) return;
    for (int i = 0; i < s->unit_count; i++) abandon_unit(cx, &s->units[i], wait);
    if (wait) (void)group_wait(cx, &s->reduction.request);
    s->reduction.unit = NULL;
}

void store_abandon(exec *cx, parameter_store *s, ott_status why) {
    for (; s; s = s->expert_store) abandon_gathers(cx, s, why);
}
