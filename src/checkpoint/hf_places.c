/* checkpoint/hf_places: parameters and the tensors of a folder. */
#include "checkpoint/hf_places.h"
#include "base/str.h"
#include "model/parts.h"
#include <string.h>

const parameter *hf_places_parameter(const hf_places *p, int i) {
    return &p->m->parameters[p->of[i].parameter];
}

static ott_status add_place(hf_places *places, int index, const parameter_part *part, bool fused) {
    char whole[PART_NAME_BYTES];
    int64_t row = 0, rows = part->count, columns = places->m->parameters[index].columns;
    hf_place *at = &places->of[places->count++];
    *at = (hf_place){.parameter = index,
                     .first = part->first,
                     .count = part->count,
                     .columns = places->m->parameters[index].rank == 2 ? columns : 1,
                     .rows = part->count};
    TRY(arena_strdup(places->memory, part->name, &at->name));
    at->fused = at->name;
    if (!model_whole_of(places->m, part->name, whole, &row, &rows)) return OTT_OK;
    TRY(arena_strdup(places->memory, whole, &at->fused));
    if (!fused) return OTT_OK;
    at->name = at->fused;
    at->row = row;
    at->rows = rows;
    return OTT_OK;
}

static ott_status add_places(hf_places *places, int index, bool fused) {
    parameter_part part[PARTS_MOST];
    int count = model_parts_of(places->m, &places->m->parameters[index], part);
    for (int i = 0; i < count; i++) TRY(add_place(places, index, &part[i], fused));
    return OTT_OK;
}

ott_status hf_places_open(const model *m, bool fused, hf_places *out) {
    void *memory;
    *out = (hf_places){.m = m};
    TRY(arena_open(m->device->account, MEM_OTHER, &out->memory));
    TRY(arena_alloc(out->memory, m->parameter_count * (int64_t)sizeof *out->of * PARTS_MOST, &memory));
    out->of = memory;
    for (int i = 0; i < m->parameter_count; i++) TRY(add_places(out, i, fused));
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
    const float *values = hf_places_parameter(places, i)->value.data;
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

bool hf_is_block_matrix(const hf_places *p, int i) {
    const parameter *of = hf_places_parameter(p, i);
    return of->rank == 2 && str_starts_with(of->name, "model.layers.");
}
