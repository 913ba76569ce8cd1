/*
 * tensor/plan: the memory plan: assigns every buffer of a step an offset in one arena before the step runs.
 *
 * The same code is first recorded, then replayed. During the recording, ops only check their arguments, and
 * plan_open and plan_close record the lifetime of each buffer. plan_seal computes the offsets; buffers may
 * overlap if their lifetimes do not. In a replay, the n-th plan_open returns the n-th recorded buffer. So
 * nothing is allocated inside a step, the step's memory is known beforehand, and activation checkpointing
 * only changes when layers open and close buffers.
 *
 * Layers that run outside such a step use a plan in immediate mode: each buffer is allocated by plan_open and
 * freed by plan_close.
 */
#ifndef TENSOR_PLAN_H
#define TENSOR_PLAN_H

#include "tensor/device.h"

typedef struct plan plan;

/* A buffer of the step. A struct of zeros is PLAN_NONE: no buffer. */
typedef struct plan_buffer {
    int32_t id;
    void *data;
} plan_buffer;

#define PLAN_NONE ((plan_buffer){0})

/* Creates an empty plan for buffers on device d, which must outlive the plan. */
ott_status plan_create(device *d, plan **out);
void plan_destroy(plan *p); /* call plan_destroy before the device is closed; p may be NULL */

void plan_record(plan *p);     /* clears the plan and starts a recording */
ott_status plan_seal(plan *p); /* ends the recording and computes the offsets; every buffer must be closed */
int64_t plan_bytes(const plan *p); /* arena size that a sealed plan needs */
/* Returns the largest sum of the bytes of buffers that are open together. No arena can be smaller. */
int64_t plan_live_peak(const plan *p);
/* In a recording, notes the bytes of all open buffers; otherwise does nothing. Call it at the end of a
   forward, when the activations for backward are open. plan_saved returns the largest noted number. */
void plan_mark_saved(plan *p);
int64_t plan_saved(const plan *p);
/* Records that the step sends `bytes` bytes to another rank. Returns the bytes of all sends so far. */
int64_t plan_add_message(plan *p, int64_t bytes);
void plan_bind(plan *p, void *arena);    /* arena: device memory of at least plan_bytes; borrowed */
void plan_replay(plan *p);               /* starts a replay: call it before each run of the step */
bool plan_recording(const plan *p);      /* true during a recording; false if p is NULL */
bool plan_is_recorded(const void *data); /* true if the address is in a buffer that a recording opened */
/* Clears the plan and switches to immediate mode. Buffers that stay open are freed by plan_destroy,
   plan_record or plan_immediate. */
void plan_immediate(plan *p);
/* For tests: replays fill each closed buffer with 0xFF (NaN in every format), to reveal reads of it. */
void plan_poison(plan *p);

/* Opens a buffer. `what` is a static string. OTT_ERR_INTERNAL if a replay differs from the recording. */
ott_status plan_open(plan *p, const char *what, int64_t bytes, plan_buffer *out);
ott_status plan_close(plan *p, plan_buffer *b); /* ends the buffer's lifetime, sets *b to PLAN_NONE */

#endif
