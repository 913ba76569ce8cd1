/* model/init: initial weights. */
#include "model/init.h"
#include "base/pool.h"
#include "base/rng.h"
#include <math.h>
#include <stdio.h>

/* How one parameter starts: normal of this deviation, cut at `cut` deviations (0: not cut); deviation 0: all
 * `constant`. */
typedef struct start {
    double deviation, cut;
    float constant;
} start;

/* Does it add to the residual stream? */
static bool is_residual_projection(module_role role) {
    return role == ROLE_O || role == ROLE_DOWN;
}

static start start_titan(const model *m, module_role role, int layer) {
    if (role == ROLE_EMBEDDING) return (start){.deviation = 1.0};
    if (role == ROLE_HEAD) return (start){.deviation = 1.0 / sqrt((double)m->options.dim), .cut = 3.0};
    bool scaled = is_residual_projection(role) || role == ROLE_UP;
    return (start){.deviation = scaled ? 0.02 / sqrt(2.0 * (layer + 1)) : 0.02};
}

static start start_of_weight(const model *m, module_role role, int layer) {
    if (m->options.init_style == INIT_TITAN) return start_titan(m, role, layer);
    double deviation = m->options.init_std;
    if (m->options.init_style == INIT_KEMPNER && is_residual_projection(role))
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

/* Elements [first, first + length) of `of`, which go to `to` on the device. */
static ott_status fill(initializing *w, const piece *of, int64_t first, int64_t length, float *to) {
    piece next = *of;
    for (next.first = first; length > 0; next.first += next.length, length -= next.length) {
        next.length = length < w->piece ? length : w->piece;
        pool_run(w->pool, fill_share, &next);
        TRY(device_copy_in(w->m->device, to, w->host, next.length * (int64_t)sizeof(float)));
        TRY(watch_done(&w->progress, w->done += next.length));
        to += next.length;
    }
    return OTT_OK;
}

/* Of rows [first, first + count) of p, which have this name by themselves, those that are here: each element is
   drawn by its index among all of the name. */
static ott_status fill_rows(initializing *w, start s, const char *name, const parameter *p, int64_t first,
                            int64_t count) {
    const parameter_shard *here = &p->shard;
    const tensor *t = &here->value;
    int64_t row = here->row > first ? here->row : first;
    int64_t end = here->row + t->rows < first + count ? here->row + t->rows : first + count;
    int64_t step = t->columns == p->columns ? end - row : 1;
    piece of = {
        .s = s, .seed = w->seed, .stream = rng_stream(name), .count = count * p->columns, .out = w->host};
    for (; row < end; row += step)
        TRY(fill(w, &of, (row - first) * p->columns + here->column, step * t->columns,
                 (float *)t->data + (row - here->row) * t->columns));
    return OTT_OK;
}

/* A fused projection starts as its parts would. */
static ott_status fill_weight(initializing *w, const model_module *e) {
    module_part part[MODULES_PARTS];
    const model *m = w->m;
    int parts = modules_parts(&m->options, e, part);
    for (int i = 0; i < parts; i++) {
        char name[MODULES_NAME_BYTES], weight[MODULES_NAME_BYTES + 8];
        modules_name(part[i].role, NAMING_HUGGING_FACE, e->layer, name);
        snprintf(weight, sizeof weight, "%s.weight", name);
        TRY(fill_rows(w, start_of_weight(m, part[i].role, e->layer), weight, e->weight, part[i].first,
                      part[i].count));
    }
    return OTT_OK;
}

static ott_status fill_module(initializing *w, const model_module *e) {
    const start ones = {.constant = 1.0f}, zeros = {.constant = 0.0f};
    if (e->kind == MODULE_NORM)
        TRY(fill_rows(w, ones, e->weight->name, e->weight, 0, e->weight->rows));
    else if (!e->tied)
        TRY(fill_weight(w, e));
    return e->bias ? fill_rows(w, zeros, e->bias->name, e->bias, 0, e->bias->rows) : OTT_OK;
}

static ott_status fill_all(initializing *w, int threads) {
    const model *m = w->m;
    void *host;
    TRY(mem_alloc_array(m->device->account, MEM_OTHER, w->piece, sizeof(float), "initial weights", &host));
    w->host = host;
    TRY(pool_open(m->device->account, w->progress.total < SMALL_MODEL ? 1 : threads, &w->pool));
    for (int i = 0; i < m->modules.count; i++) TRY(fill_module(w, &m->modules.of[i]));
    return OTT_OK;
}

ott_status model_initialize(model *m, uint64_t seed, int threads) {
    initializing w = {.m = m, .seed = seed};
    int64_t count = model_shard_count(m), share = count / 64;
    w.piece = share < LEAST_PIECE ? LEAST_PIECE : share > LARGEST_PIECE ? LARGEST_PIECE : share;
    w.progress = watch_begin(m->watch, "Initializing weights", count);
    ott_status status = fill_all(&w, threads);
    pool_close(w.pool);
    mem_free(m->device->account, w.host);
    model_weights_changed(m);
    return status;
}
