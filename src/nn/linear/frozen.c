/* nn/linear/frozen: stores frozen matrices as FP8 codes with scales. */
#include "nn/linear/frozen.h"
#include "fp8/recipe.h"
#include <math.h>

cast_spec frozen_cast_for(const cast_spec *use) {
    bool fits = use->grain == GRANULARITY_TENSOR || use->grain == GRANULARITY_ROW ||
                use->grain == GRANULARITY_128X128;
    cast_spec cast = fits && use->format == OTT_E4M3 ? *use : recipe_find("rowwise")->weight.rowwise;
    cast.policy = AMAX_CURRENT;
    cast.rounding = ROUND_NEAREST;
    cast.callbacks = NULL;
    return cast;
}

/* ---- blocks ---- */

static int64_t blocks_of(int64_t size, int64_t block) {
    return (size + block - 1) / block;
}

/* Checks that tensor parallelism splits no scale block of p. Expert parallelism splits no matrix. */
static ott_status check_local(const parameter *p, const frozen_codes *c) {
    parameter_run run;
    if (!parameter_is_split(p) || p->of_experts) return OTT_OK;
    bool fits = c->scale_columns == 1 || p->local.columns % c->block_columns == 0;
    for (int64_t row = 0; row < p->local.rows && c->scale_rows > 1; row += run.count) {
        run = parameter_rows_at(&p->local, row, p->local.rows - row);
        fits &= run.count % c->block_rows == 0 && (p->local.row + run.first) % c->block_rows == 0;
    }
    if (fits) return OTT_OK;
    return status_fail(
        OTT_ERR_CONFIG,
        "%s: with distributed.tp a rank's part is %lld x %lld, which splits scale blocks of %lld x %lld: "
        "use fewer ranks, or train.frozen_granularity = channel or tensor",
        p->name, (long long)p->local.rows, (long long)p->local.columns, (long long)c->block_rows,
        (long long)c->block_columns);
}

ott_status frozen_open(parameter *p, const cast_spec *cast, bool is_here, arena *memory) {
    frozen_codes *c;
    TRY(arena_alloc(memory, sizeof(frozen_codes), &c));
    *c = (frozen_codes){.cast = *cast};
    scale_block block = granularity_block(c->cast.grain);
    c->rows = p->rows / p->experts;
    c->block_rows = block.mn < c->rows ? block.mn : c->rows;
    c->block_columns = block.k < p->columns ? block.k : p->columns;
    c->scale_rows = p->experts * blocks_of(c->rows, c->block_rows);
    c->scale_columns = blocks_of(p->columns, c->block_columns);
    p->codes = c;
    p->shard.value.dtype = OTT_E4M3;
    if (!is_here) return OTT_OK;
    TRY(check_local(p, c));
    return arena_alloc(memory, c->scale_rows * c->scale_columns * (int64_t)sizeof(float), &c->scale_inv);
}

/* ---- the local part ---- */

/* Number of matrices in this rank's part of the parameter. local_rows: rows of each matrix. */
static int64_t local_matrices(const parameter *p) {
    return p->of_experts ? p->local.rows / p->codes->rows : 1;
}

static int64_t local_rows(const parameter *p) {
    return p->of_experts ? p->codes->rows : p->local.rows;
}

/* Number of scales per matrix of the local part. */
static int64_t local_groups(const parameter *p) {
    return granularity_groups(p->codes->cast.grain, local_rows(p), p->local.columns);
}

int64_t frozen_local_bytes(const parameter *p) {
    return local_matrices(p) * local_groups(p) * (int64_t)sizeof(float);
}

static float scale_at(const frozen_codes *c, int64_t row, int64_t column) {
    return c->scale_inv[frozen_block_at(c, row) * c->scale_columns + column / c->block_columns];
}

static void gather_scales(const parameter *p, int64_t first, float *out) {
    const frozen_codes *c = p->codes;
    int64_t groups = granularity_mn_groups(c->cast.grain, local_rows(p));
    for (int64_t i = 0; i < groups; i++) {
        parameter_run line = parameter_rows_at(&p->local, first + i * c->block_rows, 1);
        for (int64_t j = 0; j * c->block_columns < p->local.columns; j++)
            out[j * groups + i] =
                scale_at(c, p->local.row + line.first, p->local.column + j * c->block_columns);
    }
}

ott_status frozen_place_scales(const parameter *p, device *d) {
    void *host;
    int64_t bytes = frozen_local_bytes(p);
    TRY(mem_alloc(d->account, MEM_OTHER, bytes, "scales of a frozen weight", &host));
    for (int64_t k = 0; k < local_matrices(p); k++)
        gather_scales(p, k * local_rows(p), (float *)host + k * local_groups(p));
    ott_status status = device_copy_in(d, p->codes->local, host, bytes);
    mem_free(d->account, host);
    return status;
}

qtensor frozen_quantized(const parameter *p, int64_t matrix) {
    const frozen_codes *c = p->codes;
    qtensor q = {.rows = local_rows(p), .columns = p->local.columns, .spec = {c->cast, c->cast}};
    const tensor codes = tensor_rows(p->value, matrix * q.rows, q.rows);
    q.rowwise =
        (qdata){.data = codes.data, .ld = q.columns, .scale_inv = c->local + matrix * local_groups(p)};
    qtensor_order(&q.rowwise, c->cast.grain, granularity_grid(c->cast.grain, q.rows, q.columns));
    if (quant_spec_shares_scales(&q.spec))
        q.columnwise = qtensor_shared_use(q.rowwise);
    else
        q.spec.columnwise.format = OTT_F32;
    return q;
}

/* ---- elements ---- */

/* Consecutive elements of one row that share a scale. */
typedef struct scale_run {
    int64_t index, count; /* index of the scale in scale_inv; number of elements */
} scale_run;

static scale_run find_run(const frozen_codes *c, int64_t columns, int64_t first, int64_t most) {
    int64_t row = first / columns, column = first % columns, at = column / c->block_columns;
    int64_t end = (at + 1) * c->block_columns;
    if (end > columns) end = columns;
    return (scale_run){frozen_block_at(c, row) * c->scale_columns + at,
                       end - column < most ? end - column : most};
}

void frozen_multiply(const parameter *p, int64_t first, int64_t count, float *values) {
    scale_run run;
    for (int64_t i = 0; i < count; i += run.count) {
        run = find_run(p->codes, p->columns, first + i, count - i);
        for (int64_t j = i; j < i + run.count; j++) values[j] *= p->codes->scale_inv[run.index];
    }
}

/* ---- expert weights ---- */

/* Reads grouped_rows.end from the device, 64 experts at a time. */
typedef struct expert_ends {
    const tensor *ends; /* grouped_rows.end on the device; NULL: unknown, every expert may have rows */
    int32_t end[64];    /* host copy of the current 64 entries */
    int32_t last;       /* `end` of the previous expert */
} expert_ends;

/* *has: false if expert number `matrix` has no tokens. Call it for the experts in order, from 0. */
static ott_status has_rows(exec *cx, expert_ends *s, int64_t matrix, bool *has) {
    const int64_t some = sizeof s->end / sizeof *s->end;
    *has = true;
    if (!s->ends) return OTT_OK;
    if (matrix % some == 0) {
        int64_t left = s->ends->columns - matrix;
        const tensor from = tensor_columns(*s->ends, matrix, left < some ? left : some);
        TRY(device_copy_out(cx->device, s->end, from.data, from.columns * (int64_t)sizeof *s->end));
    }
    *has = s->end[matrix % some] > s->last;
    s->last = s->end[matrix % some];
    return OTT_OK;
}

ott_status frozen_expert_values(exec *cx, const parameter *p, const tensor *end, const tensor *w) {
    bool looks = cx->device->threads > 0 && !plan_recording(cx->plan), has;
    expert_ends ends = {.ends = looks ? end : NULL};
    for (int64_t k = 0; k < local_matrices(p); k++) {
        const qtensor q = frozen_quantized(p, k);
        const tensor y = tensor_rows(*w, k * q.rows, q.rows);
        TRY(has_rows(cx, &ends, k, &has));
        if (has) TRY(op_dequantize(cx, &(dequantize_args){.q = &q, .y = &y}));
    }
    return OTT_OK;
}

/* ---- making codes from values ---- */

ott_status frozen_fill_open(mem *account, const parameter *p, frozen_filling *out) {
    *out = (frozen_filling){.account = account, .p = p};
    return mem_alloc_array(account, MEM_OTHER, p->codes->scale_rows * p->codes->scale_columns, sizeof(float),
                           "scales of a frozen weight", &out->scale);
}

void frozen_fill_close(frozen_filling *f) {
    mem_free(f->account, f->scale);
    *f = (frozen_filling){0};
}

/* Compares magnitudes as integers, so that NaN > infinity > all numbers. */
void frozen_fill_measure(const frozen_filling *f, int64_t first, int64_t count, const float *values) {
    scale_run run;
    for (int64_t i = 0; i < count; i += run.count) {
        run = find_run(f->p->codes, f->p->columns, first + i, count - i);
        uint32_t largest = fmath_bits(f->scale[run.index]);
        for (int64_t j = i; j < i + run.count; j++) {
            uint32_t magnitude = fmath_bits(values[j]) & 0x7fffffffu;
            if (magnitude > largest) largest = magnitude;
        }
        f->scale[run.index] = fmath_from_bits(largest);
    }
}

ott_status frozen_fill_scales(const frozen_filling *f, device *d) {
    const frozen_codes *c = f->p->codes;
    for (int64_t i = 0; i < c->scale_rows * c->scale_columns; i++) {
        if (!isfinite(f->scale[i]))
            return status_fail(
                OTT_ERR_FORMAT,
                "%s contains NaN or infinity, which FP8 cannot represent: load other weights, or "
                "remove train.frozen_dtype = fp8",
                f->p->name);
        f->scale[i] = scale_from_amax(f->scale[i], OTT_E4M3, &c->cast.scale);
        c->scale_inv[i] = scale_inverse(f->scale[i]);
    }
    return frozen_place_scales(f->p, d);
}

void frozen_fill_encode(const frozen_filling *f, int64_t first, int64_t count, const float *values,
                        uint8_t *codes) {
    scale_run run;
    for (int64_t i = 0; i < count; i += run.count) {
        run = find_run(f->p->codes, f->p->columns, first + i, count - i);
        for (int64_t j = i; j < i + run.count; j++)
            codes[j] = cast_to_e4m3(values[j] * f->scale[run.index], f->p->codes->cast.mode);
    }
}
