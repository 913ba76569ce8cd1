/* optimizer/rules: Lion, SGD, Adam and schedule-free AdamW. Each update is one op for all parameters. */
#include "optimizer/rules.h"
#include <math.h>

static void schedule_nothing(const optimizer_options *o, int64_t update, float *host_state) {
    (void)o, (void)update, (void)host_state;
}

void optimizer_schedule_moments(const optimizer_options *o, int64_t update, float *host_state) {
    host_state[STEP_CORRECTION1] = (float)(1.0 - pow((double)o->beta1, (double)update));
    host_state[STEP_SQRT_CORRECTION2] = (float)sqrt(1.0 - pow((double)o->beta2, (double)update));
}

/* ---- Lion ---- */

static ott_status lion_rows(exec *cx, const optimizer_options *o, const optimizer_rows *rows, int count,
                            const tensor *state) {
    lion_args items[OPTIMIZER_LIST];
    for (int i = 0; i < count; i++) {
        const optimizer_rows *r = &rows[i];
        items[i] = (lion_args){OPTIMIZER_ROWS_ARGUMENTS(r, state), .momentum = &r->slot[0], .beta1 = o->beta1,
                               .beta2 = o->beta2};
    }
    return op_lion_many(cx, items, count);
}

const optimizer_rule optimizer_lion = {
    .name = "lion", .slots = 1, .slot = {"exp_avg"}, .schedule = schedule_nothing, .update = lion_rows};

/* ---- SGD ---- */

static ott_status sgd_rows(exec *cx, const optimizer_options *o, const optimizer_rows *rows, int count,
                           const tensor *state) {
    sgd_args items[OPTIMIZER_LIST];
    for (int i = 0; i < count; i++) {
        const optimizer_rows *r = &rows[i];
        items[i] = (sgd_args){OPTIMIZER_ROWS_ARGUMENTS(r, state), .momentum = &r->slot[0],
                              .factor = o->momentum, .nesterov = o->nesterov};
    }
    return op_sgd_many(cx, items, count);
}

const optimizer_rule optimizer_sgd = {
    .name = "sgd", .slots = 1, .slot = {"momentum_buffer"}, .schedule = schedule_nothing, .update = sgd_rows};

/* ---- Adam ---- */

static ott_status adam_rows(exec *cx, const optimizer_options *o, const optimizer_rows *rows, int count,
                            const tensor *state) {
    adam_args items[OPTIMIZER_LIST];
    for (int i = 0; i < count; i++) {
        const optimizer_rows *r = &rows[i];
        items[i] = (adam_args){OPTIMIZER_ROWS_ARGUMENTS(r, state),
                               .moment1 = &r->slot[0],
                               .moment2 = &r->slot[1],
                               .beta1 = o->beta1,
                               .beta2 = o->beta2,
                               .epsilon = o->epsilon};
    }
    return op_adam_many(cx, items, count);
}

const optimizer_rule optimizer_adam = {.name = "adam",
                                       .slots = 2,
                                       .slot = {"exp_avg", "exp_avg_sq"},
                                       .schedule = optimizer_schedule_moments,
                                       .update = adam_rows};

/* ---- schedule-free AdamW ---- */

enum { ITERATE, AVERAGE, MOMENT2 };

/* Sum of (j / w)^power for j = 1 to k <= w: the first EXACT terms one by one, the rest by Euler-Maclaurin. */
static double warmup_weights(double k, double w, double power) {
    enum { EXACT = 1000 };
    double n = k < EXACT ? k : EXACT, sum = 0;
    for (double j = 1; j <= n; j++) sum += pow(j / w, power);
    if (k == n) return sum;
    double first = n / w, last = k / w;
    sum += w * (pow(last, power + 1) - pow(first, power + 1)) / (power + 1);
    sum += (pow(last, power) - pow(first, power)) / 2;
    return sum + power * (pow(last, power - 1) - pow(first, power - 1)) / (12 * w);
}

/* The average weighs iterates by rate^weight_lr_power. rate: k / w in update k of w in warmup, then 1. */
static void schedule_average(const optimizer_options *o, int64_t update, float *host_state) {
    double k = (double)update, w = o->warmup > 1 ? (double)o->warmup : 1.0;
    double rate = k < w ? k / w : 1.0, sum = warmup_weights(k < w ? k : w, w, o->weight_lr_power);
    if (k > w) sum += k - w;
    host_state[STEP_LEARNING_RATE] = (float)((double)host_state[STEP_LEARNING_RATE] * rate);
    host_state[STEP_AVERAGE] = (float)(pow(rate, o->weight_lr_power) / sum);
    optimizer_schedule_moments(o, update, host_state);
}

static ott_status schedule_free_rows(exec *cx, const optimizer_options *o, const optimizer_rows *rows,
                                     int count, const tensor *state) {
    schedule_free_args items[OPTIMIZER_LIST];
    for (int i = 0; i < count; i++) {
        const optimizer_rows *r = &rows[i];
        items[i] = (schedule_free_args){OPTIMIZER_ROWS_ARGUMENTS(r, state),
                                        .z = &r->slot[ITERATE],
                                        .x = &r->slot[AVERAGE],
                                        .moment2 = &r->slot[MOMENT2],
                                        .beta1 = o->beta1,
                                        .beta2 = o->beta2,
                                        .epsilon = o->epsilon};
    }
    return op_schedule_free_many(cx, items, count);
}

/* Sets the parameter's value to the average of the iterates, or (average false) to the training weights. */
static ott_status use_average(exec *cx, const optimizer_options *o, const parameter *p, bool average) {
    const parameter_shard *s = &p->shard;
    if (tensor_count(p->shard.value) == 0) return OTT_OK;
    return average ? op_convert(cx, &(convert_args){.x = &s->slot[AVERAGE], .y = &s->value})
                   : op_lerp(cx, &(lerp_args){.from = &s->slot[ITERATE],
                                              .to = &s->slot[AVERAGE],
                                              .y = &s->value,
                                              .weight = o->beta1});
}

const optimizer_rule optimizer_schedule_free = {.name = "schedule_free_adamw",
                                                .slots = 3,
                                                .slot = {"z", "x", "exp_avg_sq"},
                                                .schedule = schedule_average,
                                                .update = schedule_free_rows,
                                                .use_average = use_average};
