/* plan/plan: makes the plan of a configuration. */
#include "plan/plan.h"
#include "api/handle.h"
#include "backend/backend.h"
#include "folders/hf/model.h"
#include "folders/peft.h"
#include "plan/estimate.h"
#include "plan/measure.h"
#include "plan/page/page.h"
#include "run/run.h"
#include <stdio.h>
#include <string.h>

enum { MOST_RANKS = 1 << 16 };

static ott_status resolve_options(planner *p) {
    hf_model_notes notes;
    if (p->options->ranks < 1 || p->options->ranks > MOST_RANKS)
        return status_fail(OTT_ERR_ARGUMENT, "--ranks %lld: give 1 to %d processes",
                           (long long)p->options->ranks, MOST_RANKS);
    TRY(mesh_resolve(p->cfg, p->options->ranks, p->log, &p->mesh));
    TRY(peft_configure(p->account, p->cfg)); /* may set model.hf_path to the base model */
    TRY(run_check_model(p->cfg));
    TRY(hf_model_configure(p->account, p->cfg, &notes));
    p->asked = *p->cfg;
    TRY(model_options_resolve(p->cfg, &p->shape));
    TRY(config_set_data_ranks(p->cfg, mesh_group_size(&p->mesh, MESH_DATA)));
    return precision_plan_read(p->cfg, &p->precision);
}

static count_request make_count_request(planner *p, const config *cfg) {
    return (count_request){.account = p->account,
                           .machine = &p->machine,
                           .cfg = cfg,
                           .asked = &p->asked,
                           .shape = &p->shape,
                           .mesh = &p->mesh};
}

static const recipe *recipe_to_try(const planner *p) {
    if (p->cfg->train.mixed_precision == PRECISION_FP8) return &p->precision.fp8;
    const recipe *r = recipe_find(config_word(p->cfg, "float8.recipe_name"));
    return r ? r : recipe_find("tensorwise");
}

/* Estimates the layers of the full model, in a dry run with a single pipeline stage, which has all layers. */
static ott_status estimate_layers(planner *p) {
    mesh single_stage = p->mesh;
    rank_count all;
    count_request r = make_count_request(p, p->cfg);
    p->layers = (layer_rows){.machine = &p->machine, .recipe = recipe_to_try(p)};
    single_stage.size[MESH_PP] = 1;
    r.mesh = &single_stage;
    r.inspect = layers_estimate;
    r.user = &p->layers;
    return count_run(&r, 0, &all);
}

/* Estimates an FP8 run also in bf16, and any other run also in FP8. False if the variant is not possible. */
static bool estimate_other(planner *p) {
    config other = *p->cfg;
    bool fp8 = p->cfg->train.mixed_precision == PRECISION_FP8;
    other.train.mixed_precision = fp8 ? PRECISION_BF16 : PRECISION_FP8;
    snprintf(p->names[1], sizeof p->names[1], "%s%s", fp8 ? "bf16" : "fp8 ",
             fp8 ? "" : p->layers.recipe->name);
    count_request r = make_count_request(p, &other);
    return (fp8 || machine_has_fp8(&p->machine)) && estimate_run(&r, &p->other) == OTT_OK;
}

/* Returns the bytes that are missing at this train.batch_size, at most 0 if none; INT64_MAX on failure. */
static int64_t find_shortfall(planner *p, int64_t sequences) {
    config other = *p->cfg;
    estimate e;
    other.train.batch_size = sequences;
    count_request r = make_count_request(p, &other);
    return estimate_run(&r, &e) == OTT_OK ? e.shortfall : INT64_MAX;
}

enum { LARGEST_BATCH = 1 << 20, INTERPOLATIONS = 16 };

/* A train.batch_size and its shortfall in bytes. */
typedef struct tried_batch {
    int64_t size, shortfall;
} tried_batch;

/* Returns the batch size at which a line through a and b reaches shortfall 0; 0 if the line does not rise. */
static int64_t interpolate_size(const tried_batch *a, const tried_batch *b) {
    if (a->shortfall == INT64_MAX || b->shortfall == INT64_MAX) return 0;
    double rise = ((double)b->shortfall - (double)a->shortfall) / (double)(b->size - a->size);
    double size = rise > 0 ? (double)b->size - (double)b->shortfall / rise : 0;
    return size < 1 ? 0 : size < LARGEST_BATCH ? (int64_t)size : LARGEST_BATCH;
}

/* low: a size that fits; high: one that does not. Memory is nearly linear: interpolation needs few tries. */
static int64_t find_largest_batch(planner *p) {
    int64_t low = 1, high = LARGEST_BATCH + 1, next = 2;
    tried_batch before = {1, find_shortfall(p, 1)};
    if (before.shortfall > 0) return 0;
    if (before.shortfall == -INT64_MAX) return LARGEST_BATCH; /* the device has no limit */
    for (int i = 0; high - low > 1; i++) {
        const tried_batch now = {next, find_shortfall(p, next)};
        *(now.shortfall > 0 ? &high : &low) = next;
        int64_t guess = i < INTERPOLATIONS ? interpolate_size(&before, &now) : 0;
        if (guess == 0) guess = high > LARGEST_BATCH ? 2 * low : low + (high - low) / 2;
        next = guess <= low ? low + 1 : guess >= high ? high - 1 : guess;
        before = now;
    }
    return low;
}

static ott_status write_plan_page(planner *p, str *out) {
    bool fp8 = p->cfg->train.mixed_precision == PRECISION_FP8;
    snprintf(p->names[0], sizeof p->names[0], "%s%s%s", config_word(p->cfg, "train.mixed_precision"),
             fp8 ? " " : "", fp8 ? p->precision.fp8.name : "");
    p->has_other = estimate_other(p);
    count_request r = make_count_request(p, p->cfg);
    TRY(estimate_advise(&r, &p->estimate, &p->advice));
    if (p->options->sweep) TRY(sweep_run(&r, &p->estimate, &p->sweep));
    p->largest_batch = find_largest_batch(p);
    return p->options->json ? page_write_json(p, out) : page_write(p, out);
}

static ott_status make_plan(planner *p, str *out) {
    TRY(resolve_options(p));
    const char *name = p->options->device;
    bool is_local = !name || strcmp(name, "cpu") == 0;
    TRY(backend_open(&(backend_choice){.name = "cpu", .threads = (int)p->cfg->train.threads, .log = p->log},
                     p->account, &p->cpu));
    TRY(is_local ? measure_machine(p->account, p->cfg, p->cpu, &p->machine)
                 : machine_open(name, p->cpu, &p->machine));
    if (!is_local && p->cfg->train.deterministic == DETERMINISM_NONE) machine_allow_unordered(&p->machine);
    if (p->options->rates) TRY(machine_set_rates(&p->machine, p->options->rates));
    TRY(estimate_layers(p));
    count_request r = make_count_request(p, p->cfg);
    TRY(estimate_run(&r, &p->estimate));
    return write_plan_page(p, out);
}

static ott_status run_planner(ott_context *context, config *cfg, const plan_options *o, ott_text_fn write,
                              void *user, bool *fits) {
    str text = {.account = context->account};
    planner *p;
    TRY(config_check(cfg));
    TRY(mem_alloc(context->account, MEM_OTHER, sizeof(planner), "a plan", &p));
    *p = (planner){.account = context->account,
                   .log = &context->log,
                   .options = o,
                   .cfg = cfg,
                   .advice.suggestions.account = context->account};
    ott_status status = make_plan(p, &text);
    if (status == OTT_OK) status = api_write(&text, write, user);
    *fits = p->estimate.shortfall <= 0;
    str_free(&text);
    str_free(&p->advice.suggestions);
    device_close(p->cpu);
    mem_free(context->account, p);
    return status;
}

void plan_options_init(plan_options *options) {
    *options = (plan_options){.ranks = 1};
}

ott_status plan_run(ott_context *context, ott_config *configuration, const plan_options *options,
                    ott_text_fn write, void *user, bool *fits) {
    return API_INSIDE(context, run_planner(context, configuration->values, options, write, user, fits));
}
