/* report/page: the data of report.html, whose template is page.html: what its rows hold, as members of a JSON object. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include "report/curve.h"

extern const char report_page_template[]; /* page.html; made at build time */

/* A list of [step, value] under a name; nothing when there are none. Of many points those that can be told apart. */
void report_append_curve(const char *name, const curve *c, str *out);
/* What report_json says of a row. */
void report_append_row(const report *r, int row, str *out);
/* "health", of the first run of a row that measured it: how well FP8 held its tensors. */
ott_status report_append_health(const report *r, int row, str *out);

#endif
