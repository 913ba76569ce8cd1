/* base/cancellation: calls the stop callback, and logs progress every few seconds. */
#include "base/cancellation.h"
#include "base/clock.h"

#define REPORT_EVERY 5.0 /* seconds between two progress messages */

ott_status cancellation_check(const cancellation *c) {
    if (!c || !c->stop || !c->stop(c->user)) return OTT_OK;
    return status_fail(OTT_ERR_STOPPED, "stopped on request");
}

cancellation_progress cancellation_progress_begin(const cancellation *c, const char *what, int64_t total) {
    double now = clock_seconds();
    return (cancellation_progress){
        .cancellation = c, .what = what, .total = total, .began = now, .reported = now};
}

ott_status cancellation_progress_update(cancellation_progress *p, int64_t done) {
    double now = clock_seconds();
    if (p->cancellation && now - p->reported >= REPORT_EVERY && done < p->total) {
        log_info(p->cancellation->log, "%s: %d%% after %.0f s", p->what,
                 (int)(100.0 * (double)done / (double)p->total), now - p->began);
        p->reported = now;
    }
    return cancellation_check(p->cancellation);
}
