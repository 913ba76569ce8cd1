/* report/chart: a line chart as an SVG element. Coordinates are written in tenths by integer arithmetic: no
 * locale bends them. */
#include "report/chart.h"
#include "report/axis.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT = 56, RIGHT = 20, TOP = 10, BOTTOM = 34 };
enum { MOST_POINTS = 700 }; /* of one line; more cannot be seen and only make the page large */

typedef struct frame {
    const chart *c;
    axis x, y;
} frame;

/* ---- text ---- */

static const char *entity(unsigned char c) {
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    case '\t':
    case '\n': return NULL;
    default: return c < 0x20 || c == 0x7f ? "\xef\xbf\xbd" : NULL;
    }
}

/* `length` bytes of good UTF-8. U+FFFE and U+FFFF are UTF-8 but no XML. */
static void append_valid(str *out, const char *text, int64_t length) {
    int64_t plain = 0;
    for (int64_t i = 0; i < length; i++) {
        bool forbidden = length - i >= 3 && (memcmp(text + i, "\xef\xbf\xbe", 3) == 0 ||
                                             memcmp(text + i, "\xef\xbf\xbf", 3) == 0);
        const char *instead = forbidden ? "\xef\xbf\xbd" : entity((unsigned char)text[i]);
        if (!instead) continue;
        str_append_bytes(out, text + plain, i - plain);
        str_append(out, instead);
        i += forbidden ? 2 : 0;
        plain = i + 1;
    }
    str_append_bytes(out, text + plain, length - plain);
}

void html_append(str *out, const char *text, int64_t length) {
    while (length > 0) {
        int64_t bad = str_utf8_error(text, length), valid = bad < 0 ? length : bad;
        append_valid(out, text, valid);
        if (bad < 0) return;
        str_append(out, "\xef\xbf\xbd");
        text += valid + 1;
        length -= valid + 1;
    }
}

void html_append_text(str *out, const char *text) {
    html_append(out, text, (int64_t)strlen(text));
}

/* ---- coordinates ---- */

static void append_tenths(str *out, double value) {
    long tenths = lround(fmax(-1e6, fmin(1e6, value)) * 10);
    str_printf(out, "%s%ld", tenths < 0 ? "-" : "", labs(tenths) / 10);
    if (tenths % 10) str_printf(out, ".%ld", labs(tenths) % 10);
}

static double x_of(const frame *f, double x) {
    return LEFT + axis_place(&f->x, x) * (f->c->width - LEFT - RIGHT);
}

static double y_of(const frame *f, double y) {
    return TOP + (1 - axis_place(&f->y, y)) * (f->c->height - TOP - BOTTOM);
}

void svg_append_attribute(str *out, const char *name, double value) {
    str_printf(out, " %s=\"", name);
    append_tenths(out, value);
    str_append(out, "\"");
}

static void append_line(str *out, const char *class, double x1, double y1, double x2, double y2) {
    str_printf(out, "<line class=\"%s\"", class);
    svg_append_attribute(out, "x1", x1);
    svg_append_attribute(out, "y1", y1);
    svg_append_attribute(out, "x2", x2);
    svg_append_attribute(out, "y2", y2);
    str_append(out, "/>\n");
}

/* ---- axes ---- */

static frame make_frame(const chart *c) {
    double low_x = INFINITY, high_x = -INFINITY;
    double low_y = isfinite(c->low) ? c->low : INFINITY, high_y = isfinite(c->high) ? c->high : -INFINITY;
    for (int i = 0; i < c->count; i++)
        for (int64_t k = 0; k < c->lines[i].data->count; k++) {
            low_x = fmin(low_x, c->lines[i].data->x[k]);
            high_x = fmax(high_x, c->lines[i].data->x[k]);
            if (!c->data_decide) continue;
            low_y = fmin(low_y, c->lines[i].data->y[k]);
            high_y = fmax(high_y, c->lines[i].data->y[k]);
        }
    frame f = {.c = c, .x = axis_steps(low_x, high_x, c->width / 90 > 3 ? c->width / 90 : 3)};
    f.y = c->log ? axis_choose(low_y, high_y, c->height / 42) : axis_linear(low_y, high_y, c->height / 42);
    double air = f.y.log ? pow(f.y.high / f.y.low, 0.03) : (f.y.high - f.y.low) * 0.03;
    f.y.low = f.y.log ? f.y.low / air : f.y.low - air; /* no curve runs along the frame */
    f.y.high = f.y.log ? f.y.high * air : f.y.high + air;
    return f;
}

static void append_axes(str *out, const frame *f) {
    char label[32];
    const chart *c = f->c;
    double right = c->width - RIGHT, bottom = c->height - BOTTOM;
    for (int i = 0; i < f->y.count; i++) {
        double y = y_of(f, f->y.tick[i]);
        append_line(out, "grid", LEFT, y, right, y);
        str_append(out, "<text class=\"yn\"");
        svg_append_attribute(out, "x", LEFT - 8);
        svg_append_attribute(out, "y", y + 4);
        str_printf(out, ">%s%s</text>\n", axis_label(f->y.tick[i], label), c->unit);
    }
    append_line(out, "axis", LEFT, bottom, right, bottom);
    for (int i = 0; i < f->x.count; i++) {
        double x = x_of(f, f->x.tick[i]);
        append_line(out, "axis", x, bottom, x, bottom + 4);
        str_append(out, "<text class=\"xn\"");
        svg_append_attribute(out, "x", x);
        svg_append_attribute(out, "y", bottom + 17);
        str_printf(out, ">%s</text>\n", axis_label(f->x.tick[i], label));
    }
    str_append(out, "<text class=\"xt\"");
    svg_append_attribute(out, "x", right);
    svg_append_attribute(out, "y", c->height - 3);
    str_append(out, ">step</text>\n");
}

static void append_band(str *out, const frame *f) {
    if (!(f->c->band > 0)) return;
    double top = y_of(f, f->c->band), bottom = y_of(f, -f->c->band);
    str_append(out, "<rect class=\"band\"");
    svg_append_attribute(out, "x", LEFT);
    svg_append_attribute(out, "y", top);
    svg_append_attribute(out, "width", f->c->width - LEFT - RIGHT);
    svg_append_attribute(out, "height", bottom - top);
    str_append(out, "/>\n");
    append_line(out, "zero", LEFT, y_of(f, 0), f->c->width - RIGHT, y_of(f, 0));
}

/* ---- curves ---- */

static void append_point(str *out, const frame *f, const curve *d, int64_t i) {
    append_tenths(out, x_of(f, d->x[i]));
    str_append(out, ",");
    append_tenths(out, fmax(-1e4, fmin(1e4, y_of(f, d->y[i]))));
    str_append(out, " ");
}

/* Of each group of points the lowest and the highest, in order: a long line keeps its spikes. */
static void append_extremes(str *out, const frame *f, const curve *d, int64_t begin, int64_t end) {
    int64_t low = begin, high = begin;
    for (int64_t i = begin; i < end; i++) {
        if (d->y[i] < d->y[low]) low = i;
        if (d->y[i] > d->y[high]) high = i;
    }
    append_point(out, f, d, low < high ? low : high);
    if (low != high) append_point(out, f, d, low < high ? high : low);
}

static void append_polyline(str *out, const frame *f, const chart_line *line) {
    const curve *d = line->data;
    int64_t groups = d->count > MOST_POINTS ? MOST_POINTS / 2 : d->count;
    str_printf(out, "<polyline class=\"%s s%d%s%s\" points=\"", line->style == CHART_FAINT ? "faint" : "line",
               line->color % CHART_COLORS, line->color == 0 ? " first" : "",
               line->color >= CHART_COLORS ? " dashed" : "");
    for (int64_t g = 0; g < groups; g++)
        append_extremes(out, f, d, g * d->count / groups, (g + 1) * d->count / groups);
    str_append(out, "\"/>\n");
}

static void append_marks(str *out, const frame *f, const chart_line *line) {
    char value[32];
    const curve *d = line->data;
    for (int64_t i = 0; i < d->count && d->count <= 60; i++) {
        str_printf(out, "<circle class=\"mark s%d\" r=\"3\"", line->color % CHART_COLORS);
        svg_append_attribute(out, "cx", x_of(f, d->x[i]));
        svg_append_attribute(out, "cy", y_of(f, d->y[i]));
        str_append(out, "><title>");
        html_append_text(out, line->label);
        str_printf(out, ", step %.0f: %s%s</title></circle>\n", d->x[i], report_loss_text(d->y[i], value),
                   f->c->unit);
    }
}

void chart_append(str *out, const chart *c) {
    frame f = make_frame(c);
    str_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", c->width, c->height);
    html_append_text(out, c->name);
    str_append(out, "\">\n");
    append_band(out, &f);
    append_axes(out, &f);
    /* A nested svg cuts off what lies beyond the frame, and needs no identifier as a clip path would. */
    str_printf(out, "<svg x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" viewBox=\"%d %d %d %d\">\n", LEFT - 4,
               TOP - 4, c->width - LEFT - RIGHT + 8, c->height - TOP - BOTTOM + 8, LEFT - 4, TOP - 4,
               c->width - LEFT - RIGHT + 8, c->height - TOP - BOTTOM + 8);
    for (int i = 0; i < c->count; i++) {
        append_polyline(out, &f, &c->lines[i]);
        if (c->lines[i].style == CHART_POINTS) append_marks(out, &f, &c->lines[i]);
    }
    str_append(out, "</svg>\n</svg>\n");
}
