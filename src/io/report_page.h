/* io/report_page: the parts of report.html. */
#ifndef IO_REPORT_PAGE_H
#define IO_REPORT_PAGE_H

#include "io/report_data.h"

extern const char report_style[]; /* CSS without < and & */

/* The legend and all figures that have data. */
ott_status report_append_charts(const report *r, str *out);
/* "<span class="swatch s1"></span>": the colour of a run. */
void report_append_swatch(int run, str *out);

#endif
