/* module_case: helpers for the tests of modules. A failing call fails the test. */
#ifndef MODULE_CASE_H
#define MODULE_CASE_H

#include "api/api_case.h"
#include <stdbool.h>

/* The log lines of a context that open_context_logged opens. */
typedef struct captured_log {
    char text[32768]; /* the log lines; each ends with a newline */
} captured_log;
ott_context *open_logging_context(captured_log *h);
/* Counts how often `part` is in the log. */
int count_logged(const captured_log *h, const char *part);

ott_module *open_linear(ott_context *context, int64_t in, int64_t out, bool bias, ott_dtype dtype,
                        uint64_t seed);
ott_module *open_sequential(ott_context *context, ott_module *const *parts, int count);
/* Opens a transformer layer: dim 32, 4 heads, 2 key heads, hidden size 48. */
ott_module *open_layer(ott_context *context, ott_dtype dtype, uint64_t seed);

/* Tensors for a module's forward and backward. x and dy hold normally distributed numbers. */
typedef struct flow {
    ott_tensor *x, *y, *dy, *dx;
    int64_t rows;
} flow;
flow open_flow(ott_context *context, const ott_module *m, int64_t rows, uint64_t seed);
void close_flow(flow *f);
void forward(ott_module *m, const flow *f);
void backward(ott_module *m, const flow *f);

/* Returns all elements of a tensor. The caller frees the array. */
float *values_of(const ott_tensor *t);
void assert_same_values(const ott_tensor *a, const ott_tensor *b);
ott_tensor *value_of(ott_module *m, const char *name);
ott_tensor *gradient_of(ott_module *m, const char *name);
void fill(ott_tensor *t, float value);
/* Asserts that two modules have equal parameters with equal names, bit for bit. */
void assert_same_parameters(ott_module *a, ott_module *b);
void copy_parameters(ott_module *from, ott_module *to);
float scale_of(ott_module *m, const char *fqn, const char *which);

/* Makes a temporary folder; remove_folder removes it. */
void make_folder(char out[64]);
void remove_folder(const char *folder);

#endif
