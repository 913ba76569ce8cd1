/* base/status: how anything fails. Every function that can fail returns an ott_status; the reason lives in a
   thread-local string that gains context on its way up: "run/step-20: model.safetensors: truncated at byte
   812". A message names the thing, its value and the way out. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include "ottava/types.h"

/* Sets this thread's error text and returns `code`. */
ott_status status_fail(ott_status code, const char *format, ...) __attribute__((format(printf, 2, 3), cold));
/* Puts "context: " before the error text of this thread and returns `code` unchanged. */
ott_status status_context(ott_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));
/* The error text of this thread's last failure; "" if none. Valid until the next failure on this thread. */
const char *status_text(void);
/* What a system call on a path that failed with this errno means: OTT_ERR_NOT_FOUND; OTT_ERR_ARGUMENT when the
   path cannot be used so (its kind, length, permissions); OTT_ERR_MEMORY; and OTT_ERR_IO when the machine cannot
   do it now: a full disk, a device that fails, too many open files. */
ott_status status_from_errno(int reason);
/* "ERR_SHAPE", the meaning in words, and the program exit code of a status. */
const char *status_name(ott_status code);
const char *status_meaning(ott_status code);
int status_exit_code(ott_status code);

/* A broken invariant of our own code: reports expression and place as OTT_ERR_INTERNAL. Never for bad input.
 */
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
