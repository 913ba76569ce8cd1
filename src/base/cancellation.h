/* base/cancellation: progress messages and cancellation of long operations. An operation that takes seconds
   calls cancellation_check now and then. On OTT_ERR_STOPPED it cleans up and returns this status. */
#ifndef BASE_CANCELLATION_H
#define BASE_CANCELLATION_H

#include "base/log.h"
#include "base/status.h"
#include <stdbool.h>

typedef struct cancellation {
    const logger *log;
    bool (*stop)(void *user); /* returns true if the operation must stop; NULL: never stop */
    void *user;
} cancellation;

/* Returns OTT_ERR_STOPPED if the operation must stop. If c is NULL, the operation never stops. */
ott_status cancellation_check(const cancellation *c);

/* Logs every few seconds how much of the work is done. */
typedef struct cancellation_progress {
    const cancellation *cancellation;
    const char *what; /* the operation, for the log: "Initializing weights"; must stay valid */
    int64_t total;
    double began, reported;
} cancellation_progress;

cancellation_progress cancellation_progress_begin(const cancellation *c, const char *what, int64_t total);
/* Call when `done` of `total` units are done. Returns OTT_ERR_STOPPED as cancellation_check does. */
ott_status cancellation_progress_update(cancellation_progress *p, int64_t done);

#endif
