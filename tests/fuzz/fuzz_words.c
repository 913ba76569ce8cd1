/*
 * Configuration values that have their own syntax: how a tensor is cast to FP8 (fp8/recipe_text), the
 * precision schedule, rules for single modules, and a mixture of datasets. Input: a byte that selects the
 * syntax, then the text.
 */
#include "fuzz.h"
#include "fp8/recipe_text.h"
#include "data/data.h"
#include "train/precision.h"
#include <string.h>

static void read_use(const char *text) {
    cast_spec s, again;
    char shown[RECIPE_CAST_TEXT], twice[RECIPE_CAST_TEXT];
    if (recipe_cast_parse(text, OTT_BF16, &s) != OTT_OK) return;
    recipe_cast_write(&s, shown);
    FUZZ_REQUIRE(recipe_cast_parse(shown, OTT_BF16, &again) == OTT_OK);
    recipe_cast_write(&again, twice);
    FUZZ_REQUIRE(strcmp(shown, twice) == 0);
}

static ott_status count(void *user, bool validation, const char *path) {
    (void)validation;
    *(int64_t *)user += (int64_t)strlen(path);
    return OTT_OK;
}

static void read_plan(config *cfg) {
    static precision_plan p;
    if (precision_plan_read(cfg, &p) != OTT_OK) return;
    FUZZ_REQUIRE(p.phase_count >= 1 && p.phases[0].first == 0);
    for (int i = 1; i < p.phase_count; i++) FUZZ_REQUIRE(p.phases[i].first > p.phases[i - 1].first);
    FUZZ_REQUIRE(precision_at(&p, INT64_MAX) == p.phases[p.phase_count - 1].recipe);
}

static void read_key(mem *account, const char *key, const char *text) {
    static const char *const arguments[] = {"--train.mixed_precision=fp8", "--model.preset=debug"};
    config *cfg;
    int64_t length = 0;
    FUZZ_REQUIRE(config_parse(account, NULL, 2, arguments, &cfg) == OTT_OK);
    if (config_set(cfg, key, text) == OTT_OK) {
        read_plan(cfg);
        (void)data_visit_files(account, cfg, count, &length);
    }
    config_close(cfg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *const keys[] = {NULL, "float8.schedule", "float8.module", "data.datasets",
                                       "float8.filter_fqns"};
    char text[4097] = "";
    if (bytes < 1 || bytes > sizeof text) return 0;
    memcpy(text, data + 1, bytes - 1);
    mem *account = fuzz_account();
    const char *key = keys[data[0] % 5];
    if (key)
        read_key(account, key, text);
    else
        read_use(text);
    mem_close(account);
    return 0;
}
