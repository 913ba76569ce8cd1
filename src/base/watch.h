/*
 * base/watch: who looks on while something takes long: it is told how far it is, and may ask it to end.
 * Whatever takes seconds asks every so often; when it is to end it leaves what it works on as it must be left
 * and returns OTT_ERR_STOPPED.
 */
#ifndef BASE_WATCH_H
#define BASE_WATCH_H

#include "base/log.h"
#include "base/status.h"
#include <stdbool.h>

typedef struct watch {
    const logger *log;
    bool (*stop)(void *user); /* is it to end? NULL: never */
    void *user;
} watch;

/* OTT_ERR_STOPPED when it is to end; `w` may be NULL: nobody looks on. */
ott_status watch_check(const watch *w);

/* Work that says every few seconds how much of it is done. */
typedef struct watched {
    const watch *w;
    const char *what; /* "Initializing weights"; static */
    int64_t total;
    double began, said;
} watched;

watched watch_begin(const watch *w, const char *what, int64_t total);
/* `done` of the total are done. As watch_check. */
ott_status watch_done(watched *p, int64_t done);

#endif
