/* api/fp8/autocast: autocast regions, and the updates of delayed scales. */
#include "api/fp8/autocast.h"
#include <stdio.h>
#include <string.h>

static ott_status autocast_of(ott_context *context, autocast **out) {
    if (!context->autocast) {
        TRY(mem_alloc(context->account, MEM_OTHER, sizeof(autocast), "regions", &context->autocast));
        context->autocast->registered_end = &context->autocast->registered;
    }
    return *out = context->autocast, OTT_OK;
}

/* The innermost open region if it is enabled; NULL otherwise. */
static const autocast_region *active_region(const autocast *a) {
    const autocast_region *region = a->depth > 0 ? &a->regions[a->depth - 1] : NULL;
    return region && region->enabled ? region : NULL;
}

/* ---- which spec a layer runs with ---- */

static ott_status set_store(ott_module *m) {
    linear_body *b = m->body;
    delayed_request wanted[TENSOR_COUNT];
    linear_delayed_requests(b->layer, wanted);
    return delayed_store_set(&b->store, m->handle.context->device, wanted, TENSOR_COUNT);
}

/* Sets how a layer quantizes (its spec). If the spec has no FP8, the state of delayed scaling is kept. */
ott_status autocast_set_spec(ott_module *m, const linear_spec *spec, const char *recipe_name, bool *changed) {
    linear_body *b = m->body;
    if (recipe_spec_equal(&b->layer->spec, spec)) return OTT_OK;
    *changed = true;
    TRY(linear_set_spec(b->layer, m->handle.context->device, spec));
    if (!spec->fp8) return OTT_OK;
    TRY(set_store(m));
    b->was_fp8 = true;
    b->fp8_spec = *spec;
    snprintf(b->fp8_recipe, sizeof b->fp8_recipe, "%s", recipe_name);
    b->layer->recipe_name = b->fp8_recipe;
    return OTT_OK;
}

typedef struct entrance {
    const autocast_region *region;
    bool changed, logged;
} entrance;

static const char *current_spec(const ott_module *m, const autocast_region *region, linear_spec *spec) {
    const linear_body *b = m->body;
    if (b->converted) {
        *spec = b->converted_spec;
        return b->converted_recipe;
    }
    const recipe *r = region ? &region->recipe : recipe_high_precision(m->dtype);
    recipe_compile(r, m->dtype, spec);
    return r->name;
}

/* Logs TransformerEngine's warning that a layer's recipe changed, once per forward. */
static void log_change(entrance *e, const ott_module *m, const char *name, const linear_spec *spec) {
    const linear_body *b = m->body;
    bool same_name = strcmp(b->fp8_recipe, name) == 0;
    bool same = same_name && (!b->was_fp8 || recipe_spec_equal(spec, &b->fp8_spec));
    if (e->logged || !spec->fp8 || !*b->fp8_recipe || same) return;
    e->logged = true;
    log_warning(&m->handle.context->log,
                "Recipe type changed from %s to %s%s. This may affect model behavior.", b->fp8_recipe, name,
                same_name ? " with other settings" : "");
}

static ott_status enter_linear(void *user, ott_module *m) {
    entrance *e = user;
    linear_spec spec;
    const char *name = current_spec(m, e->region, &spec);
    log_change(e, m, name, &spec);
    return autocast_set_spec(m, &spec, name, &e->changed);
}

/* Layers of a model share one block of delayed-scaling state, so a region cannot change their recipes. */
static ott_status refuse_region(void) {
    return status_fail(OTT_ERR_UNSUPPORTED,
                       "a model runs under the recipe of its configuration ([float8]) or of "
                       "ott_convert_to_float8_training, not of a region: end the region (ott_autocast_end) "
                       "first, or nest one with enabled = 0");
}

ott_status autocast_before_forward(ott_module *m) {
    autocast *a;
    TRY(autocast_of(m->handle.context, &a));
    entrance e = {.region = active_region(a)};
    if (m->table->is_model) return e.region ? refuse_region() : OTT_OK;
    TRY(module_visit_linears(m, enter_linear, &e));
    return e.changed ? module_connect(m) : OTT_OK;
}

/* ---- registration ---- */

typedef struct registration {
    autocast *a;
    const autocast_region *region;
    bool fp8;
} registration;

static ott_status register_linear(void *user, ott_module *m) {
    registration *r = user;
    linear_body *b = m->body;
    if (!b->layer->spec.fp8) return OTT_OK;
    r->fp8 = true;
    b->region_group = r->region->group;
    if (b->registered) return OTT_OK;
    b->registered = true;
    b->next_registered = NULL;
    *r->a->registered_end = m;
    r->a->registered_end = &b->next_registered;
    return OTT_OK;
}

ott_status autocast_after_forward(ott_module *m) {
    autocast *a;
    TRY(autocast_of(m->handle.context, &a));
    registration r = {.a = a, .region = active_region(a)};
    m->first_of_region = false;
    if (!r.region) return OTT_OK;
    TRY(module_visit_linears(m, register_linear, &r));
    m->first_of_region = r.fp8 && a->first_pending;
    if (r.fp8) a->first_pending = false;
    return OTT_OK;
}

void autocast_unregister(ott_module *m) {
    autocast *a = m->handle.context->autocast;
    linear_body *b = m->body;
    if (!b->registered) return;
    for (ott_module **at = &a->registered; *at; at = &module_linear_body(*at)->next_registered) {
        if (*at != m) continue;
        *at = b->next_registered;
        if (!*at) a->registered_end = at;
        break;
    }
    b->registered = false;
}

/* ---- updates ---- */

/* One update of delayed scales: the layers, and which scales of each layer (input, weight, grad_output). */
typedef struct update {
    exec cx;
    ott_module **linears;
    int count;
    bool tensors[TENSOR_COUNT];
    bool by_region; /* reduce amaxes over the groups of regions (true) or conversions (false) */
} update;

static ott_group *reduction_group(const update *u, int i) {
    const linear_body *b = u->linears[i]->body;
    return u->by_region ? b->region_group : b->converted_group;
}

static const delayed_state *state_of(const update *u, int i, int t) {
    const delayed_state *s = &module_linear_body(u->linears[i])->layer->delayed[t];
    return u->tensors[t] && s->seen.data ? s : NULL;
}

/* The layers that reduce over group g: GATHER copies their recorded amaxes to the tensor `all`, SCATTER
   copies `all` back to the layers. *count: number of these amaxes. */
typedef enum direction { COUNT_ONLY, GATHER, SCATTER } direction;

static ott_status move_seen(update *u, const ott_group *g, direction to, const tensor *all, int64_t *count) {
    *count = 0;
    for (int i = 0; i < u->count; i++)
        for (int t = 0; t < TENSOR_COUNT; t++) {
            const delayed_state *s = state_of(u, i, t);
            if (!s || !s->spec.reduce || reduction_group(u, i) != g) continue;
            int64_t slot = (*count)++;
            if (to == COUNT_ONLY) continue;
            tensor place = tensor_columns(*all, slot, 1);
            const tensor *from = to == GATHER ? &s->seen : &place, *into = to == GATHER ? &place : &s->seen;
            TRY(op_convert(&u->cx, &(convert_args){.x = from, .y = into}));
        }
    return OTT_OK;
}

static ott_status reduce_over(update *u, ott_group *g) {
    int64_t count;
    tensor all;
    plan_buffer buffer;
    TRY(handle_check(g, HANDLE_GROUP, "delayed scaling", "amax_group"));
    TRY(move_seen(u, g, COUNT_ONLY, NULL, &count));
    if (count == 0) return OTT_OK;
    TRY(exec_open(&u->cx, "amaxes of a group", OTT_F32, 1, count, &all, &buffer));
    ott_status status = move_seen(u, g, GATHER, &all, &count);
    if (status == OTT_OK) status = group_all_reduce(&g->group, &u->cx, &all, REDUCE_MAX);
    if (status == OTT_OK) status = move_seen(u, g, SCATTER, &all, &count);
    ott_status closed = plan_close(u->cx.plan, &buffer);
    return status == OTT_OK ? closed : status;
}

/* All-reduces the amaxes once over each group. All ranks order the groups by the groups' first layers. */
static ott_status reduce_all(update *u) {
    for (int i = 0; i < u->count; i++) {
        ott_group *g = reduction_group(u, i);
        bool done = !g;
        for (int j = 0; j < i && !done; j++) done = reduction_group(u, j) == g;
        if (!done) TRY(reduce_over(u, g));
    }
    return OTT_OK;
}

static ott_status run_update(update *u) {
    TRY(reduce_all(u));
    for (int i = 0; i < u->count; i++)
        for (int t = 0; t < TENSOR_COUNT; t++) {
            const delayed_state *s = state_of(u, i, t);
            if (s) TRY(delayed_update(&u->cx, s));
        }
    return OTT_OK;
}

static ott_status update_registered(ott_context *context, bool forward) {
    const autocast *a = context->autocast;
    update u = {.by_region = true};
    int count = 0;
    for (ott_module *m = a->registered; m; m = module_linear_body(m)->next_registered) count++;
    if (count == 0) return OTT_OK;
    u.tensors[TENSOR_INPUT] = u.tensors[TENSOR_WEIGHT] = forward;
    u.tensors[TENSOR_GRAD_OUTPUT] = !forward;
    TRY(api_exec(context, &u.cx));
    TRY(mem_alloc_array(context->account, MEM_OTHER, count, sizeof *u.linears, "layers to update",
                        &u.linears));
    for (ott_module *m = a->registered; m; m = module_linear_body(m)->next_registered)
        u.linears[u.count++] = m;
    ott_status status = run_update(&u);
    mem_free(context->account, u.linears);
    return status;
}

ott_status autocast_after_backward(ott_module *m) {
    if (!m->first_of_region) return OTT_OK;
    m->first_of_region = false;
    return update_registered(m->handle.context, false);
}

static ott_status count_converted(void *user, ott_module *m) {
    *(int *)user += module_linear_body(m)->converted;
    return OTT_OK;
}

static ott_status add_converted(void *user, ott_module *m) {
    update *u = user;
    if (module_linear_body(m)->converted) u->linears[u->count++] = m;
    return OTT_OK;
}

ott_status autocast_after_step(ott_module *m) {
    ott_context *context = m->handle.context;
    int count = 0;
    update u = {.tensors = {true, true, true}};
    TRY(module_visit_linears(m, count_converted, &count));
    if (count == 0) return OTT_OK;
    TRY(api_exec(context, &u.cx));
    TRY(mem_alloc_array(context->account, MEM_OTHER, count, sizeof *u.linears, "layers to update",
                        &u.linears));
    ott_status status = module_visit_linears(m, add_converted, &u);
    if (status == OTT_OK) status = run_update(&u);
    mem_free(context->account, u.linears);
    return status;
}

/* ---- regions ---- */

void(ott_autocast_options_init)(ott_autocast_options *options, size_t size) {
    API_INIT(options, size, .enabled = 1);
}

static ott_status region_of(ott_context *context, const ott_autocast_options *o, autocast_region *out) {
    const recipe *r;
    *out = (autocast_region){.enabled = o->enabled != 0, .group = o->amax_group};
    TRY(recipe_to_run(context, o->recipe, "delayed", &r));
    out->recipe = *r;
    return OTT_OK;
}

static ott_status begin_region(ott_context *context, const ott_autocast_options *o) {
    autocast *a;
    autocast_region region;
    TRY(autocast_of(context, &a));
    if (a->depth == AUTOCAST_DEPTH_MAX)
        return status_fail(
            OTT_ERR_ARGUMENT,
            "ott_autocast_begin: %d regions are open, and no more can be: end one with ott_autocast_end",
            a->depth);
    TRY(region_of(context, o, &region));
    if (a->depth == 0) {
        a->was_enabled = false;
        a->first_pending = true;
    }
    a->regions[a->depth++] = region;
    a->was_enabled |= region.enabled;
    return OTT_OK;
}

ott_status ott_autocast_begin(ott_context *context, const ott_autocast_options *options) {
    ott_autocast_options o;
    API_REQUIRE(context);
    ott_autocast_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_autocast_options"));
    if (o.recipe) TRY(handle_check_in(o.recipe, HANDLE_RECIPE, context, __func__, "recipe"));
    if (o.amax_group) TRY(handle_check_in(o.amax_group, HANDLE_GROUP, context, __func__, "amax_group"));
    return MODULE_INSIDE(context, begin_region(context, &o));
}

static ott_status end_region(ott_context *context) {
    autocast *a = context->autocast;
    if (!a || a->depth == 0)
        return status_fail(OTT_ERR_ARGUMENT, "ott_autocast_end: no region is open (ott_autocast_begin)");
    a->depth--;
    return a->depth == 0 && a->was_enabled ? update_registered(context, true) : OTT_OK;
}

ott_status ott_autocast_end(ott_context *context) {
    API_REQUIRE(context);
    return MODULE_INSIDE(context, end_region(context));
}

int ott_autocast_depth(const ott_context *context) {
    if (api_require(context, __func__, "context") != OTT_OK) return -1;
    return context->autocast ? context->autocast->depth : 0;
}
