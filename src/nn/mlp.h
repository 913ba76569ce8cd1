/*
 * nn/mlp: the SwiGLU MLP (Shazeer 2020): y = silu(x W_gate^T) * (x W_up^T), then down. gate and up are two
 * projections, or one whose columns they are. With GELU by tanh for silu it is GeGLU, and without a gate y = f(x W_up^T).
 */
#ifndef NN_MLP_H
#define NN_MLP_H

#include "nn/linear.h"

typedef struct mlp {
    linear gate_up;        /* gate and up in one, their rows in this order; weight NULL: they are apart */
    linear gate, up, down; /* gate.weight NULL, and they are apart: there is none */
    bool activates;        /* f is op_activate's `function`; else silu, with a gate */
    activate_kind function;
    activation_specs input_specs;  /* of the input's whole rows, wanted by gate_up, or by gate and up */
    activation_specs hidden_specs; /* of y, wanted by down */
    activation_specs grad_specs;   /* of the whole rows of the output's gradient */
    activation_specs grad_gate_up, grad_gate, grad_up; /* of the gradient of gate_up, or of gate and up */
    bool stores_fp8; /* gate and up wait for backward in FP8: a change of the gradients, for half the
                                memory; chosen before mlp_connect */
    activation_specs stored_specs; /* of what waits: E4M3, one scale a row */
    /* y's channels are divided by powers of two of theirs before the cast (tensor/smooth.h), where down is in FP8 */
    bool smooths;
} mlp;

typedef struct mlp_saved {
    tensor gate, up; /* [T,F]; without a gate what is activated is `gate` */
    tensor gate_up;  /* [T, 2F], when they are one */
    plan_buffer gate_up_buffer, gate_buffer, up_buffer; /* that of gate_up, or those of gate and up */
    activation y;                                       /* [T,F] */
    activation stored_gate_up, stored_gate, stored_up;  /* what waits in their place, with stores_fp8 */
} mlp_saved;

/* The rows of x, out, g and dx are those that are here between layers (nn/tensor_ranks.h), of what is saved all T. */
ott_status mlp_connect(mlp *m, activation_specs *input, activation_specs *grad_output);
/* Opens gate and up of `s` from x[T,D]. */
ott_status mlp_forward(exec *cx, mlp *m, const activation *x, mlp_saved *s);
/* Opens y of `s` from gate and up. */
ott_status mlp_activate(exec *cx, mlp *m, mlp_saved *s);
/* out[T,D] = y W_down^T. */
ott_status mlp_project(exec *cx, mlp *m, const mlp_saved *s, const tensor *out);
/* Closes what backward does not read; with stores_fp8, gate and up become FP8. */
ott_status mlp_keep(exec *cx, mlp *m, mlp_saved *s);
ott_status mlp_discard(exec *cx, mlp_saved *s); /* closes all */
/* From g, the gradient of out, and the input x: dx[T,D] and all weight gradients. Closes all of s. */
ott_status mlp_backward(exec *cx, mlp *m, mlp_saved *s, const activation *x, const activation *g,
                        const tensor *dx);

#endif
