/* report/plot: plots the training loss in a terminal. Curves consist of braille characters with 2 x 4
   dots. Some characters of a curve show its run's letter instead, so that runs can be distinguished
   without colour. */
#include "report/axis.h"
#include "report/curve.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WIDTH = 80, MAX_HEIGHT = 20, MIN_WIDTH = 32, MIN_HEIGHT = 8, GUTTER = 9, MAX_RUNS = 26 };
enum { LETTER_DISTANCE = 12 }; /* characters from one letter of a curve to the next */

typedef struct cell {
    unsigned char dots;
    uint32_t runs; /* bit i is set if run i has dots in this character */
} cell;

typedef struct plot {
    const report *r;
    int width;         /* characters per line */
    int columns, rows; /* size of the area for curves, in characters */
    int runs;          /* number of rows of the report that are drawn */
    axis x, y;
    curve curves[MAX_RUNS];
    cell cells[MAX_HEIGHT][MAX_WIDTH];
    int end_row[MAX_RUNS]; /* row of the last point of the curve; -1 if it has no points */
} plot;

/* ---- curves ---- */

static void find_range(plot *p) {
    double low_x = INFINITY, high_x = -INFINITY, low_y = INFINITY, high_y = -INFINITY;
    for (int i = 0; i < p->runs; i++)
        for (int64_t k = 0; k < p->curves[i].count; k++) {
            low_x = fmin(low_x, p->curves[i].x[k]);
            high_x = fmax(high_x, p->curves[i].x[k]);
            low_y = fmin(low_y, p->curves[i].y[k]);
            high_y = fmax(high_y, p->curves[i].y[k]);
        }
    p->x = axis_steps(low_x, high_x, p->columns / 10 > 2 ? p->columns / 10 : 2);
    p->y = axis_choose(low_y, high_y, (p->rows + 1) / 2);
}

/* ---- dots ---- */

/* [row][column]: bit of each dot of a braille character, to be added to U+2800. */
static const unsigned char braille[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

static void set_dot(plot *p, int run, int x, int y) {
    cell *c = &p->cells[y / 4][x / 2];
    c->dots |= braille[y % 4][x % 2];
    c->runs |= UINT32_C(1) << run;
}

static int dot_at(double position, int count) {
    int i = (int)floor(position * (count - 1) + 0.5);
    return i < 0 ? 0 : i >= count ? count - 1 : i;
}

/* Draws a line from dot (x0, y0) to dot (x1, y1), so that steep parts of a curve have no gaps. */
static void draw_segment(plot *p, int run, int x0, int y0, int x1, int y1) {
    int from = y0;
    for (int x = x0; x <= x1; x++) {
        int to = x1 == x0 ? y1 : y0 + (int)lround((double)(y1 - y0) * (x - x0) / (x1 - x0));
        int step = to < from ? -1 : 1;
        for (int y = from; y != to; y += step) set_dot(p, run, x, y);
        set_dot(p, run, x, to);
        from = to;
    }
}

static void draw_curve(plot *p, int run) {
    const curve *c = &p->curves[run];
    int last_x = 0, last_y = 0;
    p->end_row[run] = -1;
    for (int64_t i = 0; i < c->count; i++) {
        int x = dot_at(axis_position(&p->x, c->x[i]), 2 * p->columns);
        int y = dot_at(1 - axis_position(&p->y, c->y[i]), 4 * p->rows);
        if (i == 0)
            set_dot(p, run, x, y);
        else
            draw_segment(p, run, last_x, last_y, x, y);
        last_x = x;
        last_y = y;
        p->end_row[run] = y / 4;
    }
}

/* ---- text ---- */

/* Returns the run's letter if this cell shows it instead of dots, else 0. Each run has its own columns. */
static char letter_at(const plot *p, int row, int column) {
    uint32_t runs = p->cells[row][column].runs;
    for (int i = 0; p->runs > 1 && i < p->runs; i++)
        if (runs == UINT32_C(1) << i && (column + i * 5) % LETTER_DISTANCE == LETTER_DISTANCE / 2)
            return (char)('A' + i);
    return 0;
}

static void append_character(const plot *p, int row, int column, str *out) {
    const cell *c = &p->cells[row][column];
    char letter = letter_at(p, row, column);
    if (!c->dots) letter = ' ';
    if (letter) {
        str_append_bytes(out, &letter, 1);
    } else { /* the character U+2800 + dots, as UTF-8 */
        char utf8[3] = {(char)0xe2, (char)(0xa0 | c->dots >> 6), (char)(0x80 | (c->dots & 0x3f))};
        str_append_bytes(out, utf8, 3);
    }
}

/* Returns the index of the tick mark of the y axis in this row; -1 if there is none. */
static int tick_in_row(const plot *p, int row) {
    for (int t = 0; t < p->y.count; t++)
        if (dot_at(1 - axis_position(&p->y, p->y.tick[t]), 4 * p->rows) / 4 == row) return t;
    return -1;
}

static void append_plot_row(const plot *p, int row, str *out) {
    char label[32];
    int tick = tick_in_row(p, row);
    str_printf(out, "%*s %s", GUTTER - 2, tick < 0 ? "" : axis_label(p->y.tick[tick], label),
               tick < 0 ? "│" : "┤");
    int last = p->columns - 1;
    bool ends = false;
    for (int i = 0; i < p->runs; i++) ends |= p->runs > 1 && p->end_row[i] == row;
    while (!ends && last >= 0 && !p->cells[row][last].dots) last--; /* removes trailing blanks */
    for (int column = 0; column <= last; column++) append_character(p, row, column, out);
    if (ends) str_append(out, " ");
    for (int i = 0; ends && i < p->runs; i++)
        if (p->end_row[i] == row) str_append_bytes(out, &(char){(char)('A' + i)}, 1);
    str_append(out, "\n");
}

/* Appends the line of the x axis with its tick marks, and below it the numbers that fit. */
static void append_x_axis(const plot *p, str *out) {
    char line[MAX_WIDTH + 1], label[32];
    int used = 0;
    bool mark[MAX_WIDTH] = {false};
    memset(line, ' ', sizeof line);
    for (int t = 0; t < p->x.count; t++) {
        int column = dot_at(axis_position(&p->x, p->x.tick[t]), p->columns);
        int length = (int)strlen(axis_label(p->x.tick[t], label)), begin = GUTTER + column - length / 2;
        mark[column] = true;
        if (begin + length > p->width) begin = p->width - length;
        if (begin < used) continue;
        memcpy(line + begin, label, (size_t)length);
        used = begin + length + 1;
    }
    str_printf(out, "%*s└", GUTTER - 1, "");
    for (int i = 0; i < p->columns; i++) str_append(out, mark[i] ? "┴" : "─");
    str_printf(out, "\n%.*s\n", used > 0 ? used - 1 : 0, line);
}

/* Returns the number of bytes of the first `characters` characters of `text`. */
static int truncated_bytes(const char *text, int characters) {
    int bytes = 0;
    while (text[bytes]) {
        if ((text[bytes] & 0xc0) != 0x80 && characters-- == 0) break;
        bytes++;
    }
    return bytes;
}

static void append_legend(const plot *p, str *out) {
    for (int i = 0; i < p->runs; i++) {
        const char *label = p->r->rows[i].mean.label;
        str_printf(out, "%*s%c %.*s\n", GUTTER, "", 'A' + i, truncated_bytes(label, p->width - GUTTER - 2),
                   label);
    }
    if (p->r->row_count > p->runs)
        str_printf(out, "%*s(%d more runs are not drawn)\n", GUTTER, "", p->r->row_count - p->runs);
}

static void append_plot(plot *p, str *out) {
    find_range(p);
    for (int i = 0; i < p->runs; i++) draw_curve(p, i);
    char title[64];
    bool smoothed = false;
    for (int i = 0; i < p->runs; i++) smoothed |= curve_half_window(p->curves[i].count) > 0;
    snprintf(title, sizeof title, "training loss by step%s%s", p->y.log ? ", log scale" : "",
             smoothed ? ", moving average" : "");
    str_printf(out, "%*s%.*s\n", GUTTER, "", p->width - GUTTER, title);
    for (int row = 0; row < p->rows; row++) append_plot_row(p, row, out);
    append_x_axis(p, out);
    if (p->r->row_count > 1) append_legend(p, out);
}

static int clamp_to_range(int value, int low, int high) {
    return value < low ? low : value > high ? high : value;
}

ott_status report_plot(const report *r, int width, int height, str *out) {
    plot *p;
    ott_status status;
    TRY(mem_alloc(r->account, MEM_OTHER, sizeof(plot), "a plot", &p));
    p->r = r;
    p->runs = r->row_count < MAX_RUNS ? r->row_count : MAX_RUNS;
    p->width = clamp_to_range(width, MIN_WIDTH, MAX_WIDTH);
    const int legend = r->row_count > 1 ? p->runs + (r->row_count > p->runs) : 0;
    p->rows = clamp_to_range(clamp_to_range(height, MIN_HEIGHT, MAX_HEIGHT) - 3 - legend, 4, MAX_HEIGHT - 3);
    p->columns = p->width - GUTTER - (p->runs > 1 ? 1 + clamp_to_range(p->runs, 0, 6) : 0);
    int64_t points = 0;
    for (int i = 0; i < p->runs; i++) {
        curve *c = &p->curves[i];
        TRY_OUT(curve_row_mean(p->r, i, REPORT_LOSS, c));
        TRY_OUT(curve_smooth(c, curve_half_window(c->count)));
        points += c->count;
    }
    if (points == 0)
        str_append(out, "(no training loss to plot: metrics.jsonl has none)\n");
    else
        append_plot(p, out);
    status = str_finish(out);
out:
    for (int i = 0; i < p->runs; i++) curve_free(&p->curves[i]);
    mem_free(r->account, p);
    return status;
}
