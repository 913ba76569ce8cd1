/* Strings: growing, failed growth, JSON literals, UTF-8, nearest matches, patterns, numbers. */
#include "base/text/str.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static mem *m;

static int open_account(void **state) {
    (void)state;
    return mem_open(&m) != OTT_OK;
}

static int close_account(void **state) {
    (void)state;
    int64_t left = mem_read(m).now;
    mem_close(m);
    return left != 0;
}

static void test_appending(void **state) {
    (void)state;
    str s = {.account = m};
    assert_null(s.text);
    str_append(&s, "");
    assert_string_equal(s.text, "");
    str_append(&s, "step: ");
    str_printf(&s, "%3d  loss: %.4f", 7, 2.5);
    str_append_bytes(&s, "a\0b", 3);
    assert_int_equal(s.length, 26);
    assert_memory_equal(s.text, "step:   7  loss: 2.5000a\0b", 26);
    assert_int_equal(str_finish(&s), OTT_OK);
    str_free(&s);
    assert_null(s.text);
    str_append(&s, "again"); /* a string can be used again after str_free */
    assert_string_equal(s.text, "again");
    str_free(&s);
}

static void test_growth(void **state) {
    (void)state;
    str s = {.account = m};
    for (int i = 0; i < 5000; i++) str_printf(&s, "%04d,", i);
    assert_int_equal(s.length, 25000);
    assert_int_equal(strlen(s.text), 25000);
    assert_memory_equal(s.text + 4321 * 5, "4321,", 5);
    assert_in_range(mem_read(m).allocations, 1, 20);
    /* texts of each length, with the buffer filled almost to its capacity */
    for (int length = 0; length < 300; length++) {
        str t = {.account = m};
        for (int i = 0; i < length; i++) str_append(&t, "x");
        str_printf(&t, "%s", "yz");
        assert_int_equal(strlen(t.text), length + 2);
        assert_true(t.capacity > t.length);
        str_free(&t);
    }
    str_free(&s);
}

static void test_failure_is_kept(void **state) {
    (void)state;
    str s = {.account = m};
    str_append(&s, "kept");
    mem_fail_after(m, 1);
    str_printf(&s, "%1000d", 1);
    str_append(&s, "dropped");
    assert_string_equal(s.text, "kept");
    assert_int_equal(str_finish(&s), OTT_ERR_MEMORY);
    str_free(&s);
    assert_int_equal(str_finish(&s), OTT_OK);
    str_append_bytes(&s, "x", INT64_MAX);
    assert_int_equal(str_finish(&s), OTT_ERR_MEMORY);
    str_free(&s);
}

static void check_json(const char *text, int64_t length, const char *expected) {
    str s = {.account = m};
    str_append_json(&s, text, length);
    assert_string_equal(s.text, expected);
    str_free(&s);
}

static void test_json(void **state) {
    (void)state;
    check_json("", 0, "\"\"");
    check_json("say \"8va\" \\ /", 13, "\"say \\\"8va\\\" \\\\ /\"");
    check_json("\b\f\n\r\t\x01\x1f\x7f", 8, "\"\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\"");
    check_json("a\0b", 3, "\"a\\u0000b\"");
    check_json("\xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\xb5", 9, "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\xb5\"");
    check_json("a\xff\xc3", 3, "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
}

static void test_utf8(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t error;
    } cases[] = {
        {"", -1},
        {"plain", -1},
        {"\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", -1},
        {"ab\x80", 2},           /* a continuation byte without a start */
        {"\xc0\xaf", 0},         /* '/' encoded in too many bytes */
        {"\xc1\xbf", 0},         /* a character encoded in too many bytes */
        {"a\xe0\x9f\xbf", 1},    /* a character of two bytes, encoded in three */
        {"\xf0\x8f\xbf\xbf", 0}, /* a character of three bytes, encoded in four */
        {"xyz\xed\xa0\x80", 3},  /* a surrogate */
        {"\xf4\x90\x80\x80", 0}, /* beyond U+10FFFF */
        {"\xf5\x80\x80\x80", 0},
        {"ok\xe2\x82", 2}, /* a truncated character */
        {"\xe2\x28\xa1", 0},
        {"\xf0\x9f\x8e", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(str_utf8_error(cases[i].text, (int64_t)strlen(cases[i].text)), cases[i].error);
    assert_int_equal(str_utf8_error("a\0\xff", 3), 2);
}

static void test_distance(void **state) {
    (void)state;
    assert_int_equal(str_distance("", ""), 0);
    assert_int_equal(str_distance("", "abc"), 3);
    assert_int_equal(str_distance("kitten", "sitting"), 3);
    assert_int_equal(str_distance("sitting", "kitten"), 3);
    assert_int_equal(str_distance("TensorWise", "tensorwise"), 0);
    assert_int_equal(str_distance("rowise", "rowwise"), 1);
    assert_int_equal(str_distance("recipe", "reicpe"), 1);
    char a[600], b[600];
    memset(a, 'a', sizeof a);
    memset(b, 'b', sizeof b);
    a[599] = b[599] = '\0';
    assert_int_equal(str_distance(a, b), 599);
    assert_int_equal(str_distance(a, a), 0);
    b[255] = '\0';
    assert_int_equal(str_distance(a, b), 599);
    assert_int_equal(str_distance(b, b), 0);
}

static void test_nearest(void **state) {
    (void)state;
    static const char *const recipes[] = {"tensorwise", "rowwise", "rowwise_with_gw_hp", "delayed", "mxfp8"};
    assert_string_equal(str_nearest("tensor_wise", recipes, 5), "tensorwise");
    assert_string_equal(str_nearest("ROWISE", recipes, 5), "rowwise");
    assert_string_equal(str_nearest("mxfp4", recipes, 5), "mxfp8");
    assert_string_equal(str_nearest("tensor", (const char *const[]){"ten", "tensorx"}, 2), "tensorx");
    assert_string_equal(str_nearest("fp8", (const char *const[]){"bp8", "fp4"}, 2),
                        "bp8"); /* the first of two equally near words */
    assert_string_equal(str_nearest("trian", (const char *const[]){"drain", "train"}, 2), "train");
    assert_string_equal(str_nearest("seq_length", (const char *const[]){"seq_len"}, 1), "seq_len");
    assert_null(str_nearest("32B", (const char *const[]){"42M"}, 1));
    assert_null(str_nearest("qat", (const char *const[]){"data"}, 1));
    assert_null(str_nearest("quantization", (const char *const[]){"activation"}, 1));
    assert_null(str_nearest("something_else", recipes, 5));
    /* 3 edits are needed, 2 are allowed */
    assert_null(str_nearest("abcdefg", (const char *const[]){"abcdxyz"}, 1));
    assert_string_equal(str_nearest("abcdefg", (const char *const[]){"abcdexy"}, 1), "abcdexy");
    assert_null(str_nearest("x", recipes, 0));
}

static void test_prefix_and_suffix(void **state) {
    (void)state;
    assert_true(str_starts_with("model.layers", "model."));
    assert_true(str_starts_with("model", ""));
    assert_false(str_starts_with("mod", "model"));
    assert_true(str_ends_with("q_proj.weight", ".weight"));
    assert_true(str_ends_with("x", ""));
    assert_false(str_ends_with("ht", "weight"));
    assert_false(str_ends_with("weighs", "weight"));
}

static void test_glob(void **state) {
    (void)state;
    static const char *const yes[][2] = {
        {"", ""},
        {"*", ""},
        {"*", "anything"},
        {"a?c", "abc"},
        {"**b*", "ab"},
        {"*.weight", "a.b.weight"},
        {"model.*.q_proj", "model.layers.0.q_proj"},
        {"a*a*b", "aaaab"},
        {"*aab", "aaaaab"},
    };
    static const char *const no[][2] = {
        {"", "a"},       {"?", ""},        {"a?c", "ac"}, {"*.weight", "weight"},
        {"abc", "abcd"}, {"abc*d", "abc"}, {"A", "a"},
    };
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++) assert_true(str_glob(yes[i][0], yes[i][1]));
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++) assert_false(str_glob(no[i][0], no[i][1]));
    char text[5001];
    memset(text, 'a', 5000);
    text[5000] = '\0';
    /* backtracking at every star would take exponential time */
    assert_false(str_glob("*a*a*a*a*a*a*a*a*a*a*b", text));
}

static void test_numbers(void **state) {
    (void)state;
    char out[32];
    assert_string_equal(str_commas(0, out), "0");
    assert_string_equal(str_commas(999, out), "999");
    assert_string_equal(str_commas(1000, out), "1,000");
    assert_string_equal(str_commas(1234567, out), "1,234,567");
    assert_string_equal(str_commas(-123456, out), "-123,456");
    assert_string_equal(str_commas(INT64_MIN, out), "-9,223,372,036,854,775,808");
    assert_string_equal(str_duration(3723.4, out), "1:02:03");
    assert_string_equal(str_duration(0, out), "0:00:00");
    assert_string_equal(str_duration(59.99, out), "0:00:59");
    assert_string_equal(str_duration(360000, out), "100:00:00");
    assert_string_equal(str_duration(NAN, out), "-:--:--");
    assert_string_equal(str_duration(INFINITY, out), "-:--:--");
    assert_string_equal(str_duration(-1, out), "-:--:--");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_account, close_account)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_appending), TEST(test_growth),   TEST(test_failure_is_kept), TEST(test_json),
        TEST(test_utf8),      TEST(test_distance), TEST(test_nearest),         TEST(test_prefix_and_suffix),
        TEST(test_glob),      TEST(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
