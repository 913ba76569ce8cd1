/*
 * adapter_config.json of a PEFT folder. Input: the text. An accepted file gives a configuration with
 * adapters. This configuration, written as TOML and parsed again, must stay the same.
 */
#include "fuzz.h"
#include "folders/peft.h"
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    mem *account = fuzz_account();
    config *cfg, *again;
    str toml = {.account = account};
    char path[4200];
    const char *argument[] = {path};
    fuzz_file(PEFT_CONFIG_NAME, bytes ? (const void *)data : "", bytes);
    snprintf(path, sizeof path, "--peft.path=%s", fuzz_path("."));
    FUZZ_REQUIRE(config_parse(account, NULL, 1, argument, &cfg) == OTT_OK);
    if (peft_configure(account, cfg) == OTT_OK) {
        FUZZ_REQUIRE(cfg->peft.enabled && cfg->peft.dim > 0 && cfg->peft.dropout >= 0);
        FUZZ_REQUIRE(config_write_toml(cfg, &toml) == OTT_OK && str_finish(&toml) == OTT_OK);
        const char *file[] = {fuzz_file("again.toml", toml.text, (size_t)toml.length)};
        FUZZ_REQUIRE(config_parse(account, NULL, 1, file, &again) == OTT_OK);
        config_close(again);
    }
    config_close(cfg);
    str_free(&toml);
    mem_close(account);
    return 0;
}
