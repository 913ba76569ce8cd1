/*
 * formats/metrics: metrics.jsonl, one JSON object a line: {"step":10,"loss":2.345,"lr":0.0003}, in the order of
 * the steps. A resumed run cuts off what lies after its checkpoint, so that its file equals the one of an
 * uninterrupted run, times excepted. The file is only ever appended to and cut, and a line that is no metrics
 * is passed over, so that nothing in it can keep a run from going on.
 */
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
        double real; /* as number_metric (base/number.h) writes it; NaN and infinity become null */
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

/*
 * Opens `path` for appending. Lines of steps after `last_step` are cut off, found from the file's end, and so
 * is a line a crash left unfinished; a warning counts what was cut off and is no metrics. last_step = -1
 * starts an empty file.
 */
ott_status metrics_open(mem *account, const logger *log, const char *path, int64_t last_step,
                        metrics_writer **out);
/* Appends one line and hands it to the system; to a writer that is NULL nothing. On failure (a full disk) the file keeps whole lines only, and
   this and every later call fail. */
ott_status metrics_write(metrics_writer *w, int64_t step, const metrics_value *values, int count);
/* Returns when what was written is on the disk. */
ott_status metrics_sync(metrics_writer *w);
/* Does the path still lead to the file that is written? */
bool metrics_path_is_current(const metrics_writer *w);
/* When it does not: goes on in a new file, which gets all lines of the old one, or, where there is another
   file now, behind its lines. */
ott_status metrics_restore(metrics_writer *w);
void metrics_close(metrics_writer *w); /* NULL is allowed */

/* ---- reading ---- */

/* The lines that have a key, in the order of the file. A null value is NaN. Health lines, which speak of one
   module each, are no points of a run's curves. */
typedef struct metrics_series {
    mem *account;
    int64_t count, capacity;
    int64_t *step;                  /* [count] */
    double *value;                  /* [count] */
    int64_t damaged, first_damaged; /* lines of the file that are no metrics, and the number of the first */
} metrics_series;

enum {
    METRICS_MOST_POINTS = 1 << 18 /* of a series; of a longer one, every second, fourth, ..., and the last */
};

/* Fills out[i] with the series of keys[i] (empty when no line has it), in one pass; free each with
   metrics_series_free. Lines that are no metrics are passed over and counted; an unfinished last line is
   passed over: the run may still be writing. */
ott_status metrics_read(mem *account, const char *path, const char *const *keys, int count,
                        metrics_series *out);
void metrics_series_free(metrics_series *s);

/* ---- reading what was measured of FP8 (train/health.h) ---- */

enum {
    METRICS_MOST_USES =
        1 << 18, /* that are kept of one run: of a longer one, every second, fourth, ... measurement */
    METRICS_MOST_MODULES = 1 << 16, /* more are an error */
    METRICS_NAME_BYTES = 200        /* lines with longer names are passed over */
};

/* One use of a tensor at one step. What the file has as null, or not as a number, is NaN. */
typedef struct metrics_use {
    int64_t step, module; /* index in metrics_health.modules */
    const char *tensor, *gemm, *format;
    double amax, scale_min, scale_max;
    double saturated, underflowed; /* shares of the elements, 0 to 1 */
    double sqnr_db;
} metrics_use;

typedef struct metrics_module {
    const char *name;
    int64_t last_step; /* measured */
} metrics_module;

/* A measurement is what successive lines say of one step. */
typedef struct metrics_health {
    mem *account;
    arena *names;
    int64_t module_count, module_capacity;
    metrics_module *modules; /* [module_count], in order of appearance */
    int64_t count, capacity;
    metrics_use *uses;              /* [count], in the order of the file */
    int64_t last;                   /* the last measurement begins at uses[last]; it is always kept whole */
    int64_t measurements;           /* in the file */
    int64_t damaged, first_damaged; /* as in metrics_series, of the lines that would be health lines */
    bool complete; /* something follows the last measurement: the run is not in the middle of writing it */
} metrics_health;

/* Fills out from the health lines of a file: lines with the names module, tensor, gemm and format, and an
   sqnr_db; free it with metrics_health_free. Control characters in names become spaces. */
ott_status metrics_read_health(mem *account, const char *path, metrics_health *out);
void metrics_health_free(metrics_health *h);

#endif
