/* Tokenizer files other than tokenizer.json: SentencePiece's models and tiktoken's vocabularies. The ids are
   compared with the formats' own libraries (tests/golden/sentencepiece). */
#include "tokenizer/tokenizer_case.h"
#include "base/file/file.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define GOLDEN TEST_SOURCE_DIR "/tests/golden/sentencepiece/"

static tokenizer *open_file(folder *f, const char *path) {
    tokenizer *t;
    if (tokenizer_open(f->account, path, &t) != OTT_OK) fail_msg("%s", status_text());
    return t;
}

/* Copies a golden file to the test's folder. */
static const char *copy_golden(folder *f, const char *golden, const char *name) {
    char path[512], *data;
    int64_t bytes;
    snprintf(path, sizeof path, GOLDEN "%s", golden);
    assert_int_equal(file_read(f->account, path, 1 << 20, &data, &bytes), OTT_OK);
    const char *out = folder_write(f, name, data, bytes);
    mem_free(f->account, data);
    return out;
}

static void assert_golden_ids(folder *f, const tokenizer *t, const json_t *c, size_t i, const json_t *text) {
    const json_t *list = json_array_get(json_object_get(c, "ids"), i), *id;
    char expected[4096] = "";
    size_t k, used = 0;
    bool unknown = false; /* SentencePiece decodes it to " \u2047 ", transformers to its name */
    json_array_foreach((json_t *)list, k, id) {
        used += (size_t)snprintf(expected + used, sizeof expected - used, k ? " %d" : "%d",
                                 (int)json_integer_value(id));
        unknown = unknown || json_integer_value(id) == tokenizer_find(t, "<unk>");
    }
    char *ids = case_ids(f, t, json_string_value(text), (int64_t)json_string_length(text), 0);
    if (strcmp(ids, expected) != 0)
        fail_msg("%s, \"%s\":\n%s\nshould be\n%s", json_string_value(json_object_get(c, "file")),
                 json_string_value(text), ids, expected);
    const char *decoded = json_string_value(json_array_get(json_object_get(c, "texts"), i));
    if (!unknown) assert_decodes(f, t, ids, false, decoded, -1, true);
    free(ids);
}

static void ids_equal_the_libraries(void **state) {
    json_t *golden = json_load_file(GOLDEN "goldens.json", 0, NULL), *c, *text;
    size_t i, k;
    assert_non_null(golden);
    assert_true(json_array_size(json_object_get(golden, "cases")) >= 7);
    json_array_foreach(json_object_get(golden, "cases"), i, c) {
        folder *f = *state;
        copy_golden(f, json_string_value(json_object_get(c, "file")),
                    json_string_value(json_object_get(c, "name")));
        tokenizer *t = open_file(f, f->path); /* finds the file in its folder */
        json_array_foreach(json_object_get(golden, "strings"), k, text) assert_golden_ids(f, t, c, k, text);
        tokenizer_close(t);
    }
    json_decref(golden);
}

static void neighbours_apply(void **state) {
    folder *f = *state;
    copy_golden(f, "llama.model", "tokenizer.model");
    tokenizer *t = open_file(f, f->path);
    assert_tokens(f, t, "the</s>the", TOKENIZER_MATCH_SPECIAL, "\u2581the|</s>|\u2581the");
    assert_int_equal(tokenizer_bos(t), tokenizer_find(t, "<s>"));
    assert_int_equal(tokenizer_eos(t), tokenizer_find(t, "</s>"));
    assert_true(tokenizer_adds_bos(t) && !tokenizer_adds_eos(t));
    assert_true(tokenizer_is_special(t, tokenizer_bos(t)));
    assert_false(tokenizer_has_chat_template(t));
    int64_t vocab = tokenizer_vocab(t);
    tokenizer_close(t);
    char config[512];
    snprintf(
        config, sizeof config,
        "{\"add_bos_token\": false, \"legacy\": false, \"eos_token\": \"<|im_end|>\", \"chat_template\": "
        "\"x\","
        " \"added_tokens_decoder\": {\"0\": {\"content\": \"<unk>\"}, \"%d\": {\"content\": \"<|im_end|>\","
        " \"special\": true}}}",
        (int)vocab);
    folder_write_text(f, "tokenizer_config.json", config);
    t = open_file(f, f->path);
    assert_int_equal(tokenizer_vocab(t), vocab + 1);
    assert_int_equal(tokenizer_eos(t), vocab);
    assert_true(tokenizer_has_chat_template(t) && !tokenizer_adds_bos(t));
    assert_tokens(f, t, "the<|im_end|> the", TOKENIZER_MATCH_SPECIAL, "\u2581the|<|im_end|>|\u2581the");
    tokenizer_close(t);
}

static void llama3_special_tokens(void **state) {
    folder *f = *state;
    tokenizer *t = open_file(f, copy_golden(f, "llama.tiktoken", "tokenizer.model"));
    int32_t bos = tokenizer_bos(t);
    assert_string_equal(tokenizer_token(t, bos), "<|begin_of_text|>");
    assert_int_equal(tokenizer_vocab(t), bos + 256);
    assert_int_equal(tokenizer_eos(t), bos + 1);
    assert_int_equal(tokenizer_find(t, "<|eot_id|>"), bos + 9);
    assert_string_equal(tokenizer_token(t, bos + 255), "<|reserved_special_token_247|>");
    assert_true(tokenizer_adds_bos(t));
    tokenizer_close(t);
    t = open_file(f, copy_golden(f, "llama.tiktoken", "qwen.tiktoken"));
    assert_int_equal(tokenizer_bos(t), -1);
    assert_string_equal(tokenizer_token(t, tokenizer_eos(t)), "<|endoftext|>");
    assert_int_equal(tokenizer_find(t, "<|im_end|>"), tokenizer_eos(t) + 2);
    tokenizer_close(t);
}

static void refuse(folder *f, const char *name, const void *data, int64_t bytes, const char *message) {
    tokenizer *t;
    ott_status status = tokenizer_open(f->account, folder_write(f, name, data, bytes), &t);
    if (status == OTT_OK) fail_msg("it opens instead of \"%s\"", message);
    assert_null(t);
    assert_error_names(name);
    assert_error_names(message);
}

static void damaged_vocabularies(void **state) {
    static const char *const cases[][2] = {
        {"", "has no tokens"},
        {"IQ== 0\nI*== 1\n", "line 2: is not a token of 1 to 1024 bytes in base64"},
        {"IQ== 0\nIg=\n", "line 2: is not a token"},
        {"IR== 0\n", "line 1: is not a token"}, /* bits that no byte has */
        {" 0\n", "line 1: is not a token"},
        {"IQ== 0\nIg== \n", "line 2: the rank '"},
        {"IQ== 0\nIg== 99999999999999999999\n", "line 2: the rank '"},
        {"IQ== 0\nIg== 0\n", "line 2: the rank '0' is not an integer from 1 to"},
        {"IQ== 0\nIQ== 1\n", "line 2: '!' is a token twice: 0 and 1"},
        {"IQ== 900000000\n", "of 900000001 tokens"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(*state, "tokenizer.model", cases[i][0], (int64_t)strlen(cases[i][0]), cases[i][1]);
    refuse(*state, "other.tiktoken", "IQ== 0\n", 7, "how it splits a text is unknown");
    char long_token[3000];
    memset(long_token, 'A', sizeof long_token);
    memcpy(long_token + sizeof long_token - 3, " 0\n", 3);
    refuse(*state, "tokenizer.model", long_token, sizeof long_token,
           "line 1: is not a token of 1 to 1024 bytes");
}

static void damaged_models(void **state) {
    static const struct {
        const char *data;
        int64_t bytes;
        const char *message;
    } cases[] = {
        {"\x0a\x03\x0a\x01"
         "a\x0a",
         6, "byte 6: the message is incomplete"},
        {"\x0a\x03\x0a\x01"
         "a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
         17, "more than 64 bits"},
        {"\x0a\x03\x0a\x01"
         "a\x0a\xff\xff\xff\x7f",
         10, "the message is incomplete"},
        {"\x0a\x03\x0a\x01"
         "a\x0b",
         6, "this is not a field"},
        {"\x0a\x03\x0a\x01\xff", 5, "piece 0: is not a text of 1 to 1024 bytes in UTF-8"},
        {"\x0a\x03\x0a\x01"
         "a",
         5, "there is no piece of the type UNKNOWN"},
        {"\x0a\x05\x0a\x01"
         "a\x18\x09",
         7, "piece 0: 'a' has the type 0"},
        {"\x0a\x08\x0a\x01"
         "a\x15\x00\x00\xc0\x7f",
         10, "piece 0: 'a' has the type 1 and the score nan"},
        {"\x0a\x05\x0a\x01"
         "a\x18\x02\x0a\x03\x0a\x01"
         "a",
         12, "'a' is a token twice: 0 and 1"},
        {"\x0a\x05\x0a\x01"
         "a\x18\x05",
         7, "piece 0: 'a' has the type 5"},
        {"\x0a\x05\x0a\x01"
         "a\x18\x02\x12\x02\x18\x04",
         11, "model_type 4 is not supported"},
        {"\x0a\x05\x0a\x01"
         "a\x18\x02\x12\x03\xc0\x01\x01",
         12, "model_type 1 with treat_whitespace_as_suffix"},
        {"\x0a\x05\x0a\x01"
         "a\x18\x02\x1a\x04\x12\x02zz",
         13, "precompiled_charsmap of 2 bytes is damaged"},
        {"\x0a\x05\x0a\x01"
         "a\x18\x02\x0a\x04\x0a\x02zz\x12\x02\x18\x02",
         17, "'zz': its character 'z' is not a piece"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(*state, "tokenizer.model", cases[i].data, cases[i].bytes, cases[i].message);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ids_equal_the_libraries, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(neighbours_apply, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(llama3_special_tokens, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(damaged_vocabularies, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(damaged_models, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
