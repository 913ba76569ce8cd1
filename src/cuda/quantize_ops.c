/* cuda/quantize_ops: the quantize ops, and the quantized copies that other ops make of their outputs. */
#include "cuda/quantize_ops.h"
#include "cuda/cuda.h"
#include "cuda/ops.h"
#include "cuda/kernels/quantize.h"

ott_status cuda_check_rounding(const char *op, const qtensor *q) {
    const cast_spec *uses[] = {&q->spec.rowwise, &q->spec.columnwise};
    for (int i = 0; i < 2; i++)
        if (cast_spec_is_fp8(uses[i]) && uses[i]->rounding != ROUND_NEAREST)
            return status_fail(OTT_ERR_UNSUPPORTED, "%s: CUDA rounds to nearest, not stochastically (%s use)",
                               op, i ? "columnwise" : "rowwise");
    return OTT_OK;
}

static const quantize_uses nothing_made = {.count = 0};

ott_status cuda_quantize(exec *cx, const quantize_args *a) {
    TRY(cuda_check_rounding("quantize", a->q));
    return cuda_check(quantize_finish(a->x, a->q, &nothing_made, cuda_stream(cx)), "quantize");
}

ott_status cuda_quantize_begin(exec *cx, const char *op, const qlist *q, quantize_producer producer,
                               quantize_uses *made) {
    *made = nothing_made;
    for (int i = 0; q && i < q->count; i++) TRY(cuda_check_rounding(op, &q->item[i]));
    if (!q || q->count == 0) return OTT_OK;
    return cuda_check(quantize_begin(&q->item[0], producer, made, cuda_stream(cx)), op);
}

ott_status cuda_quantize_finish(exec *cx, const char *op, const tensor *x, const qlist *q,
                                const quantize_uses *made) {
    for (int i = 0; q && i < q->count; i++)
        TRY(cuda_check(quantize_finish(x, &q->item[i], i == 0 ? made : &nothing_made, cuda_stream(cx)), op));
    return OTT_OK;
}

ott_status cuda_amax(exec *cx, const amax_args *a) {
    return cuda_check(quantize_work(a->x, a->q, QUANTIZE_AMAX, cuda_stream(cx)), "amax");
}

ott_status cuda_scale(exec *cx, const scale_args *a) {
    quantize_uses uses = quantize_uses_of(a->q);
    for (int i = 0; i < uses.count; i++)
        TRY(cuda_check(quantize_scales(&uses.use[i], cuda_stream(cx)), "scale"));
    return OTT_OK;
}

ott_status cuda_cast(exec *cx, const cast_args *a) {
    TRY(cuda_check_rounding("cast", a->q));
    return cuda_check(quantize_work(a->x, a->q, QUANTIZE_CAST, cuda_stream(cx)), "cast");
}

ott_status cuda_dequantize(exec *cx, const dequantize_args *a) {
    quantize_use use = quantize_use_of(a->q, !cast_spec_is_fp8(&a->q->spec.rowwise));
    return cuda_check(dequantize_launch(&use, a->y, cuda_stream(cx)), "dequantize");
}

/* Measures the rowwise copy, then the columnwise copy. Both launches use the same workspace. */
ott_status cuda_quantize_statistics(exec *cx, const quantize_statistics_args *a) {
    const cast_spec *specs[] = {&a->q->spec.rowwise, &a->q->spec.columnwise};
    float *out = a->statistics->data;
    cudaStream_t stream = cuda_stream(cx);
    STATUS_REQUIRE(a->statistics->columns == STATISTICS_COUNT);
    for (int column = 0; column < 2; column++, out += a->statistics->ld) {
        quantize_use use = quantize_use_of(a->q, column);
        bool measured = cast_spec_is_fp8(specs[column]) && tensor_count(*a->x) > 0;
        size_t bytes = (size_t)a->statistics->columns * sizeof(float);
        TRY(cuda_check(measured ? statistics_launch(a->x, &use, out, cx->workspace, stream)
                                : cudaMemsetAsync(out, 0, bytes, stream),
                       "quantize_statistics"));
    }
    return OTT_OK;
}
