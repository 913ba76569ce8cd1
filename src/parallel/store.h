/*
 * parallel/store: where a parameter is while layers use it. Ranks that share a model's parameters hold a shard
 * of each (nn/parameter.h); around a block its parameters are gathered, released, and their gradients reduced.
 * Where one rank holds all, nothing is moved.
 *
 * A step's gradient is the sum over its micro-batches, or ranks, of each one's own sum, in their order: N ranks
 * with a micro-batch each give the bits of one rank with N. So a gradient that backward adds to more than once in a
 * micro-batch is summed apart from what is there already, and added to it once.
 */
#ifndef PARALLEL_STORE_H
#define PARALLEL_STORE_H

#include "base/arena.h"
#include "nn/parameter.h"

typedef struct parameter_store {
    group *ranks;       /* which share the parameters; borrowed; NULL: one rank holds all */
    bool micro_batches; /* a step has several */
} parameter_store;

/* Says which part of p is here: p->shard, its tensors without memory. How a matrix's rows, a vector's elements
   are cut comes from `memory`. */
ott_status store_divide(const parameter_store *s, arena *memory, parameter *p);

/* Around the forward or backward of layers with parameters[count]: their values are whole in between. The
   buffers are the plan's. */
ott_status store_gather(exec *cx, const parameter_store *s, parameter *parameters, int count);
ott_status store_release(exec *cx, const parameter_store *s, parameter *parameters, int count);

/* Around their backward: from zero, and then added to the shard's gradient, summed over the ranks. */
ott_status store_open_gradients(exec *cx, const parameter_store *s, parameter *parameters, int count);
ott_status store_reduce_gradients(exec *cx, const parameter_store *s, parameter *parameters, int count);

#endif
