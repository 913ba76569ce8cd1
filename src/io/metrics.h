/*
 * io/metrics: metrics.jsonl, one JSON object a line: {"step":10,"loss":2.345,"lr":0.0003}. A resumed run cuts
 * off what lies after its checkpoint, so that its file equals the one of an uninterrupted run, times
 * excepted.
 */
#ifndef IO_METRICS_H
#define IO_METRICS_H

#include "base/mem.h"

typedef enum metrics_kind { METRICS_REAL, METRICS_INT, METRICS_TEXT } metrics_kind;

typedef struct metrics_value {
    const char *key;
    metrics_kind kind;
    union {
        double real; /* as number_metric (io/number.h) writes it; NaN and infinity become null */
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
 * Opens `path` for appending. Lines of steps after `last_step` are cut off, and so is a line a crash left
 * unfinished; last_step = -1 starts an empty file. OTT_ERR_FORMAT names a line that is no metrics.
 */
ott_status metrics_open(mem *account, const char *path, int64_t last_step, metrics_writer **out);
/* Appends one line and hands it to the system. On failure (a full disk) the file keeps whole lines only, and
   this and every later call fail. */
ott_status metrics_write(metrics_writer *w, int64_t step, const metrics_value *values, int count);
void metrics_close(metrics_writer *w); /* NULL is allowed */

/* ---- reading ---- */

/* The lines that have a key, in the order of the file. A null value is NaN. */
typedef struct metrics_series {
    mem *account;
    int64_t count, capacity;
    int64_t *step; /* [count] */
    double *value; /* [count] */
} metrics_series;

/* Fills out[i] with the series of keys[i] (empty when no line has it), in one pass; free each with
   metrics_series_free. An unfinished last line is passed over: the run may still be writing. */
ott_status metrics_read(mem *account, const char *path, const char *const *keys, int count,
                        metrics_series *out);
void metrics_series_free(metrics_series *s);

#endif
