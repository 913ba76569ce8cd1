/* cpu/quantize/dequantize: multiplies FP8 codes by inverse scales and rounds to a high-precision format. */
#include "cpu/quantize/quantize.h"
#include "cpu/rows.h"

typedef struct dequantize_job {
    const qtensor *q;
    const tensor *y;
    quantize_use use;
} dequantize_job;

enum { RUN = 512 }; /* elements dequantized at a time if scales or codes must first be copied */

/* Dequantizes count elements. `each`: every element has its own scale_inv; otherwise all use scale_inv[0]. */
SIMD void multiply_run(ott_dtype d, ott_dtype format, const uint8_t *codes, const float *scale_inv, bool each,
                       void *y, int64_t count) {
    v16 one = v16_set1(scale_inv[0]);
    BY_16(j, lanes, count, {
        v16 code = lanes >= 16 ? v16_load_fp8(codes + j, format) : v16_load_fp8_n(codes + j, format, lanes);
        v16 by = each ? v16_get(scale_inv, OTT_F32, j, lanes) : one;
        v16_put(y, d, j, v16_mul(code, by), lanes);
    });
}

static void multiply_any(ott_dtype d, ott_dtype format, const uint8_t *codes, const float *scale_inv,
                         bool each, void *y, int64_t count) {
    if (format == OTT_E4M3)
        WITH_DTYPE(d, D, multiply_run(D, OTT_E4M3, codes, scale_inv, each, y, count));
    else
        WITH_DTYPE(d, D, multiply_run(D, OTT_E5M2, codes, scale_inv, each, y, count));
}

static void dequantize_row(const dequantize_job *job, int64_t r) {
    float scale_buffer[RUN + 16];
    uint8_t codes_buffer[RUN];
    const quantize_use *s = &job->use;
    const tensor *y = job->y;
    bool each = s->columns != QUANTIZE_ALL;
    int64_t run = each || quantize_copies_codes(s->at, s->spec->format) ? RUN : y->columns;
    for (int64_t j = 0; j < y->columns; j += run) {
        int64_t count = y->columns - j < run ? y->columns - j : run;
        const float *scale_inv = each ? quantize_spread(s, s->scale_inv, r, j, count, scale_buffer)
                                      : s->scale_inv + quantize_group(s, r, 0);
        const uint8_t *codes = quantize_codes(s->at, s->spec->format, r, j, count, codes_buffer);
        multiply_any(y->dtype, quantize_codes_format(s->spec->format), codes, scale_inv, each,
                     (char *)row_of(y, r) + j * dtype_bytes(y->dtype), count);
    }
}

static void dequantize_task(void *argument, int thread, int threads) {
    const dequantize_job *job = argument;
    int64_t r, end;
    pool_share(job->y->rows, 1, thread, threads, &r, &end);
    for (; r < end; r++) dequantize_row(job, r);
}

ott_status ISA(dequantize)(exec *cx, const dequantize_args *a) {
    quantize_use use[2];
    if (quantize_uses(a->q, use) == 0)
        return status_fail(OTT_ERR_INTERNAL, "dequantize: the tensor has no FP8 codes");
    dequantize_job job = {.q = a->q, .y = a->y, .use = use[0]};
    cpu_run_sized(cx, tensor_count(*a->y), dequantize_task, &job);
    return OTT_OK;
}
