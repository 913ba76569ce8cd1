/* Templates against what Jinja2 makes of them (tools/goldens/make_chat_goldens.py), and templates that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/file.h"
#include "tokenizer/jinja/jinja.h"

#define FOLDER TEST_SOURCE_DIR "/tests/golden/chat/"

static ott_status render(mem *account, const char *text, const json_t *context, str *out,
                         jinja_spans *spans) {
    jinja *t;
    TRY(jinja_open(account, text, (int64_t)strlen(text), &t));
    ott_status status = jinja_render(t, context, out, spans);
    jinja_close(t);
    return status;
}

static void expect_spans(const json_t *expected, const jinja_spans *spans) {
    assert_int_equal(spans->count, json_array_size(expected));
    for (int64_t i = 0; i < spans->count; i++) {
        const json_t *span = json_array_get(expected, (size_t)i);
        assert_int_equal(spans->of[i].begin, json_integer_value(json_array_get(span, 0)));
        assert_int_equal(spans->of[i].end, json_integer_value(json_array_get(span, 1)));
    }
}

static void check_case(mem *account, const json_t *c, size_t i) {
    char path[256], *template;
    int64_t bytes;
    str out = {.account = account};
    jinja_spans spans = {.account = account};
    const char *expected = json_string_value(json_object_get(c, "text"));
    snprintf(path, sizeof path, FOLDER "%s", json_string_value(json_object_get(c, "template")));
    assert_int_equal(file_read(account, path, 1 << 20, &template, &bytes), OTT_OK);
    ott_status status = render(account, template, json_object_get(c, "context"), &out, &spans);
    if (!expected && status == OTT_OK)
        fail_msg("case %zu, %s: rendered what Jinja2 refuses: %s", i, path, out.text);
    if (expected && status != OTT_OK) fail_msg("case %zu, %s: %s", i, path, status_text());
    if (expected) assert_string_equal(out.text ? out.text : "", expected);
    if (expected) expect_spans(json_object_get(c, "generation"), &spans);
    jinja_spans_free(&spans);
    str_free(&out);
    mem_free(account, template);
}

static void renders_as_jinja2(void **state) {
    mem *account;
    json_t *cases = json_load_file(FOLDER "cases.json", 0, NULL);
    (void)state;
    assert_int_equal(mem_open(&account), OTT_OK);
    assert_in_range(json_array_size(cases), 50, 1000);
    for (size_t i = 0; i < json_array_size(cases); i++) check_case(account, json_array_get(cases, i), i);
    json_decref(cases);
    mem_close(account);
}

/* ---- refusals ---- */

static const struct {
    const char *template;
    ott_status status;
    const char *words; /* of the message */
} refusals[] = {
    {"a\n{{ x", OTT_ERR_FORMAT, "line 2: {{ has no }}"},
    {"{% if x %}a", OTT_ERR_FORMAT, "without {% endif %}"},
    {"{% for x in y %}a{% endif %}", OTT_ERR_UNSUPPORTED, "the tag \"endif\" is not built"},
    {"{{ 'abc }}", OTT_ERR_FORMAT, "a string has no end"},
    {"{{ a $ b }}", OTT_ERR_FORMAT, "'$' has no meaning"},
    {"{{ 1 + }}", OTT_ERR_FORMAT, "where an expression should be"},
    {"{# a", OTT_ERR_FORMAT, "{# has no #}"},
    {"{% break %}", OTT_ERR_FORMAT, "break is in no loop"},
    {"\n{% include 'x' %}", OTT_ERR_UNSUPPORTED, "line 2: the tag \"include\" is not built"},
    {"{{ a | wordwrap }}", OTT_ERR_UNSUPPORTED, "the filter \"wordwrap\" is not built"},
    {"{{ a is escaped }}", OTT_ERR_UNSUPPORTED, "the test \"escaped\" is not built"},
    {"{{ 'a'.zfill(3) }}", OTT_ERR_UNSUPPORTED, "the method \"zfill\" of a string is not built"},
    {"{{ strftime_now('%Y') }}", OTT_ERR_UNSUPPORTED, "the function \"strftime_now\" is not built"},
    {"{{ a.b }}", OTT_ERR_FORMAT, "\"a\" is undefined, and has no \"b\""},
    {"{{ a + 'b' }}", OTT_ERR_FORMAT, "\"a\" is undefined"},
    {"{{ 1 + 'b' }}", OTT_ERR_FORMAT, "a whole number + a string has no meaning"},
    {"{{ 1 / 0 }}", OTT_ERR_FORMAT, "division by zero"},
    {"{{ 9223372036854775807 + 1 }}", OTT_ERR_UNSUPPORTED, "too large"},
    {"{{ 1 < 'a' }}", OTT_ERR_FORMAT, "have no order"},
    {"{{ 1 < 2 < 3 }}", OTT_ERR_UNSUPPORTED, "chained comparison"},
    {"{{ raise_exception('no way') }}", OTT_ERR_ARGUMENT, "the template says: no way"},
    {"{% set x.y = 1 %}", OTT_ERR_FORMAT, "only a namespace's can be"},
    {"{% set a, b = [1] %}", OTT_ERR_FORMAT, "is set to 2 names"},
    /* what goes on for too long, too deep, too far */
    {"{% for i in range(2000000000) %}x{% endfor %}", OTT_ERR_UNSUPPORTED, "makes more than 64 MiB"},
    {"{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
     OTT_ERR_UNSUPPORTED, "makes more than 64 MiB"},
    {"{% set n = namespace(x=1) %}{% for i in range(200) %}{% set n.x = [n.x] %}{% endfor %}",
     OTT_ERR_UNSUPPORTED, "nested more than 100 deep"},
    {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", OTT_ERR_UNSUPPORTED, "nested more than 500 deep"},
    {"{{ 'a' * 2000000000 }}", OTT_ERR_UNSUPPORTED, "more than"},
};

static void refuses_what_it_does_not_know(void **state) {
    mem *account;
    json_t *context = json_object();
    (void)state;
    assert_int_equal(mem_open(&account), OTT_OK);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        str out = {.account = account};
        ott_status status = render(account, refusals[i].template, context, &out, NULL);
        if (status != refusals[i].status || !strstr(status_text(), refusals[i].words))
            fail_msg("%s: %s: \"%s\" without \"%s\"", refusals[i].template, status_name(status),
                     status_text(), refusals[i].words);
        str_free(&out);
    }
    json_decref(context);
    mem_close(account);
}

static void refuses_deep_nesting(void **state) {
    char text[4096];
    mem *account;
    json_t *context = json_object();
    (void)state;
    assert_int_equal(mem_open(&account), OTT_OK);
    for (int k = 0; k < 3; k++) {
        str out = {.account = account};
        size_t at = 2;
        memcpy(text, "{{", 2);
        for (int i = 0; i < 1000; i++) text[at++] = "([-"[k];
        memcpy(text + at, "1}}", 4);
        assert_int_equal(render(account, text, context, &out, NULL), OTT_ERR_UNSUPPORTED);
        assert_non_null(strstr(status_text(), "nested more than 100 deep"));
        str_free(&out);
    }
    json_decref(context);
    mem_close(account);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(renders_as_jinja2),
                                       cmocka_unit_test(refuses_what_it_does_not_know),
                                       cmocka_unit_test(refuses_deep_nesting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
