/* base/cancellation: who looks on while something takes long: it is told how far it is, and may ask it to
   end. Whatever takes seconds asks every so often; when it is to end it leaves what it works on as it must be
   left and returns OTT_ERR_STOPPED. */
#ifndef BASE_CANCELLATION_H
#define BASE_CANCELLATION_H

#include "base/log.h"
#include "base/status.h"
#include <stdbool.h>

typedef struct cancellation {
    const logger *log;
    bool (*stop)(void *user); /* is it to end? NULL: never */
    void *user;
} cancellation;

/* OTT_ERR_STOPPED when it is to end; `w` may be NULL: nobody looks on. */
ott_status cancellation_check(const cancellation *c);

/* Work that says every few seconds how much of it is done. */
typedef struct cancellation_progress {
    const cancellation *cancellation;
    const char *what; /* "Initializing weights"; static */
    int64_t total;
    double began, reported;
} cancellation_progress;

cancellation_progress cancellation_progress_begin(const cancellation *c, const char *what, int64_t total);
/* `done` of the total are done. As cancellation_check. */
ott_status cancellation_progress_update(cancellation_progress *p, int64_t done);

#endif
