/* checkpoint/hf_places: parameters and the tensors of a folder. */
#include "checkpoint/hf_places.h"
#include <string.h>

/* A parameter of a module, by its kind, "weight"; one matrix of it where it is a stack. */
typedef struct member {
    const model_module *module;
    const parameter *parameter;
    const char *kind;
    int64_t matrix;
} member;

static ott_status name_place(const hf_places *places, const member *of, module_role role, const char **out) {
    char name[MODULES_NAME_BYTES];
    int layer = of->module->layer;
    if (of->parameter->rank == 3 && !places->are_packed)
        modules_matrix_name(role, NAMING_HUGGING_FACE, layer, of->matrix, name);
    else
        modules_name(role, NAMING_HUGGING_FACE, layer, name);
    return arena_printf(places->memory, out, "%s.%s", name, of->kind);
}

/* The tensor of one matrix becomes that of the whole stack. */
static void pack_place(hf_place *at, const member *of) {
    at->stack = of->parameter->stack;
    at->row += of->matrix * at->rows;
    at->rows *= at->stack;
}

/* The rows that `part` is of a parameter, or of a matrix of it. */
static ott_status add_place(hf_places *places, const member *of, const module_part *part) {
    const parameter *p = of->parameter;
    module_part whole;
    int64_t rows;
    hf_place *at = &places->of[places->count++];
    *at = (hf_place){.module = of->module,
                     .parameter = p,
                     .first = of->matrix * (p->rows / p->stack) + part->first,
                     .count = part->count,
                     .columns = p->rank > 1 ? p->columns : 1,
                     .rows = part->count};
    TRY(name_place(places, of, part->role, &at->name));
    at->fused = at->name;
    if (modules_whole(&places->m->options, part->role, &whole, &rows)) {
        TRY(name_place(places, of, whole.role, &at->fused));
        if (places->are_fused) {
            at->name = at->fused;
            at->row = whole.first;
            at->rows = rows;
        }
    }
    if (p->rank == 3 && places->are_packed) pack_place(at, of);
    return OTT_OK;
}

static ott_status add_parameter(hf_places *places, member of) {
    module_part part[MODULES_PARTS];
    int count = modules_parts(&places->m->options, of.module, part);
    for (of.matrix = 0; of.matrix < of.parameter->stack; of.matrix++)
        for (int i = 0; i < count; i++) TRY(add_place(places, &of, &part[i]));
    return OTT_OK;
}

static ott_status add_places(hf_places *places, const model_module *e) {
    if (!e->tied) TRY(add_parameter(places, (member){e, e->weight, "weight", 0}));
    return e->bias ? add_parameter(places, (member){e, e->bias, "bias", 0}) : OTT_OK;
}

ott_status hf_places_open(const model *m, bool fused, bool packed, hf_places *out) {
    int64_t most = 0;
    void *memory;
    *out = (hf_places){.m = m, .are_fused = fused, .are_packed = packed};
    for (int i = 0; i < m->all_count; i++) most += MODULES_PARTS * m->all[i]->stack;
    TRY(arena_open(m->device->account, MEM_OTHER, &out->memory));
    TRY(arena_alloc(out->memory, most * (int64_t)sizeof *out->of, &memory));
    out->of = memory;
    for (int i = 0; i < m->whole.count; i++) TRY(add_places(out, &m->whole.of[i]));
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

int hf_place_shape(const hf_place *p, int64_t shape[PARAMETER_RANKS]) {
    int rank = p->stack ? 3 : p->parameter->rank == 1 ? 1 : 2;
    if (p->stack) shape[0] = p->stack;
    if (rank > 1) shape[rank - 1] = p->columns;
    shape[p->stack ? 1 : 0] = p->rows / (p->stack ? p->stack : 1);
    return rank;
}

bool hf_is_block_matrix(const hf_place *p) {
    int64_t shape[PARAMETER_RANKS];
    return p->module->layer != MODULES_OUTSIDE && hf_place_shape(p, shape) == 2;
}
