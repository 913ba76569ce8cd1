/*
 * tests/cuda/attention_interpreter: runs a graph of cuda/attention_graph on the CPU, operation by operation.
 * Sums are in double. Every tensor is rounded to its type. Tensors with memory are stored and reloaded
 * through their strides and offsets.
 *
 * As strict as cuDNN may be: data beyond a document's end reads as NaN, and a product's result beyond its
 * lengths is NaN. So a graph that uses such data produces NaN.
 */
#ifndef ATTENTION_INTERPRETER_H
#define ATTENTION_INTERPRETER_H

#include "cuda/attention_graph.h"

/* data[uid]: memory of each tensor; bytes[uid]: its size. Returns NULL, or the error (such as a store outside
   of the memory). */
const char *attention_interpret(const graph *g, void *const data[ATTENTION_NAMED],
                                const size_t bytes[ATTENTION_NAMED]);

#endif
