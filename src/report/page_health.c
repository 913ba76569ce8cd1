/* report/page_health: FP8 measurements for the page: a heat map with the lowest SQNR of each module in each
   measurement, the worst uses of the last measurement, and the modules that left FP8. */
#include "base/json/json_write.h"
#include "base/text/number.h"
#include "report/page.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_ROWS = 240, MOST_COLUMNS = 60 }; /* a page cannot show more of the heat map */
enum { MOST_USES = 40, MOST_LEFT = 20 };

/* Rows are modules, and columns are measurements. */
typedef struct heat_map {
    const metrics_health *health;
    arena *memory;
    int rows, columns;
    int64_t left_out; /* number of modules that are not shown, because their SQNR is higher */
    int64_t *module;  /* [rows] index of each row's module */
    int64_t *step;    /* [columns]: last step that the column includes */
    /* [rows][columns]: the use with the lowest SQNR in the row's module at the column's steps; NULL: none */
    const metrics_use **lowest;
} heat_map;

static bool begins_measurement(const metrics_health *h, int64_t use) {
    return use == 0 || h->uses[use].step != h->uses[use - 1].step;
}

/* lowest[i] = the lowest report_use_rank of module i; NaN if the metrics have no use of the module. */
static void find_lowest(const metrics_health *h, double *lowest) {
    for (int64_t i = 0; i < h->module_count; i++) lowest[i] = NAN;
    for (int64_t i = 0; i < h->count; i++) {
        double *module = &lowest[h->uses[i].module];
        *module = fmin(*module, report_use_rank(&h->uses[i]));
    }
}

/* Returns the MOST_ROWS-th lowest number of `lowest`; infinity if there are not more. sorted: workspace. */
static double find_shown_limit(const metrics_health *h, const double *lowest, double *sorted) {
    int64_t count = 0;
    for (int64_t i = 0; i < h->module_count; i++)
        if (!isnan(lowest[i])) sorted[count++] = lowest[i];
    qsort(sorted, (size_t)count, sizeof *sorted, number_compare);
    return count > MOST_ROWS ? sorted[MOST_ROWS - 1] : INFINITY;
}

/* Selects the modules to show. row_of[module_count]: row of each module; -1: not shown. */
static ott_status select_modules(heat_map *m, int64_t *row_of) {
    double *lowest;
    int64_t count = m->health->module_count;
    TRY(arena_alloc(m->memory, 2 * count * (int64_t)sizeof(double), &lowest));
    find_lowest(m->health, lowest);
    double limit = find_shown_limit(m->health, lowest, lowest + count);
    for (int64_t i = 0; i < count; i++) {
        bool shown = lowest[i] <= limit && m->rows < MOST_ROWS;
        row_of[i] = shown ? m->rows : -1;
        if (shown) m->module[m->rows++] = i;
        m->left_out += !shown && !isnan(lowest[i]);
    }
    return OTT_OK;
}

static void fill_cells(heat_map *m, int64_t measurements, const int64_t *row_of) {
    const metrics_health *h = m->health;
    int64_t measurement = -1;
    for (int64_t i = 0; i < h->count; i++) {
        const metrics_use *use = &h->uses[i];
        measurement += begins_measurement(h, i);
        int64_t column = measurement * m->columns / measurements, row = row_of[use->module];
        m->step[column] = use->step;
        if (row < 0) continue;
        const metrics_use **cell = &m->lowest[row * m->columns + column];
        if (!*cell || report_use_rank(use) < report_use_rank(*cell)) *cell = use;
    }
}

static ott_status fill_map(heat_map *m) {
    int64_t measurements = 0, word = sizeof(int64_t);
    for (int64_t i = 0; i < m->health->count; i++) measurements += begins_measurement(m->health, i);
    m->columns = (int)(measurements < MOST_COLUMNS ? measurements : MOST_COLUMNS);
    TRY(arena_alloc(m->memory, (MOST_ROWS + m->columns + m->health->module_count) * word, &m->module));
    m->step = m->module + MOST_ROWS;
    int64_t *row_of = m->step + m->columns;
    TRY(select_modules(m, row_of));
    TRY(arena_alloc(m->memory, m->rows * m->columns * (int64_t)sizeof *m->lowest, &m->lowest));
    fill_cells(m, measurements, row_of);
    return OTT_OK;
}

static void append_json_number(const char *key, double value, str *out) {
    char text[32];
    json_write_key(out, key);
    str_append(out, isfinite(value) ? number_digits(value, 6, text) : "null");
}

/* Appends the members of a metrics_use as JSON, without its module and step. */
static void append_use_json(const metrics_use *use, str *out) {
    json_write_text(out, "tensor", use->tensor);
    json_write_text(out, "gemm", use->gemm);
    json_write_text(out, "format", use->format);
    if (report_use_rank(use) == -INFINITY)
        json_write_text(out, "sqnr_db", "not finite");
    else
        append_json_number("sqnr_db", use->sqnr_db, out);
}

static void append_cell_json(const metrics_use *use, str *out) {
    json_write_key(out, NULL);
    str_append(out, use ? "{" : "null");
    if (!use) return;
    json_write_integer(out, "step", use->step);
    append_use_json(use, out);
    str_append(out, "}");
}

static void append_map(const heat_map *m, str *out) {
    json_write_integer(out, "measurements", m->health->measurements);
    json_write_integer(out, "left_out", m->left_out);
    json_write_open(out, "steps", "[");
    for (int i = 0; i < m->columns; i++) json_write_integer(out, NULL, m->step[i]);
    str_append(out, "], \"modules\": [");
    for (int i = 0; i < m->rows; i++) json_write_text(out, NULL, m->health->modules[m->module[i]].name);
    str_append(out, "], \"cells\": [");
    for (int i = 0; i < m->rows; i++) {
        str_append(out, i ? ",\n[" : "\n[");
        for (int k = 0; k < m->columns; k++) append_cell_json(m->lowest[i * m->columns + k], out);
        str_append(out, "]");
    }
    str_append(out, "]");
}

static ott_status append_worst_json(const metrics_health *h, str *out) {
    const metrics_use **worst;
    int64_t count;
    TRY(report_worst_uses(h->account, h, &worst, &count));
    json_write_integer(out, "last_step", h->uses[h->last].step);
    json_write_integer(out, "more_uses", count > MOST_USES ? count - MOST_USES : 0);
    json_write_open(out, "worst", "[");
    for (int64_t i = 0; i < count && i < MOST_USES; i++) {
        str_append(out, i ? ",\n{" : "\n{");
        json_write_text(out, "module", h->modules[worst[i]->module].name);
        append_use_json(worst[i], out);
        append_json_number("amax", worst[i]->amax, out);
        append_json_number("scale_min", worst[i]->scale_min, out);
        append_json_number("scale_max", worst[i]->scale_max, out);
        append_json_number("saturated", worst[i]->saturated, out);
        append_json_number("underflowed", worst[i]->underflowed, out);
        str_append(out, "}");
    }
    str_append(out, "]");
    mem_free(h->account, worst);
    return OTT_OK;
}

static void append_left_json(const report_run_data *run, str *out) {
    const metrics_module *modules = run->health.modules;
    int64_t count = 0;
    json_write_open(out, "left", "[");
    for (int64_t i = report_next_left_fp8(run, 0); i >= 0; i = report_next_left_fp8(run, i + 1)) {
        if (count++ >= MOST_LEFT) continue;
        json_write_open(out, NULL, "{");
        json_write_text(out, "module", modules[i].name);
        json_write_integer(out, "step", modules[i].last_step);
        str_append(out, "}");
    }
    str_append(out, "]");
    json_write_integer(out, "more_left", count > MOST_LEFT ? count - MOST_LEFT : 0);
}

ott_status report_append_health(const report *r, int row, str *out) {
    const report_run_data *run = report_row_run(r, row, 0);
    heat_map m = {.health = &run->health};
    if (m.health->count == 0) return OTT_OK;
    TRY(arena_open(r->account, MEM_OTHER, &m.memory));
    ott_status status = fill_map(&m);
    if (status == OTT_OK) {
        json_write_open(out, "health", "{");
        append_map(&m, out);
        append_left_json(run, out);
        status = append_worst_json(m.health, out);
        str_append(out, "}");
    }
    arena_close(m.memory);
    return status;
}
