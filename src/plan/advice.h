/* plan/advice: suggests settings for a run that does not fit in memory or needs more in FP8 than in bf16. */
#ifndef PLAN_ADVICE_H
#define PLAN_ADVICE_H

#include "plan/estimate.h"

typedef struct advice {
    str suggestions; /* text of memory_check_suggest; empty if the run fits */
    memory_check_fp8 fp8;
} advice;

/* Fills in suggestions for the pipeline stage that needs most memory. Set suggestions.account before. */
ott_status advice_find(const count_request *r, const estimate *e, advice *out);

#endif
