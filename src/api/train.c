/* api/train: training runs. */
#include "run/loop.h"
#include "api/handle.h"

void ott_train_options_init(ott_train_options *options) {
    if (options) *options = (ott_train_options){.struct_size = sizeof *options};
}

static ott_status train_config(ott_context *context, ott_config *configuration, const ott_train_options *o) {
    if (configuration->changed) TRY(config_check(configuration->values)); /* ott_config_set does not check */
    const train_hooks hooks = {.progress = o->progress,
                               .work = o->work,
                               .user = o->user,
                               .stop = api_must_stop,
                               .stop_user = context};
    ott_status status = run_loop(context->account, &context->log, configuration->values, &hooks);
    atomic_store(&context->stop, false); /* ott_stop affects only one call */
    return status;
}

ott_status ott_train(ott_context *context, ott_config *configuration, const ott_train_options *options) {
    ott_train_options o;
    API_REQUIRE(context);
    TRY(handle_check_in(configuration, HANDLE_CONFIG, context, __func__, "config"));
    ott_train_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_train_options"));
    TRY(handle_enter_exclusive(&configuration->handle, __func__));
    configuration->handle.busy = true;
    ott_status status = train_config(context, configuration, &o);
    configuration->handle.busy = false;
    return api_left(context, status);
}
