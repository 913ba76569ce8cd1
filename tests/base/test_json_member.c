/* Reads and writes members of JSON objects. Errors name a missing member, or a member of the wrong type. */
#include "base/json/json_member.h"
#include "base/json/json_write.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void expect(ott_status status, const char *message) {
    assert_int_equal(status, OTT_ERR_FORMAT);
    assert_string_equal(status_text(), message);
}

static void members(void **state) {
    (void)state;
    json_t *o = json_loads(
        "{\"text\": \"t\", \"seven\": 7, \"real\": 1.5, \"yes\": true, \"none\": null, \"list\": []}", 0,
        NULL);
    const json_t *value;
    const char *text = "kept";
    int64_t integer = -1;
    double real = -1;
    bool truth;
    assert_non_null(o);
    assert_int_equal(json_member_text(o, "none", JSON_OPTIONAL, &text), OTT_OK);
    assert_int_equal(json_member_text(o, "absent", JSON_OPTIONAL, &text), OTT_OK);
    assert_string_equal(text, "kept");
    assert_int_equal(json_member_text(o, "text", JSON_NEEDED, &text), OTT_OK);
    assert_string_equal(text, "t");
    assert_int_equal(json_member_integer(o, "seven", JSON_NEEDED, 0, 7, &integer), OTT_OK);
    assert_int_equal(integer, 7);
    assert_int_equal(json_member_real(o, "seven", JSON_NEEDED, &real), OTT_OK);
    assert_true(real == 7);
    assert_int_equal(json_member_bool(o, "absent", true, &truth), OTT_OK);
    assert_true(truth);
    assert_int_equal(json_member(o, "list", JSON_KIND_LIST, JSON_NEEDED, &value), OTT_OK);
    assert_true(json_is_array(value));
    expect(json_member_text(o, "absent", JSON_NEEDED, &text), "absent is missing");
    expect(json_member_text(o, "none", JSON_NEEDED, &text), "none is null, not a text");
    expect(json_member_integer(o, "real", JSON_OPTIONAL, 0, 9, &integer),
           "real is a number, not a whole number");
    expect(json_member_integer(o, "seven", JSON_OPTIONAL, 8, 9, &integer), "seven is 7; 8 to 9 are allowed");
    expect(json_member_real(o, "text", JSON_OPTIONAL, &real), "text is a text, not a number");
    expect(json_member_bool(o, "seven", false, &truth), "seven is a whole number, not true or false");
    expect(json_row_text(o, "body", &value),
           "the row has no field \"body\"; it has text, seven, real, yes, none, list");
    expect(json_row_text(o, "list", &value), "list is a list, not a text");
    assert_true(json_real_or_nan(o, "real") == 1.5 && isnan(json_real_or_nan(o, "none")));
    json_decref(o);
}

static void writing(void **state) {
    (void)state;
    mem *account;
    assert_int_equal(mem_open(&account), OTT_OK);
    str out = {.account = account};
    str_append(&out, "{");
    json_write_text(&out, "a\"b", "{[");
    json_write_integer(&out, "n", INT64_MIN);
    json_write_real(&out, "x", NAN);
    json_write_key(&out, "list");
    str_append(&out, "[");
    json_write_real(&out, NULL, 0.1f);
    json_write_bool(&out, NULL, true);
    str_append(&out, "]}");
    assert_int_equal(str_finish(&out), OTT_OK);
    assert_string_equal(
        out.text, "{\"a\\\"b\": \"{[\", \"n\": -9223372036854775808, \"x\": null, \"list\": [0.1, true]}");
    str_free(&out);
    mem_close(account);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(members), cmocka_unit_test(writing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
