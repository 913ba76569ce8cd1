/* model/convert: which linear layers run in FP8. */
#include "model/convert.h"
#include "base/str.h"
#include <stdio.h>
#include <string.h>

/* torch._scaled_mm and cuBLASLt want both dimensions of an FP8 operand in multiples of this; so the same
   layers are converted everywhere, the CPU included, which could take any. */
#define FP8_DIMENSION_MULTIPLE 16

typedef struct conversion {
    const convert_options *options;
    model *m;
    convert_summary summary;
    int next; /* index of the linear in forward order: 7 a layer, then the head */
} conversion;

static const enum family_module linear_modules[] = {FAMILY_q,    FAMILY_k,  FAMILY_v,   FAMILY_o,
                                                    FAMILY_gate, FAMILY_up, FAMILY_down};
#define LINEARS_PER_LAYER (int)(sizeof linear_modules / sizeof *linear_modules)

/* The filter text that one of the layer's names contains, NULL if none. */
static const char *filtered_by(const conversion *c, int index) {
    int layer = index / LINEARS_PER_LAYER;
    bool is_head = layer >= c->m->options.layers;
    enum family_module module = is_head ? FAMILY_head : linear_modules[index % LINEARS_PER_LAYER];
    for (int f = 0; f < c->options->filter_count; f++)
        for (int style = 0; style < NAMING_COUNT; style++) {
            char name[128];
            family_module_name(module, (naming)style, layer, name);
            if (strstr(name, c->options->filter[f])) return c->options->filter[f];
        }
    return NULL;
}

/* Why a layer stays in high precision, NULL when it is converted. */
static ott_status reason_to_keep(conversion *c, const linear *l, int index, const char **reason) {
    *reason = NULL;
    const char *filter = filtered_by(c, index);
    if (filter) return arena_printf(c->m->names, reason, "float8.filter_fqns has \"%s\"", filter);
    if (l->in % FP8_DIMENSION_MULTIPLE == 0 && l->out % FP8_DIMENSION_MULTIPLE == 0) return OTT_OK;
    return arena_printf(c->m->names, reason, "its dimensions %lld x %lld are not multiples of %d",
                        (long long)l->out, (long long)l->in, FP8_DIMENSION_MULTIPLE);
}

static ott_status convert_linear(void *user, linear *l) {
    conversion *c = user;
    const recipe *r = c->options->recipe;
    int index = c->next++;
    linear_spec spec;
    c->summary.linears++;
    l->kept_because = NULL;
    if (recipe_gemm_is_fp8(r, GEMM_COUNT)) {
        TRY(reason_to_keep(c, l, index, &l->kept_because));
        if (l->kept_because) {
            log_info(c->options->log, "Not converted to Float8: %s, because %s", l->name, l->kept_because);
            r = recipe_high_precision(r->activation);
        } else {
            c->summary.converted++;
        }
    }
    recipe_compile(r, &spec);
    return linear_set_spec(l, c->m->device, &spec);
}

ott_status model_convert(model *m, const convert_options *o, convert_summary *out) {
    TRY(recipe_check(o->recipe));
    conversion c = {.options = o, .m = m};
    m->activation = o->recipe->activation;
    TRY(model_visit_linears(m, convert_linear, &c));
    if (out) *out = c.summary;
    return model_connect(m);
}
