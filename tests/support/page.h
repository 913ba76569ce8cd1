/*
 * support/page: a generated table of a page of the documentation. The table ranges from the line that begins
 * with these cells to the last line that begins with '|'. A failure ends the test (cmocka).
 */
#ifndef TESTS_SUPPORT_PAGE_H
#define TESTS_SUPPORT_PAGE_H

#include <stdbool.h>

typedef struct page_table {
    const char *path; /* borrowed */
    char *page;       /* the full text */
    char *begin, *end;
} page_table;

void page_table_open(page_table *t, const char *path, const char *title);
/* Writes the page with `text` in place of the table. */
void page_table_write(const page_table *t, const char *text);
void page_table_close(page_table *t);
/* Expects the page's table to be `text`, or replaces it if `writes`. The failure message has the command
   `program` --write. */
void page_table_expect(const char *path, const char *title, const char *text, bool writes,
                       const char *program);

#endif
