/* parallel/store: gathers a unit. Each rank packs its shards of the unit's tensors into one buffer. After the
   all-gather, the shards of all ranks are copied to the tensors that the layers read. */
#include "parallel/store.h"

/* Ranks send tensors of every format as bytes: an FP8 element is one byte. */
#define BYTES OTT_E4M3

static int64_t packed_bytes(const exec *cx, const weight_part *part, int rank) {
    return backend_align(cx->device->can, dtype_count_bytes(part->format, store_count_at(part->p, rank)));
}

static void count_traffic(store_traffic *t, ott_dtype format, int64_t bytes) {
    int64_t *count = dtype_is_fp8(format) ? &t->fp8
                     : format == OTT_BF16 ? &t->bf16
                     : format == OTT_F16  ? &t->f16
                                          : &t->fp32;
    *count += bytes;
}

typedef bool (*weight_test)(const exec *cx, const weight_source *w);
typedef ott_status (*weight_call)(exec *cx, weight_source *w);

static bool any_weight(const exec *cx, const store_unit *units, int count, weight_test test) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < units[i].weight_count; k++)
            if (test(cx, units[i].weights[k])) return true;
    return false;
}

static ott_status for_weights(exec *cx, const store_unit *units, int count, weight_call call) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < units[i].weight_count; k++) TRY(call(cx, units[i].weights[k]));
    return OTT_OK;
}

/* Computes the scales of `count` consecutive units with one all-reduce. The units' scales are contiguous. */
static ott_status compute_scales(exec *cx, parameter_store *s, const store_unit *units, int count) {
    const store_unit *last = &units[count - 1];
    tensor amax = tensor_vector((float *)s->scales + units->scale_first, OTT_F32,
                                last->scale_first + last->scale_count - units->scale_first);
    if (!plan_recording(cx->plan)) s->traffic.amax += tensor_bytes(amax);
    if (any_weight(cx, units, count, weight_needs_amax)) {
        if (!plan_recording(cx->plan)) TRY(device_zero(cx->device, amax.data, tensor_bytes(amax)));
        TRY(for_weights(cx, units, count, weight_compute_amax));
    }
    TRY(group_all_reduce(s->ranks, cx, &amax, REDUCE_MAX));
    return for_weights(cx, units, count, weight_compute_scales);
}

/* Sets u->rows[r] to the number of bytes that rank r sends, for each rank. Returns their sum. */
static int64_t measure_unit(const exec *cx, parameter_store *s, store_unit *u) {
    int64_t all = 0;
    for (int r = 0; r < s->ranks->size; r++) {
        u->rows[r] = 0;
        for (int i = 0; i < u->part_count; i++) {
            if (!(u->parts[i].uses & u->uses)) continue;
            int64_t bytes = packed_bytes(cx, &u->parts[i], r);
            u->rows[r] += bytes;
            if (!plan_recording(cx->plan)) count_traffic(&s->traffic, u->parts[i].format, bytes);
        }
        all += u->rows[r];
    }
    return all;
}

static ott_status start_gather(exec *cx, parameter_store *s, store_unit *u, int uses) {
    /* The scales may already be of cx->step. */
    if (any_weight(cx, u, 1, weight_needs_scales))
        TRY(s->options.precompute_scales ? compute_scales(cx, s, s->units, s->unit_count)
                                         : compute_scales(cx, s, u, 1));
    u->uses = uses;
    u->gathered = false;
    TRY(exec_open(cx, "gathered shards", BYTES, measure_unit(cx, s, u), 1, &u->received,
                  &u->received_buffer));
    int own = s->ranks->rank;
    tensor shard = tensor_rows(u->received, group_part_first(u->rows, 0, own, own), u->rows[own]);
    char *to = shard.data;
    for (int i = 0; i < u->part_count; i++) {
        if (!(u->parts[i].uses & u->uses)) continue;
        TRY(weight_part_pack(cx, &u->parts[i], to));
        to += packed_bytes(cx, &u->parts[i], own);
    }
    return group_start(
        s->ranks, cx,
        &(collective){
            .kind = COLLECTIVE_ALL_GATHER, .input = shard, .output = u->received, .output_rows = u->rows},
        &u->request);
}

/* Returns the byte at which the part begins in the buffer that a rank sends. */
static int64_t offset_of_part(const exec *cx, const store_unit *u, const weight_part *part, int rank) {
    int64_t offset = 0;
    for (const weight_part *before = u->parts; before < part; before++)
        if (before->uses & u->uses) offset += packed_bytes(cx, before, rank);
    return offset;
}

/* Copies the shards of all ranks from u->received to the part's full tensor. */
static ott_status fill_part(exec *cx, const parameter_store *s, const store_unit *u,
                            const weight_part *part) {
    weight_shard shards[WEIGHT_SHARDS];
    char *from = u->received.data;
    int64_t first = 0;
    int count = 0;
    for (int r = 0; r < s->ranks->size; r++) {
        weight_shard shard = {from + offset_of_part(cx, u, part, r), first, store_count_at(part->p, r)};
        first += shard.count;
        from += u->rows[r];
        if (shard.count > 0) shards[count++] = shard;
        if (count < WEIGHT_SHARDS) continue;
        TRY(weight_part_fill(cx, part, shards, count));
        count = 0;
    }
    return weight_part_fill(cx, part, shards, count);
}

static ott_status unpack_part(exec *cx, const parameter_store *s, const store_unit *u, weight_part *part) {
    TRY(weight_part_open(cx, part, u->uses));
    if (!plan_recording(cx->plan)) TRY(fill_part(cx, s, u, part));
    return weight_part_finish(cx, part, u->uses);
}

static ott_status gather_unit(exec *cx, parameter_store *s, store_unit *u, int uses) {
    if (store_ranks(s) == 1) return OTT_OK;
    if (!u->uses) TRY(start_gather(cx, s, u, uses));
    STATUS_REQUIRE((u->uses & uses) == uses);
    if (u->gathered) return OTT_OK;
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

ott_status store_prefetch(exec *cx, parameter_store *s, int unit, int uses) {
    for (; s; s = s->expert_store) {
        store_unit *u = &s->units[unit];
        if (store_ranks(s) > 1 && !s->options.no_prefetch && !u->uses) TRY(start_gather(cx, s, u, uses));
    }
    return OTT_OK;
}

ott_status store_release(exec *cx, parameter_store *s, int unit) {
    for (; s; s = s->expert_store) {
        store_unit *u = &s->units[unit];
        for (int i = 0; u->gathered && i < u->part_count; i++) {
            weight_part *part = &u->parts[i];
            weight_part_drop(part);
            TRY(plan_close(cx->plan, &part->full));
            TRY(plan_close(cx->plan, &part->rowwise));
            TRY(plan_close(cx->plan, &part->columnwise));
        }
        u->gathered = false;
        u->uses = 0;
    }
    return OTT_OK;
}

static void abandon_unit(exec *cx, const parameter_store *s, store_unit *u, bool wait) {
    for (int i = 0; i < u->parameter_count; i++) u->parameters[i]->grad_buffer = PLAN_NONE;
    if (store_ranks(s) == 1) return;
    if (wait) (void)group_wait(cx, &u->request);
    for (int i = 0; i < u->part_count; i++) {
        weight_part *part = &u->parts[i];
        weight_part_drop(part);
        part->full = part->rowwise = part->columnwise = PLAN_NONE;
    }
    u->gathered = false;
    u->uses = 0;
}

void store_abandon(exec *cx, parameter_store *s, ott_status why) {
    bool wait = why == OTT_ERR_STOPPED;
    for (; s; s = s->expert_store) {
        for (int i = 0; i < s->unit_count; i++) abandon_unit(cx, s, &s->units[i], wait);
        if (wait && store_ranks(s) > 1) (void)group_wait(cx, &s->reduction.request);
        s->reduction.unit = NULL;
    }
}
