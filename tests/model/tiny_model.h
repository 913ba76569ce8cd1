/*
 * tiny_model: a decoder that is small enough to compare all its values. It runs in a test harness
 * (nn/layer_harness.h) with one slot and one micro-batch, and returns losses and gradients on the host. A
 * call that fails ends the test (cmocka).
 */
#ifndef TESTS_MODEL_TINY_MODEL_H
#define TESTS_MODEL_TINY_MODEL_H

#include "model/convert.h"
#include "model/run.h"
#include "nn/layer_harness.h"

typedef struct tiny {
    harness h;
    model *m;
    model_slot *slot;
    batch batch;
    tensor grad_scale, losses;
    bool evaluate; /* the next recorded pass is an evaluation */
} tiny;

/* Returns the options of the models in the golden files, with plain RoPE and a head that is not tied. */
model_options tiny_options(void);

/* Opens the model and its device. threads and isa: as for cpu_open. All parameters are zero. */
void tiny_open(tiny *t, const model_options *o, int threads, const char *isa);
void tiny_close(tiny *t);
/* Sets random weights. They are so large that attention is far from uniform and no gradient is near zero. */
void tiny_randomize(tiny *t);
/* Converts all layers to the recipe, except for layers with a name that contains a text of `filter`. The list
   ends with NULL; it may also be NULL. */
convert_summary tiny_convert(tiny *t, const recipe *r, const char *const *filter, const logger *log);
/* Sets the batch to `count` sequences of `length` tokens. grad_scale: 1 / number of not ignored targets. */
void tiny_batch(tiny *t, int64_t count, int64_t length, const int32_t *token, const int32_t *target);
/* Sets a batch of random tokens. Every seventh target is ignored. */
void tiny_random_batch(tiny *t, int64_t count, int64_t length);

/* Sets gradients to zero, records a pass and runs it. */
void tiny_run(tiny *t);
/* Replays the recorded pass. Gradients accumulate. */
void tiny_again(tiny *t);
/* tiny_losses copies losses[tokens] to the host; tiny_gradients copies all gradients, in the order in which
   the model stores them. The caller frees the copy. */
float *tiny_losses(tiny *t);
float *tiny_gradients(tiny *t);
int64_t tiny_gradient_count(const tiny *t);
/* Returns the mean loss of the tokens that have a target. */
double tiny_loss(tiny *t);
parameter *tiny_parameter(tiny *t, const char *name);

/* Compares the largest gradient element of each named parameter with a finite difference of the loss. The
   model runs in fp32, and tiny_run has recorded its pass. The list ends with NULL. */
void tiny_check_gradients(tiny *t, const char *const *names);
/* Compares losses and gradients of passes with every kind of recomputation and without, bit for bit, in bf16
   and tensorwise. open_model: opens the model, converts it to the recipe, and sets the batch. */
void tiny_check_recomputation(void (*open_model)(tiny *t, const char *recipe_name));

#endif
