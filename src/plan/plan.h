/*
 * plan/plan: `ottava plan`: what a configuration would need and how fast it would train, on this machine or another, before
 * anything is started. Part of the program, not of the library.
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "ottava/ottava.h"
#include <stdbool.h>

typedef struct plan_options {
    const char *device; /* "cpu", this machine's, or a row of machines.def; NULL: cpu */
    const char *rates;  /* "bf16_tflops=700,memory_gbs=2800": in place of the device's; NULL: none */
    int64_t ranks;      /* processes, each with a device */
    int sweep;          /* 1: other settings as well, and the best of them */
    int json;           /* 1: one JSON object, 0: a page */
} plan_options;

void plan_options_init(plan_options *options);
/* Writes the plan of a configuration, which is resolved by it. What `ottava train` would refuse is refused alike, except a
   run that does not fit in memory: its plan is written, with settings that would help, and *fits is false. Data and
   tokenizer are not looked at. */
ott_status plan_run(ott_context *context, ott_config *configuration, const plan_options *options,
                    ott_text_fn write, void *user, bool *fits);

#endif
