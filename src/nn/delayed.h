/*
 * nn/delayed: state of delayed scaling (fp8/history.h). For each tensor of a linear layer with a delayed
 * recipe: the amax since the last update, the history of earlier amaxes, and the current scale. All states of
 * a model are in one device block; current amaxes are contiguous, so that one collective reduces them.
 */
#ifndef NN_DELAYED_H
#define NN_DELAYED_H

#include "tensor/exec.h"

/* State of one tensor: views into a delayed_store. seen.data NULL: scaling is not delayed. */
typedef struct delayed_state {
    cast_spec spec;
    tensor seen, scale;  /* fp32[1]: amax since the last update; scale for the next cast */
    tensor amax_history; /* fp32[spec.history] */
} delayed_state;

typedef struct delayed_store {
    void *block; /* device memory of all states, NULL when there are none */
    int64_t block_bytes;
    tensor seen;           /* fp32[states] */
    int64_t first_reduced; /* index of the first state that is reduced over ranks */
    int64_t reduced;       /* number of such states, which are contiguous */
    tensor input_scales;   /* fp32: the scales of layer inputs, which recomputation must read unchanged */
} delayed_store;

/* Returns the use of q with delayed scaling, rowwise first; NULL: none. */
const cast_spec *delayed_cast(const quant_spec *q);

/* A request for a state; delayed_store_set fills *state. */
typedef struct delayed_request {
    delayed_state *state;
    const cast_spec *spec; /* NULL: no state */
    bool is_input;         /* of a layer's input */
} delayed_request;

/* Makes the store hold exactly the requested states. A state that exists with the same rule and format keeps
   its values; its history is resized if needed. A new state starts with scale 1 and an empty history. */
ott_status delayed_store_set(delayed_store *store, device *d, const delayed_request *requests, int count);
void delayed_store_release(delayed_store *store, device *d);
/* Reduces the current amaxes (max) over the group, for states with spec.reduce. Call it before the update. */
ott_status delayed_reduce(exec *cx, const delayed_store *store, group *g);
/* Appends the current amax to the history, computes the next scale and clears the current amax. */
ott_status delayed_update(exec *cx, const delayed_state *state);

/* Collects updates and runs them in batches. Zero-initialize it except cx. */
enum { DELAYED_LIST = 64 };
typedef struct delayed_updates {
    exec *cx;
    int count; /* pending */
    amax_update_args items[DELAYED_LIST];
} delayed_updates;
ott_status delayed_updates_add(delayed_updates *u, const delayed_state *state);
ott_status delayed_updates_flush(delayed_updates *u); /* runs the pending updates */

#endif
