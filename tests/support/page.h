/* page: a table of a page of the documentation that a test makes again: from its title, the first cells of its first line, to
   the last of the lines that begin with '|'. A failure ends the test (cmocka). */
#ifndef TESTS_SUPPORT_PAGE_H
#define TESTS_SUPPORT_PAGE_H

#include <stdbool.h>

typedef struct page_table {
    const char *path; /* borrowed */
    char *page;       /* all of it */
    char *begin, *end;
} page_table;

void page_table_open(page_table *t, const char *path, const char *title);
/* The page, with `text` in the table's place. */
void page_table_write(const page_table *t, const char *text);
void page_table_close(page_table *t);
/* The table of the page is `text`, or, if `writes`, becomes it. `program` --write, a failure says, makes it so. */
void page_table_expect(const char *path, const char *title, const char *text, bool writes,
                       const char *program);

#endif
