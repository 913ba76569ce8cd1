/* base/watch: asking, and telling every few seconds. */
#include "base/watch.h"
#include "base/clock.h"
#include <stddef.h>

#define TELL_EVERY 5.0 /* seconds */

ott_status watch_check(const watch *w) {
    if (!w || !w->stop || !w->stop(w->user)) return OTT_OK;
    return status_fail(OTT_ERR_STOPPED, "stopped on request");
}

watched watch_begin(const watch *w, const char *what, int64_t total) {
    double now = clock_seconds();
    return (watched){.w = w, .what = what, .total = total, .began = now, .said = now};
}

ott_status watch_done(watched *p, int64_t done) {
    double now = clock_seconds();
    if (p->w && now - p->said >= TELL_EVERY && done < p->total) {
        log_info(p->w->log, "%s: %d%% after %.0f s", p->what, (int)(100.0 * (double)done / (double)p->total),
                 now - p->began);
        p->said = now;
    }
    return watch_check(p->w);
}
