/* nn/optimizer_rules: the rows that have a file of their own; nn/optimizer.c has the table. */
#ifndef NN_OPTIMIZER_RULES_H
#define NN_OPTIMIZER_RULES_H

#include "nn/optimizer.h"

extern const optimizer_rule optimizer_lion, optimizer_sgd, optimizer_adam, optimizer_schedule_free;
extern const optimizer_rule optimizer_muon;

/* 1 - beta1^t and sqrt(1 - beta2^t) into the step state. */
void optimizer_schedule_moments(const optimizer_options *o, int64_t update, float *host_state);

#endif
