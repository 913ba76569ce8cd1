/* model/parts: the table of fused projections, and names and rows by it. */
#include "model/parts.h"
#include <stdio.h>
#include <string.h>

static const struct fused {
    const char *whole;
    const char *part[PARTS_MOST];
} fused_modules[] = {
    {"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
    {"gate_up_proj", {"gate_proj", "up_proj", NULL}},
};
enum { FUSED = sizeof fused_modules / sizeof *fused_modules };

static int64_t part_rows(const model_options *o, const char *part) {
    bool is_query = part[0] == 'q', is_key_or_value = part[0] == 'k' || part[0] == 'v';
    if (is_query) return o->heads * o->head_dim;
    return is_key_or_value ? o->kv_heads * o->head_dim : o->hidden;
}

/* Is `module` the second but last word of the name, "....module.weight"? *before: how long the name is up to
   it. */
static bool is_of_module(const char *name, const char *module, int *before) {
    const char *dot = strrchr(name, '.');
    size_t length = strlen(module);
    if (!dot || (size_t)(dot - name) <= length) return false;
    const char *place = dot - length;
    *before = (int)(place - name);
    return place[-1] == '.' && strncmp(place, module, length) == 0;
}

static void rename_module(const char *name, int before, const char *module, char out[PART_NAME_BYTES]) {
    snprintf(out, PART_NAME_BYTES, "%.*s%s%s", before, name, module, strrchr(name, '.'));
}

int model_parts_of(const model *m, const parameter *p, parameter_part part[PARTS_MOST]) {
    int before, count = 0;
    for (int i = 0; i < FUSED; i++) {
        const struct fused *f = &fused_modules[i];
        if (!is_of_module(p->name, f->whole, &before)) continue;
        for (int64_t first = 0; count < PARTS_MOST && f->part[count]; count++) {
            int64_t rows = part_rows(&m->options, f->part[count]);
            part[count] = (parameter_part){.first = first, .count = rows};
            rename_module(p->name, before, f->part[count], part[count].name);
            first += rows;
        }
        return count;
    }
    part[0] = (parameter_part){.count = p->rank == 2 ? p->rows : p->columns};
    snprintf(part[0].name, PART_NAME_BYTES, "%s", p->name);
    return 1;
}

bool model_whole_of(const model *m, const char *part, char whole[PART_NAME_BYTES], int64_t *first,
                    int64_t *rows) {
    int before, at;
    for (int i = 0; i < FUSED; i++) {
        const struct fused *f = &fused_modules[i];
        bool found = false;
        *rows = 0;
        for (int j = 0; j < PARTS_MOST && f->part[j]; j++) {
            if (is_of_module(part, f->part[j], &at)) {
                found = true;
                before = at;
                *first = *rows;
            }
            *rows += part_rows(&m->options, f->part[j]);
        }
        if (!found) continue;
        rename_module(part, before, f->whole, whole);
        return true;
    }
    return false;
}
