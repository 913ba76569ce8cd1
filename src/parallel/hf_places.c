/* parallel/hf_places: parameters and the tensors of a folder. */
#include "parallel/hf_places.h"
#include "base/str.h"
#include <string.h>

/* Modules that a fusing family stores in one tensor, one below the other in this order. */
static const struct fused {
    const char *whole;
    const char *part[3];
} fused_modules[] = {
    {"qkv_proj", {"q_proj.weight", "k_proj.weight", "v_proj.weight"}},
    {"gate_up_proj", {"gate_proj.weight", "up_proj.weight", NULL}},
};
enum { FUSED = sizeof fused_modules / sizeof *fused_modules };

static int64_t part_rows(const model_options *o, const char *part) {
    bool is_query = part[0] == 'q', is_key_or_value = part[0] == 'k' || part[0] == 'v';
    if (is_query) return o->heads * o->head_dim;
    return is_key_or_value ? o->kv_heads * o->head_dim : o->hidden;
}

/* Is the parameter a part of f? Then at which of all its rows, and how long its own part of the name is. */
static bool find_part(const struct fused *f, const model *m, const parameter *p, hf_place *out,
                      size_t *tail) {
    bool found = false;
    *out = (hf_place){0};
    for (int i = 0; i < 3 && f->part[i]; i++) {
        if (str_ends_with(p->name, f->part[i])) {
            out->row = out->rows;
            *tail = strlen(f->part[i]);
            found = true;
        }
        out->rows += part_rows(&m->options, f->part[i]);
    }
    return found;
}

static ott_status place(const hf_places *places, const parameter *p, bool fused, hf_place *out) {
    hf_place whole;
    size_t tail;
    *out = (hf_place){.name = p->name, .fused = p->name, .rows = p->rows};
    for (int i = 0; i < FUSED; i++) {
        if (!find_part(&fused_modules[i], places->m, p, &whole, &tail)) continue;
        TRY(arena_printf(places->memory, &out->fused, "%.*s%s.weight", (int)(strlen(p->name) - tail), p->name,
                         fused_modules[i].whole));
        if (fused) *out = (hf_place){out->fused, out->fused, whole.row, whole.rows};
    }
    return OTT_OK;
}

ott_status hf_places_open(const model *m, bool fused, hf_places *out) {
    void *memory;
    *out = (hf_places){.m = m};
    TRY(arena_open(m->device->account, MEM_OTHER, &out->memory));
    TRY(arena_take(out->memory, m->parameter_count * (int64_t)sizeof *out->of, &memory));
    out->of = memory;
    for (int i = 0; i < m->parameter_count; i++) TRY(place(out, &m->parameters[i], fused, &out->of[i]));
    return OTT_OK;
}

void hf_places_close(hf_places *p) {
    arena_close(p->memory);
    *p = (hf_places){0};
}

/* Those rows of [row, row + count) that lie in parameter i. */
static ott_status read_part(const hf_places *places, int i, int64_t row, int64_t count, float *out) {
    const parameter *p = &places->m->parameters[i];
    int64_t first = places->of[i].row, last = first + p->rows;
    int64_t from = row > first ? row : first, to = row + count < last ? row + count : last;
    if (from >= to) return OTT_OK;
    const float *values = p->value.data;
    return device_copy_out(places->m->device, out + (from - row) * p->columns,
                           values + (from - first) * p->columns,
                           (to - from) * p->columns * (int64_t)sizeof *values);
}

ott_status hf_places_read(const hf_places *p, int first, int64_t row, int64_t count, float *out) {
    const char *name = p->of[first].name;
    int64_t rows = 0;
    for (int i = first; i < p->m->parameter_count && rows < p->of[first].rows; i++) {
        if (strcmp(p->of[i].name, name) != 0) continue;
        TRY(read_part(p, i, row, count, out));
        rows += p->m->parameters[i].rows;
    }
    return OTT_OK;
}

bool hf_is_block_matrix(const model *m, int i) {
    const parameter *p = &m->parameters[i];
    return p->rank == 2 && str_starts_with(p->name, "model.layers.");
}
