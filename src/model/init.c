/* model/init: initial weights. */
#include "model/init.h"
#include "base/pool.h"
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

/* A draw beyond the cut is replaced by one `count` further on in the parameter's stream. */
static double redraw(const start *s, uint64_t seed, uint64_t stream, int64_t index, int64_t count, float x) {
    while (s->cut > 0 && fabs((double)x) > s->cut) {
        index += count;
        x = rng_normal(seed, stream, (uint64_t)index);
    }
    return (double)x;
}

/* ---- on all threads ---- */

enum { LEAST_PIECE = 1 << 12, LARGEST_PIECE = 1 << 18 }; /* elements that are made at once */
enum { SMALL_MODEL = 1 << 18 };                          /* elements for which threads are not worth it */

/* Elements [first, first + length) of a parameter of `count`. */
typedef struct piece {
    start s;
    uint64_t seed, stream;
    int64_t first, length, count;
    float *out; /* [length] */
} piece;

/* Every element is a function of its own index: whoever makes it, it is the same. */
static void fill_share(void *argument, int thread, int threads) {
    const piece *p = argument;
    int64_t begin, end;
    pool_share(p->length, 16, thread, threads, &begin, &end);
    if (begin >= end) return;
    if (p->s.deviation == 0) {
        for (int64_t i = begin; i < end; i++) p->out[i] = p->s.constant;
        return;
    }
    rng_normals(p->seed, p->stream, (uint64_t)(p->first + begin), end - begin, p->out + begin);
    for (int64_t i = begin; i < end; i++)
        p->out[i] =
            (float)(p->s.deviation * redraw(&p->s, p->seed, p->stream, p->first + i, p->count, p->out[i]));
}

typedef struct initializing {
    const model *m;
    uint64_t seed;
    pool *pool;
    float *host;   /* [piece] */
    int64_t piece; /* elements: a small share of the model */
    watched progress;
    int64_t done;
} initializing;

/* The elements of p, which go to `to` on the device. */
static ott_status fill(initializing *w, const parameter *p, float *to) {
    piece next = {.s = start_of(w->m, p),
                  .seed = w->seed,
                  .stream = rng_stream(p->name),
                  .count = parameter_count(p),
                  .out = w->host};
    for (; next.first < next.count; next.first += next.length) {
        next.length = next.count - next.first < w->piece ? next.count - next.first : w->piece;
        pool_run(w->pool, fill_share, &next);
        TRY(device_copy_in(w->m->device, to + next.first, w->host, next.length * (int64_t)sizeof(float)));
        TRY(watch_done(&w->progress, w->done += next.length));
    }
    return OTT_OK;
}

/* A fused projection starts as its parts would. */
static ott_status fill_parts(initializing *w, const parameter *p) {
    parameter_part part[PARTS_MOST];
    float *to = p->value.data;
    int parts = model_parts_of(w->m, p, part);
    if (parts == 1) return fill(w, p, to);
    for (int i = 0; i < parts; i++) {
        parameter own = *p;
        own.name = part[i].name;
        *(p->rank == 2 ? &own.rows : &own.columns) = part[i].count;
        TRY(fill(w, &own, to));
        to += parameter_count(&own);
    }
    return OTT_OK;
}

static ott_status fill_all(initializing *w, int threads) {
    const model *m = w->m;
    void *host;
    TRY(mem_alloc_array(m->device->account, MEM_OTHER, w->piece, sizeof(float), "initial weights", &host));
    w->host = host;
    TRY(pool_open(m->device->account, w->progress.total < SMALL_MODEL ? 1 : threads, &w->pool));
    for (int i = 0; i < m->parameter_count; i++) TRY(fill_parts(w, &m->parameters[i]));
    return OTT_OK;
}

ott_status model_initialize(model *m, uint64_t seed, int threads) {
    initializing w = {.m = m, .seed = seed};
    int64_t share = model_parameter_count(m) / 64;
    w.piece = share < LEAST_PIECE ? LEAST_PIECE : share > LARGEST_PIECE ? LARGEST_PIECE : share;
    w.progress = watch_begin(m->watch, "Initializing weights", model_parameter_count(m));
    ott_status status = fill_all(&w, threads);
    pool_close(w.pool);
    mem_free(m->device->account, w.host);
    model_weights_changed(m);
    return status;
}
