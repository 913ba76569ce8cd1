/* report/page: the parts of report.html. */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include "report/data.h"

extern const char report_style[]; /* CSS without < and & */

/* The legend and all figures that have data. */
ott_status report_append_charts(const report *r, str *out);
/* For the first run of each row, when it measured it: how well FP8 held its tensors. */
ott_status report_append_health(const report *r, str *out);
/* "<span class="swatch s1"></span>": the colour of a row. */
void report_append_swatch(int row, str *out);

/* ---- the heat map of one run: its modules by its measurements ---- */

typedef struct heatmap {
    const metrics_health *health;
    int rows, columns;
    int64_t left_out;           /* modules that are not drawn: those FP8 holds best */
    int64_t *module;            /* [rows] */
    int64_t *step;              /* [columns]: the last one, where a column stands for several measurements */
    const metrics_use **lowest; /* [rows][columns]: the use of lowest SQNR; NULL: not measured */
} heatmap;

ott_status heatmap_open(const metrics_health *h, heatmap *out);
void heatmap_close(heatmap *m);
/* The lowest rank (report_use_rank) it shows, 0 at most. */
double heatmap_lowest(const heatmap *m);
/* An SVG element, coloured for ranks from `lowest` to 0. */
void heatmap_append(const heatmap *m, double lowest, str *out);

#endif
