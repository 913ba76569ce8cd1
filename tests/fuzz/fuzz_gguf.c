/* GGUF files. Input: the file. Its tensors are read, and its configuration and tokenizer are converted. */
#include "fuzz.h"
#include "formats/gguf/gguf_config.h"
#include "formats/hf/config.h"
#include "formats/safetensors/shards.h"
#include "tokenizer/tokenizer.h"
#include <string.h>

static void read_tensors(shards *s) {
    float values[300];
    for (int64_t i = 0; i < shards_count(s); i++) {
        const shard_tensor *t = shards_at(s, i);
        int64_t elements = safetensors_elements(t->entry), count = elements < 300 ? elements : 300;
        FUZZ_REQUIRE(shards_find(s, t->entry->name) == t && shards_has_floats(t));
        FUZZ_REQUIRE(shards_read_floats(s, t, 0, count, values) == OTT_OK);
        FUZZ_REQUIRE(shards_read_floats(s, t, elements - count, count, values) == OTT_OK);
        FUZZ_REQUIRE(shards_read_floats(s, t, elements, 1, values) != OTT_OK);
    }
}

static void encode(mem *account, const tokenizer *t) {
    static const char text[] = "<s>The 12 hats,\n\xc3\xa9\xe2\x96\x81</s> x";
    tokenizer_scratch *scratch;
    tokenizer_ids ids = {.account = account};
    FUZZ_REQUIRE(tokenizer_scratch_open(account, t, &scratch) == OTT_OK);
    if (tokenizer_encode(t, scratch, text, sizeof text - 1, 3, &ids) == OTT_OK)
        for (int64_t i = 0; i < ids.count; i++) FUZZ_REQUIRE(tokenizer_token(t, ids.ids[i]));
    tokenizer_ids_free(&ids);
    tokenizer_scratch_close(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    mem *account = fuzz_account();
    const char *path = fuzz_file("x.gguf", data, bytes);
    shards *s;
    char *text;
    hf_config config;
    tokenizer *t;
    if (shards_open(account, path, &s) == OTT_OK) {
        FUZZ_REQUIRE(shards_are_gguf(s));
        read_tensors(s);
        shards_close(s);
    }
    if (gguf_config_text(account, path, &text) == OTT_OK)
        (void)hf_config_parse(path, text, (int64_t)strlen(text), &config);
    mem_free(account, text);
    if (tokenizer_open(account, path, &t) == OTT_OK) {
        encode(account, t);
        tokenizer_close(t);
    }
    mem_close(account);
    return 0;
}
