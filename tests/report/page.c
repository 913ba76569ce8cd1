/* tests/report/page: looking at report.html. */
#include "report/page.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { MAX_DEPTH = 32 };

void assert_well_formed(const char *text) {
    char open[MAX_DEPTH][16];
    int depth = 0;
    for (const char *p = text; *p; p++) {
        if (*p == '&') {
            size_t length = strcspn(p, ";");
            assert_true(length >= 3 && length <= 5);
        }
        assert_true(*p != '>');
        if (*p != '<') continue;
        const char *end = strchr(p, '>');
        assert_non_null(end);
        const char *name = p + 1 + (p[1] == '/');
        int length = (int)strcspn(name, " />\n");
        if (p[1] == '/') {
            assert_true(depth > 0);
            depth--;
            if (strncmp(open[depth], name, (size_t)length) != 0 || open[depth][length])
                fail_msg("<%s> is closed by %.*s", open[depth], (int)(end - p + 1), p);
        } else if (p[1] != '!' && end[-1] != '/') {
            assert_true(depth < MAX_DEPTH && length < 16);
            snprintf(open[depth++], 16, "%.*s", length, name);
        }
        p = end;
    }
    assert_int_equal(depth, 0);
}

int occurrences(const char *text, const char *part) {
    int count = 0;
    for (; (text = strstr(text, part)); text++) count++;
    return count;
}
