/*
 * tensor/exec: the execution context, the first argument of every op and layer: device, memory plan, phase,
 * step, and hooks.
 */
#ifndef TENSOR_EXEC_H
#define TENSOR_EXEC_H

#include "base/cancellation.h"
#include "tensor/group/group.h"
#include "tensor/plan.h"

typedef enum phase {
    PHASE_TRAIN,    /* forward saves what backward needs; amax histories advance */
    PHASE_EVALUATE, /* forward saves nothing, and no state changes */
    PHASE_RECOMPUTE /* forward runs again during backward, with the scales of its first run */
} phase;

/* What a training step is doing. Recomputation counts as backward. A model's forward and backward and the
   optimizer set exec.part; other code does not change it. */
typedef enum exec_part {
    PART_NONE,
    PART_FORWARD,
    PART_BACKWARD,
    PART_REDUCTION, /* reduction of gradients over ranks that is done once a step, after all micro-batches */
    PART_OPTIMIZER
} exec_part;

/* Callbacks that observe tensors of layers while they run; NULL members are not called. */
typedef struct hook {
    /* Called for every linear layer. what: "output", or "grad_output" for the gradient of the output. */
    ott_status (*observe)(void *user, exec *cx, const char *module, const char *what, const tensor *t);
    /* Called for each tensor that a linear layer quantizes, in PHASE_TRAIN. q: its quantized copy. */
    ott_status (*quantized)(void *user, exec *cx, const char *module, recipe_tensor which, const tensor *t,
                            const qtensor *q);
    void *user;
} hook;

/* Timers of ops and collectives. Quantizing fused into an op (QOUT) is timed as part of that op. */
typedef struct exec_times {
    /* Called when an op is finished. began: the op's start, in seconds since exec_times_start. seconds: the
       op's duration. Both are times of the device's clock. Timing makes the host wait for each op. */
    void (*on_op)(void *user, enum op_index op, const void *args, double began, double seconds);
    /* Called after each collective of several ranks. began: clock_seconds() at the start. seconds: the
       duration. waited: seconds that this rank spent in group_wait. NULL: not called. */
    void (*on_collective)(void *user, const collective *call, double began, double seconds, double waited);
    void *user;
    device_event *start, *began, *ended;
} exec_times;

/* Creates the events of t. Set on_op and user before. Call exec_times_close even after an error. */
ott_status exec_times_open(exec_times *t, device *d);
ott_status exec_times_start(exec_times *t, device *d); /* on_op's `began` counts from this call */
void exec_times_close(exec_times *t, device *d);

struct exec {
    device *device;
    plan *plan;
    phase phase;
    exec_part part;
    int64_t step;             /* finished training steps; weights are quantized again in each step */
    bool is_first_microbatch; /* first micro-batch of the step; later ones use the same weights */
    /* i32[2] on the device (low word first): tokens of the run before this micro-batch; may be NULL */
    const tensor *token;
    group *data_group; /* ranks that hold the same part of the model and train on other data */
    /* fp32[1] on the device: loss scale / number of micro-batches of a step. Layers that add losses (router
       losses) multiply the gradients of these losses by this number. NULL: no layer adds losses. */
    const tensor *pass_scale;
    void *workspace; /* aligned workspace of the running op, op_table.workspace bytes; NULL: none */
    const logger *log;
    const cancellation *cancellation; /* checked before each GEMM; NULL: none */
    const hook *hook;                 /* callbacks; NULL: none */
    exec_times *times;                /* NULL: ops are not timed */
    int64_t gemms[GEMM_COUNT][2];     /* GEMMs run, by role; [1] counts GEMMs with FP8 operands, [0] others */
};

/* Calls cx->hook->observe (or quantized), unless there is no such function or a plan is being recorded. */
ott_status exec_hook(exec *cx, const char *module, const char *what, const tensor *t);
ott_status exec_hook_quantized(exec *cx, const char *module, recipe_tensor which, const tensor *t,
                               const qtensor *q);

/* Opens a planned buffer as a dense tensor; close it with plan_close(cx->plan, b). */
ott_status exec_open(exec *cx, const char *what, ott_dtype d, int64_t rows, int64_t columns, tensor *t,
                     plan_buffer *b);

#endif
