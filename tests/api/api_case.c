/* api_case: helpers for the tests of the public API. */
#include "api/api_case.h"
#include "api/fp8/tensor.h"
#include "backend/open.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Under sanitizers too, malloc must return NULL for a size that is too large, as tests expect. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1";
}
const char *__tsan_default_options(void) {
    return "allocator_may_return_null=1";
}

void succeed(ott_status status) {
    if (status != OTT_OK) fail_msg("%s: %s", ott_status_name(status), ott_error_text());
}

void assert_error(ott_status status, ott_status expected, const char *part) {
    if (status != expected)
        fail_msg("%s instead of %s: %s", ott_status_name(status), ott_status_name(expected),
                 ott_error_text());
    if (!strstr(ott_error_text(), part)) fail_msg("\"%s\" does not contain \"%s\"", ott_error_text(), part);
}

ott_context *open_context(void) {
    ott_context *context;
    ott_context_options options;
    ott_context_options_init(&options);
    options.threads = 2;
    succeed(ott_context_open(&options, &context));
    return context;
}

ott_recipe *open_recipe(ott_context *context, const char *name) {
    ott_recipe *r;
    succeed(ott_recipe_open(context, name, &r));
    return r;
}

void set_contiguous_contraction(ott_context *context) {
    static backend_capabilities can;
    device *d;
    succeed(api_device(context, &d));
    can = *d->can;
    can.contiguous_contraction = true;
    d->can = &can;
}

bool needs_contiguous_contraction(ott_context *context) {
    device *d;
    succeed(api_device(context, &d));
    return d->can->contiguous_contraction;
}

ott_tensor *open_tensor(ott_context *context, ott_dtype dtype, int64_t rows, int64_t columns) {
    ott_tensor *t;
    succeed(ott_tensor_open(context, dtype, rows, columns, &t));
    return t;
}

ott_tensor *open_normal(ott_context *context, ott_dtype dtype, int64_t rows, int64_t columns, uint64_t seed) {
    ott_tensor *t = open_tensor(context, dtype, rows, columns);
    succeed(ott_tensor_fill_normal(t, seed, 1.0));
    return t;
}

ott_qtensor *open_qtensor(ott_context *context, int64_t rows, int64_t columns, ott_recipe *r, ott_role role) {
    ott_qtensor *q;
    succeed(ott_qtensor_open(context, rows, columns, r, role, &q));
    return q;
}

/* ---- copies from the device to the host ---- */

static const void *on_host(ott_context *context, const void *data, int64_t bytes) {
    static void *copies[COPIES_KEPT];
    static int next;
    if (!data) return NULL;
    void **copy = &copies[next++ % COPIES_KEPT];
    free(*copy);
    return *copy = test_device_fetch(context->device, data, bytes);
}

const void *tensor_on_host(ott_tensor *t) {
    return on_host(t->handle.context, t->t.data, tensor_bytes(t->t));
}

ott_qdata use_on_host(ott_qtensor *q, ott_usage use) {
    ott_context *c = q->handle.context;
    ott_qdata v;
    ott_qdata_init(&v);
    succeed(ott_qtensor_data(q, use, &v));
    int64_t scales = v.count * (int64_t)sizeof(float);
    v.codes = on_host(c, v.codes, q->q.rows * q->q.columns);
    v.amax = on_host(c, v.amax, scales);
    v.scale = on_host(c, v.scale, scales);
    qdata *d = use == OTT_ROWWISE ? &q->q.rowwise : &q->q.columnwise;
    const cast_spec *spec = use == OTT_ROWWISE ? &q->q.spec.rowwise : &q->q.spec.columnwise;
    if (d->tiles.along_k)
        scales = granularity_scale_bytes(spec->grain, (scale_grid){d->k_step, v.count / d->k_step});
    v.scale_inv = on_host(c, v.scale_inv, scales);
    return v;
}

void needs_host_memory(void) {
    const char *device_name = getenv(TEST_DEVICE_VARIABLE);
    if (device_name && *device_name) skip();
}
