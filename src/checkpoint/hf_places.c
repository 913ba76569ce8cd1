/* checkpoint/hf_places: parameters and the tensors of a folder. */
#include "checkpoint/hf_places.h"
#include <string.h>

/* A parameter of `e` by its kind, "weight"; the rows that `part` is of it. */
static ott_status add_place(hf_places *places, const model_module *e, const parameter *p, const char *kind,
                            const module_part *part) {
    char name[MODULES_NAME_BYTES];
    module_part whole;
    int64_t rows;
    hf_place *at = &places->of[places->count++];
    *at = (hf_place){.module = e,
                     .parameter = p,
                     .first = part->first,
                     .count = part->count,
                     .columns = p->rank == 2 ? p->columns : 1,
                     .rows = part->count};
    modules_name(part->role, NAMING_HUGGING_FACE, e->layer, name);
    TRY(arena_printf(places->memory, &at->name, "%s.%s", name, kind));
    at->fused = at->name;
    if (!modules_whole(&places->m->options, part->role, &whole, &rows)) return OTT_OK;
    modules_name(whole.role, NAMING_HUGGING_FACE, e->layer, name);
    TRY(arena_printf(places->memory, &at->fused, "%s.%s", name, kind));
    if (!places->are_fused) return OTT_OK;
    at->name = at->fused;
    at->row = whole.first;
    at->rows = rows;
    return OTT_OK;
}

static ott_status add_places(hf_places *places, const model_module *e) {
    module_part part[MODULES_PARTS];
    int count = modules_parts(&places->m->options, e, part);
    for (int i = 0; i < count && !e->tied; i++) TRY(add_place(places, e, e->weight, "weight", &part[i]));
    for (int i = 0; i < count && e->bias; i++) TRY(add_place(places, e, e->bias, "bias", &part[i]));
    return OTT_OK;
}

ott_status hf_places_open(const model *m, bool fused, hf_places *out) {
    void *memory;
    *out = (hf_places){.m = m, .are_fused = fused};
    TRY(arena_open(m->device->account, MEM_OTHER, &out->memory));
    TRY(arena_alloc(out->memory, m->parameter_count * (int64_t)sizeof *out->of * MODULES_PARTS, &memory));
    out->of = memory;
    for (int i = 0; i < m->modules.count; i++) TRY(add_places(out, &m->modules.of[i]));
    return OTT_OK;
}

void hf_places_close(hf_places *p) {
    arena_close(p->memory);
    *p = (hf_places){0};
}

/* Those rows of [row, row + count) that lie in place i. */
static ott_status read_part(const hf_places *places, int i, int64_t row, int64_t count, float *out) {
    const hf_place *at = &places->of[i];
    int64_t first = at->row, last = first + at->count;
    int64_t from = row > first ? row : first, to = row + count < last ? row + count : last;
    if (from >= to) return OTT_OK;
    const float *values = at->parameter->value.data;
    return device_copy_out(places->m->device, out + (from - row) * at->columns,
                           values + (at->first + from - first) * at->columns,
                           (to - from) * at->columns * (int64_t)sizeof *values);
}

ott_status hf_places_read(const hf_places *p, int first, int64_t row, int64_t count, float *out) {
    const char *name = p->of[first].name;
    int64_t rows = 0;
    for (int i = first; i < p->count && rows < p->of[first].rows; i++) {
        if (strcmp(p->of[i].name, name) != 0) continue;
        TRY(read_part(p, i, row, count, out));
        rows += p->of[i].count;
    }
    return OTT_OK;
}

bool hf_is_block_matrix(const hf_place *p) {
    return p->module->layer != MODULES_OUTSIDE && p->parameter->rank == 2;
}
