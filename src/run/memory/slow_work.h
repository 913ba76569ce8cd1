/* run/memory/slow_work: estimates the share of a step that the device spends in slow implementations of
   products and attention, from the ops of the memory check's dry run. A run must not be slow without notice:
   it ends if the share is large, unless the configuration allows it. */
#ifndef RUN_MEMORY_SLOW_WORK_H
#define RUN_MEMORY_SLOW_WORK_H

#include "config/config.h"
#include "tensor/dry_run.h"

typedef enum slow_kind { SLOW_PRODUCTS, SLOW_ATTENTION, SLOW_KINDS } slow_kind;

typedef struct slow_work {
    device *device;
    double all;                   /* seconds of all products and attention, at the device's peak */
    double seconds[SLOW_KINDS];   /* their part in slow implementations */
    const char *what[SLOW_KINDS]; /* the slow implementation that was found last; NULL: none */
} slow_work;

/* Returns the listener that counts a step's ops in `w`. Set w->device, and clear the rest, before. */
dry_run_listener slow_work_listener(slow_work *w);
/* Logs what is slow. OTT_ERR_UNSUPPORTED if slow products take more than a tenth of a step and
   float8.allow_slow_products is false, or if slow attention takes more than half of a step. */
ott_status slow_work_check(const slow_work *w, const config *cfg, const logger *log);

#endif
