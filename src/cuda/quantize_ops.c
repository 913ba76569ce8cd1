/* cuda/quantize_ops: the quantize family's ops as passes of its kernel. */
#include "cuda/quantize_ops.h"
#include "cuda/cuda.h"
#include "cuda/ops.h"
#include "cuda/quantize.h"

/* ---- what the kernels are told ---- */

static int shift_of(int64_t block) {
    return block == INT64_MAX ? QUANTIZE_WHOLE : __builtin_ctzll((unsigned long long)block);
}

static quantize_codes codes_of(const qdata *d) {
    return (quantize_codes){.data = d->data, .ld = d->ld, .transposed = d->transposed};
}

static quantize_use use_of(const qtensor *q, bool column) {
    const cast_spec *spec = column ? &q->spec.columnwise : &q->spec.rowwise;
    const qdata *d = column ? &q->columnwise : &q->rowwise;
    scale_block block = granularity_block(spec->grain);
    return (quantize_use){
        .row_shift = shift_of(column ? block.k : block.mn),
        .column_shift = shift_of(column ? block.mn : block.k),
        .row_step = column ? d->k_step : d->mn_step,
        .column_step = column ? d->mn_step : d->k_step,
        .groups = column ? granularity_groups(spec->grain, q->columns, q->rows)
                         : granularity_groups(spec->grain, q->rows, q->columns),
        .amax = d->amax,
        .scale = d->scale,
        .scale_inv = d->scale_inv,
        .next = d->next,
        .delayed = spec->policy == AMAX_DELAYED,
        .format = spec->format,
        .mode = spec->mode,
        .options = spec->scale,
        .copies = 1,
        .codes = {codes_of(d)},
    };
}

/* The uses that are FP8 and have scales of their own; one that shares only these is a copy of the other's codes. */
static quantize_uses uses_of(const qtensor *q) {
    quantize_uses uses = {.count = 0};
    if (cast_spec_is_fp8(&q->spec.rowwise)) uses.use[uses.count++] = use_of(q, false);
    if (!qtensor_shares_scales(q)) {
        if (cast_spec_is_fp8(&q->spec.columnwise)) uses.use[uses.count++] = use_of(q, true);
    } else if (!qtensor_shares_codes(q))
        uses.use[0].codes[uses.use[0].copies++] = codes_of(&q->columnwise);
    return uses;
}

static ott_status check_rounding(const char *op, const qtensor *q) {
    const cast_spec *uses[] = {&q->spec.rowwise, &q->spec.columnwise};
    for (int i = 0; i < 2; i++)
        if (cast_spec_is_fp8(uses[i]) && uses[i]->rounding != ROUND_NEAREST)
            return status_fail(OTT_ERR_UNSUPPORTED, "%s: CUDA rounds to nearest, not stochastically (%s use)",
                               op, i ? "columnwise" : "rowwise");
    return OTT_OK;
}

/* ---- passes ---- */

static cudaError_t run_pass(const tensor *x, quantize_uses *uses, cudaStream_t stream) {
    for (int i = 0; i < uses->count; i++)
        if (uses->use[i].work) return quantize_pass(x, uses, stream);
    return cudaSuccess;
}

/* Groups that reach beyond a tile are raised from 0. */
static cudaError_t clear_amax(const quantize_uses *uses, cudaStream_t stream) {
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < uses->count && error == cudaSuccess; i++)
        if (!quantize_is_local(&uses->use[i]))
            error =
                cudaMemsetAsync(uses->use[i].amax, 0, (size_t)uses->use[i].groups * sizeof(float), stream);
    return error;
}

/* What has its scale in time is cast in the first pass, the rest in a second one. */
static cudaError_t quantize(const tensor *x, const qtensor *q, cudaStream_t stream) {
    quantize_uses first = uses_of(q), second = first;
    for (int i = 0; i < first.count; i++) {
        bool waits = !quantize_is_local(&first.use[i]) && !first.use[i].delayed;
        second.use[i].work = waits ? QUANTIZE_SCALE | QUANTIZE_CAST : 0;
        first.use[i].work = QUANTIZE_AMAX | (waits ? 0 : QUANTIZE_SCALE | QUANTIZE_CAST);
    }
    cudaError_t error = clear_amax(&first, stream);
    if (error == cudaSuccess) error = run_pass(x, &first, stream);
    return error == cudaSuccess ? run_pass(x, &second, stream) : error;
}

static cudaError_t pass_of(const tensor *x, const qtensor *q, int work, cudaStream_t stream) {
    quantize_uses uses = uses_of(q);
    cudaError_t error = work & QUANTIZE_AMAX ? clear_amax(&uses, stream) : cudaSuccess;
    for (int i = 0; i < uses.count; i++) uses.use[i].work = work;
    return error == cudaSuccess ? run_pass(x, &uses, stream) : error;
}

/* ---- the ops ---- */

ott_status cuda_quantize(exec *cx, const quantize_args *a) {
    TRY(check_rounding("quantize", a->q));
    return cuda_check(quantize(a->x, a->q, cuda_stream(cx)), "quantize");
}

ott_status cuda_quantize_list(exec *cx, const char *op, const tensor *x, const qlist *q) {
    for (int i = 0; q && i < q->count; i++) {
        TRY(check_rounding(op, &q->item[i]));
        TRY(cuda_check(quantize(x, &q->item[i], cuda_stream(cx)), op));
    }
    return OTT_OK;
}

ott_status cuda_amax(exec *cx, const amax_args *a) {
    return cuda_check(pass_of(a->x, a->q, QUANTIZE_AMAX, cuda_stream(cx)), "amax");
}

ott_status cuda_scale(exec *cx, const scale_args *a) {
    quantize_uses uses = uses_of(a->q);
    for (int i = 0; i < uses.count; i++)
        TRY(cuda_check(quantize_scales(&uses.use[i], cuda_stream(cx)), "scale"));
    return OTT_OK;
}

ott_status cuda_cast(exec *cx, const cast_args *a) {
    TRY(check_rounding("cast", a->q));
    return cuda_check(pass_of(a->x, a->q, QUANTIZE_CAST, cuda_stream(cx)), "cast");
}

ott_status cuda_dequantize(exec *cx, const dequantize_args *a) {
    quantize_use use = use_of(a->q, !cast_spec_is_fp8(&a->q->spec.rowwise));
    return cuda_check(dequantize_launch(&use, a->y, cuda_stream(cx)), "dequantize");
}

ott_status cuda_transpose(exec *cx, const transpose_args *a) {
    return cuda_check(transpose_launch(a->x, a->y, cuda_stream(cx)), "transpose");
}

/* Both uses are measured one after the other, in the same workspace. */
ott_status cuda_quantize_statistics(exec *cx, const quantize_statistics_args *a) {
    const cast_spec *specs[] = {&a->q->spec.rowwise, &a->q->spec.columnwise};
    float *out = a->statistics->data;
    cudaStream_t stream = cuda_stream(cx);
    STATUS_REQUIRE(a->statistics->columns == STATISTICS_COUNT);
    for (int column = 0; column < 2; column++, out += a->statistics->ld) {
        quantize_use use = use_of(a->q, column);
        bool measured = cast_spec_is_fp8(specs[column]) && tensor_count(*a->x) > 0;
        size_t bytes = (size_t)a->statistics->columns * sizeof(float);
        TRY(cuda_check(measured ? statistics_launch(a->x, &use, out, cx->workspace, stream)
                                : cudaMemsetAsync(out, 0, bytes, stream),
                       "quantize_statistics"));
    }
    return OTT_OK;
}
