/* module_case: helpers for the tests of modules. */
#define _GNU_SOURCE
#include "api/module_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void capture_log(void *user, ott_log_level level, const char *text) {
    captured_log *h = user;
    size_t used = strlen(h->text);
    (void)level;
    snprintf(h->text + used, sizeof h->text - used, "%s\n", text);
}

ott_context *open_logging_context(captured_log *h) {
    ott_context *context;
    ott_context_options options;
    *h = (captured_log){0};
    ott_context_options_init(&options);
    options.threads = 2;
    options.log = capture_log;
    options.user = h;
    succeed(ott_context_open(&options, &context));
    return context;
}

int count_logged(const captured_log *h, const char *part) {
    int times = 0;
    for (const char *at = h->text; (at = strstr(at, part)); at++) times++;
    return times;
}

ott_module *open_linear(ott_context *context, int64_t in, int64_t out, bool bias, ott_dtype dtype,
                        uint64_t seed) {
    ott_linear_options o;
    ott_module *m;
    ott_linear_options_init(&o);
    o.in_features = in;
    o.out_features = out;
    o.bias = bias;
    o.dtype = dtype;
    o.seed = seed;
    o.init_std = 0.25;
    succeed(ott_linear_open(context, &o, &m));
    return m;
}

ott_module *open_sequential(ott_context *context, ott_module *const *parts, int count) {
    ott_module *m;
    succeed(ott_sequential_open(context, parts, count, &m));
    return m;
}

ott_module *open_layer(ott_context *context, ott_dtype dtype, uint64_t seed) {
    ott_transformer_layer_options o;
    ott_module *m;
    ott_transformer_layer_options_init(&o);
    o.dim = 32;
    o.heads = 4;
    o.kv_heads = 2;
    o.hidden = 48;
    o.dtype = dtype;
    o.seed = seed;
    o.init_std = 0.2;
    succeed(ott_transformer_layer_open(context, &o, &m));
    return m;
}

flow open_flow(ott_context *context, const ott_module *m, int64_t rows, uint64_t seed) {
    int64_t in = ott_module_in_features(m), out = ott_module_out_features(m);
    ott_dtype d = ott_module_dtype(m);
    return (flow){.x = open_normal(context, d, rows, in, seed),
                  .y = open_tensor(context, d, rows, out),
                  .dy = open_normal(context, d, rows, out, seed + 1000),
                  .dx = open_tensor(context, d, rows, in),
                  .rows = rows};
}

void close_flow(flow *f) {
    ott_tensor_close(f->x);
    ott_tensor_close(f->y);
    ott_tensor_close(f->dy);
    ott_tensor_close(f->dx);
}

void forward(ott_module *m, const flow *f) {
    succeed(ott_module_forward(m, f->x, f->y));
}

void backward(ott_module *m, const flow *f) {
    succeed(ott_module_backward(m, f->dy, f->dx));
}

static int64_t count_of(const ott_tensor *t) {
    return ott_tensor_rows(t) * ott_tensor_columns(t);
}

float *values_of(const ott_tensor *t) {
    float *values = malloc((size_t)count_of(t) * sizeof *values + 1);
    succeed(ott_tensor_read(t, values, count_of(t)));
    return values;
}

void assert_same_values(const ott_tensor *a, const ott_tensor *b) {
    assert_int_equal(count_of(a), count_of(b));
    float *x = values_of(a), *y = values_of(b);
    assert_memory_equal(x, y, (size_t)count_of(a) * sizeof *x);
    free(x);
    free(y);
}

static int index_of(ott_module *m, const char *name) {
    int index = ott_module_parameter_index(m, name);
    if (index < 0) fail_msg("%s", ott_error_text());
    return index;
}

ott_tensor *value_of(ott_module *m, const char *name) {
    ott_tensor *t;
    succeed(ott_module_parameter_value(m, index_of(m, name), &t));
    return t;
}

ott_tensor *gradient_of(ott_module *m, const char *name) {
    ott_tensor *t;
    succeed(ott_module_parameter_gradient(m, index_of(m, name), &t));
    return t;
}

void fill(ott_tensor *t, float value) {
    int64_t count = count_of(t);
    float *values = malloc((size_t)count * sizeof *values + 1);
    for (int64_t i = 0; i < count; i++) values[i] = value;
    succeed(ott_tensor_write(t, values, count));
    free(values);
}

void assert_same_parameters(ott_module *a, ott_module *b) {
    int count = ott_module_parameter_count(a);
    assert_int_equal(count, ott_module_parameter_count(b));
    for (int i = 0; i < count; i++) {
        const char *name = ott_module_parameter_name(a, i);
        assert_string_equal(name, ott_module_parameter_name(b, i));
        assert_same_values(value_of(a, name), value_of(b, name));
    }
}

void copy_parameters(ott_module *from, ott_module *to) {
    for (int i = 0; i < ott_module_parameter_count(from); i++) {
        const char *name = ott_module_parameter_name(from, i);
        succeed(ott_tensor_convert(value_of(from, name), value_of(to, name)));
    }
}

float scale_of(ott_module *m, const char *fqn, const char *which) {
    float scale;
    ott_module *part = ott_module_child(m, fqn);
    assert_non_null(part);
    succeed(ott_module_scale(part, which, &scale, NULL));
    return scale;
}

void make_folder(char out[64]) {
    snprintf(out, 64, "/tmp/ottava-module-XXXXXX");
    assert_non_null(mkdtemp(out));
}

void remove_folder(const char *folder) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}
