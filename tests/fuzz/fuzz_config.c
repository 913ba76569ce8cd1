/*
 * A run's configuration file. Input: the file; its format is that of CONFIG_NAME's extension. An accepted
 * file is resolved as for a run and written as TOML, which must read back the same.
 */
#include "fuzz.h"
#include "resolve/resolve.h"
#include <stdio.h>

static ott_status parse(mem *account, const char *path, config **out) {
    const char *arguments[] = {path};
    return config_parse(account, NULL, 1, arguments, out);
}

static void report(void *user, const char *key, const char *before, const char *after) {
    fprintf(stderr, "%s: %s became %s\n", key, before, after);
    *(bool *)user = true;
}

static void write_and_read(mem *account, config *cfg) {
    str text = {.account = account};
    model_options shape;
    config *again;
    bool differs = false;
    if (model_options_resolve(cfg, &shape) != OTT_OK) return;
    FUZZ_REQUIRE(config_write_toml(cfg, &text) == OTT_OK && str_finish(&text) == OTT_OK);
    FUZZ_REQUIRE(parse(account, fuzz_file("again.toml", text.text, (size_t)text.length), &again) == OTT_OK);
    FUZZ_REQUIRE(model_options_resolve(again, &shape) == OTT_OK);
    FUZZ_REQUIRE(config_differences(cfg, again, report, &differs) == OTT_OK && !differs);
    config_close(again);
    str_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    mem *account = fuzz_account();
    config *cfg;
    if (parse(account, fuzz_file(CONFIG_NAME, data, bytes), &cfg) == OTT_OK) {
        write_and_read(account, cfg);
        config_close(cfg);
    }
    mem_close(account);
    return 0;
}
