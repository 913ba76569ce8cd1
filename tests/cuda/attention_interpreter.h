/*
 * tests/cuda/attention_interpreter: runs a graph of attention_graph.h on the CPU, one operation after the
 * other. Sums are in double, every tensor is rounded to its own type, tensors with memory are stored and
 * read again through their strides and offsets.
 *
 * It is as harsh as cuDNN may be: what lies beyond a document's end reads as NaN, and a product has NaN
 * beyond the lengths it is given; so a graph that lets any of it through gives NaN.
 */
#ifndef ATTENTION_INTERPRETER_H
#define ATTENTION_INTERPRETER_H

#include "attention_check.h"

/* An attention_runner; `context` is not used. False also for a store outside of an image. */
bool attention_interpret(void *context, const graph *g, void *const images[ATTENTION_NAMED],
                         const size_t bytes[ATTENTION_NAMED], char error[ATTENTION_TEXT]);

#endif
