/* cpu/quantize/convert: converts a tensor to another high-precision format. */
#include "cpu/simd/simd.h"
#include "cpu/isa.h"

typedef struct convert_job {
    const tensor *x, *y;
    bool flat; /* both tensors are dense, so they are converted as one row */
} convert_job;

/* Converts count elements from index x0 of x to index y0 of y. */
SIMD void convert_run(const void *x, ott_dtype dx, int64_t x0, void *y, ott_dtype dy, int64_t y0,
                      int64_t count) {
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) v16_store_any(y, dy, y0 + i, v16_load_any(x, dx, x0 + i));
    if (i < count) v16_store_any_n(y, dy, y0 + i, v16_load_any_n(x, dx, x0 + i, count - i), count - i);
}

static void convert_f32(const tensor *x, int64_t x0, const tensor *y, int64_t y0, int64_t count) {
    if (y->dtype == OTT_BF16)
        convert_run(x->data, OTT_F32, x0, y->data, OTT_BF16, y0, count);
    else if (y->dtype == OTT_F16)
        convert_run(x->data, OTT_F32, x0, y->data, OTT_F16, y0, count);
    else
        convert_run(x->data, OTT_F32, x0, y->data, OTT_F32, y0, count);
}

static void convert_row(const tensor *x, int64_t x0, const tensor *y, int64_t y0, int64_t count) {
    if (x->dtype == OTT_F32)
        convert_f32(x, x0, y, y0, count);
    else if (x->dtype == OTT_BF16 && y->dtype == OTT_F32)
        convert_run(x->data, OTT_BF16, x0, y->data, OTT_F32, y0, count);
    else
        convert_run(x->data, x->dtype, x0, y->data, y->dtype, y0, count);
}

static void convert_task(void *argument, int thread, int threads) {
    const convert_job *job = argument;
    const tensor *x = job->x, *y = job->y;
    int64_t begin, end;
    if (job->flat) {
        pool_share(tensor_count(*x), 64, thread, threads, &begin, &end);
        convert_row(x, begin, y, begin, end - begin);
        return;
    }
    pool_share(x->rows, 1, thread, threads, &begin, &end);
    for (int64_t r = begin; r < end; r++) convert_row(x, r * x->ld, y, r * y->ld, x->columns);
}

ott_status ISA(convert)(exec *cx, const convert_args *a) {
    convert_job job = {.x = a->x, .y = a->y};
    job.flat = a->x->rows <= 1 || (a->x->ld == a->x->columns && a->y->ld == a->y->columns);
    cpu_run_sized(cx, tensor_count(*a->x), convert_task, &job);
    return OTT_OK;
}
