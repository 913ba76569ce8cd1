/* model/init: draws initial weights, module by module. */
#include "model/init.h"
#include "model/adapters.h"
#include "base/rng.h"
#include "nn/draw.h"
#include <math.h>
#include <stdio.h>

static draw_distribution start_titan(const model *m, module_role role, int layer) {
    switch (modules_start(role)) {
    case START_EMBEDDING: return (draw_distribution){.deviation = 1.0};
    case START_HEAD:
        return (draw_distribution){.deviation = 1.0 / sqrt((double)m->options.dim), .truncation = 3.0};
    case START_INSIDE:
    case START_RESIDUAL: return (draw_distribution){.deviation = 0.02 / sqrt(2.0 * (layer + 1))};
    case START_PLAIN: break;
    }
    return (draw_distribution){.deviation = 0.02};
}

static draw_distribution start_of_weight(const model *m, module_role role, int layer) {
    if (m->options.init_style == INIT_TITAN) return start_titan(m, role, layer);
    double deviation = m->options.init_std;
    if (m->options.init_style == INIT_KEMPNER && modules_start(role) == START_RESIDUAL)
        deviation /= sqrt(2.0 * (double)m->options.layers);
    return (draw_distribution){.deviation = deviation};
}

typedef struct initializing {
    const model *m;
    uint64_t seed;
    draw draw;
} initializing;

/* Draws rows [first, first + count) of a parameter from the random stream of this name. */
static ott_status draw_named(initializing *w, draw_distribution s, const char *name, const parameter *p,
                             int64_t first, int64_t count) {
    return draw_rows(&w->draw, s, w->seed, rng_stream(name), p, first, count);
}

/* Fills a part of a fused weight, or of expert number `matrix`'s weight, as if it were a separate weight. */
static ott_status fill_part(initializing *w, const model_module *e, int64_t matrix, const module_part *part) {
    char name[MODULES_NAME_BYTES], weight[MODULES_NAME_BYTES + 8];
    const parameter *p = e->weight;
    if (p->of_experts)
        modules_matrix_name(w->m->options.family, part->role, NAMING_HUGGING_FACE, e->layer, matrix, name);
    else
        modules_name(w->m->options.family, part->role, NAMING_HUGGING_FACE, e->layer, name);
    snprintf(weight, sizeof weight, "%s.weight", name);
    return draw_named(w, start_of_weight(w->m, part->role, e->layer), weight, p,
                      matrix * (p->rows / p->experts) + part->first, part->count);
}

/* Fills a weight part by part. So fused and expert weights have the same values as separate weights. */
static ott_status fill_parts(initializing *w, const model_module *e) {
    module_part part[MODULES_PARTS];
    int parts = modules_parts(&w->m->options, e, part);
    for (int64_t matrix = 0; matrix < e->weight->experts; matrix++)
        for (int i = 0; i < parts; i++) TRY(fill_part(w, e, matrix, &part[i]));
    return OTT_OK;
}

/* For a weight that is stored in FP8: draws the values twice, for its scales and then for its codes. */
static ott_status fill_codes(initializing *w, const model_module *e) {
    frozen_filling filling;
    TRY(frozen_fill_open(w->m->device->account, e->weight, &filling));
    w->draw.filling = &filling;
    w->draw.measures = true;
    ott_status status = fill_parts(w, e);
    w->draw.measures = false;
    if (status == OTT_OK) status = frozen_fill_scales(&filling, w->m->device);
    if (status == OTT_OK) status = fill_parts(w, e);
    w->draw.filling = NULL;
    frozen_fill_close(&filling);
    return status;
}

/* A's initial deviation or bound as in AutoModel and PEFT. B starts at 0: at first the adapter adds 0. */
static draw_distribution start_of_adapter(const model *m, const parameter *a) {
    switch (m->options.adapter.start) {
    case LORA_INIT_XAVIER:
        return (draw_distribution){.deviation = sqrt(2.0 / (double)(a->rows + a->columns))};
    case LORA_INIT_KAIMING: return (draw_distribution){.bound = 1.0 / sqrt((double)a->columns)};
    case LORA_INIT_GAUSSIAN: break;
    }
    return (draw_distribution){.deviation = 1.0 / (double)a->rows};
}

/* A DoRA magnitude starts as the norms of the weight's rows. So the layer's first output has no change. */
static ott_status fill_magnitude(exec *cx, const linear *l, group *ranks) {
    float *norms;
    device *d = cx->device;
    const parameter_shard *to = &l->lora->magnitude->shard;
    TRY(mem_alloc_array(d->account, MEM_OTHER, l->out, sizeof(float), "norms of a weight", &norms));
    ott_status status = adapters_base_norms(cx, l, ranks, norms);
    if (status == OTT_OK)
        status = device_copy_in(d, to->value.data, norms + to->first, tensor_bytes(to->value));
    mem_free(d->account, norms);
    return status;
}

static ott_status fill_all_magnitudes(exec *cx, const model *m) {
    for (int i = 0; i < m->modules.count; i++) {
        const model_module *e = &m->modules.items[i];
        if (e->lora_m) TRY(fill_magnitude(cx, e->linear, m->store.ranks));
    }
    return OTT_OK;
}

static ott_status fill_magnitudes(model *m) {
    exec cx = {.device = m->device};
    if (!m->options.adapter.decomposed) return OTT_OK;
    TRY(plan_create(m->device, &cx.plan));
    plan_immediate(cx.plan);
    ott_status status = fill_all_magnitudes(&cx, m);
    plan_destroy(cx.plan);
    return status;
}

static ott_status fill_module(initializing *w, const model_module *e) {
    const draw_distribution ones = {.constant = 1.0f}, zeros = {.constant = 0.0f};
    if (e->kind == MODULE_NORM)
        TRY(draw_named(w, e->norm->one_plus ? zeros : ones, e->weight->name, e->weight, 0, e->weight->rows));
    else if (!e->tied)
        TRY(e->weight->codes ? fill_codes(w, e) : fill_parts(w, e));
    return e->bias ? draw_named(w, zeros, e->bias->name, e->bias, 0, e->bias->rows) : OTT_OK;
}

static ott_status fill_all(initializing *w, bool adapters_only) {
    for (int i = 0; i < w->m->modules.count; i++) {
        const model_module *e = &w->m->modules.items[i];
        if (!adapters_only) TRY(fill_module(w, e));
        const parameter *a = e->lora_a, *b = e->lora_b;
        if (a) {
            TRY(draw_named(w, start_of_adapter(w->m, a), a->name, a, 0, a->rows));
            TRY(draw_named(w, (draw_distribution){.constant = 0.0f}, b->name, b, 0, b->rows));
        }
    }
    return OTT_OK;
}

static ott_status initialize_parameters(model *m, uint64_t seed, int threads, bool adapters_only) {
    initializing w = {.m = m, .seed = seed};
    ott_status status = draw_open(&w.draw, m->device, m->cancellation, model_shard_count(m), threads);
    if (status == OTT_OK) status = fill_all(&w, adapters_only);
    draw_close(&w.draw);
    if (status == OTT_OK) status = fill_magnitudes(m);
    model_weights_changed(m);
    return status;
}

ott_status model_initialize(model *m, uint64_t seed, int threads) {
    return initialize_parameters(m, seed, threads, false);
}

ott_status model_initialize_adapters(model *m, uint64_t seed, int threads) {
    return initialize_parameters(m, seed, threads, true);
}
