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

/* Defines RULE_rows, which calls op_RULE_many for all rows. The variable arguments initialize the members of
   RULE_args that only this op has; they can use the current entry r of `rows` and the options o. */
#define DEFINE_ROWS(rule, ...)                                                                               \
    static ott_status rule##_rows(exec *cx, const optimizer_options *o, const optimizer_rows *rows,          \
                                  int count, const tensor *state) {                                          \
        rule##_args items[OPTIMIZER_LIST];                                                                   \
        for (int i = 0; i < count; i++) {                                                                    \
            const optimizer_rows *r = &rows[i];                                                              \
            items[i] = (rule##_args){OPTIMIZER_ROWS_ARGUMENTS(r, state), __VA_ARGS__};                       \
        }                                                                                                    \
        return op_##rule##_many(cx, items, count);                                                           \
    }

DEFINE_ROWS(lion, .momentum = &r->slot[0], .beta1 = o->beta1, .beta2 = o->beta2)

const optimizer_rule optimizer_lion = {
    .name = "lion", .slots = 1, .slot = {"exp_avg"}, .schedule = schedule_nothing, .update = lion_rows};

DEFINE_ROWS(sgd, .momentum = &r->slot[0], .factor = o->momentum, .nesterov = o->nesterov)

const optimizer_rule optimizer_sgd = {
    .name = "sgd", .slots = 1, .slot = {"momentum_buffer"}, .schedule = schedule_nothing, .update = sgd_rows};

DEFINE_ROWS(adam, .moment1 = &r->slot[0], .moment2 = &r->slot[1], .beta1 = o->beta1, .beta2 = o->beta2,
            .epsilon = o->epsilon)

const optimizer_rule optimizer_adam = {.name = "adam",
                                       .slots = 2,
                                       .slot = {"exp_avg", "exp_avg_sq"},
                                       .schedule = optimizer_schedule_moments,
                                       .update = adam_rows};

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

DEFINE_ROWS(schedule_free, .z = &r->slot[ITERATE], .x = &r->slot[AVERAGE], .moment2 = &r->slot[MOMENT2],
            .beta1 = o->beta1, .beta2 = o->beta2, .epsilon = o->epsilon)

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
