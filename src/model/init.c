/* model/init: initial weights. */
#include "model/init.h"
#include "base/rng.h"
#include "model/parts.h"
#include <stdlib.h>
#include <string.h>

/* How one parameter starts: normal of this deviation, cut at `cut` deviations (0: not cut); deviation 0: all
 * `constant`. */
typedef struct start {
    double deviation, cut;
    float constant;
} start;

static bool is_residual_projection(const char *name) {
    return str_ends_with(name, "o_proj.weight") || str_ends_with(name, "down_proj.weight");
}

static int layer_of(const char *name) {
    const char *place = strstr(name, "layers.");
    return place ? atoi(place + strlen("layers.")) : 0;
}

static start start_titan(const model *m, const parameter *p) {
    if (p == m->embedding.weight) return (start){.deviation = 1.0};
    if (p == m->loss.head.weight) return (start){.deviation = 1.0 / sqrt((double)m->options.dim), .cut = 3.0};
    bool scaled = is_residual_projection(p->name) || str_ends_with(p->name, "up_proj.weight");
    return (start){.deviation = scaled ? 0.02 / sqrt(2.0 * (layer_of(p->name) + 1)) : 0.02};
}

static start start_of(const model *m, const parameter *p) {
    if (p->rank == 1) return (start){.constant = str_ends_with(p->name, ".bias") ? 0.0f : 1.0f};
    if (m->options.init_style == INIT_TITAN) return start_titan(m, p);
    double deviation = m->options.init_std;
    if (m->options.init_style == INIT_KEMPNER && is_residual_projection(p->name))
        deviation /= sqrt(2.0 * (double)m->options.layers);
    return (start){.deviation = deviation};
}

/* Draw `index` of the parameter's stream; a draw beyond the cut is replaced by one `count` further on. */
static float draw(const start *s, uint64_t seed, uint64_t stream, int64_t index, int64_t count) {
    for (;; index += count) {
        float x = rng_normal(seed, stream, (uint64_t)index);
        if (s->cut == 0 || fabs((double)x) <= s->cut) return (float)(s->deviation * (double)x);
    }
}

static void fill_part(const model *m, const parameter *p, uint64_t seed, float *host) {
    start s = start_of(m, p);
    int64_t count = parameter_count(p);
    uint64_t stream = rng_stream(p->name);
    for (int64_t i = 0; i < count; i++)
        host[i] = s.deviation == 0 ? s.constant : draw(&s, seed, stream, i, count);
}

/* A fused projection starts as its parts would. */
static void fill(const model *m, const parameter *p, uint64_t seed, float *host) {
    parameter_part part[PARTS_MOST];
    int parts = model_parts_of(m, p, part);
    if (parts == 1) {
        fill_part(m, p, seed, host);
        return;
    }
    for (int i = 0; i < parts; i++) {
        parameter own = *p;
        own.name = part[i].name;
        *(p->rank == 2 ? &own.rows : &own.columns) = part[i].count;
        fill_part(m, &own, seed, host);
        host += parameter_count(&own);
    }
}

ott_status model_initialize(model *m, uint64_t seed) {
    int64_t largest = 0;
    for (int i = 0; i < m->parameter_count; i++)
        if (parameter_count(&m->parameters[i]) > largest) largest = parameter_count(&m->parameters[i]);
    void *host;
    TRY(mem_take_array(m->device->account, MEM_OTHER, largest, sizeof(float), "initial weights", &host));
    ott_status status = OTT_OK;
    for (int i = 0; i < m->parameter_count && status == OTT_OK; i++) {
        const parameter *p = &m->parameters[i];
        fill(m, p, seed, host);
        status = device_copy_in(m->device, p->value.data, host, parameter_count(p) * (int64_t)sizeof(float));
    }
    mem_give(m->device->account, host);
    model_weights_changed(m);
    return status;
}
