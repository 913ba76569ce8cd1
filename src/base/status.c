/* base/status: the thread-local error text and the texts of the status codes. */
#include "base/status.h"
#include "base/text/text.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { STATUS_TEXT_SIZE = 4096 };

static _Thread_local char error_text[STATUS_TEXT_SIZE];

static const struct {
    const char *name, *meaning;
    int exit_code;
} status_rows[] = {
#define X(name, exit_code, text) {#name, text, exit_code},
    OTT_STATUS_MAP(X)
#undef X
};

/* Formats a text. Ends a truncated one with "...". */
static void format_text(char out[STATUS_TEXT_SIZE], const char *format, va_list arguments) {
    int needed = text_vformat(out, STATUS_TEXT_SIZE, format, arguments);
    if (needed < 0) snprintf(out, STATUS_TEXT_SIZE, "%s", format);
    if (needed >= STATUS_TEXT_SIZE) memcpy(out + STATUS_TEXT_SIZE - 4, "...", 4);
}

ott_status status_fail(ott_status code, const char *format, ...) {
    char fresh[STATUS_TEXT_SIZE]; /* error_text may be an argument, so it is written last */
    va_list arguments;
    va_start(arguments, format);
    format_text(fresh, format, arguments);
    va_end(arguments);
    memcpy(error_text, fresh, sizeof fresh);
    return code;
}

ott_status status_context(ott_status code, const char *format, ...) {
    if (code == OTT_OK) return code;
    char context[STATUS_TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    format_text(context, format, arguments);
    va_end(arguments);
    return status_fail(code, "%s: %s", context, error_text);
}

ott_status status_from_errno(int reason) {
    static const int unusable[] = {EACCES, EPERM,  EISDIR, ELOOP,     ENAMETOOLONG, EEXIST,
                                   EROFS,  EINVAL, EXDEV,  ENOTEMPTY, ENXIO,        ETXTBSY};
    if (reason == ENOENT || reason == ENOTDIR) return OTT_ERR_NOT_FOUND;
    if (reason == ENOMEM) return OTT_ERR_MEMORY;
    for (size_t i = 0; i < sizeof unusable / sizeof *unusable; i++)
        if (reason == unusable[i]) return OTT_ERR_ARGUMENT;
    return OTT_ERR_IO;
}

const char *status_text(void) {
    return error_text;
}

static int status_row(ott_status code) {
    int count = (int)(sizeof status_rows / sizeof status_rows[0]);
    return (int)code >= 0 && (int)code < count ? (int)code : OTT_ERR_INTERNAL;
}

const char *status_name(ott_status code) {
    return status_rows[status_row(code)].name;
}
const char *status_meaning(ott_status code) {
    return status_rows[status_row(code)].meaning;
}
int status_exit_code(ott_status code) {
    return status_rows[status_row(code)].exit_code;
}
