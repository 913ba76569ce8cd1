/* module_case: what the tests of modules share. Everything fails the test that does not succeed. */
#ifndef MODULE_CASE_H
#define MODULE_CASE_H

#include "api/api_case.h"
#include <stdbool.h>

/* A context whose log lines are kept. */
typedef struct heard {
    char text[32768]; /* lines, each ended */
} heard;
ott_context *open_heard(heard *h);
/* How often a text occurs in the log. */
int times_heard(const heard *h, const char *part);

ott_module *open_linear(ott_context *context, int64_t in, int64_t out, bool bias, ott_dtype dtype,
                        uint64_t seed);
ott_module *open_sequential(ott_context *context, ott_module *const *parts, int count);
/* dim 32, 4 heads over 2, hidden 48. */
ott_module *open_layer(ott_context *context, ott_dtype dtype, uint64_t seed);

/* x and dy filled from seeds, y and dx, for a module; closed together. */
typedef struct flow {
    ott_tensor *x, *y, *dy, *dx;
    int64_t rows;
} flow;
flow open_flow(ott_context *context, const ott_module *m, int64_t rows, uint64_t seed);
void close_flow(flow *f);
void forward(ott_module *m, const flow *f);
void backward(ott_module *m, const flow *f);

/* All elements; the caller frees. */
float *values_of(const ott_tensor *t);
void assert_same_values(const ott_tensor *a, const ott_tensor *b);
ott_tensor *value_of(ott_module *m, const char *name);
ott_tensor *gradient_of(ott_module *m, const char *name);
void fill(ott_tensor *t, float value);
/* All parameters of two modules with the same names are the same, bit for bit. */
void assert_same_parameters(ott_module *a, ott_module *b);
void copy_parameters(ott_module *from, ott_module *to);
float scale_of(ott_module *m, const char *fqn, const char *which);

/* A temporary folder; removed by remove_folder. */
void make_folder(char out[64]);
void remove_folder(const char *folder);

#endif
