/* report/page: report.html is page.html with the rows as JSON. The functions append members to the JSON. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include "report/curve.h"

extern const char report_page_template[]; /* contents of page.html, embedded at build time */

/* Appends a list of [step, value] with this name; nothing if the curve is empty. Long curves are thinned. */
void report_append_curve(const char *name, const curve *c, str *out);
/* Appends the members of a row that report_json also writes. */
void report_append_row(const report *r, int row, str *out);
/* Appends "health": the FP8 measurements of the row's first run; nothing if it has none. */
ott_status report_append_health(const report *r, int row, str *out);

#endif
