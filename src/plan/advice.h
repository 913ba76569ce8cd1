/* plan/advice: settings that would help a run that needs too much memory, or more in FP8 than in bf16. */
#ifndef PLAN_ADVICE_H
#define PLAN_ADVICE_H

#include "plan/estimate.h"

typedef struct advice {
    str suggestions; /* memory_check_suggest's text; empty if the run fits */
    memory_check_fp8 fp8;
} advice;

/* Of the stage that needs most. out->suggestions.account is set; free it with str_free. */
ott_status advice_find(const count_request *r, const estimate *e, advice *out);

#endif
