/*
 * The command line of `ottava train`. Input: the arguments, one per line. Accepted arguments are written as
 * TOML and must read back the same.
 */
#include "fuzz.h"
#include "config/config.h"
#include <string.h>

enum { MOST_ARGUMENTS = 64 };

static int split(char *text, const char **arguments) {
    int count = 0;
    for (char *next = text; next && count < MOST_ARGUMENTS;) {
        arguments[count++] = next;
        next = strchr(next, '\n');
        if (next) *next++ = '\0';
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char text[4097] = "";
    const char *arguments[MOST_ARGUMENTS];
    if (bytes >= sizeof text) return 0;
    memcpy(text, data, bytes);
    mem *account = fuzz_account();
    config *cfg, *again;
    str toml = {.account = account};
    if (config_parse(account, NULL, split(text, arguments), arguments, &cfg) == OTT_OK) {
        FUZZ_REQUIRE(config_write_toml(cfg, &toml) == OTT_OK && str_finish(&toml) == OTT_OK);
        const char *file[] = {fuzz_file("again.toml", toml.text, (size_t)toml.length)};
        FUZZ_REQUIRE(config_parse(account, NULL, 1, file, &again) == OTT_OK);
        config_close(again);
        config_close(cfg);
    }
    str_free(&toml);
    mem_close(account);
    return 0;
}
