/*
 * tests/cuda/attention_interpreter: runs a graph of cuda/attention/attention_graph on the CPU, operation by
 * operation. Sums are in double. Every tensor is rounded to its type. Tensors with memory are stored and
 * reloaded through their strides and offsets.
 *
 * cuDNN leaves some values undefined. The interpreter makes these values NaN: data beyond a document's end,
 * and elements of a matrix product beyond the document's length. So a graph that uses such values gives NaN.
 */
#ifndef ATTENTION_INTERPRETER_H
#define ATTENTION_INTERPRETER_H

#include "cuda/attention/attention_graph.h"

/* data[uid]: memory of each tensor; bytes[uid]: its size. Returns NULL, or an error message (such as for a
   store outside of a tensor's memory). */
const char *attention_interpret(const graph *g, void *const data[ATTENTION_NAMED],
                                const size_t bytes[ATTENTION_NAMED]);

#endif
