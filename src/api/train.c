/* api/train: training runs. */
#include "run/loop.h"
#include "api/handle.h"

void(ott_train_options_init)(ott_train_options *options, size_t size) {
    API_INIT(options, size, 0);
}

ott_status ott_train(ott_context *context, ott_config *configuration, const ott_train_options *options) {
    ott_train_options o;
    API_REQUIRE(context);
    TRY(handle_check_in(configuration, HANDLE_CONFIG, context, __func__, "config"));
    ott_train_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_train_options"));
    TRY(handle_enter_exclusive(&configuration->handle, __func__));
    const train_hooks hooks = {.progress = o.progress,
                               .work = o.work,
                               .user = o.user,
                               .loss = {o.loss, o.user},
                               .live = &context->live,
                               .stop = api_must_stop,
                               .stop_user = context};
    ott_status status = OTT_OK;
    configuration->handle.busy = true;
    if (configuration->changed)
        status = config_check(configuration->values); /* ott_config_set does not check */
    if (status == OTT_OK) status = run_loop(context->account, &context->log, configuration->values, &hooks);
    configuration->handle.busy = false;
    atomic_store(&context->stop, false); /* ott_stop affects only one call */
    return api_left(context, status);
}
