/* plan/stages: simulates the tasks of all pipeline stages (parallel/pipeline.h). Each stage runs its tasks in
   schedule order, each as soon as its input has arrived. */
#ifndef PLAN_STAGES_H
#define PLAN_STAGES_H

#include "base/mem.h"
#include "parallel/pipeline.h"

/* Times of a stage's tasks. */
typedef struct stage_times {
    double forward, backward; /* seconds of one chunk of layers */
    double message;           /* seconds to send a message to the next stage */
} stage_times;

/* *out = seconds from the first task's start to the last one's end. times: [stages]. Ignores shape->rank. */
ott_status stages_run(mem *account, const pipeline_stage *shape, int64_t micro_batches,
                      const stage_times *times, double *out);

#endif
