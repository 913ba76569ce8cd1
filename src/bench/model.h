/* bench/model: a model of a preset in one of the precisions that a benchmark compares. */
#ifndef BENCH_MODEL_H
#define BENCH_MODEL_H

#include "bench/harness.h"
#include "train/precision.h"

enum { BENCH_PRECISIONS_MOST = 3 };

/* Each has memory and a device of its own: what one needs can be told from what another does. */
typedef struct bench_model {
    const char *name; /* "fp8" */
    mem *account;
    device *device;
    config *cfg;
    model_options shape;
    precision_plan precision;
} bench_model;

/* The names of the precisions that the options ask for. */
ott_status bench_precisions(const bench_options *o, const char *out[BENCH_PRECISIONS_MOST], int *count);
/* The configuration of the options' path, if there is one, with `more` arguments as the command line of `ottava train` takes them,
   [count], on data that is made up. Closed with config_close. */
ott_status bench_config(mem *account, const logger *log, const bench_options *o, const char *const *more,
                        int count, config **out);
/* Of the options' path, if there is one, or a preset (else NULL). `sizes`: further arguments as the command line of
   `ottava train` takes them, [count]. */
ott_status bench_model_open(const bench_options *o, const char *precision, const char *preset,
                            const char *const *sizes, int count, bench_model *out);
void bench_model_close(bench_model *m); /* also one that was not opened whole */

/* A line of numbers, one for each case, which stand under the columns of the table. */
void bench_text_line(str *out, const char *what, const double *values, int count, int digits,
                     const char *unit);

#endif
