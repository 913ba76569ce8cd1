/*
 * tests/cuda/attention_interpreter: runs a graph of cuda/attention_graph on the CPU, one operation after the other. Sums are in
 * double, every tensor is rounded to its own type, tensors with memory are stored and read again through their strides and
 * offsets.
 *
 * It is as harsh as cuDNN may be: what lies beyond a document's end reads as NaN, and a product has NaN beyond the lengths it is
 * given; so a graph that lets any of it through gives NaN.
 */
#ifndef ATTENTION_INTERPRETER_H
#define ATTENTION_INTERPRETER_H

#include "cuda/attention_graph.h"

/* data[uid]: the memory of each tensor, bytes[uid] of it. NULL, or what is wrong, as a store outside of its memory. */
const char *attention_interpret(const graph *g, void *const data[ATTENTION_NAMED],
                                const size_t bytes[ATTENTION_NAMED]);

#endif
