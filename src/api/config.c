/* api/config: opening, changing and showing configurations. */
#include "config/config.h"
#include "api/handle.h"

static ott_status open_public_config(ott_context *context, int argc, const char *const *argv,
                                     ott_config **out) {
    struct config *values;
    TRY(config_parse(context->account, &context->log, argc, argv, &values));
    ott_status status = handle_open(context, HANDLE_CONFIG, sizeof(ott_config), out);
    if (status != OTT_OK) return config_close(values), status;
    (*out)->values = values;
    return OTT_OK;
}

ott_status ott_config_open(ott_context *context, int argc, const char *const *argv, ott_config **out) {
    API_REQUIRE_BOTH(context, out);
    *out = NULL;
    if (argc < 0) return status_fail(OTT_ERR_ARGUMENT, "%s: argc = %d: give 0 or more", __func__, argc);
    if (argc > 0) API_REQUIRE(argv);
    for (int i = 0; i < argc; i++)
        if (!argv[i])
            return status_fail(OTT_ERR_ARGUMENT, "%s: argv[%d] is NULL; argc is %d", __func__, i, argc);
    return API_INSIDE(context, open_public_config(context, argc, argv, out));
}

void ott_config_close(ott_config *configuration) {
    if (!handle_is_open(configuration, HANDLE_CONFIG)) return;
    ott_context *context = configuration->handle.context;
    if (handle_enter_exclusive(&configuration->handle, __func__) != OTT_OK) return;
    config_close(configuration->values);
    configuration->values = NULL;
    handle_close(&configuration->handle);
    api_leave(context);
}

/* Does not check if the values of all keys fit together, because the caller may set more keys. The first use
   of the configuration checks this. */
ott_status ott_config_set(ott_config *configuration, const char *key, const char *value) {
    TRY(handle_check(configuration, HANDLE_CONFIG, __func__, "config"));
    API_REQUIRE_BOTH(key, value);
    TRY(handle_enter_exclusive(&configuration->handle, __func__));
    configuration->changed = true;
    return api_left(configuration->handle.context, config_set(configuration->values, key, value));
}

static ott_status show_key(const ott_config *configuration, const char *key, ott_text_fn write, void *user) {
    str text = {.account = configuration->handle.context->account};
    ott_status status = config_show(configuration->values, key, &text);
    if (status == OTT_OK) status = api_write(&text, write, user);
    str_free(&text);
    return status;
}

ott_status ott_config_get(const ott_config *configuration, const char *key, ott_text_fn write, void *user) {
    TRY(handle_check(configuration, HANDLE_CONFIG, __func__, "config"));
    API_REQUIRE(key);
    API_REQUIRE_CALL(write);
    return API_INSIDE(configuration->handle.context, show_key(configuration, key, write, user));
}

static ott_status help_all(const char *unused, str *out) {
    (void)unused;
    return config_help(out);
}

static ott_status write_help(ott_context *context, ott_status (*help)(const char *what, str *out),
                             const char *what, ott_text_fn write, void *user) {
    str text = {.account = context->account};
    ott_status status = help(what, &text);
    if (status == OTT_OK) status = api_write(&text, write, user);
    str_free(&text);
    return status;
}

ott_status ott_config_help(ott_context *context, ott_text_fn write, void *user) {
    API_REQUIRE(context);
    API_REQUIRE_CALL(write);
    return write_help(context, help_all, NULL, write, user);
}

ott_status ott_config_help_about(ott_context *context, const char *what, ott_text_fn write, void *user) {
    API_REQUIRE_BOTH(context, what);
    API_REQUIRE_CALL(write);
    return write_help(context, config_help_about, what, write, user);
}

ott_status ott_config_complete(ott_context *context, const char *word, ott_text_fn write, void *user) {
    API_REQUIRE_BOTH(context, word);
    API_REQUIRE_CALL(write);
    return write_help(context, config_complete, word, write, user);
}
