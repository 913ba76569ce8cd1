/*
 * support/page: a table in a page of the documentation, which a test generates. The table begins with the
 * line that begins with `title`. It ends before the first line that does not begin with '|'. A failure ends
 * the test (cmocka).
 */
#ifndef TESTS_SUPPORT_PAGE_H
#define TESTS_SUPPORT_PAGE_H

#include <stdbool.h>

typedef struct page_table {
    const char *path; /* the caller's string, which must stay valid */
    char *page;       /* the text of the full page */
    char *begin, *end;
} page_table;

void page_table_open(page_table *t, const char *path, const char *title);
/* Writes the page, with `text` in place of the table. */
void page_table_write(const page_table *t, const char *text);
void page_table_close(page_table *t);
/* Expects that the table in the page is `text`; if not, the message says to run `program` --write. If
   `writes` is true, replaces the table with `text` instead. */
void page_table_expect(const char *path, const char *title, const char *text, bool writes,
                       const char *program);

#endif
