/* plan/stages: simulates the tasks of all stages. */
#include "plan/stages.h"

typedef struct timetable {
    const pipeline_stage *shape;
    int64_t micro_batches;
    const stage_times *times;
    double *done;  /* [2][stages x chunks][micro_batches] end of each forward and backward; 0: not run yet */
    int64_t *next; /* [stages] index of the next task */
    double *now;   /* [stages] seconds at which the stage is free */
} timetable;

static double *done_at(const timetable *t, bool backward, int64_t part, int64_t micro_batch) {
    int64_t parts = (int64_t)t->shape->stages * t->shape->chunks;
    return &t->done[((backward ? parts : 0) + part) * t->micro_batches + micro_batch];
}

/* Seconds at which the input of a task arrives; below 0 if the task that sends it has not run yet. */
static double ready_time(const timetable *t, int stage, pipeline_task task) {
    int64_t stages = t->shape->stages, parts = stages * t->shape->chunks;
    int64_t part = task.chunk * stages + stage, from = part + (task.backward ? 1 : -1);
    if (from < 0 || from == parts) return 0; /* the last part's backward follows its forward */
    double done = *done_at(t, task.backward, from, task.micro_batch);
    return done > 0 ? done + t->times[from % stages].message : -1;
}

/* Runs tasks of a stage in order until the input of the next one is missing. True if any task has run. */
static bool run_ready_tasks(timetable *t, int stage) {
    pipeline_stage s = *t->shape;
    s.rank = stage;
    int64_t count = pipeline_task_count(&s, t->micro_batches), before = t->next[stage];
    for (; t->next[stage] < count; t->next[stage]++) {
        pipeline_task task = pipeline_task_at(&s, t->micro_batches, t->next[stage]);
        double begins = ready_time(t, stage, task);
        if (begins < 0) break;
        if (begins < t->now[stage]) begins = t->now[stage];
        t->now[stage] = begins + (task.backward ? t->times[stage].backward : t->times[stage].forward);
        *done_at(t, task.backward, (int64_t)task.chunk * s.stages + stage, task.micro_batch) = t->now[stage];
    }
    return t->next[stage] > before;
}

ott_status stages_run(mem *account, const pipeline_stage *shape, int64_t micro_batches,
                      const stage_times *times, double *out) {
    int64_t tasks = 2 * shape->stages * shape->chunks * micro_batches;
    void *memory;
    TRY(mem_alloc_array(account, MEM_OTHER, tasks + 2 * (int64_t)shape->stages, sizeof(double),
                        "timetable of a pipeline", &memory));
    double *done = memory, *now = done + tasks;
    timetable t = {shape, micro_batches, times, done, (int64_t *)(now + shape->stages), now};
    double last = 0;
    for (bool any = true; any;) {
        any = false;
        for (int stage = 0; stage < t.shape->stages; stage++) any |= run_ready_tasks(&t, stage);
    }
    for (int stage = 0; stage < t.shape->stages; stage++)
        if (t.now[stage] > last) last = t.now[stage];
    *out = last;
    mem_free(account, memory);
    return OTT_OK;
}
