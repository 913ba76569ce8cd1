/* report/drawn: reads report.html: its data, and the elements that its script makes from them. */
#ifndef TESTS_REPORT_DRAWN_H
#define TESTS_REPORT_DRAWN_H

#include "report/report.h"
#include "support/folder.h"

typedef struct drawn_page {
    str text;
    char *data;  /* JSON; checked to contain nothing that would end its script element */
    char *drawn; /* the elements that the script made (draw.js); NULL without node */
} drawn_page;

drawn_page drawn_open(folder *f, const report *r, const char *title);
drawn_page drawn_open_narrow(folder *f, const report *r, const char *title); /* at the width of a phone */
void drawn_close(drawn_page *p);
/* Expects that the drawn elements contain `part`, lack it, or contain it this often. Needs node. */
void assert_drawn(const drawn_page *p, const char *part);
void assert_not_drawn(const drawn_page *p, const char *part);
void assert_drawn_times(const drawn_page *p, const char *part, int times);
int occurrences(const char *text, const char *part);

#endif
