/*
 * nn/delayed: the state of delayed scaling (fp8/history.h): for each tensor of a linear layer whose recipe
 * says so, the largest magnitude seen since the last update, the amax_history of earlier ones, and the scale that
 * follows. The states of a set of layers lie in one store on the device, what was seen side by side, so that
 * ranks reduce all of it at once.
 */
#ifndef NN_DELAYED_H
#define NN_DELAYED_H

#include "tensor/exec.h"

/* Of one tensor. All views; data NULL when its scaling is not delayed. */
typedef struct delayed_state {
    cast_spec spec;
    tensor seen, scale;  /* fp32[1] */
    tensor amax_history; /* fp32[spec.history] */
} delayed_state;

typedef struct delayed_store {
    void *block; /* device memory of all states, NULL when there are none */
    int64_t block_bytes;
    tensor seen;           /* fp32[states] */
    int64_t first_reduced; /* of them those that are reduced over ranks: these, */
    int64_t reduced;       /* so many */
    tensor input_scales;   /* fp32: those that a forward reads, which recomputation reads again */
} delayed_store;

/* What of a tensor's two uses is delayed; NULL: neither. */
const cast_spec *delayed_cast(const quant_spec *q);

/* A state that is wanted, and where it goes. */
typedef struct delayed_request {
    delayed_state *state;
    const cast_spec *spec; /* NULL: none is wanted */
    bool is_input;         /* of a layer */
} delayed_request;

/* Makes the store hold exactly the wanted states: one that was there with the same rule and format keeps its
   values (its amax_history is resized when only the length differs), another starts with scale 1 and an empty
   amax_history. */
ott_status delayed_store_set(delayed_store *store, device *d, const delayed_request *wanted, int count);
void delayed_store_release(delayed_store *store, device *d);
/* The largest of all ranks of the group, where the specs ask for it; before an update. */
ott_status delayed_reduce(exec *cx, const delayed_store *store, group *g);
/* What was seen moves the amax_history on and gives the next scale. */
ott_status delayed_update(exec *cx, const delayed_state *state);

/* Updates of many states, which stay where they are until the rest is done. */
enum { DELAYED_LIST = 64 };
typedef struct delayed_updates {
    exec *cx;
    int count; /* put off */
    amax_update_args items[DELAYED_LIST];
} delayed_updates;
ott_status delayed_updates_add(delayed_updates *u, const delayed_state *state);
ott_status delayed_updates_flush(delayed_updates *u); /* those that were put off */

#endif
