/* api/config: configurations of the public API. */
#include "config/config.h"
#include "api/handle.h"

static ott_status open_config(ott_context *context, int argc, const char *const *argv, ott_config **out) {
    void *memory;
    TRY(mem_take(context->account, MEM_OTHER, sizeof(ott_config), "a configuration", &memory));
    ott_config *opened = memory;
    opened->context = context;
    ott_status status = config_parse(context->account, &context->log, argc, argv, &opened->values);
    if (status != OTT_OK) {
        mem_give(context->account, opened);
        return status;
    }
    *out = opened;
    return OTT_OK;
}

ott_status ott_config_open(ott_context *context, int argc, const char *const *argv, ott_config **out) {
    API_REQUIRE(context);
    API_REQUIRE(out);
    *out = NULL;
    if (argc > 0) API_REQUIRE(argv);
    return API_INSIDE(context, open_config(context, argc, argv, out));
}

void ott_config_close(ott_config *configuration) {
    if (!configuration) return;
    config_close(configuration->values);
    mem_give(configuration->context->account, configuration);
}

/* Whether the values agree is looked at when they are used: a caller may be half way through changing
 * several. */
ott_status ott_config_set(ott_config *configuration, const char *key, const char *value) {
    API_REQUIRE(configuration);
    API_REQUIRE(key);
    API_REQUIRE(value);
    configuration->changed = true;
    return API_INSIDE(configuration->context, config_set(configuration->values, key, value));
}

static ott_status show(const ott_config *configuration, const char *key, ott_text_fn write, void *user) {
    str text = {.account = configuration->context->account};
    ott_status status = config_show(configuration->values, key, &text);
    if (status == OTT_OK) status = api_write(&text, write, user);
    str_free(&text);
    return status;
}

ott_status ott_config_get(const ott_config *configuration, const char *key, ott_text_fn write, void *user) {
    API_REQUIRE(configuration);
    API_REQUIRE(key);
    API_REQUIRE_CALL(write);
    return API_INSIDE(configuration->context, show(configuration, key, write, user));
}

static ott_status help(ott_context *context, const char *what, ott_text_fn write, void *user) {
    str text = {.account = context->account};
    ott_status status = what ? config_help_about(what, &text) : config_help(&text);
    if (status == OTT_OK) status = api_write(&text, write, user);
    str_free(&text);
    return status;
}

ott_status ott_config_help(ott_context *context, ott_text_fn write, void *user) {
    API_REQUIRE(context);
    API_REQUIRE_CALL(write);
    return help(context, NULL, write, user);
}

ott_status ott_config_help_about(ott_context *context, const char *what, ott_text_fn write, void *user) {
    API_REQUIRE(context);
    API_REQUIRE(what);
    API_REQUIRE_CALL(write);
    return help(context, what, write, user);
}
