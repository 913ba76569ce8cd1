/* parallel/store: lists the tensors that each unit gathers, allocates scales and full gradients. */
#include "parallel/store.h"

/* ---- units ---- */

enum { PARTS_PER_WEIGHT = 3 };

ott_status store_open(parameter_store *s, arena *memory) {
    int ranks = store_ranks(s);
    if (ranks == 1) return OTT_OK;
    TRY(arena_alloc(memory, ranks * (int64_t)sizeof(int64_t), &s->reduction.rows));
    for (int i = 0; i < s->unit_count; i++) {
        store_unit *u = &s->units[i];
        TRY(arena_alloc(memory, ranks * (int64_t)sizeof(int64_t), &u->rows));
        int64_t most = u->parameter_count + PARTS_PER_WEIGHT * (int64_t)u->linear_count;
        TRY(arena_alloc(memory, most * (int64_t)sizeof(store_part), &u->parts));
    }
    return OTT_OK;
}

static bool is_weight(const store_unit *u, const parameter *p) {
    for (int i = 0; i < u->linear_count; i++)
        if (u->linears[i]->weight == p) return true;
    return false;
}

static void add_unit_part(store_unit *u, store_part part) {
    if (part.uses) u->parts[u->part_count++] = part;
}

static bool has_one_scale(const quant_spec *w) {
    const cast_spec *use = cast_spec_is_fp8(&w->rowwise) ? &w->rowwise : &w->columnwise;
    return use->grain == GRANULARITY_TENSOR;
}

static void add_weight(const parameter_store *s, store_unit *u, linear *l) {
    int both = STORE_ROWWISE | STORE_COLUMNWISE,
        fp8 = (cast_spec_is_fp8(&l->spec.weight.rowwise) ? STORE_ROWWISE : 0) |
              (cast_spec_is_fp8(&l->spec.weight.columnwise) ? STORE_COLUMNWISE : 0);
    const quant_spec *w = &l->spec.weight;
    if (linear_keeps_codes(l) || linear_is_composed(l) || l->grouped.fp8) {
        ott_dtype format = linear_keeps_codes(l) ? OTT_E4M3 : l->weight->shard.value.dtype;
        add_unit_part(u,
                      (store_part){.p = l->weight, .content = STORE_VALUE, .format = format, .uses = both});
        return;
    }
    store_part part = {.p = l->weight, .l = l, .format = l->spec.activation, .uses = both & ~fp8};
    part.content = STORE_COMPUTE;
    add_unit_part(u, part);
    part.uses = fp8;
    part.content = STORE_MASTER;
    part.format = l->weight->shard.value.dtype;
    if (s->options.gather_masters && has_one_scale(w)) {
        add_unit_part(u, part);
        return;
    }
    part.content = STORE_CODES;
    part.format = w->rowwise.format;
    part.uses = fp8 == both && !quant_spec_shares_scales(w) ? STORE_ROWWISE : fp8;
    if (fp8 & STORE_ROWWISE) add_unit_part(u, part);
    part.content = STORE_CODES_COLUMNWISE;
    part.format = w->columnwise.format;
    part.uses = fp8 & STORE_COLUMNWISE;
    if (!(fp8 == both && quant_spec_shares_scales(w))) add_unit_part(u, part);
}

static void list_parts(const parameter_store *s, store_unit *u, ott_dtype table) {
    u->part_count = 0;
    for (int i = 0; i < u->parameter_count; i++) {
        parameter *p = u->parameters[i];
        if (is_weight(u, p)) continue;
        add_unit_part(u, (store_part){.p = p,
                                      .content = STORE_VALUE,
                                      .format = u->is_table ? table : p->shard.value.dtype,
                                      .uses = STORE_ROWWISE | (u->is_table ? 0 : STORE_COLUMNWISE)});
    }
    for (int i = 0; i < u->linear_count; i++) add_weight(s, u, u->linears[i]);
}

/* ---- scales ---- */

/* Assigns memory to the scales of a rowwise or columnwise copy, and advances *next, the first free entry.
   `all` has `count` amaxes, then scales, then their inverses. If `all` is NULL, only advances *next. */
static void place_unit_scales(qdata *d, const cast_spec *spec, int64_t mn, int64_t depth, float *all,
                              int64_t count, int64_t *next) {
    if (!cast_spec_is_fp8(spec)) return;
    if (all) {
        d->amax = all + *next;
        d->scale = d->amax + count;
        d->scale_inv = d->scale + count;
    }
    *next += granularity_groups(spec->grain, mn, depth);
}

static void place_weight_scales(qtensor *q, float *all, int64_t count, int64_t *next) {
    bool shared = quant_spec_shares_scales(&q->spec) && quant_spec_is_fp8(&q->spec);
    place_unit_scales(&q->rowwise, &q->spec.rowwise, q->rows, q->columns, all, count, next);
    if (!shared) {
        place_unit_scales(&q->columnwise, &q->spec.columnwise, q->columns, q->rows, all, count, next);
        return;
    }
    q->columnwise.amax = q->rowwise.amax;
    q->columnwise.scale = q->rowwise.scale;
    q->columnwise.scale_inv = q->rowwise.scale_inv;
}

static void place_all_scales(parameter_store *s, float *all) {
    int64_t next = 0;
    for (int i = 0; i < s->unit_count; i++) {
        store_unit *u = &s->units[i];
        u->scale_first = next;
        for (int k = 0; k < u->linear_count; k++)
            if (linear_casts_weight(u->linears[k]))
                place_weight_scales(&u->linears[k]->quantized, all, s->scale_count, &next);
        u->scale_count = next - u->scale_first;
    }
    s->scale_count = next;
}

/* ---- full gradients, for reduce_once ---- */

static ott_status open_full_gradients(parameter_store *s, device *d) {
    s->full_count = 0;
    for (int i = 0; i < s->unit_count; i++) {
        store_unit *u = &s->units[i];
        u->full_first = s->full_count;
        for (int k = 0; k < u->parameter_count; k++) {
            const parameter *p = u->parameters[k];
            if (!p->frozen) s->full_count += p->local.rows * p->local.columns;
        }
    }
    if (!s->options.reduce_once || !s->micro_batches) return OTT_OK;
    return device_allocate(d, MEM_GRAD, s->full_count * (int64_t)sizeof(float), "gradients to reduce",
                           &s->full_gradients);
}

/* ---- set and close ---- */

static void release_one(parameter_store *s, device *d) {
    device_release(d, s->scales);
    device_release(d, s->full_gradients);
    s->scales = s->full_gradients = NULL;
}

static ott_status set_one(parameter_store *s, device *d, ott_dtype table) {
    if (store_ranks(s) == 1) return OTT_OK;
    release_one(s, d);
    TRY(open_full_gradients(s, d));
    for (int i = 0; i < s->unit_count; i++) list_parts(s, &s->units[i], table);
    place_all_scales(s, NULL);
    if (s->scale_count == 0) return OTT_OK;
    TRY(device_allocate(d, MEM_WEIGHT, 3 * s->scale_count * (int64_t)sizeof(float),
                        "scales of sharded weights", &s->scales));
    place_all_scales(s, s->scales);
    return OTT_OK;
}

ott_status store_set(parameter_store *s, device *d, ott_dtype table) {
    for (parameter_store *store = s; store; store = store->expert_store) {
        store->options = s->options;
        store->micro_batches = s->micro_batches;
        TRY(set_one(store, d, table));
    }
    return OTT_OK;
}

void store_close(parameter_store *s, device *d) {
    for (; s; s = s->expert_store) release_one(s, d);
}
