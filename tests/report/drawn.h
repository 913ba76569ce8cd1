/* tests/report/drawn: looking at report.html: at its data, and at what its script makes of them. */
#ifndef TESTS_REPORT_DRAWN_H
#define TESTS_REPORT_DRAWN_H

#include "report/report.h"
#include "support/folder.h"

typedef struct drawn_page {
    str text;
    char *data;  /* JSON; it has been checked that nothing in it ends the script element it stands in */
    char *drawn; /* the elements the script made (draw.js); NULL where there is no node */
} drawn_page;

drawn_page drawn_open(folder *f, const report *r, const char *title);
drawn_page drawn_open_narrow(folder *f, const report *r, const char *title); /* as on a telephone */
void drawn_close(drawn_page *p);
/* What is drawn has, or lacks, `part`, or has it so often. Of nothing where there is no node. */
void assert_drawn(const drawn_page *p, const char *part);
void assert_not_drawn(const drawn_page *p, const char *part);
void assert_drawn_times(const drawn_page *p, const char *part, int times);
int occurrences(const char *text, const char *part);

#endif
