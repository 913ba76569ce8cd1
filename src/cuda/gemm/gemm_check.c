/* cuda/gemm/gemm_check: fetches full rows of the operands to the host, where fp8/reference multiplies them.
   The tensor cores' sums differ in bits from the host's (docs/explanation/numerics.md). So the energy of the
   error is compared with the energy of the result. Errors from rounding and short accumulators are at least
   40 dB below the result. The errors of wrong products are about as large as the result. */
#include "cuda/gemm/gemm_check.h"
#include "cuda/gemm/samples.h"
#include "fp8/cast.h"
#include "fp8/reference.h"
#include <math.h>
#include <string.h>

enum { ROWS = GEMM_CHECK_ROWS };
#define NOISE_MAX 1e-3 /* allowed energy of the error / energy of the result: -30 dB */

/* ---- sampled rows of A and columns of B ---- */

static int64_t sampled_count(int64_t mn) {
    return mn < ROWS ? mn : ROWS;
}

static int64_t sampled_row(int64_t mn, int64_t i) {
    return samples_at(mn, sampled_count(mn), i);
}

/* ---- fetching from the device ---- */

/* Fetches sampled elements of c, as floats. */
static ott_status fetch_result(exec *cx, const tensor *c, float values[ROWS * ROWS]) {
    uint32_t stored[ROWS * ROWS];
    int64_t rows = sampled_count(c->rows), columns = sampled_count(c->columns), bytes = dtype_bytes(c->dtype);
    int64_t step = columns > 1 ? sampled_row(c->columns, 1) - sampled_row(c->columns, 0) : 1;
    for (int64_t i = 0; i < rows; i++) {
        const char *from =
            (const char *)c->data + (sampled_row(c->rows, i) * c->ld + sampled_row(c->columns, 0)) * bytes;
        TRY(samples_fetch(cx, (char *)stored + i * columns * bytes, from, step * bytes, bytes, columns));
    }
    TRY(samples_finish(cx));
    for (int64_t i = 0; i < rows * columns; i++) values[i] = cast_load(stored, c->dtype, i);
    return OTT_OK;
}

/* Sampled rows of A, or sampled columns of B, on the host: values, and the inverse scales. */
typedef struct sampled_rows {
    const operand *operand;
    int64_t count, k, scales; /* scales: scale groups in one row of A or one column of B */
    char *values;             /* [count][k] elements */
    float *inverse;           /* [count][scales] inverse scales; before decode_scales, E8M0 codes */
} sampled_rows;

static sampled_rows describe_sampled(const operand *o) {
    scale_block block = granularity_block(o->grain);
    int64_t k = operand_k(o);
    return (sampled_rows){.operand = o,
                          .count = sampled_count(operand_mn(o)),
                          .k = k,
                          .scales = !o->scale_inv          ? 0
                                    : block.k == INT64_MAX ? 1
                                                           : (k + block.k - 1) / block.k};
}

static int64_t sampled_bytes(const sampled_rows *l) {
    return (l->count * l->k * dtype_bytes(l->operand->t.dtype) + 7) / 8 * 8 + l->count * l->scales * 4;
}

/* Fetches the scales of one sample, at position mn. For E8M0 scales, fetches four codes from each tile. */
static ott_status fetch_scales(exec *cx, const sampled_rows *l, int64_t mn, float *to) {
    const operand *o = l->operand;
    const scale_tiles t = o->tiles;
    const float *scale_inv = o->scale_inv;
    if (!t.along_k) return samples_fetch(cx, to, scale_inv + mn * o->mn_step, o->k_step * 4, 4, l->scales);
    int64_t before = t.k % SCALE_TILE_K, tiles = (before + l->scales + SCALE_TILE_K - 1) / SCALE_TILE_K;
    const uint8_t *codes = (const uint8_t *)o->scale_inv + scale_tiles_index(t, mn, -before);
    return samples_fetch(cx, to, codes, SCALE_TILE_BYTES, SCALE_TILE_K, tiles);
}

/* Fetches the sampled rows to `memory`, which has at least sampled_bytes bytes. */
static ott_status fetch_sampled(exec *cx, sampled_rows *l, char *memory) {
    const operand *o = l->operand;
    int64_t each = dtype_bytes(o->t.dtype), all = operand_mn(o);
    scale_block block = granularity_block(o->grain);
    l->values = memory;
    l->inverse = (float *)(void *)(memory + (l->count * l->k * each + 7) / 8 * 8);
    for (int64_t i = 0; i < l->count; i++) {
        int64_t index = sampled_row(all, i);
        const char *from = (const char *)o->t.data + index * (o->transposed ? 1 : o->t.ld) * each;
        char *to = l->values + i * l->k * each;
        if (o->transposed)
            TRY(samples_fetch(cx, to, from, o->t.ld * each, each, l->k));
        else
            TRY(samples_fetch(cx, to, from, l->k * each, l->k * each, 1));
        if (!l->scales) continue;
        TRY(fetch_scales(cx, l, block.mn == INT64_MAX ? 0 : index / block.mn, l->inverse + i * l->scales));
    }
    return OTT_OK;
}

/* Replaces the E8M0 codes of each sample by floats, from the last to the first, because floats are longer. */
static void decode_scales(sampled_rows *l) {
    const scale_tiles t = l->operand->tiles;
    for (int64_t i = 0; i < l->count && t.along_k; i++) {
        float *inverse = l->inverse + i * l->scales;
        const uint8_t *codes = (const uint8_t *)inverse + t.k % SCALE_TILE_K;
        for (int64_t k = l->scales - 1; k >= 0; k--) inverse[k] = cast_from_e8m0(codes[k]);
    }
}

/* ---- on the host ---- */

static reference_operand reference_row(const sampled_rows *l, int64_t i) {
    return (reference_operand){.data = l->values + i * l->k * dtype_bytes(l->operand->t.dtype),
                               .format = l->operand->t.dtype,
                               .ld = l->k,
                               .grain = l->operand->grain,
                               .scale_inv = l->scales ? l->inverse + i * l->scales : NULL,
                               .k_step = 1};
}

typedef struct energy {
    double signal, noise;
} energy;

/* Adds the square of the element's change (expected - before) to the signal, and the square of its error to
   the noise. An error of one ulp does not count if the result has 16 bits. */
static void add_error(energy *e, float expected, float got, float before, ott_dtype format) {
    if (!isfinite(expected) || !isfinite(got)) {
        if (isfinite(expected) || isfinite(got)) e->noise = INFINITY;
        return;
    }
    double error = fabs((double)got - (double)expected), change = (double)expected - (double)before;
    error -= format == OTT_F32 ? 0 : fabs((double)expected) / 128;
    e->signal += change * change;
    e->noise += error > 0 ? error * error : 0;
}

static energy compare_samples(const gemm_check *check, const gemm_args *g, const sampled_rows *a,
                              const sampled_rows *b, const float *bias, const float *got) {
    energy e = {0, 0};
    for (int64_t i = 0; i < a->count * b->count; i++) {
        reference_operand left = reference_row(a, i / b->count), right = reference_row(b, i % b->count);
        float before = g->accumulate ? check->before[i] : 0;
        uint32_t element = 0;
        cast_store(&element, g->c->dtype, 0, before);
        reference_gemm(1, 1, a->k, &left, &right, &g->spec, g->bias ? &bias[i % b->count] : NULL,
                       g->accumulate, &element, g->c->dtype, 1);
        add_error(&e, cast_load(&element, g->c->dtype, 0), got[i], before, g->c->dtype);
    }
    return e;
}

static ott_status fail_product(const gemm_args *g, const energy *e) {
    return status_fail(OTT_ERR_DEVICE,
                       "with cuBLASLt %zu, the product %lld x %lld x %lld of %s and %s (scales: %s and %s) "
                       "to %s%s is wrong on this "
                       "GPU: its error has %.2g times the energy of the result, at most %.2g allowed; "
                       "OTTAVA_CUDA_GEMM=own computes all products by Ottava's exact kernel, slowly",
                       cublasLtGetVersion(), (long long)g->c->rows, (long long)g->c->columns,
                       (long long)operand_k(g->a), dtype_name(g->a->t.dtype), dtype_name(g->b->t.dtype),
                       g->a->scale_inv ? granularity_name(g->a->grain) : "none",
                       g->b->scale_inv ? granularity_name(g->b->grain) : "none", dtype_name(g->c->dtype),
                       g->accumulate ? ", accumulated," : "", e->noise / e->signal, NOISE_MAX);
}

ott_status gemm_check_begin(gemm_check *check, exec *cx, const gemm_args *g) {
    return g->accumulate ? fetch_result(cx, g->c, check->before) : OTT_OK;
}

static ott_status fetch_bias(exec *cx, const gemm_args *g, float bias[ROWS]) {
    for (int64_t j = 0; g->bias && j < sampled_count(g->c->columns); j++)
        TRY(samples_fetch(cx, bias + j, (const float *)g->bias->data + sampled_row(g->c->columns, j), 4, 4,
                          1));
    return OTT_OK;
}

static ott_status check_in_memory(const gemm_check *check, exec *cx, const gemm_args *g, sampled_rows *a,
                                  sampled_rows *b, char *memory, bool *conclusive) {
    float got[ROWS * ROWS], bias[ROWS];
    TRY(fetch_sampled(cx, a, memory));
    TRY(fetch_sampled(cx, b, memory + (sampled_bytes(a) + 7) / 8 * 8));
    TRY(fetch_bias(cx, g, bias));
    TRY(fetch_result(cx, g->c, got)); /* synchronizes for all fetches */
    decode_scales(a);
    decode_scales(b);
    energy e = compare_samples(check, g, a, b, bias, got);
    *conclusive = e.signal > 0;
    return e.noise > NOISE_MAX * e.signal ? fail_product(g, &e) : OTT_OK;
}

ott_status gemm_check_end(const gemm_check *check, exec *cx, const gemm_args *g, bool *conclusive) {
    sampled_rows a = describe_sampled(g->a), b = describe_sampled(g->b);
    mem *account = cuda_device_of(cx->device)->base.account;
    void *memory;
    TRY(mem_alloc(account, MEM_OTHER, (sampled_bytes(&a) + 7) / 8 * 8 + sampled_bytes(&b),
                  "samples of a product", &memory));
    ott_status status = check_in_memory(check, cx, g, &a, &b, memory, conclusive);
    mem_free(account, memory);
    return status;
}
