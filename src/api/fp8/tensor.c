/* api/fp8/tensor: tensors, and the device of a context. */
#include "api/fp8/tensor.h"
#include "backend/backend.h"
#include "base/rng.h"
#include <math.h>

/* ---- the device of a context ---- */

static ott_status open_context_device(ott_context *context) {
    device *d;
    const backend_choice choice = {
        .name = context->device_name, .threads = context->threads, .log = &context->log};
    TRY(backend_open(&choice, context->account, &d));
    ott_status status = plan_create(d, &context->plan);
    if (status != OTT_OK) return device_close(d), status;
    plan_immediate(context->plan);
    context->device = d;
    return OTT_OK;
}

ott_status api_device(ott_context *context, device **out) {
    if (!context->device) TRY(open_context_device(context));
    return *out = context->device, OTT_OK;
}

ott_status api_exec(ott_context *context, exec *out) {
    device *d;
    TRY(api_device(context, &d));
    *out = (exec){.device = d,
                  .plan = context->plan,
                  .phase = PHASE_TRAIN,
                  .step = context->step,
                  .is_first_microbatch = true,
                  .log = &context->log};
    return OTT_OK;
}

/* ---- checks ---- */

ott_status tensor_check_number(const ott_tensor *t, const char *function, const char *argument) {
    if (dtype_is_high_precision(t->t.dtype)) return OTT_OK;
    return status_fail(OTT_ERR_DTYPE, "%s: %s is %s; give fp32, bf16 or fp16", function, argument,
                       dtype_name(t->t.dtype));
}

ott_status tensor_check_shape(const ott_tensor *t, int64_t rows, int64_t columns, const char *by,
                              const char *function, const char *argument) {
    if (t->t.rows == rows && t->t.columns == columns) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE, "%s: %s is [%lld, %lld], but %s [%lld, %lld]", function, argument,
                       (long long)t->t.rows, (long long)t->t.columns, by, (long long)rows,
                       (long long)columns);
}

ott_status tensor_check_apart(const tensor *a, const char *name_a, const tensor *b, const char *name_b,
                              const char *function) {
    uintptr_t begin_a = (uintptr_t)a->data, begin_b = (uintptr_t)b->data;
    uintptr_t end_a = begin_a + (uintptr_t)tensor_bytes(*a), end_b = begin_b + (uintptr_t)tensor_bytes(*b);
    if (end_a <= begin_b || end_b <= begin_a) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: %s and %s overlap", function, name_a, name_b);
}

static ott_status check_new(ott_dtype d, int64_t rows, int64_t columns, const char *function) {
    int64_t count, bytes;
    if (dtype_is_fp8(d))
        return status_fail(OTT_ERR_DTYPE,
                           "%s: dtype is %s, which needs scales: open a quantized tensor (ott_qtensor_open)",
                           function, dtype_name(d));
    if (!dtype_is_high_precision(d) && d != OTT_I32)
        return status_fail(OTT_ERR_DTYPE, "%s: dtype is %s; give fp32, bf16, fp16 or i32", function,
                           dtype_name(d));
    if (rows < 0 || columns < 0 || __builtin_mul_overflow(rows, columns, &count) ||
        __builtin_mul_overflow(count, dtype_bytes(d), &bytes))
        return status_fail(OTT_ERR_SHAPE,
                           "%s: [%lld, %lld] is not a shape: rows and columns must be 0 or more", function,
                           (long long)rows, (long long)columns);
    return OTT_OK;
}

/* ---- opening and closing ---- */

static ott_status check_memory(device *d, const tensor *t) {
    if (tensor_count(*t) == 0 || device_holds(d, t->data, tensor_bytes(*t))) return OTT_OK;
    return status_fail(
        OTT_ERR_ARGUMENT,
        "ott_tensor_wrap: data is not in the memory of the context's device, %s: open a tensor and "
        "fill it with ott_tensor_write, or open the context with device \"cpu\"",
        d->name);
}

static ott_status open_tensor(ott_context *context, tensor t, bool owned, ott_tensor **out) {
    device *d;
    ott_tensor *opened;
    TRY(api_device(context, &d));
    if (!owned) TRY(check_memory(d, &t));
    TRY(handle_open(context, HANDLE_TENSOR, sizeof(ott_tensor), &opened));
    opened->t = t;
    if (owned) {
        ott_status status = device_allocate(d, MEM_OTHER, tensor_bytes(t), "a tensor", &opened->owned);
        opened->t.data = opened->owned;
        if (status != OTT_OK) return handle_close(&opened->handle), status;
    }
    return *out = opened, OTT_OK;
}

ott_status ott_tensor_open(ott_context *context, ott_dtype dtype, int64_t rows, int64_t columns,
                           ott_tensor **out) {
    API_REQUIRE_BOTH(context, out);
    *out = NULL;
    TRY(check_new(dtype, rows, columns, __func__));
    return API_INSIDE(context, open_tensor(context, tensor_matrix(NULL, dtype, rows, columns), true, out));
}

ott_status ott_tensor_wrap(ott_context *context, void *data, ott_dtype dtype, int64_t rows, int64_t columns,
                           ott_tensor **out) {
    API_REQUIRE_BOTH(context, out);
    *out = NULL;
    TRY(check_new(dtype, rows, columns, __func__));
    if (rows > 0 && columns > 0) API_REQUIRE(data);
    if ((uintptr_t)data % (uintptr_t)dtype_bytes(dtype) != 0)
        return status_fail(OTT_ERR_ARGUMENT,
                           "%s: data is not aligned for %s: its address must be a multiple of %d", __func__,
                           dtype_name(dtype), (int)dtype_bytes(dtype));
    return API_INSIDE(context, open_tensor(context, tensor_matrix(data, dtype, rows, columns), false, out));
}

void ott_tensor_close(ott_tensor *t) {
    if (!handle_is_open(t, HANDLE_TENSOR)) return;
    ott_context *context = t->handle.context;
    if (api_enter(context, __func__) != OTT_OK) return;
    device_release(context->device, t->owned);
    handle_close(&t->handle);
    api_leave(context);
}

/* ---- getters ---- */

static bool is_usable(const ott_tensor *t, const char *function) {
    return handle_check(t, HANDLE_TENSOR, function, "t") == OTT_OK;
}

ott_dtype ott_tensor_dtype(const ott_tensor *t) {
    return is_usable(t, __func__) ? t->t.dtype : OTT_DTYPE_COUNT;
}

int64_t ott_tensor_rows(const ott_tensor *t) {
    return is_usable(t, __func__) ? t->t.rows : -1;
}

int64_t ott_tensor_columns(const ott_tensor *t) {
    return is_usable(t, __func__) ? t->t.columns : -1;
}

void *ott_tensor_data(ott_tensor *t) {
    return is_usable(t, __func__) ? t->t.data : NULL;
}

/* ---- reading and writing ---- */

static ott_status check_count(const ott_tensor *t, int64_t count, const char *function) {
    if (count == tensor_count(t->t)) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE, "%s: count = %lld, but the tensor is [%lld, %lld]: %lld elements",
                       function, (long long)count, (long long)t->t.rows, (long long)t->t.columns,
                       (long long)tensor_count(t->t));
}

/* The values that a tensor is filled with. */
typedef struct source {
    const float *values;    /* elements; NULL: see `constant` */
    const double *constant; /* value of all elements; NULL: normal numbers from seed and deviation */
    uint64_t seed;
    double deviation;
} source;

static float source_element(const source *s, int64_t i) {
    if (s->values) return s->values[i];
    if (s->constant) return (float)*s->constant;
    return (float)(s->deviation * (double)rng_normal(s->seed, 0, (uint64_t)i));
}

/* Sets all elements of t. They are computed in host memory and copied to the device. */
static ott_status fill_tensor(const ott_tensor *t, const source *s) {
    device *d;
    void *host;
    ott_context *context = t->handle.context;
    TRY(api_device(context, &d));
    TRY(mem_alloc(context->account, MEM_OTHER, tensor_bytes(t->t), "a copy of a tensor", &host));
    for (int64_t i = 0; i < tensor_count(t->t); i++) cast_store(host, t->t.dtype, i, source_element(s, i));
    ott_status status = device_copy_in(d, t->t.data, host, tensor_bytes(t->t));
    mem_free(context->account, host);
    return status;
}

static ott_status read_out(const ott_tensor *t, float *out) {
    device *d;
    void *host;
    ott_context *context = t->handle.context;
    TRY(api_device(context, &d));
    TRY(mem_alloc(context->account, MEM_OTHER, tensor_bytes(t->t), "a copy of a tensor", &host));
    ott_status status = device_copy_out(d, host, t->t.data, tensor_bytes(t->t));
    for (int64_t i = 0; status == OTT_OK && i < tensor_count(t->t); i++)
        out[i] = cast_load(host, t->t.dtype, i);
    mem_free(context->account, host);
    return status;
}

ott_status ott_tensor_read(const ott_tensor *t, float *out, int64_t count) {
    API_HANDLE(t, TENSOR);
    API_REQUIRE(out);
    TRY(check_count(t, count, __func__));
    return API_INSIDE(t->handle.context, read_out(t, out));
}

ott_status ott_tensor_write(ott_tensor *t, const float *values, int64_t count) {
    API_HANDLE(t, TENSOR);
    API_REQUIRE(values);
    TRY(check_count(t, count, __func__));
    return API_INSIDE(t->handle.context, fill_tensor(t, &(source){.values = values}));
}

ott_status ott_tensor_fill(ott_tensor *t, double value) {
    API_HANDLE(t, TENSOR);
    return API_INSIDE(t->handle.context, fill_tensor(t, &(source){.constant = &value}));
}

ott_status ott_tensor_fill_normal(ott_tensor *t, uint64_t seed, double deviation) {
    API_HANDLE(t, TENSOR);
    TRY(tensor_check_number(t, __func__, "t"));
    if (!(deviation >= 0 && isfinite(deviation)))
        return status_fail(OTT_ERR_ARGUMENT, "%s: deviation = %g: give 0 or more, finite", __func__,
                           deviation);
    return API_INSIDE(t->handle.context, fill_tensor(t, &(source){.seed = seed, .deviation = deviation}));
}

static ott_status convert_tensor(const ott_tensor *from, const ott_tensor *to) {
    exec cx;
    TRY(api_exec(to->handle.context, &cx));
    return op_convert(&cx, &(convert_args){.x = &from->t, .y = &to->t});
}

ott_status ott_tensor_convert(const ott_tensor *from, ott_tensor *to) {
    API_HANDLE(from, TENSOR);
    API_HANDLE_IN(to, TENSOR, from->handle.context);
    TRY(tensor_check_number(from, __func__, "from"));
    TRY(tensor_check_number(to, __func__, "to"));
    TRY(tensor_check_shape(to, from->t.rows, from->t.columns, "from is", __func__, "to"));
    return API_INSIDE(to->handle.context, convert_tensor(from, to));
}
