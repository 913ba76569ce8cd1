/* plan/stages: how long the stages of a pipeline take together: their tasks, in the order of the schedule, each as soon as what
   it needs is there (parallel/pipeline.h). */
#ifndef PLAN_STAGES_H
#define PLAN_STAGES_H

#include "base/mem.h"
#include "parallel/pipeline.h"

/* Seconds of a stage's tasks. */
typedef struct stage_times {
    double forward, backward; /* of one part */
    double message;           /* until the next stage has what is sent */
} stage_times;

/* of[stages]. shape.rank counts for nothing. Seconds from the first task to the end of the last. */
ott_status stages_run(mem *account, const pipeline_stage *shape, int64_t micro_batches, const stage_times *of,
                      double *out);

#endif
