/*
 * config.json. Input: the text. The configuration of an accepted text is written twice: into the original
 * text and as a new text. Both written texts must be accepted, and the first must give the same
 * configuration.
 */
#include "fuzz.h"
#include "formats/hf/config.h"
#include <string.h>

static void write_and_read(mem *account, const hf_config *c, const char *original) {
    str text = {.account = account};
    hf_config again;
    if (hf_config_text(account, c, original, NULL, &text) == OTT_OK) {
        FUZZ_REQUIRE(str_finish(&text) == OTT_OK);
        FUZZ_REQUIRE(hf_config_parse("again", text.text, text.length, &again) == OTT_OK);
        FUZZ_REQUIRE(!original || hf_config_equal(c, &again));
    }
    str_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    mem *account = fuzz_account();
    void *copy;
    hf_config c;
    FUZZ_REQUIRE(mem_alloc(account, MEM_OTHER, (int64_t)bytes + 1, "the input", &copy) == OTT_OK);
    if (bytes) memcpy(copy, data, bytes);
    if (hf_config_parse("config.json", (const char *)data, (int64_t)bytes, &c) == OTT_OK) {
        if (!memchr(data, 0, bytes)) write_and_read(account, &c, copy);
        write_and_read(account, &c, NULL);
    }
    mem_free(account, copy);
    mem_close(account);
    return 0;
}
