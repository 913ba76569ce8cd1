/* run_case: small training runs of ott_train, small models for a loop of a test, and comparisons of
   checkpoints. A failing call fails the test. */
#ifndef RUN_CASE_H
#define RUN_CASE_H

#include "api/module_case.h"

enum { RUN_ARGUMENTS = 8 };                  /* most further arguments of a run */
enum { RUN_SEQUENCES = 2, RUN_LENGTH = 32 }; /* sequences of a batch, tokens of a sequence */

/* Opens the configuration of a byte model that trains on a text, in the run folder "FOLDER/NAME": 4 steps of
   2 sequences of 32 tokens, with a checkpoint and an evaluation after every second step. more: further
   arguments of `ottava train`; the list ends with NULL. */
ott_config *open_run_config(ott_context *context, const char *folder, const char *name,
                            const char *const *more);
/* Trains with this configuration, and closes it. loss: NULL: the built-in loss. user: for both callbacks. */
ott_status train_and_close(ott_context *context, ott_config *config, ott_progress_fn progress,
                           ott_loss_fn loss, void *user);

/* A model of open_run_config with its optimizer and a batch. */
typedef struct model_loop {
    ott_module *m;
    ott_optimizer *o;
    ott_tensor *tokens, *targets; /* [RUN_SEQUENCES, RUN_LENGTH] of lower-case letters */
} model_loop;
void open_model_loop(model_loop *l, ott_context *context, const char *const *more);
void close_model_loop(model_loop *l);

/* Compares weights, moments and FP8 state of two checkpoints, "FOLDER/A" and "FOLDER/B", bit for bit. title:
   names the case in the message. */
void expect_same_checkpoints(const char *title, const char *folder, const char *a, const char *b);

#endif
