/* Converts numbers to text and back in a program with a decimal comma in its locale. */
#define _GNU_SOURCE
#include "base/text/text.h"
#include "base/comma_locale.h"
#include "base/log.h"
#include "base/text/str.h"
#include <stdio.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static void keep(void *user, ott_log_level level, const char *text) {
    (void)level;
    strcpy(user, text);
}

static void numbers_have_a_point(void **state) {
    (void)state;
    mem *account;
    char out[64], line[64];
    if (!comma_locale_enter()) {
        print_message("SKIPPED: no locale has a decimal comma, and localedef cannot make one\n");
        skip();
    }
    snprintf(out, sizeof out, "%.1f", 1.5);
    assert_string_equal(out, "1,5"); /* printf uses the program's locale */
    assert_int_equal(text_format(out, sizeof out, "%.1f %s %d", 1.5, "a", 1000), 10);
    assert_string_equal(out, "1.5 a 1000");
    assert_true(text_to_double("2.25e1", NULL) == 22.5 && text_to_float("0.5", NULL) == 0.5f);
    snprintf(out, sizeof out, "%.1f", 1.5);
    assert_string_equal(out, "1,5"); /* printf still uses the program's locale */
    assert_int_equal(status_fail(OTT_ERR_CONFIG, "lr = %g", 0.25), OTT_ERR_CONFIG);
    assert_string_equal(status_text(), "lr = 0.25");
    logger lg = {.callback = keep, .user = line, .level = OTT_LOG_INFO};
    log_info(&lg, "loss %.2f", 3.25);
    assert_string_equal(line, "loss 3.25");
    assert_int_equal(mem_open(&account), OTT_OK);
    str s = {.account = account};
    str_printf(&s, "{\"ts\":%.3f}", 107.48);
    assert_string_equal(s.text, "{\"ts\":107.480}");
    str_free(&s);
    mem_close(account);
    comma_locale_leave();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_have_a_point)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
