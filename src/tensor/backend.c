/* tensor/backend: checks a recipe against a backend's capabilities. */
#include "tensor/backend.h"
#include <stdio.h>

/* The first unsupported property of a recipe. */
typedef struct error {
    const char *where; /* tensor or GEMM, such as "input" */
    const char *what;  /* property, such as "1x128" */
    const char *why;
} error;

static bool refuses_cast(const backend_capabilities *can, const cast_spec *s, error *o) {
    *o = (error){o->where, dtype_name(s->format), can->no_format[s->format]};
    if (o->why || !cast_spec_is_fp8(s)) return o->why != NULL;
    *o = (error){o->where, granularity_name(s->grain), can->no_granularity[s->grain]};
    return o->why != NULL;
}

static bool refuses_tensor(const backend_capabilities *can, const char *name, const quant_spec *q, error *o) {
    o->where = name;
    return refuses_cast(can, &q->rowwise, o) || refuses_cast(can, &q->columnwise, o);
}

static bool refuses_recipe(const backend_capabilities *can, const recipe *r, error *o) {
    static const char *const products[GEMM_COUNT] = {"the output GEMM", "the grad_input GEMM",
                                                     "the grad_weight GEMM"};
    if (refuses_tensor(can, "input", &r->input, o) || refuses_tensor(can, "weight", &r->weight, o) ||
        refuses_tensor(can, "grad_output", &r->grad_output, o))
        return true;
    for (int g = 0; g < GEMM_COUNT; g++) {
        accumulate_mode mode = r->gemm[g].accumulate;
        *o = (error){products[g], recipe_accumulate_name(mode), can->no_accumulate[mode]};
        if (o->why) return true;
    }
    return false;
}

bool backend_can_run(const backend_capabilities *can, const recipe *r) {
    error o;
    return !refuses_recipe(can, r, &o);
}

void backend_list_recipes(const backend_capabilities *can, char *out, size_t size) {
    int count;
    const recipe *table = recipe_table(&count);
    size_t length = 0;
    out[0] = '\0';
    for (int i = 0; i < count && length < size; i++)
        if (backend_can_run(can, &table[i]))
            length +=
                (size_t)snprintf(out + length, size - length, "%s%s", length ? ", " : "", table[i].name);
}

ott_status backend_check_recipe(const backend_capabilities *can, const recipe *r) {
    error o;
    char possible[192];
    if (!refuses_recipe(can, r, &o)) return OTT_OK;
    backend_list_recipes(can, possible, sizeof possible);
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "recipe %s cannot run on the device %s: %s in %s: %s; supported: %s", r->name,
                       can->name, o.where, o.what, o.why, possible[0] ? possible : "none");
}
