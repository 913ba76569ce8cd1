/* optimizer/rules: the list of optimizers, and helpers of their rules. */
#ifndef OPTIMIZER_RULES_H
#define OPTIMIZER_RULES_H

#include "optimizer/optimizer.h"

/* Calls X(name) for each rule optimizer_name. */
#define OPTIMIZER_RULES(X) X(adamw) X(adam) X(sgd) X(lion) X(muon) X(schedule_free)
#define X(name)            extern const optimizer_rule optimizer_##name;
OPTIMIZER_RULES(X)
#undef X

/* Rows of a parameter's shard that are also adjacent in the full parameter. Element (row, column) is rounded
   stochastically with draw first + row * row_step + column of `seed` (tensor/rules/stochastic.h). */
struct optimizer_rows {
    const parameter *parameter;
    tensor param, grad, slot[PARAMETER_SLOTS], group_scales[PARAMETER_SLOTS];
    float weight_decay;
    uint64_t seed;
    int64_t first, row_step;
};

/* Fills *out with rows of p's shard from `row` on that are adjacent in the full p. Returns the row count. */
int64_t optimizer_rows_at(const optimizer_options *o, const parameter *p, int64_t row, optimizer_rows *out);

/* Initializers, from rows *r, of the argument members that all element-wise update ops have. */
#define OPTIMIZER_ROWS_ARGUMENTS(r, of_step)                                                                 \
    .param = &(r)->param, .grad = &(r)->grad, .state = (of_step), .weight_decay = (r)->weight_decay,         \
    .seed = (r)->seed, .first = (r)->first, .row_step = (r)->row_step

/* Calls rule->update for all rows of trained[count], with at most OPTIMIZER_LIST optimizer_rows per call. */
ott_status optimizer_rows_update(exec *cx, const optimizer_rule *rule, const optimizer_options *o,
                                 const parameter *const *trained, int count, const tensor *state);

/* Writes Adam's bias corrections 1 - beta1^t and sqrt(1 - beta2^t) to the step state. */
void optimizer_schedule_moments(const optimizer_options *o, int64_t update, float *host_state);

#endif
