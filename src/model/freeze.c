/* model/freeze: applies the patterns of train.freeze and train.freeze_schedule to parameters. */
#include "model/freeze.h"
#include "base/text/str.h"
#include <stdio.h>

enum { PATTERN_BYTES = 256 };

static bool matches_pattern(const char *pattern, const char *parameter_name) {
    char children[PATTERN_BYTES];
    snprintf(children, sizeof children, "%s.*", pattern);
    return str_glob(pattern, parameter_name) || str_glob(children, parameter_name);
}

bool freeze_names(const model_options *o, const model_module *e, const char *kind, const char *pattern) {
    for (int style = 0; style < NAMING_COUNT; style++) {
        char name[PATTERN_BYTES], text[MODULES_NAME_BYTES];
        modules_name(o->family, e->role, (naming)style, e->layer, text);
        snprintf(name, sizeof name, "%s.%s", text, kind);
        if (matches_pattern(pattern, name)) return true;
    }
    return false;
}

/* Freezes the module's parameters that match the pattern. Returns how many of them were not yet frozen. */
static int freeze_module(const model_options *o, const model_module *e, const char *pattern) {
    const struct {
        parameter *p;
        const char *kind;
    } parts[] = {{e->tied ? NULL : e->weight, "weight"},
                 {e->bias, modules_bias_name(e)},
                 {e->lora_a, "lora_A.weight"},
                 {e->lora_b, "lora_B.weight"},
                 {e->lora_m, "lora_magnitude_vector"}};
    int found = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        parameter *p = parts[i].p;
        if (!p || p->frozen || !freeze_names(o, e, parts[i].kind, pattern)) continue;
        found += !p->is_frozen_now;
        p->is_frozen_now = true;
    }
    return found;
}

static int count_trained(const model *m) {
    int count = 0;
    for (int i = 0; i < m->all_parameter_count; i++) count += !m->all_parameters[i]->frozen;
    return count;
}

ott_status freeze_apply(model *m, const char *const *patterns, int count, int *frozen) {
    *frozen = 0;
    for (int i = 0; i < m->all_parameter_count; i++) m->all_parameters[i]->is_frozen_now = false;
    for (int k = 0; k < count; k++) {
        int before = *frozen;
        for (int i = 0; i < m->all_modules.count; i++)
            *frozen += freeze_module(&m->options, &m->all_modules.items[i], patterns[k]);
        if (*frozen == before)
            return status_fail(
                OTT_ERR_CONFIG,
                "train.freeze_schedule has \"%s\", which names no trained parameter that is not "
                "frozen already; names are as in train.freeze",
                patterns[k]);
    }
    if (*frozen < count_trained(m)) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG, "train.freeze_schedule freezes every parameter: nothing would train");
}
