/* bench/model: a model in one of the precisions that a benchmark compares. */
#ifndef BENCH_MODEL_H
#define BENCH_MODEL_H

#include "bench/harness.h"
#include "resolve/resolve.h"
#include "train/precision.h"

enum { BENCH_PRECISIONS_MOST = 3 };

/* Each model has its own memory account and device, so its memory can be reported separately. */
typedef struct bench_model {
    const char *name; /* precision, "fp8" */
    mem *account;
    device *device;
    config *cfg;
    model_options shape;
    precision_plan precision;
} bench_model;

/* Lists the precisions in the option `precision`. */
ott_status bench_precisions(const bench_options *o, const char *out[BENCH_PRECISIONS_MOST], int *count);
/* Reads the configuration from the file of the option `path` (NULL: no file), from more[count], which are
   arguments of `ottava train`, and with synthetic data. Close it with config_close. */
ott_status bench_config(mem *account, const logger *log, const bench_options *o, const char *const *more,
                        int count, config **out);
/* Opens the model of the configuration file that the option `path` names, or of `preset`. sizes[count]:
   arguments of `ottava train` with the model's sizes. */
ott_status bench_model_open(const bench_options *o, const char *precision, const char *preset,
                            const char *const *sizes, int count, bench_model *out);
void bench_model_close(bench_model *m); /* call it also after a failed bench_model_open */

/* Appends a line with one number for each case, aligned with the columns of the table. */
void bench_text_line(str *out, const char *what, const double *values, int count, int digits,
                     const char *unit);

#endif
