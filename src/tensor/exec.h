/*
 * tensor/exec: the execution context, first argument of every op and layer: where, in which phase, with which
 * plan.
 */
#ifndef TENSOR_EXEC_H
#define TENSOR_EXEC_H

#include "base/log.h"
#include "tensor/group.h"
#include "tensor/plan.h"

typedef enum phase {
    PHASE_TRAIN,    /* forward saves for backward; amax histories advance */
    PHASE_EVALUATE, /* nothing is saved, no state changes */
    PHASE_RECOMPUTE /* forward again, with the scales it had */
} phase;

/* Sees the output of every module, for health checks: `what` is "output" or "grad_output". */
typedef struct probe {
    ott_status (*see)(void *user, exec *cx, const char *module, const char *what, const tensor *t);
    void *user;
} probe;

struct exec {
    device *device;
    plan *plan;
    phase phase;
    int64_t step; /* optimizer updates the parameters have seen; a weight's compute copy belongs to one */
    group *data_group; /* ranks that hold the same model and other data */
    const logger *log;
    const probe *probe;           /* NULL: none */
    int64_t gemms[GEMM_COUNT][2]; /* matrix products run, by role; [1]: with FP8 operands */
};

/* The three roles count apart; called by layers right before op_gemm. */
ott_status exec_gemm(exec *cx, recipe_gemm role, const gemm_args *args);
/* Shows a module's tensor to the probe, if there is one and nothing is being recorded. */
ott_status exec_probe(exec *cx, const char *module, const char *what, const tensor *t);

/* A planned buffer as a dense tensor. */
ott_status exec_open(exec *cx, const char *what, ott_dtype d, int64_t rows, int64_t columns, tensor *t,
                     plan_buffer *b);

#endif
