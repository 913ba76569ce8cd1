/*
 * tensor/exec: the execution context, first argument of every op and layer: where, in which phase, with which
 * plan.
 */
#ifndef TENSOR_EXEC_H
#define TENSOR_EXEC_H

#include "base/cancellation.h"
#include "tensor/group.h"
#include "tensor/plan.h"

typedef enum phase {
    PHASE_TRAIN,    /* forward saves for backward; amax histories advance */
    PHASE_EVALUATE, /* nothing is saved, no state changes */
    PHASE_RECOMPUTE /* forward again, with the scales it had */
} phase;

/* What of a training step the ops are part of; recomputation is part of backward. Said by the model's passes and the
   optimizer; what runs between stays with the part before. */
typedef enum exec_part {
    PART_NONE,
    PART_FORWARD,
    PART_BACKWARD,
    PART_REDUCTION, /* of the gradients of all micro-batches, where they travel together */
    PART_OPTIMIZER
} exec_part;

/* Looks on while layers run; a NULL member looks at nothing. */
typedef struct hook {
    /* The output and the output's gradient of every linear layer: `what` is "output" or "grad_output". */
    ott_status (*observe)(void *user, exec *cx, const char *module, const char *what, const tensor *t);
    /* A tensor of a linear layer (training only, not when recomputed) and its quantized form. */
    ott_status (*quantized)(void *user, exec *cx, const char *module, recipe_tensor which, const tensor *t,
                            const qtensor *q);
    void *user;
} hook;

/* Times the ops that run. The forms of a QOUT count for the op that makes them. */
typedef struct exec_times {
    /* Hears of each op when it has run, by the device's clock: when it began, counted from exec_times_start, and how long
       it took. Waits for each. */
    void (*on_op)(void *user, enum op_index op, const void *args, double began, double seconds);
    /* Hears of each collective of several ranks when its output is there: when it was started, by clock_seconds(), how
       long ago that is, and how much of that this rank did nothing but wait. NULL: nobody does. */
    void (*on_collective)(void *user, const collective *call, double began, double seconds, double waited);
    void *user;
    device_event *start, *began, *ended;
} exec_times;

/* on_op and user are set. exec_times_close may follow a failure. */
ott_status exec_times_open(exec_times *t, device *d);
ott_status exec_times_start(exec_times *t, device *d);
void exec_times_close(exec_times *t, device *d);

struct exec {
    device *device;
    plan *plan;
    phase phase;
    exec_part part;
    int64_t step;             /* training steps done; the compute copy of a trained weight belongs to one */
    bool is_first_microbatch; /* of its step; in the others weights are what they were */
    const tensor *
        token; /* i32[2] on the device: the number, in two words, of the micro-batch's first token among all that
                                 the run reads; borrowed; NULL: not known */
    group *data_group; /* ranks that hold the same model and other data */
    /* fp32[1] on the device: what gradients of a layer's own losses, which are means over a micro-batch, are multiplied by: the
       loss scale over the micro-batches of a step. NULL: layers have none. */
    const tensor *pass_scale;
    void *
        workspace; /* of the op that runs: op_table.workspace bytes, aligned as the device wants it; NULL: none */
    const logger *log;
    const cancellation *cancellation; /* may end a pass before any of its matrix products; NULL: nobody */
    const hook *hook;                 /* NULL: none */
    exec_times *times;                /* NULL: ops are not timed */
    int64_t gemms[GEMM_COUNT][2];     /* matrix products run, by role; [1]: with FP8 operands */
};

/* op_gemm. The three roles count apart. OTT_ERR_STOPPED when the watch says so, but not while it is recorded. */
ott_status exec_gemm(exec *cx, recipe_gemm role, const gemm_args *args);
/* op_grouped_gemm and op_grouped_gemm_weight in the same way; each counts as one. */
ott_status exec_grouped_gemm(exec *cx, recipe_gemm role, const grouped_gemm_args *args);
ott_status exec_grouped_gemm_weight(exec *cx, const grouped_gemm_weight_args *args);
/* Shows a module's tensor to the hook, if there is one and nothing is being recorded. */
ott_status exec_hook(exec *cx, const char *module, const char *what, const tensor *t);
ott_status exec_hook_quantized(exec *cx, const char *module, recipe_tensor which, const tensor *t,
                               const qtensor *q);

/* A planned buffer as a dense tensor. */
ott_status exec_open(exec *cx, const char *what, ott_dtype d, int64_t rows, int64_t columns, tensor *t,
                     plan_buffer *b);

#endif
