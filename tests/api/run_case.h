/* run_case: small training runs of ott_train, and comparisons of checkpoints. A failing call fails the
   test. */
#ifndef RUN_CASE_H
#define RUN_CASE_H

#include "api/module_case.h"

enum { RUN_ARGUMENTS = 8 }; /* most further arguments of a run */

/* Opens the configuration of a byte model that trains on a text, in the run folder "FOLDER/NAME": 4 steps of
   2 sequences of 32 tokens, with a checkpoint and an evaluation after every second step. more: further
   arguments of `ottava train`; the list ends with NULL. */
ott_config *open_run_config(ott_context *context, const char *folder, const char *name,
                            const char *const *more);
/* Compares weights, moments and FP8 state of two checkpoints, "FOLDER/A" and "FOLDER/B", bit for bit. title:
   names the case in the message. */
void expect_same_checkpoints(const char *title, const char *folder, const char *a, const char *b);

#endif
