/* nn/optimizer: the rows, and one update of all parameters. */
#include "nn/optimizer.h"
#include <math.h>
#include <string.h>

/* ---- AdamW ---- */

enum { ADAMW_MOMENT1, ADAMW_MOMENT2 };

static void schedule_adamw(const optimizer_options *o, int64_t update, float *host_state) {
    host_state[STEP_CORRECTION1] = (float)(1.0 - pow((double)o->beta1, (double)update));
    host_state[STEP_SQRT_CORRECTION2] = (float)sqrt(1.0 - pow((double)o->beta2, (double)update));
}

static ott_status step_adamw(exec *cx, const optimizer_options *o, const parameter *p, const tensor *state) {
    return op_adamw(cx, &(adamw_args){.param = &p->shard.value,
                                      .grad = &p->shard.grad,
                                      .moment1 = &p->shard.slot[ADAMW_MOMENT1],
                                      .moment2 = &p->shard.slot[ADAMW_MOMENT2],
                                      .state = state,
                                      .beta1 = o->beta1,
                                      .beta2 = o->beta2,
                                      .epsilon = o->epsilon,
                                      .weight_decay = p->decay ? o->weight_decay : 0.0f});
}

/* ---- the rows ---- */

static const optimizer_rule rows[] = {
    {.name = "adamw",
     .slots = 2,
     .slot = {[ADAMW_MOMENT1] = "exp_avg", [ADAMW_MOMENT2] = "exp_avg_sq"},
     .schedule = schedule_adamw,
     .step = step_adamw},
};

const optimizer_rule *optimizer_find(const char *name) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

/* ---- an update ---- */

void optimizer_schedule(const optimizer_rule *rule, const optimizer_options *o, double learning_rate,
                        int64_t update, float *host_state) {
    host_state[STEP_LEARNING_RATE] = (float)learning_rate;
    rule->schedule(o, update, host_state);
}

/* Sums of squares of the parameters that are trained, into the first places of `squares`; on a stage of a pipeline each
   into its own among those of all stages, so that one rank would add them in the same order. What each of the ranks
   that cut layers has whole is counted by the first. Returns how many. */
static ott_status measure_squares(exec *cx, const parameter *parameters, int count,
                                  const optimizer_ranks *ranks, const tensor *squares, int *measured) {
    bool counts_all = !ranks->tensor || ranks->tensor->rank == 0;
    *measured = 0;
    for (int i = 0; i < count; i++) {
        const parameter *p = &parameters[i];
        if (p->frozen || p->repeated) continue;
        tensor sum = tensor_columns(*squares, ranks->stages ? p->number : *measured, 1);
        if (counts_all || parameter_is_cut(p))
            TRY(op_sum_squares(cx, &(sum_squares_args){.x = &p->shard.grad, .sum = &sum}));
        ++*measured;
    }
    return OTT_OK;
}

static ott_status measure_norm(exec *cx, const optimizer_options *o, const parameter *parameters, int count,
                               const optimizer_ranks *ranks, const tensor *squares, const tensor *state) {
    int trained;
    bool is_stage = ranks->stages != NULL;
    if ((is_stage || ranks->tensor) && !plan_recording(cx->plan))
        TRY(device_zero(cx->device, squares->data, tensor_bytes(*squares)));
    TRY(measure_squares(cx, parameters, count, ranks, squares, &trained));
    tensor sums = tensor_columns(*squares, 0, is_stage ? ranks->trained : trained);
    if (ranks->shard) TRY(group_all_reduce(ranks->shard, cx, &sums, REDUCE_SUM));
    if (ranks->tensor) TRY(group_all_reduce(ranks->tensor, cx, &sums, REDUCE_SUM));
    if (is_stage) TRY(group_all_reduce(ranks->stages, cx, &sums, REDUCE_SUM));
    return op_grad_norm(cx, &(grad_norm_args){.sum_squares = &sums, .state = state, .max_norm = o->max_norm});
}

ott_status optimizer_update(exec *cx, const optimizer_rule *rule, const optimizer_options *o,
                            const parameter *parameters, int count, const optimizer_ranks *ranks,
                            const tensor *state) {
    static const optimizer_ranks none = {0};
    tensor squares;
    plan_buffer buffer;
    cx->part = PART_OPTIMIZER;
    TRY(exec_open(cx, "squared gradient norms", OTT_F32, 1, ranks && ranks->stages ? ranks->trained : count,
                  &squares, &buffer));
    TRY(measure_norm(cx, o, parameters, count, ranks ? ranks : &none, &squares, state));
    for (int i = 0; i < count; i++)
        if (!parameters[i].frozen) TRY(rule->step(cx, o, &parameters[i], state));
    return plan_close(cx->plan, &buffer);
}
