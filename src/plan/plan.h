/* plan/plan: implements `ottava plan`: estimates memory and speed of a configuration, on this machine or
   another, without starting the run. Part of the program, not of the library. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "ottava/ottava.h"
#include <stdbool.h>

typedef struct plan_options {
    const char *device; /* "cpu" (this machine) or a MACHINE of the table of GPUs; NULL: cpu */
    const char *rates;  /* "bf16_tflops=700,memory_gbs=2800": replaces rates of the device; NULL: none */
    int64_t ranks;      /* processes, each with its own device */
    int sweep;          /* 1: also try other settings and list the best */
    int json;           /* 1: one JSON object; 0: text */
} plan_options;

void plan_options_init(plan_options *options);
/* Writes the plan of a configuration, without opening data and tokenizer. Has the same errors as `ottava
   train`, except that a run may need too much memory: then *fits = false, and the plan lists settings that
   would help. */
ott_status plan_run(ott_context *context, ott_config *configuration, const plan_options *options,
                    ott_text_fn write, void *user, bool *fits);

#endif
