/* run/freezing: reads entries such as "100 lm_head model.norm" and applies them. */
#include "run/freezing.h"
#include "config/parse/number.h"
#include "model/freeze.h"
#include <stdio.h>
#include <string.h>

enum { PATTERNS_MAX = 64 };

static bool read_schedule_step(const char *entry, int64_t *step) {
    char text[24];
    size_t length = strcspn(entry, " ");
    if (length >= sizeof text) return false;
    snprintf(text, sizeof text, "%.*s", (int)length, entry);
    return number_parse_integer(text, step) && *step >= 0;
}

ott_status freezing_check(const config *cfg) {
    const str_list *list = &cfg->train.freeze_schedule;
    int64_t step, last = -1;
    for (int64_t i = 0; i < list->count; i++, last = step) {
        if (!read_schedule_step(list->items[i], &step))
            return status_fail(
                OTT_ERR_CONFIG,
                "train.freeze_schedule: \"%.200s\" is not a step and names of parameters, such as "
                "\"100 lm_head model.norm\"",
                list->items[i]);
        if (step <= last)
            return status_fail(OTT_ERR_CONFIG,
                               "train.freeze_schedule: steps must ascend, but %lld follows %lld",
                               (long long)step, (long long)last);
    }
    return OTT_OK;
}

int freezing_at(const config *cfg, int64_t step) {
    const str_list *list = &cfg->train.freeze_schedule;
    int64_t start;
    int found = FREEZING_NONE;
    for (int64_t i = 0; i < list->count; i++)
        if (read_schedule_step(list->items[i], &start) && start <= step) found = (int)i;
    return found;
}

/* Freezes the parameters that one entry of the schedule names, instead of another entry's parameters. */
static ott_status freeze_by_entry(const config *cfg, model *m, int64_t entry, int *frozen_count) {
    const char *text = cfg->train.freeze_schedule.items[entry], *patterns[PATTERNS_MAX];
    char names[4096], *next = NULL;
    int count = 0;
    if (snprintf(names, sizeof names, "%s", text + strcspn(text, " ")) >= (int)sizeof names)
        return status_fail(OTT_ERR_CONFIG,
                           "train.freeze_schedule: \"%.60s...\" is longer than %zu characters", text,
                           sizeof names);
    for (char *name = strtok_r(names, " ", &next); name; name = strtok_r(NULL, " ", &next)) {
        if (count == PATTERNS_MAX)
            return status_fail(
                OTT_ERR_CONFIG,
                "train.freeze_schedule: \"%.60s...\" has more than %d names: use patterns with *", text,
                PATTERNS_MAX);
        patterns[count++] = name;
    }
    return freeze_apply(m, patterns, count, frozen_count);
}

ott_status freezing_check_names(const config *cfg, model *m) {
    int frozen_count;
    for (int64_t i = 0; i < cfg->train.freeze_schedule.count; i++)
        TRY(freeze_by_entry(cfg, m, i, &frozen_count));
    return freeze_apply(m, NULL, 0, &frozen_count);
}

ott_status freezing_apply(const config *cfg, trainer *t, int entry, int *frozen_count) {
    TRY(freeze_by_entry(cfg, t->m, entry, frozen_count));
    return trainer_convert(t, t->recipe);
}
