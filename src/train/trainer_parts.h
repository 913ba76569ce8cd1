/* train/trainer_parts: what the parts of train/trainer share. Internal to trainer*.c. */
#ifndef TRAIN_TRAINER_PARTS_H
#define TRAIN_TRAINER_PARTS_H

#include "train/trainer.h"

/* What a step begins with, as it goes to the device: the step's state, then the gradients' scale. */
enum { GRAD_SCALE = STEP_STATE_COUNT, PASS_SCALE, SENT_WORDS };

/* Of all ranks of the group. */
ott_status trainer_sum_counts(trainer *t, group *g, int64_t *values, int64_t count);
/* What every rank of the group has, in rank order. */
ott_status trainer_gather_values(trainer *t, group *g, float own, float *all);

/* ---- passes and their memory (trainer_plan.c) ---- */

/* Each records into cx.plan, or replays it: what is on the device, a micro-batch, or all of a step on a stage of a pipeline; */
ott_status trainer_train_pass(trainer *t);
/* a batch of evaluation; */
ott_status trainer_evaluate_pass(trainer *t);
/* the gradients of all micro-batches, where they travel together, then a tied head's. */
ott_status trainer_reduce(trainer *t);
/* Replays the step that ends what the micro-batches began; user is the trainer. */
ott_status trainer_run_update(void *user);
ott_status trainer_plan_memory(trainer *t);
/* Checkpoints blocks as the memory budget says; all ranks do, before they plan memory. */
ott_status trainer_fit_budget(trainer *t);
/* Plans anew where rows have more documents than any before them: a backend's attention may be planned for so many. */
ott_status trainer_plan_documents(trainer *t);

/* ---- of a step (trainer_step.c) ---- */

/* A step's passes: one for as many micro-batches as are on the device at once. */
int64_t trainer_pass_count(const trainer *t);
/* Those of pass `index`, in a step or only to be looked at; p may be NULL. */
ott_status trainer_run_micro_batches(trainer *t, int64_t index, const hook *p, bool in_step);
/* What ranks have of the same rows: of other tokens, or the last stage for all stages. */
ott_status trainer_sum_same_rows(trainer *t, const tensor *sum);
/* What a step changes before its update, which is all that an abandoned one has to put back. */
ott_status trainer_copy_delayed(trainer *t, void *from, void *to);
/* Adds this rank's matrix products since the last count, and the other ranks', to the run's. */
ott_status trainer_count_gemms(trainer *t);

#endif
