/* report/chart: a line chart as an SVG element. Colours and fonts come from classes the page styles (s0 ... s7,
 * grid, axis, ...). */
#ifndef REPORT_CHART_H
#define REPORT_CHART_H

#include "base/str.h"
#include "report/data.h"

enum { CHART_COLORS = 8 };

typedef enum chart_style {
    CHART_LINE,
    CHART_FAINT,
    CHART_POINTS
} chart_style; /* POINTS: a line with a mark at each point */

typedef struct chart_line {
    const curve *data;
    int color; /* index of the run; wraps, dashed, after CHART_COLORS */
    chart_style style;
    const char *label; /* for the tooltips of points */
} chart_line;

typedef struct chart {
    const char *name; /* what it shows, for readers that cannot see it */
    int width, height;
    const chart_line *lines; /* [count], drawn in this order */
    int count;
    double low, high; /* what y must show at least; NaN: only the data decide */
    bool data_decide; /* y also shows all of the data; otherwise what lies beyond is cut off */
    bool log;         /* a logarithmic y axis is allowed */
    double band;      /* > 0: a band from -band to band is shaded */
    const char *unit; /* behind the numbers of the y axis: "" or "%" */
} chart;

void chart_append(str *out, const chart *c);

/* Text for HTML and XML: escapes what has a meaning, replaces what is not allowed (control characters, bad
 * UTF-8). */
void html_append(str *out, const char *text, int64_t length);
void html_append_text(str *out, const char *text);
/* ` name="value"`, in tenths */
void svg_append_attribute(str *out, const char *name, double value);

#endif
