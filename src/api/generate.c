/* api/generate: text from a trained model. */
#include "train/generate.h"
#include "api/handle.h"

void ott_generate_options_init(ott_generate_options *options) {
    if (options)
        *options = (ott_generate_options){
            .struct_size = sizeof *options, .max_tokens = 200, .temperature = 0.8, .top_p = 0.95, .seed = 42};
}

static ott_status check_options(const ott_generate_options *o) {
    if (!o->prompt || !*o->prompt)
        return status_fail(OTT_ERR_ARGUMENT, "the prompt is empty: give it at least one character");
    if (o->max_tokens < 0)
        return status_fail(OTT_ERR_ARGUMENT, "max_tokens = %lld: give 0 or more", (long long)o->max_tokens);
    if (!(o->temperature >= 0 && o->temperature <= 1e6))
        return status_fail(OTT_ERR_ARGUMENT,
                           "temperature = %g: give 0 (always the most likely token) or more", o->temperature);
    if (!(o->top_p > 0 && o->top_p <= 1))
        return status_fail(OTT_ERR_ARGUMENT, "top_p = %g: give a number above 0, up to 1", o->top_p);
    if (o->threads < 0)
        return status_fail(OTT_ERR_ARGUMENT, "threads = %d: give 0 (all cores) or more", o->threads);
    return OTT_OK;
}

ott_status ott_generate(ott_context *context, const char *run, const ott_generate_options *options,
                        ott_text_fn write, void *user) {
    ott_generate_options o;
    API_REQUIRE(context);
    API_REQUIRE(run);
    API_REQUIRE(options);
    API_REQUIRE_CALL(write);
    ott_generate_options_init(&o);
    TRY(api_take_options(options, &o, sizeof o, "ott_generate_options"));
    TRY(check_options(&o));
    return API_INSIDE(context, generate_run(context->account, &context->log, run, &o, write, user));
}
