/* Compares small tokenizers, which together have every supported component, with Hugging Face's engine
   (tests/golden/tokenizers.json). */
#include "tokenizer/tokenizer_case.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static json_t *golden;

static const char *text_at(const json_t *array, size_t i) {
    return json_string_value(json_array_get(array, i));
}

static tokenizer *open_case(folder *f, const json_t *c) {
    const json_t *model =
        json_object_get(json_object_get(golden, "models"), json_string_value(json_object_get(c, "model")));
    json_t *root = json_deep_copy(json_object_get(c, "file")), *own = json_deep_copy(model);
    assert_int_equal(json_object_update(own, json_object_get(c, "options")), 0);
    assert_int_equal(json_object_set_new(root, "model", own), 0);
    return case_open(f, root);
}

static void check_ids(folder *f, const tokenizer *t, const json_t *c, const char *text, unsigned flags,
                      const char *expected) {
    char *ids = case_ids(f, t, text, -1, flags);
    if (strcmp(ids, expected) != 0)
        fail_msg("case '%s', flags %u, \"%s\":\n%s\nshould be\n%s",
                 json_string_value(json_object_get(c, "name")), flags, text, ids, expected);
    free(ids);
}

static void check_case(folder *f, const json_t *c) {
    const json_t *strings = json_object_get(golden, "strings"), *ids = json_object_get(c, "ids");
    const json_t *plain = json_object_get(c, "plain");
    /* Decoding one token at a time must give the same text, except for byte tokens that are invalid UTF-8. */
    bool streamed = strcmp(json_string_value(json_object_get(c, "name")), "fallback alone") != 0;
    tokenizer *t = open_case(f, c);
    for (size_t i = 0; i < json_array_size(strings); i++) {
        const char *expected = text_at(ids, i), *without = text_at(plain, i);
        check_ids(f, t, c, text_at(strings, i), TOKENIZER_ADD_SPECIAL | TOKENIZER_MATCH_SPECIAL, expected);
        check_ids(f, t, c, text_at(strings, i), 0, without ? without : expected);
        assert_decodes(f, t, expected, false, text_at(json_object_get(c, "texts"), i), -1, streamed);
        assert_decodes(f, t, expected, true, text_at(json_object_get(c, "skipped"), i), -1, streamed);
    }
    tokenizer_close(t);
}

static void equals_the_reference_engine(void **state) {
    const json_t *cases = json_object_get(golden, "cases");
    assert_true(json_array_size(cases) > 50);
    for (size_t i = 0; i < json_array_size(cases); i++) check_case(*state, json_array_get(cases, i));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(equals_the_reference_engine, folder_setup, folder_teardown),
    };
    golden = json_load_file(TEST_SOURCE_DIR "/tests/golden/tokenizers.json", 0, NULL);
    if (!golden) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(golden);
    return failed;
}
