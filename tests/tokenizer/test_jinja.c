/*
 * Compares chat templates with the results of Jinja2 (tools/goldens/make_chat_goldens.py), and tests
 * templates that are refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file/file.h"
#include "tokenizer/jinja/jinja.h"

#define FOLDER TEST_SOURCE_DIR "/tests/golden/chat/"

static ott_status render_on(mem *account, const struct tm *today, const char *text, const json_t *context,
                            str *out, jinja_spans *spans) {
    jinja *t;
    TRY(jinja_open(account, text, (int64_t)strlen(text), &t));
    ott_status status = jinja_render(t, context, &(jinja_settings){.today = today}, out, spans);
    jinja_close(t);
    return status;
}

static ott_status render(mem *account, const char *text, const json_t *context, str *out,
                         jinja_spans *spans) {
    return render_on(account, NULL, text, context, out, spans);
}

static void expect_spans(const json_t *expected, const jinja_spans *spans) {
    assert_int_equal(spans->count, json_array_size(expected));
    for (int64_t i = 0; i < spans->count; i++) {
        const json_t *span = json_array_get(expected, (size_t)i);
        assert_int_equal(spans->items[i].begin, json_integer_value(json_array_get(span, 0)));
        assert_int_equal(spans->items[i].end, json_integer_value(json_array_get(span, 1)));
    }
}

/* The day that make_chat_goldens.py names DATE. */
static const struct tm script_day = {
    .tm_year = 126, .tm_mon = 10, .tm_mday = 24, .tm_wday = 2, .tm_yday = 327};

static void check_case(mem *account, const json_t *c, size_t i) {
    char path[256], *template;
    int64_t bytes;
    str out = {.account = account};
    jinja_spans spans = {.account = account};
    const char *expected = json_string_value(json_object_get(c, "text"));
    snprintf(path, sizeof path, FOLDER "%s", json_string_value(json_object_get(c, "template")));
    assert_int_equal(file_read(account, path, 1 << 20, &template, &bytes), OTT_OK);
    ott_status status =
        render_on(account, &script_day, template, json_object_get(c, "context"), &out, &spans);
    if (!expected && status == OTT_OK)
        fail_msg("case %zu, %s: rendered what Jinja2 refuses: %s", i, path, out.text);
    if (expected && status != OTT_OK) fail_msg("case %zu, %s: %s", i, path, status_text());
    if (expected) assert_string_equal(out.text ? out.text : "", expected);
    if (expected) expect_spans(json_object_get(c, "generation"), &spans);
    jinja_spans_free(&spans);
    str_free(&out);
    mem_free(account, template);
}

static void check_cases(const char *path, size_t least) {
    mem *account;
    json_t *cases = json_load_file(path, 0, NULL);
    assert_int_equal(mem_open(&account), OTT_OK);
    assert_in_range(json_array_size(cases), least, 100000);
    for (size_t i = 0; i < json_array_size(cases); i++) check_case(account, json_array_get(cases, i), i);
    json_decref(cases);
    mem_close(account);
}

static void renders_as_jinja2(void **state) {
    (void)state;
    check_cases(FOLDER "cases.json", 150);
}

/* Renders random conversations and compares with Jinja2, if Python and Jinja2 are installed. OTTAVA_CHAT_SEED
   selects other conversations. */
static void renders_as_the_jinja2_at_hand(void **state) {
    char path[64], command[512];
    const char *seed = getenv("OTTAVA_CHAT_SEED");
    (void)state;
    snprintf(path, sizeof path, "/tmp/ottava-chat-%d.json", (int)getpid());
    snprintf(command, sizeof command,
             "python3 '" TEST_SOURCE_DIR "/tools/goldens/make_chat_goldens.py' %s 40 %lu >%s.log 2>&1", path,
             seed ? strtoul(seed, NULL, 10) : 1, path);
    int code = system(command);
    snprintf(command, sizeof command, "%s.log", path);
    unlink(command);
    if (WIFEXITED(code) && (WEXITSTATUS(code) == 127 || WEXITSTATUS(code) == 77)) {
        fprintf(stderr, "SKIPPED: python3 or its jinja2 is missing\n");
        skip();
    }
    assert_int_equal(code, 0);
    check_cases(path, 40);
    unlink(path);
}

/* Python ignores white space around a number; Jinja2's int also reads real numbers. */
static void texts_become_numbers(void **state) {
    (void)state;
    mem *account;
    assert_int_equal(mem_open(&account), OTT_OK);
    str out = {.account = account};
    const char *template = "{{ '3.7'|int }} {{ ' 12\n'|int }} {{ 'x'|int(5) }} {{ '1e3'|int }} {{ ''|int }}";
    json_t *context = json_object();
    assert_int_equal(render(account, template, context, &out, NULL), OTT_OK);
    json_decref(context);
    assert_string_equal(out.text, "3 12 5 1000 0");
    str_free(&out);
    mem_close(account);
}

/* Python's repr writes an exponent from 1e16 on. */
static void reals_show_as_in_python(void **state) {
    (void)state;
    mem *account;
    assert_int_equal(mem_open(&account), OTT_OK);
    str out = {.account = account};
    json_t *context =
        json_pack("{s:f, s:f, s:f}", "a", 12345678901234568.0, "b", 9007199254740992.0, "c", 1e16);
    assert_non_null(context);
    assert_int_equal(render(account, "{{ a }} {{ -a }} {{ b }} {{ c }}", context, &out, NULL), OTT_OK);
    json_decref(context);
    assert_string_equal(out.text, "1.2345678901234568e+16 -1.2345678901234568e+16 9007199254740992.0 1e+16");
    str_free(&out);
    mem_close(account);
}

/* ---- refusals ---- */

static const struct {
    const char *template;
    ott_status status;
    const char *words; /* part of the error message */
} refusals[] = {
    {"a\n{{ x", OTT_ERR_FORMAT, "line 2: {{ has no }}"},
    {"{% if x %}a", OTT_ERR_FORMAT, "without {% endif %}"},
    {"{% for x in y %}a{% endif %}", OTT_ERR_UNSUPPORTED, "the tag \"endif\" is not supported"},
    {"{{ 'abc }}", OTT_ERR_FORMAT, "a string has no closing quote"},
    {"{{ a $ b }}", OTT_ERR_FORMAT, "'$' has no meaning"},
    {"{{ 1 + }}", OTT_ERR_FORMAT, "where an expression should be"},
    {"{# a", OTT_ERR_FORMAT, "{# has no #}"},
    {"{% break %}", OTT_ERR_FORMAT, "break is not in a loop"},
    {"\n{% include 'x' %}", OTT_ERR_UNSUPPORTED, "line 2: the tag \"include\" is not supported"},
    {"{{ a | wordwrap }}", OTT_ERR_UNSUPPORTED, "the filter \"wordwrap\" is not supported"},
    {"{{ a is escaped }}", OTT_ERR_UNSUPPORTED, "the test \"escaped\" is not supported"},
    {"{{ 'a'.zfill(3) }}", OTT_ERR_UNSUPPORTED, "the method \"zfill\" of a string is not supported"},
    {"{{ strftime_now('%Y') }}", OTT_ERR_UNSUPPORTED, "the function \"strftime_now\" is not supported"},
    {"{{ a.b }}", OTT_ERR_FORMAT, "\"a\" is undefined, and has no \"b\""},
    {"{{ a + 'b' }}", OTT_ERR_FORMAT, "\"a\" is undefined"},
    {"{{ 1 + 'b' }}", OTT_ERR_FORMAT, "a whole number + a string has no meaning"},
    {"{{ 1 / 0 }}", OTT_ERR_FORMAT, "division by zero"},
    {"{{ 9223372036854775807 + 1 }}", OTT_ERR_UNSUPPORTED, "too large"},
    {"{{ 7.5 // 2 }}", OTT_ERR_UNSUPPORTED, "// of real numbers is not supported"},
    {"{{ 1 < 'a' }}", OTT_ERR_FORMAT, "cannot be compared"},
    {"{{ 1 < 2 < 3 }}", OTT_ERR_UNSUPPORTED, "chained comparison"},
    {"{{ raise_exception('no way') }}", OTT_ERR_ARGUMENT, "the template raised an exception: no way"},
    {"{% set x.y = 1 %}", OTT_ERR_FORMAT, "only a member of a namespace"},
    {"{% set a, b = [1] %}", OTT_ERR_FORMAT, "cannot be unpacked into 2 names"},
    /* templates that take too long, are nested too deep, or make too large results */
    {"{% for i in range(2000000000) %}x{% endfor %}", OTT_ERR_UNSUPPORTED, "makes more than 64 MiB"},
    {"{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
     OTT_ERR_UNSUPPORTED, "makes more than 64 MiB"},
    {"{% set n = namespace(x=1) %}{% for i in range(200) %}{% set n.x = [n.x] %}{% endfor %}",
     OTT_ERR_UNSUPPORTED, "nested more than 100 deep"},
    {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", OTT_ERR_UNSUPPORTED, "nested more than 500 deep"},
    {"{{ 'a' * 2000000000 }}", OTT_ERR_UNSUPPORTED, "more than"},
    {"{% for x in [1] %}{% filter upper %}{% break %}{% endfilter %}{% endfor %}", OTT_ERR_FORMAT,
     "break is not in a loop"},
    {"{% filter %}a{% endfilter %}", OTT_ERR_FORMAT, "where a name should be"},
    {"{{ [1] + (2,) }}", OTT_ERR_FORMAT, "has no meaning"},
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

/* ---- hostile templates ---- */

/* Each template takes one operation more than the limit allows, and ends with the limit's error. */
static const char *const hostile[] = {
    "{% set ns = namespace(a=[], b=[]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
    "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
    "{% set ns = namespace(a=[], b=[]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
    "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a < ns.b }}",
    "{% set ns = namespace(a={}, b={}) %}{% for i in range(60) %}{% set ns.a = {1: ns.a, 2: ns.a} %}"
    "{% set ns.b = {1: ns.b, 2: ns.b} %}{% endfor %}{{ ns.a == ns.b }}",
    "{% set ns = namespace(a=[]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}"
    "{{ ns.a }}",
    "{% set ns = namespace(a=[]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}"
    "{{ ns.a | tojson(indent=4) }}",
    "{% set s = 'a' * 20000000 %}{% for i in range(1000000) %}{{ s | length }}{% endfor %}",
    "{% set s = 'a' * 20000000 %}{% for i in range(1000000) %}{% if 'b' in s %}{% endif %}{% endfor %}",
    "{% set s = 'a' * 20000000 %}{% set t = 'a' * 10000000 ~ 'b' %}{% for i in range(1000000) %}"
    "{{ s.split(t) | length }}{% endfor %}",
    "{% set s = 'a' * 20000000 %}{% for i in range(1000000) %}{% set x = s.strip('abc') %}{% endfor %}",
    "{% set s = ' ' * 20000000 %}{% for i in range(1000000) %}{% set x = s | trim %}{% endfor %}",
    "{% set s = 'a' * 10000000 %}{% for i in range(1000000) %}{% set x = s.split('b') %}{% endfor %}",
    "{% set s = 'a' * 20000000 %}{% set t = 'a' * 20000000 %}{% for i in range(1000000) %}"
    "{% if s == t or s != t or s < t %}{% endif %}{% endfor %}",
    "{% set s = 'a' * 20000000 %}{% set t = 'a' * 19000000 %}{% for i in range(1000000) %}"
    "{% if s.startswith(t) and s.endswith(t) %}{% endif %}{% endfor %}",
    "{% set s = 'a' * 20000000 %}{% for i in range(1000000) %}{% set x = s[19999999] ~ s[1:2] %}{% endfor %}",
    "{% set l = range(100000) | list %}{% for i in range(100000) %}{{ l | join | length }}{% endfor %}",
    "{% set l = [''] %}{% set ns = namespace(l=l) %}{% for i in range(20) %}{% set ns.l = ns.l + ns.l %}"
    "{% endfor %}{% for i in range(1000000) %}{{ ns.l | join }}{% endfor %}",
    "{% set l = range(100000) %}{% for i in range(1000000) %}{% if -1 in l %}{% endif %}{% endfor %}",
    "{% set l = range(100000) %}{% for i in range(1000000) %}{% if -1 is in(l) %}{% endif %}{% endfor %}",
    "{% set l = range(100000) %}{% for i in range(1000000) %}{{ (l | sort)[0] }}{% endfor %}",
    "{% set l = range(100000) %}{% for i in range(1000000) %}{{ (l | unique)[0] }}{% endfor %}",
    "{% set l = range(100000) %}{% for i in range(1000000) %}{{ (l + l)[0] }}{{ l[1:][0] }}{% endfor %}",
    "{% set l = range(100000) %}{% for i in range(1000000) %}{{ l | select('gt', 1) | first }}{% endfor %}",
    "{% set l = range(100000) %}{% for i in range(1000000) %}{{ l | map('string') | first }}{% endfor %}",
    "{% set s = 'Ab' * 10000000 %}{% for i in range(100) %}{{ (s | upper)[0] }}{% endfor %}",
    "{% set s = 'a\nb' * 10000000 %}{% for i in range(100) %}{{ (s | indent(64))[0] }}{% endfor %}",
    "{% set s = 'ab' * 10000000 %}{% for i in range(100) %}{{ s.replace('a', '')[0] }}{% endfor %}",
    "{% set s = 'ab' * 10000000 %}{% for i in range(100) %}{{ (s ~ s)[0] }}{% endfor %}",
    "{% for i in range(1000000) %}{% set x = 'a' * 1000000 %}{% endfor %}",
    "{% set s = '\\u0001' * 10000000 %}{% for i in range(100) %}{{ (s | tojson)[0] }}{{ ([s] | string)[0] }}"
    "{% endfor %}",
};

static void hostile_templates_end(void **state) {
    mem *account;
    json_t *context = json_object();
    (void)state;
    assert_int_equal(mem_open(&account), OTT_OK);
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        str out = {.account = account};
        ott_status status = render(account, hostile[i], context, &out, NULL);
        bool limited = strstr(status_text(), "takes more than 10000000 steps") ||
                       strstr(status_text(), "makes more than 64 MiB");
        if (status != OTT_ERR_UNSUPPORTED || !limited)
            fail_msg("%s: %s", hostile[i], status == OTT_OK ? "is rendered" : status_text());
        str_free(&out);
    }
    json_decref(context);
    mem_close(account);
}

static int64_t steps_of(mem *account, const char *template, const json_t *context) {
    jinja_budget budget = {.most = JINJA_STEPS_MOST};
    str out = {.account = account};
    jinja *t;
    assert_int_equal(jinja_open(account, template, (int64_t)strlen(template), &t), OTT_OK);
    if (jinja_render(t, context, &(jinja_settings){.budget = &budget}, &out, NULL) != OTT_OK)
        fail_msg("%s: %s", template, status_text());
    jinja_close(t);
    str_free(&out);
    return budget.taken;
}

/* Looks up members of a message, by name and by key. Ten times as many members must take only ten times the
   steps. */
static void dictionaries_take_linear_work(void **state) {
    mem *account;
    int64_t steps[2][2];
    (void)state;
    assert_int_equal(mem_open(&account), OTT_OK);
    for (int i = 0; i < 2; i++) {
        str names = {.account = account};
        json_t *message = json_object(), *context;
        char key[32];
        int count = i ? 20000 : 2000;
        for (int k = 0; k < 10 * count; k++) {
            snprintf(key, sizeof key, "key %d", k);
            json_object_set_new(message, key, json_integer(k));
        }
        for (int k = 0; k < count; k++) str_printf(&names, "{%% set n%d = %d %%}{{ n%d }}", k, k, k / 2);
        assert_int_equal(str_finish(&names), OTT_OK);
        context = json_pack("{s:[o]}", "messages", message);
        steps[0][i] = steps_of(account, "{{ messages[0]['key 7'] }}", context);
        steps[1][i] = steps_of(account, names.text, context) - steps[0][i];
        json_decref(context);
        str_free(&names);
    }
    for (int k = 0; k < 2; k++) assert_in_range(steps[k][1], 2, 11 * steps[k][0]);
    mem_close(account);
}

/* ---- prefixes ---- */

static const struct {
    const char *name, *template;
    bool known; /* true if the text of each prefix of the conversation can be found in the full text */
} growing[] = {
    {"ChatML",
     "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<end>' }}{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|>{% endif %}",
     true},
    {"the last message is rendered differently",
     "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if loop.last and add_generation_prompt %}!"
     "{% elif not loop.last %}\n{% endif %}{% endfor %}",
     true},
    {"the text depends on the next message",
     "{% for m in messages %}{% if loop.index0 == 0 or messages[loop.index0 - 1].role != m.role %}"
     "<{{ m.role }}>{% endif %}{{ m.content }}{% if loop.nextitem is not defined or loop.nextitem.role != "
     "m.role %}</>{% endif %}{% endfor %}",
     true},
    {"a system message first",
     "{% if messages[0].role == 'system' %}{% set s = messages[0].content %}{% set rest = messages[1:] %}"
     "{% else %}{% set rest = messages %}{% set s = '' %}{% endif %}{% for m in rest %}"
     "{% if loop.first %}{{ s }}:{% endif %}{{ m.content | trim }};{% endfor %}{{ '?' if "
     "add_generation_prompt }}",
     true},
    {"a namespace that counts",
     "{% set ns = namespace(n=0, a=1, b=2, c=3, d=4, e=5, f=6) %}{% for m in messages %}"
     "{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ m.content }}{% endfor %}{% set ns.g = 7 %}{% set ns.h = 8 %}"
     "{% set ns.i = 9 %}{% set ns.n = ns.n + 100 %}{{ ns.n }}{{ ns.g }}",
     true},
    {"the number of messages", "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}",
     false},
    {"the role of the last message",
     "{% for m in messages %}{{ m.content }}{{ messages[-1].role }}{% endfor %}", false},
    {"two loops",
     "{% for m in messages %}{{ m.role[0] }}{% endfor %}{% for m in messages %}{{ m.content }}"
     "{% endfor %}{% macro f(l) %}{{ l | length }}{% endmacro %}{{ f(messages) }}",
     true},
    {"a captured loop", "{% set x %}{% for m in messages %}{{ m.content }}{% endfor %}{% endset %}{{ x }}",
     false},
    {"a break",
     "{% for m in messages %}{{ m.content }}{% if loop.index == 3 %}{% break %}{% endif %}"
     "{% endfor %}{{ messages | length }}",
     false},
};

static json_t *conversation(int count, bool asks) {
    static const char *const roles[] = {"system", "user", "assistant"};
    json_t *messages = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", roles[i ? 1 + (i & 1) : 0], "content",
                                                  i % 3 ? " text " : "text of a message"));
    return json_pack("{s:o, s:b}", "messages", messages, "add_generation_prompt", asks);
}

enum { MESSAGES = 9 };

static void check_prefix(const jinja *t, mem *account, const char *name, const jinja_prefix *p,
                         const str *text, const str *tails, bool asks) {
    str expected = {.account = account}, made = {.account = account};
    json_t *context = conversation((int)p->count, asks);
    assert_int_equal(jinja_render(t, context, &(jinja_settings){0}, &expected, NULL), OTT_OK);
    str_append_bytes(&made, text->text, p->shared);
    str_append_bytes(&made, tails->text + p->at, p->bytes);
    assert_int_equal(str_finish(&made), OTT_OK);
    if (strcmp(made.text, expected.text) != 0)
        fail_msg("%s: %d messages: \"%s\" instead of \"%s\"", name, (int)p->count, made.text, expected.text);
    json_decref(context);
    str_free(&expected);
    str_free(&made);
}

static void check_prefixes(mem *account, size_t k, bool asks) {
    const char *name = growing[k].name;
    jinja *t;
    jinja_prefix prefixes[MESSAGES - 1];
    str text = {.account = account}, full = {.account = account}, tails = {.account = account};
    json_t *context = conversation(MESSAGES, asks);
    for (int i = 0; i < MESSAGES - 1; i++) prefixes[i] = (jinja_prefix){.count = i + 1};
    if (jinja_open(account, growing[k].template, (int64_t)strlen(growing[k].template), &t) != OTT_OK)
        fail_msg("%s: %s", name, status_text());
    if (jinja_render_prefixes(t, context, &(jinja_settings){0}, &text, prefixes, MESSAGES - 1, &tails) !=
        OTT_OK)
        fail_msg("%s: %s", name, status_text());
    assert_int_equal(jinja_render(t, context, &(jinja_settings){0}, &full, NULL), OTT_OK);
    assert_string_equal(text.text, full.text);
    bool known = true;
    for (int i = 1; i < MESSAGES - 1; i++) { /* skips the first prefix, which has only the system message */
        known &= prefixes[i].known;
        if (prefixes[i].known) check_prefix(t, account, name, &prefixes[i], &text, &tails, asks);
    }
    if (known != growing[k].known) fail_msg("%s: known: %d", name, known);
    json_decref(context);
    jinja_close(t);
    str_free(&text);
    str_free(&full);
    str_free(&tails);
}

static void prefixes_are_as_rendered_separately(void **state) {
    mem *account;
    (void)state;
    assert_int_equal(mem_open(&account), OTT_OK);
    for (size_t k = 0; k < sizeof growing / sizeof *growing; k++)
        for (int asks = 0; asks < 2; asks++) check_prefixes(account, k, asks);
    mem_close(account);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(renders_as_jinja2),
                                       cmocka_unit_test(renders_as_the_jinja2_at_hand),
                                       cmocka_unit_test(texts_become_numbers),
                                       cmocka_unit_test(reals_show_as_in_python),
                                       cmocka_unit_test(hostile_templates_end),
                                       cmocka_unit_test(dictionaries_take_linear_work),
                                       cmocka_unit_test(prefixes_are_as_rendered_separately),
                                       cmocka_unit_test(refuses_what_it_does_not_know),
                                       cmocka_unit_test(refuses_deep_nesting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
