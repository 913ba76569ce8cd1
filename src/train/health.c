/* train/health: measuring, writing and acting on it. */
#include "train/health.h"
#include <math.h>
#include <string.h>

/* Which uses of a layer's tensors a GEMM makes: the names under which a use is reported. */
static const char *const gemm_of[TENSOR_COUNT][2] = {
    [TENSOR_INPUT] = {"output", "grad_weight"},
    [TENSOR_WEIGHT] = {"output", "grad_input"},
    [TENSOR_GRAD_OUTPUT] = {"grad_input", "grad_weight"},
};
static const char *const both_gemms[TENSOR_COUNT] = {"output+grad_weight", "output+grad_input",
                                                     "grad_input+grad_weight"};
static const char *const tensor_words[TENSOR_COUNT] = {"input", "weight", "grad_output"};

enum { USES = 2, SLOT_FLOATS = USES * STATISTICS_COUNT };

/* One tensor of one layer at the last measurement. */
typedef struct slot {
    bool measured;
    quant_spec spec;
} slot;

struct health {
    trainer *t;
    health_options options;
    hook hook;
    linear **layers;
    int64_t layer_count;
    slot *slots; /* [layers][TENSOR_COUNT] */
    float *host; /* [layers][TENSOR_COUNT][USES][STATISTICS_COUNT] */
    void *block; /* the same on the device */
    bool measuring;
};

/* ---- measuring ---- */

static int64_t find_slot(const health *h, const char *module, recipe_tensor which) {
    for (int64_t i = 0; i < h->layer_count; i++)
        if (h->layers[i]->name == module) return i * TENSOR_COUNT + which;
    return -1;
}

/* A tensor that comes in parts (the head's chunks) is seen by its last one. */
static ott_status measure(void *user, exec *cx, const char *module, recipe_tensor which, const tensor *t,
                          const qtensor *q) {
    health *h = user;
    int64_t at = find_slot(h, module, which);
    if (at < 0 || !cx->is_first_microbatch) return OTT_OK;
    tensor out = tensor_matrix((float *)h->block + at * SLOT_FLOATS, OTT_F32, USES, STATISTICS_COUNT);
    h->slots[at] = (slot){.measured = true, .spec = q->spec};
    return op_quantize_statistics(cx, &(quantize_statistics_args){.x = t, .q = q, .statistics = &out});
}

void health_begin_step(health *h) {
    int64_t step = h->t->run.step + 1;
    h->measuring = h->options.interval > 0 && step % h->options.interval == 0;
    if (!h->measuring) return;
    memset(h->slots, 0, (size_t)(h->layer_count * TENSOR_COUNT) * sizeof *h->slots);
    h->t->hook = &h->hook;
}

/* ---- reporting ---- */

double health_sqnr(double signal, double noise) {
    if (!(signal > 0)) return NAN;
    return noise > 0 ? 10.0 * log10(signal / noise) : INFINITY;
}

static double sqnr_of(const float *s) {
    return health_sqnr((double)s[STATISTICS_SIGNAL], (double)s[STATISTICS_NOISE]);
}

static ott_status write_use(const health *h, metrics_writer *metrics, const char *module,
                            const char *tensor_word, const char *gemm, const char *format, const float *s) {
    metrics_value values[] = {
        metrics_text("module", module),
        metrics_text("tensor", tensor_word),
        metrics_text("gemm", gemm),
        metrics_text("format", format),
        metrics_real("amax", (double)s[STATISTICS_AMAX]),
        metrics_real("scale_min", (double)s[STATISTICS_SCALE_MIN]),
        metrics_real("scale_max", (double)s[STATISTICS_SCALE_MAX]),
        metrics_real("saturated", (double)s[STATISTICS_SATURATED]),
        metrics_real("underflowed", (double)s[STATISTICS_UNDERFLOWED]),
        metrics_real("sqnr_db", sqnr_of(s)),
    };
    return metrics_write(metrics, h->t->run.step, values, (int)(sizeof values / sizeof *values));
}

static ott_status write_tensor(const health *h, metrics_writer *metrics, int64_t layer, int which) {
    int64_t at = layer * TENSOR_COUNT + which;
    const quant_spec *spec = &h->slots[at].spec;
    const float *row = h->host + at * SLOT_FLOATS, *column = row + STATISTICS_COUNT;
    const char *module = h->layers[layer]->name, *word = tensor_words[which];
    if (!h->slots[at].measured) return OTT_OK;
    if (cast_spec_is_fp8(&spec->rowwise))
        TRY(write_use(h, metrics, module, word,
                      quant_spec_shares_scales(spec) ? both_gemms[which] : gemm_of[which][0],
                      dtype_name(spec->rowwise.format), row));
    if (!cast_spec_is_fp8(&spec->columnwise) || quant_spec_shares_scales(spec)) return OTT_OK;
    return write_use(h, metrics, module, word, gemm_of[which][1], dtype_name(spec->columnwise.format),
                     column);
}

/* ---- falling back ---- */

/* The lowest SQNR of a layer's tensors, and whose it is. A tensor of zeros has none; one that is not finite
   counts as the lowest. */
static double worst_of(const health *h, int64_t layer, const char **tensor_word) {
    double worst = INFINITY;
    for (int use = 0; use < TENSOR_COUNT * USES; use++) {
        int64_t at = layer * TENSOR_COUNT + use / USES;
        const quant_spec *spec = &h->slots[at].spec;
        const float *s = h->host + at * SLOT_FLOATS + use % USES * STATISTICS_COUNT;
        if (!h->slots[at].measured || !cast_spec_is_fp8(use % USES ? &spec->columnwise : &spec->rowwise))
            continue;
        double sqnr = isfinite(s[STATISTICS_NOISE]) ? sqnr_of(s) : -INFINITY;
        if (!(sqnr < worst)) continue;
        worst = sqnr;
        *tensor_word = tensor_words[use / USES];
    }
    return worst;
}

static bool judge_layer(const health *h, int64_t i) {
    linear *l = h->layers[i];
    const char *word = "";
    if (!l->spec.fp8) return false;
    double worst = worst_of(h, i, &word);
    l->below = worst < h->options.bound_db ? l->below + 1 : 0;
    if (l->below < (float)h->options.window) return false;
    l->below = LINEAR_FALLEN;
    log_warning(
        h->t->log,
        "Float8 fallback: %s moves to %s after step %lld: SQNR below %g dB at %lld measurements in a row "
        "(now %.1f dB, %s)",
        l->name, dtype_name(h->t->m->activation), (long long)h->t->run.step, h->options.bound_db,
        (long long)h->options.window, worst, word);
    return true;
}

static ott_status judge(const health *h) {
    bool fallen = false;
    if (h->options.window == 0) return OTT_OK;
    for (int64_t i = 0; i < h->layer_count; i++) fallen |= judge_layer(h, i);
    return fallen ? trainer_convert(h->t, h->t->recipe) : OTT_OK;
}

ott_status health_end_step(health *h, metrics_writer *metrics) {
    if (!h->measuring) return OTT_OK;
    h->t->hook = NULL;
    int64_t floats = h->layer_count * TENSOR_COUNT * SLOT_FLOATS;
    TRY(device_copy_out(h->t->device, h->host, h->block, floats * (int64_t)sizeof(float)));
    for (int64_t i = 0; i < h->layer_count; i++)
        for (int which = 0; which < TENSOR_COUNT; which++) TRY(write_tensor(h, metrics, i, which));
    return judge(h);
}

/* ---- opening ---- */

static ott_status take_layer(void *user, linear *l) {
    health *h = user;
    if (h->layers) h->layers[h->layer_count] = l;
    h->layer_count++;
    return OTT_OK;
}

static ott_status allocate(health *h) {
    mem *account = h->t->account;
    void *memory;
    TRY(model_visit_linears(h->t->m, take_layer, h));
    TRY(mem_alloc_array(account, MEM_OTHER, h->layer_count, sizeof *h->layers, "layers", &memory));
    h->layers = memory;
    h->layer_count = 0;
    TRY(model_visit_linears(h->t->m, take_layer, h));
    int64_t slots = h->layer_count * TENSOR_COUNT;
    TRY(mem_alloc_array(account, MEM_OTHER, slots, sizeof *h->slots, "health", &memory));
    h->slots = memory;
    TRY(mem_alloc_array(account, MEM_OTHER, slots * SLOT_FLOATS, sizeof *h->host, "health", &memory));
    h->host = memory;
    return device_allocate(h->t->device, MEM_OTHER, slots * SLOT_FLOATS * (int64_t)sizeof(float), "health",
                           &h->block);
}

ott_status health_open(trainer *t, const health_options *o, health **out) {
    void *memory;
    TRY(mem_alloc(t->account, MEM_OTHER, sizeof(health), "health", &memory));
    health *h = memory;
    *h = (health){.t = t, .options = *o, .hook = {.quantized = measure, .user = h}};
    ott_status status = allocate(h);
    if (status != OTT_OK) {
        health_close(h);
        return status;
    }
    *out = h;
    return OTT_OK;
}

void health_close(health *h) {
    if (!h) return;
    mem *account = h->t->account;
    device_release(h->t->device, h->block);
    mem_free(account, h->layers);
    mem_free(account, h->slots);
    mem_free(account, h->host);
    mem_free(account, h);
}
