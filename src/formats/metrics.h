/* formats/metrics: metrics.jsonl, one JSON object per line in ascending order of steps:
   {"step":10,"loss":2.345,"lr":0.0003}. A resumed run truncates the lines after its checkpoint. So its file
   equals the file of an uninterrupted run, except for times. Readers skip damaged lines: the file's contents
   never prevent a run from resuming. */
#ifndef FORMATS_METRICS_H
#define FORMATS_METRICS_H

#include "base/arena.h"
#include "base/log.h"
#include "base/mem.h"
#include <stdbool.h>

typedef enum metrics_kind { METRICS_REAL, METRICS_INT, METRICS_TEXT } metrics_kind;

typedef struct metrics_value {
    const char *key;
    metrics_kind kind;
    union {
        double real; /* written by number_metric (base/text/number.h); NaN and infinity become null */
        int64_t integer;
        const char *text;
    };
} metrics_value;

static inline metrics_value metrics_real(const char *key, double value) {
    return (metrics_value){.key = key, .kind = METRICS_REAL, .real = value};
}
static inline metrics_value metrics_int(const char *key, int64_t value) {
    return (metrics_value){.key = key, .kind = METRICS_INT, .integer = value};
}
static inline metrics_value metrics_text(const char *key, const char *value) {
    return (metrics_value){.key = key, .kind = METRICS_TEXT, .text = value};
}

typedef struct metrics_writer metrics_writer;

/* Opens `path` for appending, after truncating the lines of steps after `last_step` and an incomplete last
   line. Logs a warning with the number of damaged lines it removed. last_step -1 empties the file. */
ott_status metrics_open(mem *account, const logger *log, const char *path, int64_t last_step,
                        metrics_writer **out);
/* Appends one line with a single write. Does nothing if w is NULL. After a failure (disk full) the file ends
   with a complete line, and all later calls fail. */
ott_status metrics_write(metrics_writer *w, int64_t step, const metrics_value *values, int count);
/* Flushes the file to disk. */
ott_status metrics_sync(metrics_writer *w);
/* False if the open file was removed, renamed or replaced. */
bool metrics_path_is_current(const metrics_writer *w);
/* Call it if another process removed or replaced the file. Opens the new file at the path. If the file was
   removed, writes a copy of it to the path. */
ott_status metrics_restore(metrics_writer *w);
void metrics_close(metrics_writer *w); /* NULL is allowed */

/* ---- reading ---- */

/* The values of one key, with their steps, in file order. A null becomes NaN. Health lines are left out. */
typedef struct metrics_series {
    mem *account;
    int64_t count, capacity;
    int64_t *step;                  /* [count] steps of the points */
    double *value;                  /* [count] values of the points */
    int64_t damaged, first_damaged; /* number of damaged lines in the file, line number of the first one */
} metrics_series;

enum {
    /* maximum points of a series; if there are more, every second (fourth, ...) and the last are kept */
    METRICS_MOST_POINTS = 1 << 18
};

/* Fills out[i] with the series of keys[i], which is empty if no line has the key. Free each with
   metrics_series_free. Counts damaged lines. Ignores an incomplete last line: a run may be writing it. */
ott_status metrics_read(mem *account, const char *path, const char *const *keys, int count,
                        metrics_series *out);
void metrics_series_free(metrics_series *s);

/* ---- FP8 health lines (monitor/health.h) ---- */

enum {
    /* most metrics_use that are kept. If a file has more: only each second (fourth, ...) and the last step */
    METRICS_MOST_USES = 1 << 18,
    METRICS_MOST_MODULES = 1 << 16, /* a file with more modules is an error */
    METRICS_NAME_BYTES = 200        /* a line with a longer name is skipped */
};

/* A health line: a tensor as operand of one kind of GEMM, at one step. NaN: the value is null or missing. */
typedef struct metrics_use {
    int64_t step, module; /* module: index into metrics_health.modules */
    const char *tensor, *gemm, *format;
    double amax, scale_min, scale_max;
    double saturated, underflowed; /* fractions of the elements, 0 to 1 */
    double sqnr_db;
} metrics_use;

typedef struct metrics_module {
    const char *name;
    int64_t last_step; /* last measured step */
} metrics_module;

/* All health lines. Consecutive lines with the same step are one measurement. */
typedef struct metrics_health {
    mem *account;
    arena *names;
    int64_t module_count, module_capacity;
    metrics_module *modules; /* [module_count], in order of first appearance */
    int64_t count, capacity;
    metrics_use *uses;              /* [count], in file order */
    int64_t last;                   /* index in `uses` where the last measurement begins */
    int64_t measurements;           /* measurements in the file, including those not kept in `uses` */
    int64_t damaged, first_damaged; /* number of damaged health lines; line number of the first */
    bool complete;                  /* a line follows the last measurement, so the measurement is complete */
} metrics_health;

/* Fills `out` from the health lines of a file: lines with module, tensor, gemm, format and sqnr_db. Free with
   metrics_health_free. Control characters in names become spaces. */
ott_status metrics_read_health(mem *account, const char *path, metrics_health *out);
void metrics_health_free(metrics_health *h);

#endif
