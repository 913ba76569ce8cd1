/* base/cancellation: asking, and telling every few seconds. */
#include "base/cancellation.h"
#include "base/clock.h"
#include <stddef.h>

#define TELL_EVERY 5.0 /* seconds */

ott_status cancellation_check(const cancellation *w) {
    if (!w || !w->stop || !w->stop(w->user)) return OTT_OK;
    return status_fail(OTT_ERR_STOPPED, "stopped on request");
}

cancellation_progress cancellation_progress_begin(const cancellation *w, const char *what, int64_t total) {
    double now = clock_seconds();
    return (cancellation_progress){.w = w, .what = what, .total = total, .began = now, .said = now};
}

ott_status cancellation_progress_update(cancellation_progress *p, int64_t done) {
    double now = clock_seconds();
    if (p->w && now - p->said >= TELL_EVERY && done < p->total) {
        log_info(p->w->log, "%s: %d%% after %.0f s", p->what, (int)(100.0 * (double)done / (double)p->total),
                 now - p->began);
        p->said = now;
    }
    return cancellation_check(p->w);
}
