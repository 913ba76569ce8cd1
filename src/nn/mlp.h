/*
 * nn/mlp: the SwiGLU MLP (Shazeer 2020): y = silu(x W_gate^T) * (x W_up^T), out = y W_down^T. gate and up are
 * two projections or one. Variants: GeGLU (tanh GELU instead of silu), and f(x W_up^T) without a gate.
 */
#ifndef NN_MLP_H
#define NN_MLP_H

#include "nn/linear/linear.h"

typedef struct mlp {
    linear gate_up;        /* fused projection with the rows of gate, then up; weight NULL: two projections */
    linear gate, up, down; /* gate.weight NULL and not fused: no gate */
    bool activates;        /* true: the activation is `function`; false: silu, with a gate */
    activate_kind function;
    activation_specs input_specs;  /* specs of the input of gate and up, all ranks' rows */
    activation_specs hidden_specs; /* specs of y, the input of down */
    activation_specs grad_specs;   /* specs of the gradient of `out`, all ranks' rows */
    activation_specs grad_gate_up, grad_gate, grad_up; /* specs of the gradients of gate and up */
    bool stores_fp8; /* saves gate and up in FP8, which changes gradients; set it before mlp_connect */
    activation_specs stored_specs; /* specs of stored FP8 copies: E4M3, one scale per row */
    bool smooths;                  /* applies SmoothQuant (tensor/rules/smooth.h) to y if down is FP8 */
} mlp;

/* What forward saves for backward. */
typedef struct mlp_saved {
    tensor gate, up; /* [T,F] outputs; without a gate, `gate` holds up's output */
    tensor gate_up;  /* [T, 2F] if gate and up are fused */
    plan_buffer gate_up_buffer, gate_buffer, up_buffer; /* either gate_up_buffer is open, or gate and up */
    activation y;                                       /* y[T,F] */
    activation stored_gate_up, stored_gate, stored_up;  /* FP8 copies of gate and up, with stores_fp8 */
} mlp_saved;

/* x, out, g and dx have only this rank's rows (nn/tensor_ranks.h). Saved tensors have all T rows. */

/* Connects the projections. *input: specs of this rank's rows of x; *grad_output: of out's gradient. */
ott_status mlp_connect(mlp *m, activation_specs *input, activation_specs *grad_output);
/* Computes gate and up from x[T,D]; opens them in `s`. */
ott_status mlp_forward(exec *cx, mlp *m, const activation *x, mlp_saved *s);
/* Computes y from gate and up; opens y in `s`. */
ott_status mlp_activate(exec *cx, mlp *m, mlp_saved *s);
/* out[T,D] = y W_down^T. */
ott_status mlp_project(exec *cx, mlp *m, mlp_saved *s, const tensor *out);
/* Closes the tensors of `s` that backward does not read. With stores_fp8, gate and up become FP8 copies. */
ott_status mlp_keep(exec *cx, mlp *m, mlp_saved *s);
ott_status mlp_keep_products(exec *cx, mlp_saved *s); /* closes y */
ott_status mlp_discard(exec *cx, mlp_saved *s);       /* closes all tensors of `s` */
/* Computes dx[T,D] and all weight gradients from g, the gradient of out, and the input x. Closes s. */
ott_status mlp_backward(exec *cx, mlp *m, mlp_saved *s, const activation *x, const activation *g,
                        const tensor *dx);

#endif
