/* train/schedule: learning rate of each step. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include "config/config.h"

/*
 * Learning rate of optimizer step `step` of `steps`, counted from 0. The warmup factor is (step + 1) / W,
 * where W = warmup_steps. After it, D = decay_steps (0: steps - W), p = (step - W) / D within [0, 1], r =
 * min_lr_ratio:
 *   cosine    r + (1 - r)(1 + cos(pi p)) / 2
 *   linear    1 - (1 - r) p
 *   constant  1
 *   wsd       1 for the stable steps, then cosine, linear or sqrt: r + (1 - r) sqrt(1 - p)
 *   rex       (1 - p)^alpha, at least r
 *   inverse-square-root  sqrt(W / (step + 1)), at least r
 *   none      1 always, without warmup
 * The result is multiplied by optimizer.lr and by lr_scale of data.phases.
 */
double schedule_learning_rate(const config *cfg, int64_t step, int64_t steps);
/* Learning rate of a schedule that restarted at step `start` (checkpoint.exclude_from_loading) and covers the
   steps from `start` to train.max_steps. start 0: the schedule did not restart. */
double schedule_rate(const config *cfg, int64_t step, int64_t start);
/* Factor from 0 to 1 for the update of MoE routing biases in a step (model.moe_bias_schedule). */
double schedule_balance(const config *cfg, int64_t step, int64_t steps);

#endif
