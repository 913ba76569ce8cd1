/* train/schedule: the learning rate of a step. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include "config/config.h"

/*
 * Learning rate of optimizer step `step` (0-based) of `steps`. The warmup is (step + 1) / W, so that the first step already
 * learns; then with p = (step - W) / D in [0, 1] and r the last ratio:
 *   cosine    r + (1 - r)(1 + cos(pi p)) / 2
 *   linear    1 - (1 - r) p
 *   constant  1
 *   wsd       1 for the stable steps, then cosine, linear or sqrt: r + (1 - r) sqrt(1 - p)
 *   rex       (1 - p)^alpha, at least r
 *   inverse-square-root  sqrt(W / (step + 1)), at least r
 *   none      the peak always, without warmup
 * and all of it times what data.phases multiplies it by. Pure.
 */
double schedule_learning_rate(const config *cfg, int64_t step, int64_t steps);
/* The same for a run, whose schedule may have begun anew at step `start` (checkpoint.exclude_from_loading): over the steps that
   were left then. */
double schedule_rate(const config *cfg, int64_t step, int64_t start);
/* What the step of routing biases is multiplied by in that step (model.moe_bias_schedule): from 0 to 1. Pure. */
double schedule_balance(const config *cfg, int64_t step, int64_t steps);

#endif
