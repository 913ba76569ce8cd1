/* Edits JSON texts. All bytes that are not part of the edit must stay the same. */
#include "support/folder.h"
#include "formats/json_edit.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void edits(void **state) {
    folder *f = *state;
    static const struct {
        /* value: NULL removes the key; a value that begins with '>' is the key's new name */
        const char *text, *key, *value, *expected;
    } cases[] = {
        {"{}", "a", "1", "{\n  \"a\": 1\n}"},
        {" { } ", "a", "1", " {\n  \"a\": 1\n } "},
        {"{\"b\":2}", "a", "1", "{\"b\":2,\"a\": 1}"},
        {"{\n  \"b\": {\"a\": 3}\n}\n", "a", "1", "{\n  \"b\": {\"a\": 3},\n  \"a\": 1\n}\n"},
        {"{\"a\":[1,\"]\"],\"b\":2}", "a", "1", "{\"a\":1,\"b\":2}"},
        {"{\"b\":2,\"a\":-1.5e3}", "a", "null", "{\"b\":2,\"a\":null}"},
        {"{\"a\\\"\":2,\"a\":3}", "a", "1", "{\"a\\\"\":2,\"a\":1}"},
        {"{\"a\":1}", "a", NULL, "{}"},
        {"{ \"a\" : 1 , \"b\":2}", "a", NULL, "{ \"b\":2}"},
        {"{\"b\":2 , \"a\" : {\"c\":[]} }", "a", NULL, "{\"b\":2 }"},
        {"{\"b\":2,\"a\":1,\"c\":3}", "a", NULL, "{\"b\":2,\"c\":3}"},
        {"{\"b\":2}", "a", NULL, "{\"b\":2}"},
        {"{\"b\":2, \"a\":1}", "a", ">long name", "{\"b\":2, \"long name\":1}"},
        {"{\"b\":2}", "a", ">c", "{\"b\":2}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        str s = {.account = f->account};
        const char *value = cases[i].value;
        str_append(&s, cases[i].text);
        if (!value)
            assert_int_equal(json_edit_remove(&s, cases[i].key), OTT_OK);
        else if (value[0] == '>')
            assert_int_equal(json_edit_rename(&s, cases[i].key, value + 1), OTT_OK);
        else
            assert_int_equal(json_edit_put(&s, cases[i].key, value), OTT_OK);
        assert_string_equal(s.text, cases[i].expected);
        str_free(&s);
    }
}

static void sorts_members(void **state) {
    folder *f = *state;
    str s = {.account = f->account};
    str_append(&s, "{\"ab\": {\"z\":1,\"y\":2},\"a_\":1, \"b\": [], \"a\": \"x,}\"\n}\n");
    assert_int_equal(json_edit_sort(&s), OTT_OK);
    assert_string_equal(s.text, "{\n  \"a\": \"x,}\",\n  \"a_\":1,\n  \"ab\": {\"z\":1,\"y\":2},"
                                "\n  \"b\": []\n}\n");
    str_free(&s);
}

static void memory_runs_out(void **state) {
    folder *f = *state;
    ott_status status = OTT_ERR_MEMORY;
    for (int64_t n = 1; status == OTT_ERR_MEMORY; n++) {
        str s = {.account = f->account};
        str_append(&s, "{\"b\":2}");
        mem_fail_after(f->account, n);
        status = json_edit_put(&s, "a", "1");
        assert_string_equal(s.text, status == OTT_OK ? "{\"b\":2,\"a\": 1}"
                                                     : "{\"b\":2}"); /* a failed edit changes nothing */
        mem_fail_after(f->account, 0);
        str_free(&s);
    }
    assert_int_equal(status, OTT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(edits, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(sorts_members, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(memory_runs_out, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
