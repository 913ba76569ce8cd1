/* api/context: contexts, versions and errors of the public API. */
#include "api/handle.h"
#include "backend/backend.h"
#include "base/pool.h"
#include "tensor/plan.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *ott_version(void) {
    return OTT_VERSION;
}

const char *ott_error_text(void) {
    return status_text();
}

const char *ott_status_name(ott_status status) {
    return status_name(status);
}

const char *ott_status_meaning(ott_status status) {
    return status_meaning(status);
}

int ott_status_exit_code(ott_status status) {
    return status_exit_code(status);
}

/* ---- arguments ---- */

ott_status api_require(const void *pointer, const char *function, const char *argument) {
    if (pointer) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: %s is NULL", function, argument);
}

void api_init_struct(void *given, size_t size, const void *own, size_t own_bytes) {
    if (!given || size < sizeof size) return;
    memset(given, 0, size);
    memcpy(given, own, size < own_bytes ? size : own_bytes);
    memcpy(given, &size, sizeof size);
}

static ott_status read_struct_size(const void *given, const char *name, size_t *bytes) {
    memcpy(bytes, given, sizeof *bytes);
    if (*bytes >= sizeof *bytes && *bytes <= 65536) return OTT_OK;
    return status_fail(OTT_ERR_ARGUMENT, "%s: struct_size is %zu: fill the struct with %s_init first", name,
                       *bytes, name);
}

ott_status api_read_options(const void *given, void *own, size_t own_bytes, const char *name) {
    size_t bytes;
    if (!given) return OTT_OK;
    TRY(read_struct_size(given, name, &bytes));
    for (size_t i = own_bytes; i < bytes; i++)
        if (((const char *)given)[i])
            return status_fail(OTT_ERR_ARGUMENT,
                               "%s: an option is set that version " OTT_VERSION " does not have", name);
    memcpy(own, given, bytes < own_bytes ? bytes : own_bytes);
    return OTT_OK;
}

ott_status api_check_struct(const void *given, const char *name) {
    size_t bytes;
    return given ? read_struct_size(given, name, &bytes) : OTT_OK;
}

ott_status api_write_struct(void *given, const void *own, size_t own_bytes, const char *name) {
    size_t bytes, head = sizeof bytes;
    TRY(read_struct_size(given, name, &bytes));
    size_t shared = bytes < own_bytes ? bytes : own_bytes;
    memset((char *)given + head, 0, bytes - head);
    memcpy((char *)given + head, (const char *)own + head, shared - head);
    return OTT_OK;
}

ott_status api_check_settings(const char *const *settings, int count) {
    if (count < 0 || (count > 0 && !settings))
        return status_fail(OTT_ERR_ARGUMENT, "setting_count = %d: give the number of texts in settings",
                           count);
    for (int i = 0; i < count; i++)
        if (!settings[i])
            return status_fail(OTT_ERR_ARGUMENT, "settings[%d] is NULL: give \"--section.key=value\"", i);
    return OTT_OK;
}

ott_status api_write(const str *text, ott_text_fn write, void *user) {
    TRY(str_finish(text));
    if (text->text) write(user, text->text);
    return OTT_OK;
}

/* ---- contexts ---- */

void(ott_context_options_init)(ott_context_options *options, size_t size) {
    API_INIT(options, size, .log_level = OTT_LOG_INFO);
}

static ott_status open_context(const ott_context_options *o, ott_context *context) {
    TRY(mem_open(&context->account));
    context->log = (logger){.callback = o->log, .user = o->user, .level = o->log_level};
    context->threads = o->threads;
    context->process = getpid();
    context->magic = CONTEXT_OPEN;
    atomic_init(&context->stop, false);
    atomic_init(&context->owner, 0);
    return o->device ? mem_strdup(context->account, o->device, &context->device_name) : OTT_OK;
}

ott_status ott_context_open(const ott_context_options *options, ott_context **out) {
    ott_context_options o;
    API_REQUIRE(out);
    *out = NULL;
    ott_context_options_init(&o);
    TRY(api_read_options(options, &o, sizeof o, "ott_context_options"));
    TRY(status_context(pool_check_threads(o.threads), "ott_context_open"));
    if ((int)o.log_level < OTT_LOG_ERROR || o.log_level > OTT_LOG_DEBUG)
        return status_fail(
            OTT_ERR_ARGUMENT,
            "ott_context_open: log_level = %d is not a log level: give %d (error) to %d (debug)",
            (int)o.log_level, OTT_LOG_ERROR, OTT_LOG_DEBUG);
    TRY(backend_check(o.device, NULL));
    ott_context *context = calloc(1, sizeof *context); /* calloc, because there is no memory account yet */
    if (!context) return status_fail(OTT_ERR_MEMORY, "out of memory: a context");
    ott_status status = open_context(&o, context);
    if (status != OTT_OK) {
        mem_close(context->account);
        free(context);
        return status;
    }
    return *out = context, OTT_OK;
}

/* The last HANDLE_KEEP closed contexts stay allocated, so that their use is an error, not a crash. */
static struct {
    pthread_mutex_t lock;
    ott_context *first, *last;
    int count;
} closed_contexts = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep_closed(ott_context *context) {
    ott_context *oldest = NULL;
    memset(context, 0, sizeof *context);
    context->magic = CONTEXT_CLOSED;
    pthread_mutex_lock(&closed_contexts.lock);
    *(closed_contexts.count > 0 ? &closed_contexts.last->next : &closed_contexts.first) = context;
    closed_contexts.last = context;
    if (closed_contexts.count < HANDLE_KEEP) {
        closed_contexts.count++;
    } else {
        oldest = closed_contexts.first;
        closed_contexts.first = oldest->next;
    }
    pthread_mutex_unlock(&closed_contexts.lock);
    free(oldest);
}

/* Locks the context to close it. Fails inside a callback of the context. */
static ott_status enter_to_close(ott_context *context) {
    TRY(api_enter(context, "ott_context_close"));
    if (context->depth > 1) {
        api_leave(context);
        return status_fail(OTT_ERR_ARGUMENT,
                           "ott_context_close: cannot be called from a callback of the context");
    }
    if (context->open_handles > 0)
        log_warning(&context->log, "ott_context_close: %lld objects made with the context are still open",
                    (long long)context->open_handles);
    context->log.callback = NULL; /* nothing is logged from here on */
    return OTT_OK;
}

void ott_context_close(ott_context *context) {
    if (!context || enter_to_close(context) != OTT_OK) return;
    plan_destroy(context->plan);
    handle_close_all(context);
    mem_free(context->account, context->autocast);
    device_close(context->device);
    mem_free(context->account, context->device_name);
    if (context->open_handles > 0) mem_free_all(context->account); /* frees the memory of the open objects */
    mem_close(context->account);
    keep_closed(context);
}

bool api_must_stop(void *user) {
    ott_context *context = user;
    return atomic_load(&context->stop);
}

void ott_stop(ott_context *context) {
    if (context) atomic_store(&context->stop, true); /* lock-free: safe in a signal handler */
}
