/* base/log: the library's only output. A logger is passed as an argument; there is no global logger. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "ottava/types.h"

/* `text` is one line without a newline. Called from any thread that runs library code. */
typedef void (*log_callback)(void *user, ott_log_level level, const char *text);

typedef struct logger {
    log_callback callback; /* NULL: nothing is logged */
    void *user;
    ott_log_level level; /* less severe lines are dropped */
} logger;

/* Logs one line. lg NULL: does nothing. */
void log_line(const logger *lg, ott_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(lg, ...)   log_line(lg, OTT_LOG_ERROR, __VA_ARGS__)
#define log_warning(lg, ...) log_line(lg, OTT_LOG_WARNING, __VA_ARGS__)
#define log_info(lg, ...)    log_line(lg, OTT_LOG_INFO, __VA_ARGS__)
#define log_debug(lg, ...)   log_line(lg, OTT_LOG_DEBUG, __VA_ARGS__)

#endif
