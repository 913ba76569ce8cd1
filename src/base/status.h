/* base/status: errors. A function that can fail returns an ott_status. The reason is in a thread-local
   string, and each caller may add context: "run/step-20: model.safetensors: truncated at byte 812". A message
   says what failed, its value, and what to do. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "ottava/types.h"

/* Sets this thread's error text and returns `code`. */
ott_status status_fail(ott_status code, const char *format, ...) __attribute__((format(printf, 2, 3), cold));
/* Puts "CONTEXT: " before this thread's error text and returns `code`. */
ott_status status_context(ott_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));
/* Returns the text of this thread's last error; "" if none. Valid until this thread's next error. */
const char *status_text(void);
/* Converts the errno of a system call on a path to a status. OTT_ERR_NOT_FOUND: nothing is at the path.
   OTT_ERR_ARGUMENT: the path cannot be used this way (kind, length, permissions). OTT_ERR_MEMORY: memory ran
   out. OTT_ERR_IO: the machine cannot do it now (full disk, device error, too many open files). */
ott_status status_from_errno(int reason);
/* A status's name ("ERR_SHAPE"), its meaning in words, and the program's exit code. */
const char *status_name(ott_status code);
const char *status_meaning(ott_status code);
int status_exit_code(ott_status code);

/* Checks an invariant that only a bug can break. Do not use it to check input. */
#define STATUS_REQUIRE(expression)                                                                           \
    do {                                                                                                     \
        if (!(expression))                                                                                   \
            return status_fail(OTT_ERR_INTERNAL, "%s:%d: broken invariant: %s", __FILE__, __LINE__,          \
                               #expression);                                                                 \
    } while (0)

#define TRY(expression)                                                                                      \
    do {                                                                                                     \
        ott_status try_status_ = (expression);                                                               \
        if (try_status_ != OTT_OK) return try_status_;                                                       \
    } while (0)

/* TRY for a function that owns resources: jumps to its single `out:` label with `status` set. */
#define TRY_OUT(expression)                                                                                  \
    do {                                                                                                     \
        status = (expression);                                                                               \
        if (status != OTT_OK) goto out;                                                                      \
    } while (0)

#endif
