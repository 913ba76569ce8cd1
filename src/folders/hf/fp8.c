/* folders/hf/fp8: selects matrices, and computes their scales and codes. */
#include "folders/hf/fp8.h"
#include "folders/hf/merge.h"
#include <string.h>

enum { STRIP = 128 }; /* rows and columns of a scale block */

/* ---- the casts of training ---- */

/* own[i] = the cast of weight rows p->items[i] in training; zeros if another rank has the layer */
static void fill_casts(const hf_places *p, hf_fp8_cast *own) {
    for (int i = 0; i < p->count; i++) {
        const linear *l = hf_is_block_matrix(&p->items[i]) ? p->items[i].module->linear : NULL;
        bool codes = l && l->weight->codes;
        own[i] = (hf_fp8_cast){.is_known = l != NULL,
                               .keeps_codes = codes && !hf_merge_applies(p->items[i].module)};
        if (!l) continue;
        const linear_spec *ran = linear_products_spec(l);
        if (!(ran->fp8 || codes)) continue;
        own[i].spec = codes ? l->weight->codes->cast : ran->weight.rowwise;
        own[i].spec.callbacks = NULL; /* the pointer is valid only in this process */
    }
}

/* Collects the casts of all pipeline stages in f->casts. */
static ott_status share_casts(hf_fp8 *f, const checkpoint_ranks *ranks) {
    int64_t count = f->places->count, bytes = count * (int64_t)sizeof *f->casts;
    void *memory;
    ott_status status = arena_alloc(f->memory, (1 + ranks_size(ranks)) * bytes, &memory);
    TRY(ranks_agree(ranks, status));
    hf_fp8_cast *all = (hf_fp8_cast *)memory + count;
    f->casts = memory;
    fill_casts(f->places, f->casts);
    TRY(ranks_gather(ranks, f->casts, bytes, all));
    for (int64_t i = 0; i < ranks_size(ranks) * count; i++)
        if (all[i].is_known) f->casts[i % count] = all[i];
    return OTT_OK;
}

static ott_status fail_trained(const char *name, const char *why) {
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "%s cannot be exported as trained: %s; export with granularity tensor, channel or "
                       "block, which requantizes the weights",
                       name, why);
}

/* Fails if the file's tensors fuse other projections than the model's weights, and so need other scales. */
static ott_status check_fused(const hf_places *p, int i, hf_scales grain) {
    const hf_place *at = &p->items[i];
    const parameter *trained = p->items[i].parameter;
    bool is_one_tensor = at->count == at->tensor_rows,
         blocks_fit = at->tensor_row % STRIP == 0 && at->first % STRIP == 0;
    bool is_one_matrix = at->count == trained->rows / trained->experts;
    if (grain == HF_SCALE_CHANNEL || (is_one_matrix && is_one_tensor)) return OTT_OK;
    if (grain == HF_SCALE_BLOCK && blocks_fit) return OTT_OK;
    if (grain == HF_SCALE_TENSOR && (is_one_tensor || at->tensor_rows == trained->rows)) return OTT_OK;
    return fail_trained(trained->name,
                        "its family's files fuse projections differently, which would change the scales");
}

static ott_status join_trained(const hf_places *p, int i, hf_fp8 *f, const cast_spec *cast) {
    const char *name = p->items[i].parameter->name;
    if (!cast) return OTT_OK;
    hf_scales grain = cast->grain == GRANULARITY_TENSOR    ? HF_SCALE_TENSOR
                      : cast->grain == GRANULARITY_ROW     ? HF_SCALE_CHANNEL
                      : cast->grain == GRANULARITY_128X128 ? HF_SCALE_BLOCK
                                                           : HF_SCALE_AS_TRAINED;
    if (cast->format != OTT_E4M3) return fail_trained(name, "serving programs read E4M3 only");
    if (cast->policy != AMAX_CURRENT)
        return fail_trained(name, "its scale is delayed and depends on earlier steps");
    if (cast->rounding != ROUND_NEAREST) return fail_trained(name, "its codes are rounded stochastically");
    if (grain == HF_SCALE_AS_TRAINED)
        return fail_trained(name, "serving programs do not read the scale blocks of its recipe");
    if (f->granularity != HF_SCALE_AS_TRAINED && f->granularity != grain)
        return fail_trained(name, "earlier layers have another granularity");
    f->granularity = grain;
    return check_fused(p, i, grain);
}

/* ---- selection ---- */

static void add_matrix(hf_fp8 *f, int i, const cast_spec *trained) {
    const hf_place *at = &f->places->items[i];
    f->matrices[f->count++] = (hf_fp8_matrix){.name = at->name,
                                              .fused = at->fused,
                                              .first = i,
                                              .rows = at->tensor_rows,
                                              .columns = at->columns,
                                              .trained = trained,
                                              .keeps_codes = trained && f->casts[i].keeps_codes};
}

static ott_status keep_unquantized(hf_fp8 *f, int i) {
    const char *name = f->places->items[i].name;
    return arena_printf(f->memory, &f->unquantized[f->unquantized_count++], "%.*s",
                        (int)(strlen(name) - strlen(".weight")), name);
}

/* Fails if items[i] and items[i - 1] are weight rows in one tensor, but training casts them differently. */
static ott_status check_same(const hf_fp8 *f, int i, const cast_spec *cast) {
    const char *name = f->places->items[i].name;
    const hf_fp8_matrix *last = f->count > 0 ? &f->matrices[f->count - 1] : NULL;
    bool continues = last && strcmp(last->name, name) == 0;
    bool keeps = f->casts && f->casts[i].keeps_codes;
    const cast_spec *before = continues ? last->trained : NULL;
    bool same = before == cast;
    if (before && cast) same = quant_spec_equal(&(quant_spec){*before, *before}, &(quant_spec){*cast, *cast});
    if (same && keeps == (continues && last->keeps_codes)) return OTT_OK;
    return fail_trained(f->places->items[i].parameter->name,
                        "its family stores it in one tensor with matrices that ran in another precision");
}

static ott_status choose_matrices(hf_fp8 *f) {
    bool as_trained = f->granularity == HF_SCALE_AS_TRAINED;
    for (int i = 0; i < f->places->count; i++) {
        if (!hf_is_block_matrix(&f->places->items[i])) continue;
        const cast_spec *spec = as_trained ? &f->casts[i].spec : NULL;
        /* the FP8 cast that training applies to these rows; NULL if none */
        const cast_spec *cast = spec && cast_spec_is_fp8(spec) ? spec : NULL;
        /* servers run routers in high precision */
        bool routes = f->places->items[i].module->role == ROLE_ROUTER;
        if (as_trained) TRY(join_trained(f->places, i, f, cast));
        if (as_trained && f->places->items[i].tensor_row > 0) TRY(check_same(f, i, cast));
        if (f->places->items[i].tensor_row > 0) continue; /* the matrix of these rows was added before */
        if (cast || !(as_trained || routes))
            add_matrix(f, i, cast);
        else
            TRY(keep_unquantized(f, i));
    }
    if (f->count > 0) return OTT_OK;
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "no matrix of this run ran in FP8: nothing can be exported as trained");
}

static ott_status allocate_matrix_scales(hf_fp8 *f, hf_fp8_matrix *x) {
    bool blocks = f->granularity == HF_SCALE_BLOCK;
    x->block_rows = blocks ? STRIP : f->granularity == HF_SCALE_CHANNEL ? 1 : x->rows;
    x->block_columns = blocks ? STRIP : x->columns;
    x->scale_rows = (x->rows + x->block_rows - 1) / x->block_rows;
    x->scale_columns = (x->columns + x->block_columns - 1) / x->block_columns;
    return arena_alloc(f->memory, x->scale_rows * x->scale_columns * (int64_t)sizeof *x->scale, &x->scale);
}

static ott_status prepare_matrices(hf_fp8 *f) {
    TRY(arena_alloc(f->memory, f->places->count * (int64_t)sizeof *f->matrices, &f->matrices));
    TRY(arena_alloc(f->memory, f->places->count * (int64_t)sizeof *f->unquantized, &f->unquantized));
    TRY(choose_matrices(f));
    if (f->method == HF_METHOD_FP8 && f->granularity == HF_SCALE_CHANNEL)
        return status_fail(OTT_ERR_UNSUPPORTED,
                           "the method \"fp8\" has no scale per output channel: use compressed-tensors");
    for (int64_t i = 0; i < f->count; i++) TRY(allocate_matrix_scales(f, &f->matrices[i]));
    return OTT_OK;
}

ott_status hf_fp8_open(const hf_places *places, const checkpoint_ranks *ranks, hf_method method,
                       hf_scales scales, hf_fp8 *out) {
    ott_status status;
    *out = (hf_fp8){.method = method, .granularity = scales, .places = places};
    if (places->family->transposed)
        return status_fail(
            OTT_ERR_UNSUPPORTED,
            "--format: a %s folder stores transposed matrices, which no server reads in FP8: use --format=hf",
            places->family->name);
    TRY_OUT(ranks_agree(ranks, arena_open(places->m->device->account, MEM_OTHER, &out->memory)));
    if (scales == HF_SCALE_AS_TRAINED) TRY_OUT(share_casts(out, ranks));
    TRY_OUT(ranks_agree(ranks, prepare_matrices(out)));
out:
    if (status != OTT_OK) hf_fp8_close(out);
    return status;
}

void hf_fp8_close(hf_fp8 *f) {
    arena_close(f->memory);
    *f = (hf_fp8){0};
}

hf_fp8_matrix *hf_fp8_find(const hf_fp8 *f, int i) {
    for (int64_t at = 0; at < f->count; at++)
        if (f->matrices[at].first == i) return &f->matrices[at];
    return NULL;
}

/* ---- scales ---- */

/* Consecutive elements of one row that share a scale. */
typedef struct scale_run {
    float *scale;
    int64_t count;
} scale_run;

static scale_run find_scale_run(const hf_fp8_matrix *x, int64_t first, int64_t most) {
    int64_t row = first / x->columns, column = first % x->columns, at = column / x->block_columns,
            end = (at + 1) * x->block_columns;
    if (end > x->columns) end = x->columns;
    return (scale_run){&x->scale[row / x->block_rows * x->scale_columns + at],
                       end - column < most ? end - column : most};
}

/* Compares magnitudes as bits, so that NaN > infinity > any number. */
static void join_amax(float *amax, const float *values, int64_t count) {
    uint32_t largest = fmath_bits(*amax);
    for (int64_t i = 0; i < count; i++) {
        uint32_t magnitude = fmath_bits(values[i]) & 0x7fffffffu;
        if (magnitude > largest) largest = magnitude;
    }
    *amax = fmath_from_bits(largest);
}

static ott_status measure_amaxes(void *user, int64_t first, int64_t count, const float *values) {
    const hf_fp8_matrix *x = user;
    scale_run run;
    for (int64_t done = 0; done < count; done += run.count) {
        run = find_scale_run(x, first + done, count - done);
        join_amax(run.scale, values + done, run.count);
    }
    return OTT_OK;
}

/* Copies the scales of a weight that is kept in FP8, for the rows of the weight that `at` describes. */
static void copy_kept_scales(const hf_fp8_matrix *x, const hf_place *at) {
    const frozen_codes *c = at->parameter->codes;
    for (int64_t row = 0; row < at->count; row++)
        for (int64_t k = 0; k < x->scale_columns && c->scale_inv; k++)
            x->scale[(at->tensor_row + row) / x->block_rows * x->scale_columns + k] =
                c->scale_inv[frozen_block_at(c, at->first + row) * c->scale_columns + k];
}

static ott_status measure_own(const hf_fp8 *f, float *buffer) {
    for (hf_fp8_matrix *x = f->matrices; x < f->matrices + f->count; x++) {
        if (!x->keeps_codes) {
            TRY(hf_places_stream(f->places, x->first, false, buffer, measure_amaxes, x));
            continue;
        }
        for (int i = x->first; i < f->places->count; i++)
            if (strcmp(f->places->items[i].name, x->name) == 0) copy_kept_scales(x, &f->places->items[i]);
    }
    return OTT_OK;
}

/* True if two matrices share a scale: serving programs fuse them or, with AS_TRAINED, training fuses them. */
static bool is_joined(const hf_fp8 *f, const hf_fp8_matrix *a, const hf_fp8_matrix *b) {
    const parameter *p = f->places->items[a->first].parameter;
    if (!a->trained) return strcmp(a->fused, b->fused) == 0;
    return p == f->places->items[b->first].parameter && !p->of_experts;
}

/* If matrix i shares its scale with one or both of the matrices before it, gives them the same amax. */
static void share_scale(const hf_fp8 *f, int64_t i) {
    hf_fp8_matrix *x = &f->matrices[i];
    for (int64_t j = i - 1; j >= 0 && j >= i - 2; j--) {
        hf_fp8_matrix *before = &f->matrices[j];
        if (!is_joined(f, before, x)) continue;
        join_amax(x->scale, before->scale, 1);
        join_amax(before->scale, x->scale, 1);
    }
}

static float scale_of(const hf_fp8_matrix *x, float amax) {
    const double smallest = 1e-12;
    if (x->keeps_codes) return amax; /* `amax` is already a scale */
    if (x->trained) return scale_from_amax(amax, OTT_E4M3, &x->trained->scale);
    return (double)amax < smallest ? (float)(smallest / 448) : amax / dtype_max(OTT_E4M3);
}

ott_status hf_fp8_measure(hf_fp8 *f, const checkpoint_ranks *ranks, float *buffer) {
    TRY(ranks_agree(ranks, measure_own(f, buffer)));
    for (int64_t i = 0; i < f->count; i++) {
        const hf_fp8_matrix *x = &f->matrices[i];
        TRY(ranks_max(ranks, x->scale, x->scale_rows * x->scale_columns));
        for (int64_t s = 0; s < x->scale_rows * x->scale_columns; s++)
            if (!isfinite(x->scale[s]))
                return status_fail(OTT_ERR_UNSUPPORTED,
                                   "%s holds a NaN or an infinity: it has no FP8 scale; export an earlier "
                                   "checkpoint",
                                   x->name);
    }
    bool shares = f->granularity == HF_SCALE_TENSOR;
    for (int64_t i = 0; i < f->count && shares; i++) share_scale(f, i);
    for (int64_t i = 0; i < f->count; i++) {
        hf_fp8_matrix *x = &f->matrices[i];
        for (int64_t s = 0; s < x->scale_rows * x->scale_columns; s++) x->scale[s] = scale_of(x, x->scale[s]);
    }
    return OTT_OK;
}

float hf_fp8_file_scale(const hf_fp8_matrix *x, int64_t index) {
    return x->trained && !x->keeps_codes ? scale_inverse(x->scale[index]) : x->scale[index];
}

static void encode_run(const hf_fp8_matrix *x, float scale, int64_t count, const float *values,
                       uint8_t *codes) {
    if (x->keeps_codes)
        for (int64_t i = 0; i < count; i++) codes[i] = cast_to_e4m3(values[i], CAST_SATURATE);
    else if (x->trained)
        for (int64_t i = 0; i < count; i++) codes[i] = cast_to_e4m3(values[i] * scale, x->trained->mode);
    else
        for (int64_t i = 0; i < count; i++) codes[i] = cast_to_e4m3(values[i] / scale, CAST_SATURATE);
}

void hf_fp8_encode(const hf_fp8_matrix *x, int64_t first, int64_t count, const float *values,
                   uint8_t *codes) {
    scale_run run;
    for (int64_t done = 0; done < count; done += run.count) {
        run = find_scale_run(x, first + done, count - done);
        encode_run(x, *run.scale, run.count, values + done, codes + done);
    }
}
