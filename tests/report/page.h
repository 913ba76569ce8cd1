/* tests/report/page: looking at report.html. */
#ifndef TESTS_IO_PAGE_H
#define TESTS_IO_PAGE_H

/* Every tag is closed, in order; every & starts an entity. */
void assert_well_formed(const char *text);
int occurrences(const char *text, const char *part);

#endif
