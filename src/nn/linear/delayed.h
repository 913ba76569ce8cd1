/*
 * nn/linear/delayed: state of delayed scaling (fp8/history.h). Each tensor of a linear layer with a delayed
 * recipe has the amax since the last update, a history of earlier amaxes, and the scale of the next cast. All
 * states of a model are in one device block. Amaxes since the last update are contiguous, for one collective.
 */
#ifndef NN_LINEAR_DELAYED_H
#define NN_LINEAR_DELAYED_H

#include "tensor/exec.h"

/* State of one tensor: views into a delayed_store. seen.data NULL: scaling is not delayed. */
typedef struct delayed_state {
    cast_spec spec;
    tensor seen, scale;  /* fp32[1] each; seen: amax since the last update; scale: scale of the next cast */
    tensor amax_history; /* fp32[spec.history] earlier amaxes */
} delayed_state;

typedef struct delayed_store {
    void *block; /* device memory of all states, NULL when there are none */
    int64_t block_bytes;
    tensor seen;           /* fp32[states]: `seen` of all states */
    int64_t first_reduced; /* index of the first state with spec.reduce */
    int64_t reduced;       /* number of states with spec.reduce; they are contiguous */
    tensor input_scales;   /* fp32: the scales of layer inputs, which recomputation must read unchanged */
} delayed_store;

/* Returns q's rowwise or columnwise cast, the first that has delayed scaling; NULL if neither has. */
const cast_spec *delayed_cast(const quant_spec *q);

/* A request for a state; delayed_store_set fills *state. */
typedef struct delayed_request {
    delayed_state *state;
    const cast_spec *spec; /* spec of the delayed use; NULL: no state */
    bool is_input;         /* the state belongs to a layer's input */
} delayed_request;

/* Makes the store hold exactly the requested states. A state that exists with the same format and margin
   keeps its values; its history is resized. A new state starts with scale 1 and an empty history. */
ott_status delayed_store_set(delayed_store *store, device *d, const delayed_request *requests, int count);
void delayed_store_release(delayed_store *store, device *d);
/* Reduces `seen` of the states with spec.reduce over the group (maximum). Call it before delayed_update. */
ott_status delayed_reduce(exec *cx, const delayed_store *store, group *g);
/* Records the amax of q in `seen`. No effect if scaling is not delayed. */
ott_status delayed_record(exec *cx, const delayed_state *state, const qtensor *q);
/* Appends `seen` to the history, computes the next scale, and sets `seen` to 0. */
ott_status delayed_update(exec *cx, const delayed_state *state);

/* Collects updates and runs them in batches of DELAYED_LIST. Initialize all members but cx to 0. */
enum { DELAYED_LIST = 64 };
typedef struct delayed_updates {
    exec *cx;
    int count; /* number of pending updates */
    amax_update_args items[DELAYED_LIST];
} delayed_updates;
ott_status delayed_updates_add(delayed_updates *u, const delayed_state *state);
ott_status delayed_updates_flush(delayed_updates *u); /* runs the pending updates */

#endif
