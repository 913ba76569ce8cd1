/* train/trainer_parts: functions that the files trainer*.c share. Internal to train/trainer. */
#ifndef TRAIN_TRAINER_PARTS_H
#define TRAIN_TRAINER_PARTS_H

#include "train/trainer.h"

/* Floats of trainer.host_state: step state (tensor/step_state.h), grad_scale, pass_scale. */
enum { GRAD_SCALE = STEP_STATE_COUNT, PASS_SCALE, SENT_WORDS };

/* Sums values[count] over the ranks of g. */
ott_status trainer_sum_counts(trainer *t, group *g, int64_t *values, int64_t count);
/* all[r] = `own` of rank r of g, for r from 0 to g->size - 1. */
ott_status trainer_gather_values(trainer *t, group *g, float own, float *all);

/* ---- passes and their memory (trainer_plan.c) ---- */

/* A pass records cx.plan, or runs with it. trainer_train_pass trains on the resident micro-batches. */
ott_status trainer_train_pass(trainer *t);
/* Evaluates the evaluation batch, which must be on the device. */
ott_status trainer_evaluate_pass(trainer *t);
/* Reduces gradients that the store summed over micro-batches; sends a tied head's sum to the last stage. */
ott_status trainer_reduce(trainer *t);
/* Runs the optimizer from its sealed plan; user is the trainer. */
ott_status trainer_run_update(void *user);
/* Records all four plans and allocates an arena that is large enough for each of them. */
ott_status trainer_plan_memory(trainer *t);
/* Sets activation checkpointing by the memory budget, if set. Collective; call before trainer_plan_memory. */
ott_status trainer_fit_budget(trainer *t);
/* Plans memory again if document_capacity has grown: attention's workspace may depend on it. */
ott_status trainer_plan_documents(trainer *t);

/* ---- parts of a step (trainer_step.c) ---- */

/* Number of passes in a step. Each pass runs trainer.resident micro-batches. */
int64_t trainer_pass_count(const trainer *t);
/* Sends the micro-batches of pass `index` to the device and runs them with hook p (may be NULL). in_step is
   false for a pass outside a step; such a pass replays no graph. */
ott_status trainer_run_micro_batches(trainer *t, int64_t index, const hook *p, bool in_step);
/* Sums a value over ranks that train on the same rows: context-parallel ranks, then pipeline stages. */
ott_status trainer_sum_same_rows(trainer *t, const tensor *sum);
/* Copies the state of delayed scaling, the only state that a step changes before its update. */
ott_status trainer_copy_delayed(trainer *t, void *from, void *to);
/* Adds the GEMMs of all ranks since the last count to t->gemms. */
ott_status trainer_count_gemms(trainer *t);

#endif
