/* data/phases: parses phases such as "10000 web=0.3 code=0.7 lr_scale=0.5". */
#include "data/phases.h"
#include "config/parse/number.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_annealing(const config *cfg) {
    return cfg->data.anneal_start_step > 0;
}

int phases_count(const config *cfg) {
    return is_annealing(cfg) ? 1 : (int)cfg->data.phases.count;
}

/* Parses "name=number" as a dataset's weight. scales true: lr_scale=number sets p->lr_scale instead. */
static bool take_weight(data_phase *p, const char *text, size_t length, bool scales) {
    char number[40];
    double value;
    const char *equals = text + length;
    while (equals > text && equals[-1] != '=') equals--; /* a name may contain '=' */
    if (equals == text) return false;
    size_t name = (size_t)(equals - 1 - text), digits = (size_t)(text + length - equals);
    if (name == 0 || name >= PHASE_NAME_MAX || digits >= sizeof number) return false;
    snprintf(number, sizeof number, "%.*s", (int)digits, equals);
    if (!number_parse_real(number, &value) || !isfinite(value) || value < 0) return false;
    if (scales && name == strlen("lr_scale") && strncmp(text, "lr_scale", name) == 0) {
        p->lr_scale = value;
        return value > 0;
    }
    if (p->count == PHASE_WEIGHTS_MAX) return false;
    snprintf(p->weights[p->count].name, PHASE_NAME_MAX, "%.*s", (int)name, text);
    p->weights[p->count++].weight = value;
    return true;
}

static ott_status parse_phase_text(const char *text, data_phase *out) {
    char step[24];
    size_t length = strcspn(text, " ");
    bool good = length < sizeof step;
    if (good) snprintf(step, sizeof step, "%.*s", (int)length, text);
    good = good && number_parse_integer(step, &out->start_step) && out->start_step >= 0;
    for (const char *at = text + length; good && *(at += strspn(at, " ")); at += length) {
        length = strcspn(at, " ");
        good = take_weight(out, at, length, true);
    }
    if (good) return OTT_OK;
    return status_fail(OTT_ERR_CONFIG,
                       "data.phases: \"%.200s\" is not a step and weights of datasets by their names, as "
                       "\"10000 web=0.3 code=0.7 lr_scale=0.5\"; weights are 0 or more, lr_scale is above 0",
                       text);
}

static ott_status read_annealing(const config *cfg, data_phase *out) {
    const str_list *weights = &cfg->data.anneal_weights;
    out->start_step = cfg->data.anneal_start_step;
    for (int64_t i = 0; i < weights->count; i++)
        if (!take_weight(out, weights->items[i], strlen(weights->items[i]), false))
            return status_fail(
                OTT_ERR_CONFIG,
                "data.anneal_weights: \"%.200s\" is not a dataset's name and weight, such as web=0.1; "
                "weights are 0 or more",
                weights->items[i]);
    return OTT_OK;
}

ott_status phases_read(const config *cfg, int i, data_phase *out) {
    *out = (data_phase){.lr_scale = 1.0};
    return is_annealing(cfg) ? read_annealing(cfg, out) : parse_phase_text(cfg->data.phases.items[i], out);
}

ott_status phases_check(const config *cfg) {
    data_phase p;
    int64_t last = -1;
    if (is_annealing(cfg) && cfg->data.phases.count > 0)
        return status_fail(OTT_ERR_CONFIG, "data.phases and data.anneal_start_step both set when the mixture "
                                           "changes; give one of them");
    if (!is_annealing(cfg) && cfg->data.anneal_weights.count > 0)
        return status_fail(OTT_ERR_CONFIG, "data.anneal_weights have no effect, because "
                                           "data.anneal_start_step is 0: set it");
    if (phases_count(cfg) > PHASES_MAX)
        return status_fail(OTT_ERR_CONFIG, "data.phases: %d phases; at most %d are possible",
                           phases_count(cfg), PHASES_MAX);
    for (int i = 0; i < phases_count(cfg); i++, last = p.start_step) {
        TRY(phases_read(cfg, i, &p));
        if (p.start_step <= last)
            return status_fail(OTT_ERR_CONFIG, "data.phases: step %lld does not come after step %lld",
                               (long long)p.start_step, (long long)last);
        if (p.lr_scale != 1.0 && cfg->optimizer.name == OPTIMIZER_SCHEDULE_FREE_ADAMW)
            return status_fail(
                OTT_ERR_CONFIG,
                "data.phases has lr_scale=%g, but optimizer.name = \"schedule_free_adamw\" has a constant "
                "learning rate: remove lr_scale, or use another optimizer",
                p.lr_scale);
        if (p.count > 0 && cfg->data.datasets.count == 0)
            return status_fail(
                OTT_ERR_CONFIG,
                "data.phases gives a weight to \"%s\", but data.datasets names no datasets to mix",
                p.weights[0].name);
    }
    return OTT_OK;
}

double phases_lr_scale(const config *cfg, int64_t step) {
    data_phase p;
    double scale = 1.0;
    for (int i = 0; i < phases_count(cfg); i++)
        if (phases_read(cfg, i, &p) == OTT_OK && p.start_step <= step) scale = p.lr_scale;
    return scale;
}

int phases_begin_at(const config *cfg, int64_t step) {
    data_phase p;
    for (int i = 0; i < phases_count(cfg); i++)
        if (phases_read(cfg, i, &p) == OTT_OK && p.start_step == step) return i;
    return -1;
}
