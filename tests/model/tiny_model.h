/*
 * tiny_model: a decoder small enough for exhaustive comparison, run through nn/layer_harness: model, slot,
 * one micro-batch, and its losses and gradients on the host. A call that fails ends the test (cmocka).
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
    bool evaluate; /* the next recording is of an evaluation */
} tiny;

/* The dimensions the goldens were made with; plain rope, an output head of its own. */
model_options tiny_options(void);

/* threads and ISA level as cpu_open takes them. Parameters are zero. */
void tiny_open(tiny *t, const model_options *o, int threads, const char *isa);
void tiny_close(tiny *t);
/* Telling weights: wide enough that attention is far from uniform and no gradient is near zero. */
void tiny_randomize(tiny *t);
/* The recipe for every layer whose name contains none of the filters (ends with NULL; may be NULL). */
convert_summary tiny_convert(tiny *t, const recipe *r, const char *const *filter, const logger *log);
/* Sets the batch: count sequences of length tokens. grad_scale is 1 / (targets >= 0). */
void tiny_batch(tiny *t, int64_t count, int64_t length, const int32_t *token, const int32_t *target);
/* A batch of random tokens, every seventh target ignored. */
void tiny_random_batch(tiny *t, int64_t count, int64_t length);

/* Gradients to zero, recording, one pass. */
void tiny_run(tiny *t);
/* One more pass of what was recorded; gradients accumulate. */
void tiny_again(tiny *t);
/* Host copies, to be freed: losses[tokens], and all gradients as they lie in the model's block. */
float *tiny_losses(tiny *t);
float *tiny_gradients(tiny *t);
int64_t tiny_gradient_count(const tiny *t);
/* Mean over the tokens that count. */
double tiny_loss(tiny *t);
parameter *tiny_parameter(tiny *t, const char *name);

#endif
