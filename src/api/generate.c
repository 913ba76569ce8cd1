/* api/generate: generates text with a trained model. */
#include "generate/generate.h"
#include "api/module/model.h"
#include "base/pool.h"

struct ott_generator {
    handle base;
    text_generator *inside;
    ott_module *model; /* borrowed open model; NULL: a saved model */
};

void(ott_generate_options_init)(ott_generate_options *options, size_t size) {
    API_INIT(options, size, .max_tokens = 200, .temperature = 0.8, .top_p = 0.95, .seed = 42,
             .repetition_penalty = 1);
}

static ott_status check_choice(const ott_generate_options *o) {
    if (!(o->temperature >= 0 && o->temperature <= 1e6))
        return status_fail(OTT_ERR_ARGUMENT,
                           "temperature = %g: give 0 (always the most likely token) or more", o->temperature);
    if (o->top_k < 0)
        return status_fail(OTT_ERR_ARGUMENT, "top_k = %lld: give 0 (all tokens) or more",
                           (long long)o->top_k);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return status_fail(OTT_ERR_ARGUMENT, "top_p = %g: give a number above 0, up to 1", o->top_p);
    if (!(o->repetition_penalty > 0 && o->repetition_penalty <= 1e6))
        return status_fail(OTT_ERR_ARGUMENT,
                           "repetition_penalty = %g: give 1 (none) or another number above 0",
                           o->repetition_penalty);
    return OTT_OK;
}

static ott_status check_generate_options(const ott_generate_options *o) {
    if (o->max_tokens < 0)
        return status_fail(OTT_ERR_ARGUMENT, "max_tokens = %lld: give 0 or more", (long long)o->max_tokens);
    TRY(pool_check_threads(o->threads));
    if (o->precision != OTT_GENERATE_AS_TRAINED && o->precision != OTT_GENERATE_BF16)
        return status_fail(OTT_ERR_ARGUMENT,
                           "precision = %d: give OTT_GENERATE_AS_TRAINED or OTT_GENERATE_BF16",
                           (int)o->precision);
    TRY(check_choice(o));
    TRY(api_check_settings(o->settings, o->setting_count));
    if (o->stop_count < 0 || (o->stop_count > 0 && !o->stop))
        return status_fail(OTT_ERR_ARGUMENT, "stop_count = %d: give the number of texts in stop",
                           o->stop_count);
    for (int i = 0; i < o->stop_count; i++)
        if (!o->stop[i] || !*o->stop[i])
            return status_fail(OTT_ERR_ARGUMENT, "stop[%d] is empty: give it at least one character", i);
    return OTT_OK;
}

/* ---- where the model comes from ---- */

/* An open model has its device and precision already. */
static ott_status check_live_options(const ott_generate_options *o, const char *function) {
    const char *given = o->precision || o->precision_name ? "precision"
                        : o->setting_count > 0            ? "settings"
                        : o->base                         ? "base"
                        : o->device                       ? "device"
                        : o->threads > 0                  ? "threads"
                                                          : NULL;
    if (!given) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: %s has no effect on a model that is open already: leave it out",
                       function, given);
}

/* Checks that at most one source is given, and that it fits the options. */
static ott_status check_source(ott_context *context, const char *run, const ott_generate_options *o,
                               const char *function) {
    if (run && o->model)
        return status_fail(OTT_ERR_ARGUMENT, "%s: run and options.model are both given: give one", function);
    if (run) return OTT_OK;
    TRY(check_live_options(o, function));
    if (!o->model) return OTT_OK;
    TRY(module_model_check(o->model, function, "options.model"));
    return handle_check_in(o->model, HANDLE_MODULE, context, function, "options.model");
}

/* Sets *live to the open model: m, or if it is NULL, the model of the run that called the callback. Does
   nothing if `run` is given. */
static ott_status find_live(ott_context *context, const char *run, ott_module *m, live_model *live) {
    if (m) return module_model_live(m, live);
    if (run) return OTT_OK;
    if (!context->live) return api_require(NULL, "ott_generate", "run");
    return *live = *context->live, OTT_OK;
}

/* ---- the calls ---- */

static ott_status read_generate_options(const ott_generate_options *given, ott_generate_options *o) {
    ott_generate_options_init(o);
    TRY(api_read_options(given, o, sizeof *o, "ott_generate_options"));
    return check_generate_options(o);
}

static ott_status generate_once(ott_context *context, const char *run, const ott_generate_options *o,
                                ott_text_fn write, void *user) {
    live_model live;
    TRY(find_live(context, run, o->model, &live));
    if (!o->prompt || !*o->prompt)
        return status_fail(OTT_ERR_ARGUMENT, "the prompt is empty: give it at least one character");
    return generate_run(context->account, &context->log, run, run ? NULL : &live, o, write, user);
}

ott_status ott_generate(ott_context *context, const char *run, const ott_generate_options *options,
                        ott_text_fn write, void *user) {
    ott_generate_options o;
    API_REQUIRE_BOTH(context, options);
    API_REQUIRE_CALL(write);
    TRY(read_generate_options(options, &o));
    TRY(check_source(context, run, &o, __func__));
    return API_INSIDE(context, generate_once(context, run, &o, write, user));
}

static ott_status open_inside(ott_context *context, const char *run, const ott_generate_options *o,
                              ott_generator **out) {
    text_generator *inside;
    live_model live;
    TRY(find_live(context, run, o->model, &live));
    TRY(generate_open(context->account, &context->log, run, run ? NULL : &live, o, &inside));
    ott_status status = handle_open(context, HANDLE_GENERATOR, sizeof(ott_generator), out);
    if (status != OTT_OK) return generate_close(inside), status;
    (*out)->inside = inside;
    (*out)->model = o->model;
    return OTT_OK;
}

ott_status ott_generator_open(ott_context *context, const char *run, const ott_generate_options *options,
                              ott_generator **out) {
    ott_generate_options o;
    API_REQUIRE_BOTH(context, out);
    *out = NULL;
    TRY(read_generate_options(options, &o));
    if (!o.model) API_REQUIRE(run); /* a generator could outlive the model of a run */
    TRY(check_source(context, run, &o, __func__));
    return API_INSIDE(context, open_inside(context, run, &o, out));
}

void ott_generator_close(ott_generator *generator) {
    if (!handle_is_open(generator, HANDLE_GENERATOR)) return;
    ott_context *context = generator->base.context;
    if (handle_enter_exclusive(&generator->base, __func__) != OTT_OK) return;
    generate_close(generator->inside);
    generator->inside = NULL;
    handle_close(&generator->base);
    api_leave(context);
}

static ott_status continue_inside(ott_generator *g, const char *text, ott_text_fn write, void *user) {
    live_model now;
    if (g->model) {
        TRY(module_model_check(g->model, "ott_generator_continue", "the generator's model"));
        TRY(module_model_live(g->model, &now));
        TRY(generate_refresh(g->inside, &now));
    }
    return generate_continue(g->inside, text, write, user);
}

ott_status ott_generator_continue(ott_generator *generator, const char *text, ott_text_fn write, void *user) {
    API_HANDLE(generator, GENERATOR);
    API_REQUIRE(text);
    API_REQUIRE_CALL(write);
    TRY(handle_enter_exclusive(&generator->base, __func__));
    generator->base.busy = true;
    ott_status status = continue_inside(generator, text, write, user);
    generator->base.busy = false;
    return api_left(generator->base.context, status);
}
