/* nn/mlp: forward and backward of the SwiGLU MLP. */
#include "nn/mlp.h"

ott_status mlp_connect(mlp *m, edge_specs *input, edge_specs *grad_output) {
    m->hidden_specs = m->grad_gate = m->grad_up = (edge_specs){0};
    TRY(linear_connect(&m->gate, input, &m->grad_gate));
    TRY(linear_connect(&m->up, input, &m->grad_up));
    return linear_connect(&m->down, &m->hidden_specs, grad_output);
}

ott_status mlp_forward(exec *cx, mlp *m, const edge *x, mlp_saved *s) {
    TRY(exec_open(cx, "gate", x->t.dtype, x->t.rows, m->gate.out, &s->gate, &s->gate_buffer));
    TRY(exec_open(cx, "up", x->t.dtype, x->t.rows, m->up.out, &s->up, &s->up_buffer));
    TRY(linear_forward(cx, &m->gate, x, &s->gate));
    return linear_forward(cx, &m->up, x, &s->up);
}

ott_status mlp_activate(exec *cx, mlp *m, mlp_saved *s) {
    TRY(edge_open(cx, "swiglu output", s->gate.dtype, s->gate.rows, s->gate.columns, &m->hidden_specs,
                  &s->y));
    return op_swiglu_forward(
        cx, &(swiglu_forward_args){.gate = &s->gate, .up = &s->up, .y = &s->y.t, .q = &s->y.q});
}

ott_status mlp_project(exec *cx, mlp *m, const mlp_saved *s, const tensor *out) {
    return linear_forward(cx, &m->down, &s->y, out);
}

ott_status mlp_keep(exec *cx, mlp *m, mlp_saved *s) {
    return edge_keep_for_backward(cx, &s->y, &m->hidden_specs, false);
}

ott_status mlp_discard(exec *cx, mlp_saved *s) {
    TRY(plan_close(cx->plan, &s->gate_buffer));
    TRY(plan_close(cx->plan, &s->up_buffer));
    return edge_close(cx, &s->y);
}

/* The gradients of gate and up take over the buffers of gate and up. */
static ott_status backward_activation(exec *cx, mlp *m, mlp_saved *s, const tensor *dy, edge *dgate,
                                      edge *dup) {
    TRY(edge_adopt(cx, "gate gradient", s->gate, &s->gate_buffer, &m->grad_gate, dgate));
    TRY(edge_adopt(cx, "up gradient", s->up, &s->up_buffer, &m->grad_up, dup));
    return op_swiglu_backward(cx, &(swiglu_backward_args){.dy = dy,
                                                          .gate = &s->gate,
                                                          .up = &s->up,
                                                          .dgate = &dgate->t,
                                                          .dup = &dup->t,
                                                          .q_gate = &dgate->q,
                                                          .q_up = &dup->q});
}

ott_status mlp_backward(exec *cx, mlp *m, mlp_saved *s, const edge *x, const edge *g, const tensor *dx) {
    tensor dy;
    plan_buffer dy_buffer;
    edge dgate, dup;
    TRY(exec_open(cx, "swiglu output gradient", s->gate.dtype, s->gate.rows, s->gate.columns, &dy,
                  &dy_buffer));
    TRY(linear_grad_input(cx, &m->down, g, &dy, false));
    TRY(linear_grad_weight(cx, &m->down, &s->y, g));
    TRY(edge_close(cx, &s->y));
    TRY(backward_activation(cx, m, s, &dy, &dgate, &dup));
    TRY(plan_close(cx->plan, &dy_buffer));
    TRY(linear_grad_input(cx, &m->gate, &dgate, dx, false));
    TRY(linear_grad_weight(cx, &m->gate, x, &dgate));
    TRY(edge_close(cx, &dgate));
    TRY(linear_grad_input(cx, &m->up, &dup, dx, true));
    TRY(linear_grad_weight(cx, &m->up, x, &dup));
    return edge_close(cx, &dup);
}
