/* train/trainer_parts: functions that the files trainer*.c share. Internal to train/trainer. */
#ifndef TRAIN_TRAINER_PARTS_H
#define TRAIN_TRAINER_PARTS_H

#include "train/trainer.h"

/* Indices in trainer.host_state: the step state (tensor/step_state.h), then grad_scale and pass_scale. */
enum { GRAD_SCALE = STEP_STATE_COUNT, PASS_SCALE, SENT_WORDS };

/* Sums values[count] over the ranks of g. */
ott_status trainer_sum_counts(trainer *t, group *g, int64_t *values, int64_t count);
/* all[r] = the value `own` of rank r in group g, for r from 0 to g->size - 1. */
ott_status trainer_gather_values(trainer *t, group *g, float own, float *all);

/* ---- passes and their memory (trainer_plan.c) ---- */

/* Runs forward and backward of the micro-batches on the device, or records them if cx.plan is recording. */
ott_status trainer_train_pass(trainer *t);
/* Evaluates the evaluation batch, which must be on the device. */
ott_status trainer_evaluate_pass(trainer *t);
/* Reduces full gradients that were summed over a step; sends the tied table's gradient to the last stage. */
ott_status trainer_reduce(trainer *t);
/* Runs the optimizer from its sealed plan; user is the trainer. */
ott_status trainer_run_update(trainer *t);
/* Records all four plans and allocates an arena that is large enough for each of them. */
ott_status trainer_plan_memory(trainer *t);
/* Sets activation checkpointing for options.memory_budget. Collective; call before trainer_plan_memory. */
ott_status trainer_fit_budget(trainer *t);
/* Plans memory again if document_capacity has grown, because attention's workspace may depend on it. */
ott_status trainer_plan_documents(trainer *t);

/* ---- parts of a step (trainer_step.c) ---- */

/* Number of passes in a step. Each pass runs trainer.resident micro-batches. */
int64_t trainer_pass_count(const trainer *t);
/* Sends the micro-batches of pass `index` to the device and runs them with hook p (may be NULL). in_step:
   false if the pass is not part of a step; then no graph is replayed. */
ott_status trainer_run_micro_batches(trainer *t, int64_t index, const hook *p, bool in_step);
/* Sums a value over ranks that train on the same rows: context-parallel ranks, then pipeline stages. */
ott_status trainer_sum_same_rows(trainer *t, const tensor *sum);
/* Copies the state of delayed scaling. Before its update, a step changes no other state. */
ott_status trainer_copy_delayed(trainer *t, void *from, void *to);
/* Adds to t->gemms the GEMMs that all ranks have run since the last call. */
ott_status trainer_count_gemms(trainer *t);

#endif
