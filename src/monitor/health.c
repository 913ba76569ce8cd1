/* monitor/health: measures quantization quality, writes the measurements, and applies fallbacks. */
#include "monitor/health.h"
#include "base/arena.h"
#include <math.h>
#include <string.h>

/* Names of the GEMMs that read each tensor's rowwise copy [0] and columnwise copy [1]. */
static const char *const gemm_of[TENSOR_COUNT][2] = {
    [TENSOR_INPUT] = {"output", "grad_weight"},
    [TENSOR_WEIGHT] = {"output", "grad_input"},
    [TENSOR_GRAD_OUTPUT] = {"grad_input", "grad_weight"},
};
static const char *const both_gemms[TENSOR_COUNT] = {"output+grad_weight", "output+grad_input",
                                                     "grad_input+grad_weight"};
static const char *const tensor_words[TENSOR_COUNT] = {"input", "weight", "grad_output"};

enum { USES = 2, SLOT_FLOATS = USES * STATISTICS_COUNT };

/* Last measurement of a tensor's rowwise or columnwise copy. join_ranks combines the measurements of all
   ranks: use_most by maximum, use_sum by sum. It reduces arrays of floats, so all members are floats. */
typedef struct use_most {
    float measured;                         /* 1: measured; 0: not measured, or in high precision */
    float format;                           /* the copy's ott_dtype, as a float */
    float has_own_scales;                   /* 1: rowwise and columnwise copy have separate scales */
    float amax, scale_max, minus_scale_min; /* minus_scale_min: minus the smallest scale */
    float minus_sqnr;                       /* minus the lowest SQNR of any rank */
} use_most;
typedef struct use_sum {
    float saturated, underflowed, signal, noise, elements;
} use_sum;

struct health {
    trainer *t;
    health_options options;
    hook hook;
    arena *memory;               /* holds all arrays below except `block` */
    const model_module **layers; /* linear layers of all pipeline stages */
    int64_t layer_count;
    quant_spec *specs; /* [layers][TENSOR_COUNT] specs, valid for tensors that this rank measured */
    float *elements;   /* [layers][TENSOR_COUNT] number of elements; 0: not measured on this rank */
    float *host;       /* [layers][TENSOR_COUNT][USES][STATISTICS_COUNT] statistics, copied from `block` */
    void *block;       /* device memory in which the operations write the statistics */
    use_most *most;    /* [layers][TENSOR_COUNT][USES] measurements */
    use_sum *sum;      /* [layers][TENSOR_COUNT][USES] sums */
    bool measuring;
};

static int64_t use_count(const health *h) {
    return h->layer_count * TENSOR_COUNT * USES;
}

static int64_t find_measured_slot(const health *h, const char *module, recipe_tensor which) {
    for (int64_t i = 0; i < h->layer_count; i++)
        if (h->layers[i]->name == module) return i * TENSOR_COUNT + which;
    return -1;
}

/* Hook that measures a quantized tensor. If the output head runs in chunks, the last chunk is kept. */
static ott_status measure_quantization(void *user, exec *cx, const char *module, recipe_tensor which,
                                       const tensor *t, const qtensor *q) {
    health *h = user;
    int64_t at = find_measured_slot(h, module, which);
    if (at < 0 || !cx->is_first_microbatch) return OTT_OK;
    tensor out = tensor_matrix((float *)h->block + at * SLOT_FLOATS, OTT_F32, USES, STATISTICS_COUNT);
    h->specs[at] = q->spec;
    h->elements[at] = (float)tensor_count(*t);
    exec apart = *cx; /* without a plan, because plans have no workspace for this op */
    apart.plan = NULL;
    return op_quantize_statistics(&apart, &(quantize_statistics_args){.x = t, .q = q, .statistics = &out});
}

void health_begin_step(health *h) {
    int64_t step = h->t->run.step + 1;
    h->measuring = h->options.interval > 0 && step % h->options.interval == 0;
    if (!h->measuring) return;
    memset(h->elements, 0, (size_t)(h->layer_count * TENSOR_COUNT) * sizeof *h->elements);
    h->t->hook = &h->hook;
}

/* ---- all ranks ---- */

double health_sqnr(double signal, double noise) {
    if (!(signal > 0)) return NAN;
    return noise > 0 ? 10.0 * log10(signal / noise) : INFINITY;
}

/* Infinity for a tensor of zeros, which has no SQNR; minus infinity for a tensor that is not finite. */
static float judged_sqnr(const float *s) {
    double sqnr = health_sqnr((double)s[STATISTICS_SIGNAL], (double)s[STATISTICS_NOISE]);
    if (!isfinite(s[STATISTICS_NOISE])) return -INFINITY;
    return isnan(sqnr) ? INFINITY : (float)sqnr;
}

static void take_use(const health *h, int64_t use) {
    int64_t at = use / USES;
    const quant_spec *spec = &h->specs[at];
    const cast_spec *cast = use % USES ? &spec->columnwise : &spec->rowwise;
    const float *s = h->host + use * STATISTICS_COUNT, elements = h->elements[at];
    h->most[use] = (use_most){.minus_scale_min = -INFINITY, .minus_sqnr = -INFINITY};
    h->sum[use] = (use_sum){0};
    if (elements == 0 || !cast_spec_is_fp8(cast)) return;
    h->most[use] = (use_most){.measured = 1,
                              .format = (float)cast->format,
                              .has_own_scales = quant_spec_shares_scales(spec) ? 0 : 1,
                              .amax = s[STATISTICS_AMAX],
                              .scale_max = s[STATISTICS_SCALE_MAX],
                              .minus_scale_min = -s[STATISTICS_SCALE_MIN],
                              .minus_sqnr = -judged_sqnr(s)};
    h->sum[use] = (use_sum){s[STATISTICS_SATURATED] * elements, s[STATISTICS_UNDERFLOWED] * elements,
                            s[STATISTICS_SIGNAL], s[STATISTICS_NOISE], elements};
}

/* Combines the measurements of all ranks, which may be of different rows, shards or layers. */
static ott_status join_ranks(health *h) {
    int64_t uses = use_count(h);
    group_host *host_exchange = &h->t->host_exchange;
    for (int64_t use = 0; use < uses; use++) take_use(h, use);
    host_exchange->group = h->t->options.run_group;
    if (host_exchange->group->size == 1) return OTT_OK;
    TRY(group_host_reduce(host_exchange, &h->most->measured,
                          uses * (int64_t)(sizeof *h->most / sizeof(float)), REDUCE_MAX));
    return group_host_reduce(host_exchange, &h->sum->saturated,
                             uses * (int64_t)(sizeof *h->sum / sizeof(float)), REDUCE_SUM);
}

static ott_status write_use(const health *h, metrics_writer *metrics, int64_t use, const char *gemm) {
    const use_most *most = &h->most[use];
    const use_sum *sum = &h->sum[use];
    metrics_value values[] = {
        metrics_text("module", h->layers[use / USES / TENSOR_COUNT]->name),
        metrics_text("tensor", tensor_words[use / USES % TENSOR_COUNT]),
        metrics_text("gemm", gemm),
        metrics_text("format", dtype_name((ott_dtype)most->format)),
        metrics_real("amax", (double)most->amax),
        metrics_real("scale_min", -(double)most->minus_scale_min),
        metrics_real("scale_max", (double)most->scale_max),
        metrics_real("saturated", (double)(sum->saturated / sum->elements)),
        metrics_real("underflowed", (double)(sum->underflowed / sum->elements)),
        metrics_real("sqnr_db", health_sqnr((double)sum->signal, (double)sum->noise)),
    };
    return metrics_write(metrics, h->t->run.step, values, (int)(sizeof values / sizeof *values));
}

static ott_status write_measurements(const health *h, metrics_writer *metrics) {
    for (int64_t use = 0; use < use_count(h); use++) {
        int which = (int)(use / USES % TENSOR_COUNT), columnwise = (int)(use % USES);
        const use_most *most = &h->most[use];
        if (most->measured == 0 || (columnwise && most->has_own_scales == 0)) continue;
        TRY(write_use(h, metrics, use,
                      most->has_own_scales != 0 ? gemm_of[which][columnwise] : both_gemms[which]));
    }
    return OTT_OK;
}

/* ---- falling back ---- */

/* Returns the lowest SQNR of a layer's tensors on any rank. *tensor_word = name of that tensor. */
static double worst_of(const health *h, int64_t layer, const char **tensor_word) {
    double worst = INFINITY;
    for (int64_t use = layer * TENSOR_COUNT * USES, end = use + TENSOR_COUNT * USES; use < end; use++) {
        double sqnr = -(double)h->most[use].minus_sqnr;
        if (h->most[use].measured == 0 || !(sqnr < worst)) continue;
        worst = sqnr;
        *tensor_word = tensor_words[use / USES % TENSOR_COUNT];
    }
    return worst;
}

static ott_status apply_fallbacks(const health *h) {
    bool fell_back = false, before[h->layer_count];
    if (h->options.window == 0) return OTT_OK;
    for (int64_t i = 0; i < h->layer_count; i++) {
        const char *word = "";
        linear *l = h->layers[i]->linear;
        before[i] = h->layers[i]->fell_back;
        if (!l || !l->spec.fp8) continue;
        /* the number of low measurements in a row, which is the same on all ranks */
        l->low_sqnr_count = worst_of(h, i, &word) < h->options.bound_db ? l->low_sqnr_count + 1 : 0;
        if (l->low_sqnr_count >= (float)h->options.window) l->low_sqnr_count = LINEAR_FELL_BACK;
    }
    TRY(trainer_share_fallbacks(h->t));
    for (int64_t i = 0; i < h->layer_count; i++) {
        if (before[i] || !h->layers[i]->fell_back) continue;
        const char *word = "";
        double worst = worst_of(h, i, &word);
        log_warning(
            h->t->log,
            "Float8 fallback: %s moves to %s after step %lld: SQNR below %g dB at %lld measurements in a row "
            "(now %.1f dB, %s)",
            h->layers[i]->name, dtype_name(h->t->m->activation), (long long)h->t->run.step,
            h->options.bound_db, (long long)h->options.window, worst, word);
        fell_back = true;
    }
    return fell_back ? trainer_convert(h->t, h->t->recipe) : OTT_OK;
}

ott_status health_end_step(health *h, metrics_writer *metrics) {
    if (!h->measuring) return OTT_OK;
    h->t->hook = NULL;
    int64_t floats = use_count(h) * STATISTICS_COUNT;
    TRY(device_copy_out(h->t->device, h->host, h->block, floats * (int64_t)sizeof(float)));
    TRY(join_ranks(h));
    if (metrics) TRY(write_measurements(h, metrics));
    return apply_fallbacks(h);
}

/* ---- opening ---- */

static ott_status allocate_buffers(health *h) {
    const module_list *all = &h->t->m->all_modules;
    TRY(arena_open(h->t->account, MEM_OTHER, &h->memory));
    TRY(arena_alloc(h->memory, all->count * (int64_t)sizeof *h->layers, &h->layers));
    for (int i = 0; i < all->count; i++)
        if (all->items[i].kind == MODULE_LINEAR) h->layers[h->layer_count++] = &all->items[i];
    int64_t slots = h->layer_count * TENSOR_COUNT, bytes = slots * SLOT_FLOATS * (int64_t)sizeof(float);
    TRY(arena_alloc(h->memory, slots * (int64_t)sizeof *h->specs, &h->specs));
    TRY(arena_alloc(h->memory, slots * (int64_t)sizeof *h->elements, &h->elements));
    TRY(arena_alloc(h->memory, bytes, &h->host));
    TRY(arena_alloc(h->memory, use_count(h) * (int64_t)sizeof *h->most, &h->most));
    TRY(arena_alloc(h->memory, use_count(h) * (int64_t)sizeof *h->sum, &h->sum));
    return device_allocate(h->t->device, MEM_OTHER, bytes, "health", &h->block);
}

ott_status health_open(trainer *t, const health_options *o, health **out) {
    health *h;
    TRY(mem_alloc(t->account, MEM_OTHER, sizeof(health), "health", &h));
    *h = (health){.t = t, .options = *o, .hook = {.quantized = measure_quantization, .user = h}};
    ott_status status = allocate_buffers(h);
    if (status != OTT_OK) return health_close(h), status;
    return *out = h, OTT_OK;
}

void health_close(health *h) {
    if (!h) return;
    device_release(h->t->device, h->block);
    arena_close(h->memory);
    mem_free(h->t->account, h);
}
