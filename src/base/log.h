/* base/log: the only way the library speaks. A logger is a value its owner passes down; there is no global
   one. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "ottava/types.h"

/* `text` is one line without newline. May be called from any thread that runs library code. */
typedef void (*log_callback)(void *user, ott_log_level level, const char *text);

typedef struct logger {
    log_callback callback; /* NULL: silent */
    void *user;
    ott_log_level level; /* lines above this level are dropped */
} logger;

/* `lg` may be NULL: silent. */
void log_line(const logger *lg, ott_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define log_error(lg, ...)   log_line(lg, OTT_LOG_ERROR, __VA_ARGS__)
#define log_warning(lg, ...) log_line(lg, OTT_LOG_WARNING, __VA_ARGS__)
#define log_info(lg, ...)    log_line(lg, OTT_LOG_INFO, __VA_ARGS__)
#define log_debug(lg, ...)   log_line(lg, OTT_LOG_DEBUG, __VA_ARGS__)

#endif
