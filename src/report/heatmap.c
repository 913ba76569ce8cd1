/*
 * report/heatmap: the lowest SQNR of each module at each measurement, beside what its format gives, as
 * colours. What lies far from the page's background is bad: a healthy run looks calm, in the light style and
 * in the dark one.
 */
#include "report/axis.h"
#include "base/number.h"
#include "report/chart.h"
#include "report/page.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 240, MOST_COLUMNS = 60 }; /* more cannot be told apart and only make the page large */
enum { WIDTH = 1080, LEFT = 236, RIGHT = 16, TOP = 50, BOTTOM = 34, ROW = 15, NAME = 36 };
enum { COLORS = 8, KEY = 44 }; /* classes h0 (lowest) to h7; width of one in the legend */
#define FAR_DB 1000.0          /* of no SQNR that a run can have */

/* ---- cells ---- */

static int count_measurements(const metrics_health *h) {
    int64_t count = 0;
    for (int64_t i = 0; i < h->count; i++) count += i == 0 || h->uses[i].step != h->uses[i - 1].step;
    return (int)count;
}

/* The lowest rank of each module; NaN for modules of which no use is kept. */
static void find_lowest(const metrics_health *h, double *lowest) {
    for (int64_t i = 0; i < h->module_count; i++) lowest[i] = NAN;
    for (int64_t i = 0; i < h->count; i++) {
        double *module = &lowest[h->uses[i].module];
        *module = fmin(*module, report_use_rank(&h->uses[i]));
    }
}

/* The rank that a module must not be above to be among the lowest MOST_ROWS. */
static ott_status find_limit(const metrics_health *h, const double *lowest, double *limit) {
    void *memory;
    int64_t count = 0;
    TRY(mem_alloc_array(h->account, MEM_OTHER, h->module_count, sizeof *lowest, "a heat map", &memory));
    double *sorted = memory;
    for (int64_t i = 0; i < h->module_count; i++)
        if (!isnan(lowest[i])) sorted[count++] = lowest[i];
    qsort(sorted, (size_t)count, sizeof *sorted, report_compare_doubles);
    *limit = count > MOST_ROWS ? sorted[MOST_ROWS - 1] : INFINITY;
    mem_free(h->account, sorted);
    return OTT_OK;
}

/* Which modules are drawn: m->module; the row of each module: row_of[module_count], -1: none. */
static ott_status choose_rows(heatmap *m, int64_t *row_of) {
    void *memory;
    double limit;
    const metrics_health *h = m->health;
    TRY(mem_alloc_array(h->account, MEM_OTHER, h->module_count, sizeof(double), "a heat map", &memory));
    double *lowest = memory;
    find_lowest(h, lowest);
    ott_status status = find_limit(h, lowest, &limit);
    for (int64_t i = 0; status == OTT_OK && i < h->module_count; i++) {
        bool drawn = lowest[i] <= limit && m->rows < MOST_ROWS;
        row_of[i] = drawn ? m->rows : -1;
        if (drawn) m->module[m->rows++] = i;
        m->left_out += !drawn && !isnan(lowest[i]);
    }
    mem_free(h->account, lowest);
    return status;
}

static void fill_cells(heatmap *m, const int64_t *row_of) {
    const metrics_health *h = m->health;
    int64_t measurements = count_measurements(h), measurement = -1;
    for (int64_t i = 0; i < h->count; i++) {
        const metrics_use *use = &h->uses[i];
        measurement += i == 0 || use->step != h->uses[i - 1].step;
        int64_t column = measurement * m->columns / measurements, row = row_of[use->module];
        m->step[column] = use->step;
        if (row < 0) continue;
        const metrics_use **cell = &m->lowest[row * m->columns + column];
        if (!*cell || report_use_rank(use) < report_use_rank(*cell)) *cell = use;
    }
}

static ott_status fill(heatmap *m) {
    void *memory;
    mem *account = m->health->account;
    int measurements = count_measurements(m->health);
    m->columns = measurements < MOST_COLUMNS ? measurements : MOST_COLUMNS;
    TRY(mem_alloc_array(account, MEM_OTHER, MOST_ROWS, sizeof *m->module, "a heat map", &memory));
    m->module = memory;
    TRY(mem_alloc_array(account, MEM_OTHER, m->columns, sizeof *m->step, "a heat map", &memory));
    m->step = memory;
    TRY(mem_alloc_array(account, MEM_OTHER, m->health->module_count, sizeof(int64_t), "a heat map", &memory));
    int64_t *row_of = memory;
    ott_status status = choose_rows(m, row_of);
    if (status == OTT_OK)
        status = mem_alloc_array(account, MEM_OTHER, m->rows, m->columns * (int64_t)sizeof *m->lowest,
                                 "a heat map", &memory);
    if (status == OTT_OK) {
        m->lowest = memory;
        fill_cells(m, row_of);
    }
    mem_free(account, row_of);
    return status;
}

ott_status heatmap_open(const metrics_health *h, heatmap *out) {
    *out = (heatmap){.health = h};
    ott_status status = fill(out);
    if (status != OTT_OK) heatmap_close(out);
    return status;
}

void heatmap_close(heatmap *m) {
    if (!m->health) return; /* never opened */
    mem_free(m->health->account, m->module);
    mem_free(m->health->account, m->step);
    mem_free(m->health->account, m->lowest);
    *m = (heatmap){0};
}

/* ---- colours ---- */

typedef struct scale {
    double low, step; /* of a colour, in dB */
} scale;

double heatmap_lowest(const heatmap *m) {
    double lowest = 0;
    for (int i = 0; i < m->rows * m->columns; i++) {
        double rank = m->lowest[i] ? report_use_rank(m->lowest[i]) : INFINITY;
        if (!isinf(rank)) lowest = fmin(lowest, fmax(-FAR_DB, rank));
    }
    return lowest;
}

/* The smallest round step with which COLORS of them reach from `lowest` to 0; the largest reaches FAR_DB. */
static scale choose_scale(double lowest) {
    static const double steps[] = {1, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10, 15, 20, 25, 50, 100, FAR_DB / COLORS};
    size_t i = 0;
    while (COLORS * steps[i] < -lowest) i++;
    return (scale){.low = -COLORS * steps[i], .step = steps[i]};
}

/* "h3"; "hx" of values that are not finite, "hz" where there is no SQNR. */
static const char *color_of(const scale *s, const metrics_use *use) {
    static const char *const classes[COLORS] = {"h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7"};
    double rank = report_use_rank(use);
    if (isinf(rank)) return rank < 0 ? "hx" : "hz";
    double color = floor((rank - s->low) / s->step);
    return classes[(int)fmax(0, fmin(COLORS - 1, color))];
}

/* ---- drawing ---- */

static void append_box(const char *class, double x, double y, double width, double height, str *out) {
    str_printf(out, "<rect class=\"%s\"", class);
    svg_append_attribute(out, "x", x);
    svg_append_attribute(out, "y", y);
    svg_append_attribute(out, "width", width);
    svg_append_attribute(out, "height", height);
}

static void begin_text(const char *class, double x, double y, str *out) {
    str_printf(out, "<text class=\"%s\"", class);
    svg_append_attribute(out, "x", x);
    svg_append_attribute(out, "y", y);
    str_append(out, ">");
}

static double append_key(const char *class, const char *label, double x, str *out) {
    append_box(class, x, 6, 14, 12, out);
    str_append(out, "/>\n");
    begin_text("hk", x + 20, 16, out);
    str_printf(out, "%s</text>\n", label);
    return x + 20 + 6 * (double)strlen(label);
}

static bool has_color(const heatmap *m, const scale *s, const char *class) {
    for (int i = 0; i < m->rows * m->columns; i++)
        if (m->lowest[i] && strcmp(color_of(s, m->lowest[i]), class) == 0) return true;
    return false;
}

static void append_legend(const heatmap *m, const scale *s, str *out) {
    char class[] = "h0", label[32];
    double x = LEFT;
    begin_text("yn", LEFT - 10, 16, out);
    str_append(out, "SQNR beside its format's, dB</text>\n");
    for (int i = 0; i <= COLORS; i++, x += KEY) {
        begin_text("xn", x, 32, out);
        str_printf(out, "%s</text>\n", number_digits(s->low + i * s->step, 6, label));
        if (i == COLORS) break;
        class[1] = (char)('0' + i);
        append_box(class, x, 6, KEY - 1, 12, out);
        str_append(out, "/>\n");
    }
    if (has_color(m, s, "hx")) x = append_key("hx", "not finite", x + 30, out);
    if (has_color(m, s, "hz")) append_key("hz", "no SQNR: only zeros, or exact", x + 30, out);
}

/* A long name keeps its end, which tells modules apart. */
static void append_row_name(const char *name, str *out) {
    int characters = 0;
    for (const char *c = name; *c; c++) characters += (*c & 0xc0) != 0x80;
    if (characters > NAME) str_append(out, "…");
    for (; characters > NAME; characters--) do
            name++;
        while ((*name & 0xc0) == 0x80);
    html_append_text(out, name);
}

static void append_cell(const heatmap *m, const scale *s, int row, int column, double width, str *out) {
    char sqnr[32], beside[32];
    const metrics_use *use = m->lowest[row * m->columns + column];
    if (!use) return;
    append_box(color_of(s, use), LEFT + column * width, TOP + row * ROW, width - fmin(1.5, width / 8),
               ROW - 1.5, out);
    str_append(out, "><title>");
    html_append_text(out, m->health->modules[use->module].name);
    str_printf(out, ", step %" PRId64 ": %s%s (", use->step, report_sqnr_text(use, sqnr),
               report_beside_text(use, beside));
    html_append_text(out, use->tensor);
    str_append(out, " of ");
    html_append_text(out, use->gemm);
    str_append(out, ", ");
    html_append_text(out, use->format);
    str_append(out, ")</title></rect>\n");
}

static void append_steps(const heatmap *m, double width, str *out) {
    char label[32];
    double y = TOP + m->rows * ROW + 14;
    int every = 1 + (int)(52 / width);
    for (int column = 0; column < m->columns; column += every) {
        begin_text("xn", LEFT + (column + 0.5) * width, y, out);
        str_printf(out, "%s</text>\n", axis_label((double)m->step[column], label));
    }
    begin_text("yn", LEFT - 10, y, out);
    str_append(out, "step</text>\n");
}

void heatmap_append(const heatmap *m, double lowest, str *out) {
    scale s = choose_scale(lowest);
    double width = (double)(WIDTH - LEFT - RIGHT) / m->columns;
    str_printf(out,
               "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Lowest SQNR by module and step\">\n",
               WIDTH, TOP + m->rows * ROW + BOTTOM);
    append_legend(m, &s, out);
    for (int row = 0; row < m->rows; row++) {
        begin_text("hn", LEFT - 10, TOP + row * ROW + 11, out);
        append_row_name(m->health->modules[m->module[row]].name, out);
        str_append(out, "</text>\n");
        for (int column = 0; column < m->columns; column++) append_cell(m, &s, row, column, width, out);
    }
    append_steps(m, width, out);
    str_append(out, "</svg>\n");
}
