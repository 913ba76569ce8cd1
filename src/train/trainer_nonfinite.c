/* train/trainer_nonfinite: finds the first non-finite value of a step. */
#include "train/trainer_parts.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FOUND_BYTES = 160 };

typedef struct search {
    trainer *t;
    char *found; /* text of FOUND_BYTES bytes */
    float order; /* position of the value in forward and backward; INFINITY: none found */
} search;

static float order_of_output(const model *m, const char *module, const char *what) {
    int i = 0;
    while (i < m->all_modules.count && strcmp(m->all_modules.items[i].name, module) != 0) i++;
    return (float)(strcmp(what, "output") == 0 ? i : 2 * m->all_modules.count - i);
}

static ott_status count_nonfinite(trainer *t, const tensor *x, int32_t *count) {
    TRY(op_count_nonfinite(&t->cx, &(count_nonfinite_args){.x = x, .count = &t->nonfinite}));
    return device_copy_out(t->device, count, t->nonfinite.data, sizeof *count);
}

static ott_status find_nonfinite(void *user, exec *cx, const char *module, const char *what,
                                 const tensor *x) {
    search *s = user;
    int32_t count;
    (void)cx;
    if (s->found[0]) return OTT_OK;
    TRY(count_nonfinite(s->t, x, &count));
    if (count == 0) return OTT_OK;
    snprintf(s->found, FOUND_BYTES, "%s of %s", what, module);
    s->order = order_of_output(s->t->m, module, what);
    return OTT_OK;
}

static void add_rank(const trainer *t, char found[FOUND_BYTES]) {
    size_t length = strlen(found);
    int space = (int)(FOUND_BYTES - length);
    if (t->stage)
        snprintf(found + length, (size_t)space, " on rank %d, stage %d", t->options.run_group->rank,
                 t->m->options.stage->rank);
    else
        snprintf(found + length, (size_t)space, " on rank %d", t->options.run_group->rank);
}

/* *found: a rank found a non-finite value. Broadcasts the text about the value that is first in the step. */
static ott_status found_anywhere(trainer *t, search *s, bool *found) {
    group *g = t->options.run_group;
    float all[g->size];
    int first = 0;
    *found = s->found[0] != 0;
    if (g->size == 1) return OTT_OK;
    TRY(trainer_gather_values(t, g, s->order, all));
    for (int r = 1; r < g->size; r++)
        if (all[r] < all[first]) first = r;
    *found = isfinite(all[first]);
    if (!*found) return OTT_OK;
    if (first == g->rank) add_rank(t, s->found);
    t->host_exchange.group = g;
    return group_host_broadcast(&t->host_exchange, s->found, FOUND_BYTES, first);
}

static ott_status search_passes(trainer *t, search *s) {
    const hook p = {.observe = find_nonfinite, .user = s};
    bool found = false;
    for (int64_t i = 0; i < trainer_pass_count(t) && !found; i++) {
        TRY(trainer_run_micro_batches(t, i, &p, false)); /* staging memory still has these rows */
        TRY(found_anywhere(t, s, &found));
    }
    return OTT_OK;
}

/* Restores the FP8 state and the GEMM counts afterwards, because the search is no training step. */
ott_status trainer_find_nonfinite(trainer *t, char out[160]) {
    search s = {.t = t, .found = out, .order = INFINITY};
    int64_t gemms[GEMM_COUNT][2];
    memcpy(gemms, t->cx.gemms, sizeof gemms);
    memset(out, 0, FOUND_BYTES);
    TRY(trainer_plan_documents(t));
    TRY(trainer_copy_delayed(t, t->m->delayed.block, t->delayed_before));
    ott_status status = search_passes(t, &s);
    if (status == OTT_OK) status = trainer_copy_delayed(t, t->delayed_before, t->m->delayed.block);
    memcpy(t->cx.gemms, gemms, sizeof gemms);
    return status;
}

/* Backward starts with the last pipeline stage and, within a stage, with the last parameter. */
static float order_of_gradient(const trainer *t, int i) {
    const pipeline_stage *own = t->m->options.stage;
    int later = own ? own->stages - 1 - own->rank : 0;
    return (float)later * 65536 + (float)(t->m->all_parameter_count - i);
}

static ott_status search_gradients(trainer *t, search *s) {
    for (int i = t->m->all_parameter_count - 1; i >= 0; i--) {
        const parameter *p = t->m->all_parameters[i];
        int32_t count;
        if (p->frozen || tensor_count(p->shard.grad) == 0) continue;
        TRY(count_nonfinite(t, &p->shard.grad, &count));
        if (count == 0) continue;
        snprintf(s->found, FOUND_BYTES, "%s", p->name);
        s->order = order_of_gradient(t, i);
        return OTT_OK;
    }
    return OTT_OK;
}

ott_status trainer_find_gradient(trainer *t, char out[160]) {
    search s = {.t = t, .found = out, .order = INFINITY};
    bool found;
    memset(out, 0, FOUND_BYTES);
    TRY(search_gradients(t, &s));
    return found_anywhere(t, &s, &found);
}
