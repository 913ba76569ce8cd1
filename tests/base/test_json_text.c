/* Parses JSON: valid texts, invalid texts, and texts for which one allocation fails. */
#include "base/json/json_text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int64_t left; /* number of allocations that will still succeed; negative: all succeed */

static void *rationed(size_t bytes) {
    if (left == 0) return NULL;
    if (left > 0) left--;
    return malloc(bytes);
}

static int begin(void **state) {
    (void)state;
    left = -1;
    json_set_alloc_funcs(rationed, free);
    return 0;
}

static int end(void **state) {
    (void)state;
    json_set_alloc_funcs(malloc, free);
    return 0;
}

static ott_status parse(const char *text, size_t flags, json_t **out) {
    json_error_t error;
    return json_text_parse(text, (int64_t)strlen(text), flags, out, &error);
}

static void out_of_memory_is_reported_everywhere(void **state) {
    (void)state;
    static const char text[] =
        "{\"name\": [\"a text\", 1.5e3, -2, true, null, {\"k\\u00e9\\ud83d\\ude00\": [[]]}],"
        " \"other\": {\"a\": {\"b\": \"c\"}}, \"real\": 0.25}";
    json_t *json;
    int64_t refused = 0;
    for (int64_t n = 0;; n++) {
        left = n;
        ott_status status = parse(text, JSON_REJECT_DUPLICATES, &json);
        if (status == OTT_OK && json) break;
        refused++;
        if (status != OTT_ERR_MEMORY) fail_msg("allocation %d: %s", (int)n, status_name(status));
        assert_non_null(strstr(status_text(), "out of memory"));
    }
    left = -1;
    assert_true(refused > 20);
    json_decref(json);
}

/* A syntax error is reported as a syntax error, never as missing memory, whatever code jansson gives. */
static void wrong_texts_are_not_memory(void **state) {
    (void)state;
    static const char *const texts[] = {"",
                                        "  ",
                                        "{",
                                        "[1,]",
                                        "{\"a\":}",
                                        "{\"a\" 1}",
                                        "[01]",
                                        "[1.]",
                                        "[.5]",
                                        "[1e]",
                                        "[-]",
                                        "[tru]",
                                        "[\"a]",
                                        "[\"\\x\"]",
                                        "[\"\\u12g4\"]",
                                        "[\"\\ud800\"]",
                                        "[\"\\udc00\"]",
                                        "[\"\\ud800\\u0041\"]",
                                        "[\"\n\"]",
                                        "123",
                                        "\"a\"",
                                        "true",
                                        "[1] 2",
                                        "{\"a\":1,\"a\":2}",
                                        "[1e999]",
                                        "[99999999999999999999]",
                                        "[\"\xff\"]",
                                        "[\"\\u0000\"]",
                                        "nul",
                                        "[1}",
                                        "{\"a\":1]"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *json;
        if (parse(texts[i], JSON_REJECT_DUPLICATES, &json) != OTT_OK)
            fail_msg("%s: %s", texts[i], status_text());
        if (json) fail_msg("%s is read", texts[i]);
    }
}

/* base/json/json_text checks the syntax itself. It must agree with jansson. */
static void grammar(void **state) {
    (void)state;
    static const char *const valid[] = {"{}",
                                        " [ ] ",
                                        "[1,2.5,-3e-2,0,0.1E+7]",
                                        "\"a\\n\\u00e9\"",
                                        "null",
                                        "{\"a\":{\"b\":[true,false,null]},\"c\":\"\"}",
                                        "-0",
                                        "\"\\ud83d\\ude00\""};
    static const char *const invalid[] = {"",     "{",     "[1,]",       "{\"a\":}", "{1:2}",
                                          "[01]", "+1",    "1.",         "\"\\q\"",  "\"",
                                          "tru",  "[1 2]", "{\"a\":1,}", "1 2",      "\"\\ud83d\""};
    for (size_t i = 0; i < sizeof valid / sizeof *valid; i++) {
        json_t *json;
        assert_int_equal(parse(valid[i], JSON_DECODE_ANY, &json), OTT_OK);
        assert_non_null(json);
        json_decref(json);
        if (!json_text_is_valid(valid[i], (int64_t)strlen(valid[i]))) fail_msg("%s", valid[i]);
    }
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++)
        if (json_text_is_valid(invalid[i], (int64_t)strlen(invalid[i]))) fail_msg("%s", invalid[i]);
}

static void white_space_is_blank(void **state) {
    (void)state;
    assert_true(json_text_is_blank("", 0));
    assert_true(json_text_is_blank(" \t\r", 3));
    assert_false(json_text_is_blank(" {", 2));
    assert_false(json_text_is_blank("\0", 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_of_memory_is_reported_everywhere),
        cmocka_unit_test(wrong_texts_are_not_memory),
        cmocka_unit_test(grammar),
        cmocka_unit_test(white_space_is_blank),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
