/* support/page: reads a page of the documentation, and replaces a table in it. */
#include "support/page.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { PAGE_MOST = 1 << 20 };

void page_table_open(page_table *t, const char *path, const char *title) {
    FILE *file = fopen(path, "rb");
    *t = (page_table){.path = path, .page = calloc(1, PAGE_MOST)};
    if (!file) fail_msg("%s is not there", path);
    assert_in_range(fread(t->page, 1, PAGE_MOST - 1, file), 1, PAGE_MOST - 2);
    fclose(file);
    t->begin = t->end = strstr(t->page, title);
    if (!t->begin) fail_msg("%s has no table that begins with %s", path, title);
    while (*t->end == '|') t->end += strcspn(t->end, "\n") + 1;
}

void page_table_write(const page_table *t, const char *text) {
    FILE *file = fopen(t->path, "wb");
    assert_non_null(file);
    fprintf(file, "%.*s%s%s", (int)(t->begin - t->page), t->page, text, t->end);
    assert_int_equal(fclose(file), 0);
}

void page_table_close(page_table *t) {
    free(t->page);
    *t = (page_table){0};
}

void page_table_expect(const char *path, const char *title, const char *text, bool writes,
                       const char *program) {
    page_table there;
    page_table_open(&there, path, title);
    bool same =
        strlen(text) == (size_t)(there.end - there.begin) && strncmp(there.begin, text, strlen(text)) == 0;
    if (writes)
        page_table_write(&there, text);
    else if (!same)
        fail_msg("%s: run %s --write\n%s", path, program, text);
    page_table_close(&there);
}
