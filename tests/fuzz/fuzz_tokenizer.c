/*
 * tokenizer.json and the files next to it. Input: the files and a text, separated by form feeds (which JSON
 * does not contain). With TOKENIZER_NAME the input is a file of this name, and also the text.
 */
#include "fuzz.h"
#include "tokenizer/tokenizer.h"
#include <string.h>

#ifndef TOKENIZER_NAME
static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                    "generation_config.json"};
enum { FILES = sizeof names / sizeof *names };
#endif

static void decode(mem *account, const tokenizer *t, const tokenizer_ids *ids, bool skip_special) {
    str decoded = {.account = account}, streamed = {.account = account};
    tokenizer_stream stream = tokenizer_stream_start(t, skip_special);
    FUZZ_REQUIRE(tokenizer_decode(t, ids->ids, ids->count, skip_special, &decoded) == OTT_OK);
    for (int64_t i = 0; i < ids->count; i++)
        FUZZ_REQUIRE(tokenizer_stream_push(&stream, ids->ids[i], &streamed) == OTT_OK);
    FUZZ_REQUIRE(tokenizer_stream_finish(&stream, &streamed) == OTT_OK);
    FUZZ_REQUIRE(str_finish(&decoded) == OTT_OK && str_finish(&streamed) == OTT_OK);
    FUZZ_REQUIRE(str_utf8_error(decoded.text, decoded.length) < 0);
    FUZZ_REQUIRE(str_utf8_error(streamed.text, streamed.length) < 0);
    str_free(&decoded);
    str_free(&streamed);
}

static void encode(mem *account, const tokenizer *t, const char *text, int64_t bytes) {
    tokenizer_scratch *scratch;
    tokenizer_ids ids = {.account = account};
    FUZZ_REQUIRE(tokenizer_scratch_open(account, t, &scratch) == OTT_OK);
    for (unsigned flags = 0; flags < 4; flags++) {
        int64_t before = ids.count;
        if (tokenizer_encode(t, scratch, text, bytes, flags, &ids) != OTT_OK)
            FUZZ_REQUIRE(ids.count == before);
    }
    for (int64_t i = 0; i < ids.count; i++) FUZZ_REQUIRE(tokenizer_token(t, ids.ids[i]));
    decode(account, t, &ids, false);
    decode(account, t, &ids, true);
    tokenizer_ids_free(&ids);
    tokenizer_scratch_close(scratch);
}

static void use(mem *account, const tokenizer *t, const char *text, int64_t bytes) {
    static const char usual[] = "<s>The cat's 1234 hats, \xc3\xa9\xe2\x96\x81 \xf0\x9f\x98\x80\n\n and</s> x";
    int64_t vocab = tokenizer_vocab(t);
    FUZZ_REQUIRE(tokenizer_bos(t) < vocab && tokenizer_eos(t) < vocab);
    for (int64_t id = -1; id <= vocab && id < 300; id++) {
        const char *token = tokenizer_token(t, id);
        if (token) tokenizer_find(t, token);
        tokenizer_is_special(t, id);
        tokenizer_is_stop(t, id);
    }
    encode(account, t, usual, sizeof usual - 1);
    encode(account, t, text, bytes);
}

#ifdef TOKENIZER_NAME
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    mem *account = fuzz_account();
    tokenizer *t;
    if (tokenizer_open(account, fuzz_file(TOKENIZER_NAME, data, bytes), &t) == OTT_OK) {
        use(account, t, (const char *)data, (int64_t)bytes);
        tokenizer_close(t);
    }
    mem_close(account);
    return 0;
}
#else
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const char *at = (const char *)data, *end = at + bytes, *path = NULL;
    for (int i = 0; i < FILES; i++) {
        const char *stop = at < end ? memchr(at, '\f', (size_t)(end - at)) : NULL;
        if (!stop) stop = end;
        const char *written = fuzz_file(names[i], i == 0 || stop > at ? at : NULL, (size_t)(stop - at));
        if (i == 0) path = written;
        at = stop < end ? stop + 1 : end;
    }
    mem *account = fuzz_account();
    tokenizer *t;
    if (tokenizer_open(account, path, &t) == OTT_OK) {
        use(account, t, at, end - at);
        tokenizer_close(t);
    }
    mem_close(account);
    return 0;
}
#endif
