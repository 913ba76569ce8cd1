/*
 * tensor/plan: where every buffer of a step lives, known before the step runs.
 *
 * A step is written once. It is first recorded: ops only check their arguments, and
 * every plan_open / plan_close is noted as the birth and death of a buffer. plan_seal packs the lifetimes
 * into one arena. From then on the same step is replayed: the n-th plan_open returns the n-th buffer's place.
 * So planned and used memory are the same list, nothing is allocated inside a step, and what activation
 * checkpointing changes is only when a layer closes and opens its buffers.
 *
 * Layers that run outside such a step use a plan in the immediate mode: each buffer is device memory of its
 * own from plan_open to plan_close.
 */
#ifndef TENSOR_PLAN_H
#define TENSOR_PLAN_H

#include "tensor/device.h"

typedef struct plan plan;

/* A buffer of the step. id 0: none, so that zeroed memory holds no buffer. */
typedef struct plan_buffer {
    int32_t id;
    void *data;
} plan_buffer;

#define PLAN_NONE ((plan_buffer){0})

/* Of buffers on the device, which is borrowed. */
ott_status plan_create(device *d, plan **out);
void plan_destroy(plan *p); /* before the device is closed; NULL is allowed */

void plan_record(plan *p);             /* forgets all and starts a recording */
ott_status plan_seal(plan *p);         /* ends it: packs; every buffer must have been closed */
int64_t plan_bytes(const plan *p);     /* size of the arena a sealed plan needs */
int64_t plan_live_peak(const plan *p); /* most bytes alive at once: the least any packing could need */
/* Marks the moment of a recording when forward is over and its activations wait for backward; nothing in the
   other modes. plan_saved: bytes alive at the mark, the most of all marks. */
void plan_mark_saved(plan *p);
int64_t plan_saved(const plan *p);
/* A recording has a message of so many bytes to another rank; the bytes of all that it has had. */
int64_t plan_add_message(plan *p, int64_t bytes);
void plan_bind(plan *p, void *arena); /* device memory of at least plan_bytes; not owned */
void plan_replay(plan *p);            /* back to the first buffer, before each run of the step */
bool plan_recording(const plan *p);
bool plan_is_recorded(const void *data); /* of a buffer, or a part of one, that a recording has opened */
/* Forgets all; from then on plan_open allocates from the device at once and plan_close gives back. What
   is still open is given back by plan_destroy, plan_record or plan_immediate. */
void plan_immediate(plan *p);
/* Test hook: a replay fills each buffer with 0xFF (NaN in every format) when it is closed, so that reading it later
   shows. */
void plan_poison(plan *p);

/* `what` is a static text; a replay that asks for another what or size than the recording is an internal
 * error. */
ott_status plan_open(plan *p, const char *what, int64_t bytes, plan_buffer *out);
ott_status plan_close(plan *p, plan_buffer *b); /* sets it to PLAN_NONE; closing PLAN_NONE is nothing */

#endif
