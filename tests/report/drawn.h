/* report/drawn: reads report.html: the data in the page, and the elements that its script makes of them. */
#ifndef TESTS_REPORT_DRAWN_H
#define TESTS_REPORT_DRAWN_H

#include "report/report.h"
#include "support/folder.h"

typedef struct drawn_page {
    str text;
    char *data;  /* JSON; it contains nothing that would end its script element */
    char *drawn; /* the elements that the script made (draw.js); NULL if node is not installed */
} drawn_page;

drawn_page drawn_open(folder *f, const report *r, const char *title);
drawn_page drawn_open_narrow(folder *f, const report *r, const char *title); /* with the width of a phone */
void drawn_close(drawn_page *p);
/* Expect `part` in the drawn elements, not in them, or `times` times in them. Without node: no check. */
void assert_drawn(const drawn_page *p, const char *part);
void assert_not_drawn(const drawn_page *p, const char *part);
void assert_drawn_times(const drawn_page *p, const char *part, int times);
int occurrences(const char *text, const char *part);

#endif
