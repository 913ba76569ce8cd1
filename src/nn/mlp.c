/* nn/mlp: forward and backward of the SwiGLU MLP. */
#include "nn/mlp.h"

static bool is_fused(const mlp *m) {
    return m->gate_up.weight != NULL;
}

static bool is_gated(const mlp *m) {
    return is_fused(m) || m->gate.weight != NULL;
}

ott_status mlp_connect(mlp *m, activation_specs *input, activation_specs *grad_output) {
    /* Stored gate and up have one scale per row, because single tokens have outliers. */
    int index;
    ott_dtype high = m->down.spec.activation;
    quant_spec spec = {.rowwise = recipe_find("rowwise")->input.rowwise, .columnwise = {.format = high}};
    m->stored_specs = (activation_specs){.shard.column_ranks = m->down.ranks.group};
    if (m->stores_fp8) TRY(activation_specs_add(&m->stored_specs, &spec, NULL, false, &index));
    m->input_specs = m->hidden_specs = m->grad_specs = (activation_specs){0};
    m->grad_gate_up = m->grad_gate = m->grad_up = (activation_specs){0};
    if (is_fused(m)) {
        TRY(linear_connect(&m->gate_up, &m->input_specs, &m->grad_gate_up));
    } else {
        if (is_gated(m)) TRY(linear_connect(&m->gate, &m->input_specs, &m->grad_gate));
        TRY(linear_connect(&m->up, &m->input_specs, &m->grad_up));
    }
    TRY(linear_connect(&m->down, &m->hidden_specs, &m->grad_specs));
    *input = tensor_ranks_own_specs(&m->down.ranks, &m->input_specs);
    *grad_output = tensor_ranks_own_specs(&m->down.ranks, &m->grad_specs);
    return OTT_OK;
}

/* Views of gate and up as columns of the fused projection's output, or of its gradient. */
static void split_gate_up(const tensor *gate_up, tensor *gate, tensor *up) {
    int64_t width = gate_up->columns / 2;
    *gate = tensor_columns(*gate_up, 0, width);
    *up = tensor_columns(*gate_up, width, width);
}

static ott_status gather_input(exec *cx, const mlp *m, const activation *x, activation *all) {
    return tensor_ranks_gather(cx, &m->down.ranks, "gathered mlp input", &m->input_specs, x, all);
}

static ott_status project_inputs(exec *cx, mlp *m, const activation *x, mlp_saved *s) {
    ott_dtype act = x->t.dtype;
    int64_t tokens = x->t.rows;
    if (is_fused(m)) {
        TRY(exec_open(cx, "gate and up", act, tokens, m->gate_up.out, &s->gate_up, &s->gate_up_buffer));
        split_gate_up(&s->gate_up, &s->gate, &s->up);
        return linear_forward(cx, &m->gate_up, x, &s->gate_up);
    }
    TRY(exec_open(cx, "gate", act, tokens, m->up.out, &s->gate, &s->gate_buffer));
    if (!is_gated(m)) return linear_forward(cx, &m->up, x, &s->gate);
    TRY(exec_open(cx, "up", act, tokens, m->up.out, &s->up, &s->up_buffer));
    TRY(linear_forward(cx, &m->gate, x, &s->gate));
    return linear_forward(cx, &m->up, x, &s->up);
}

ott_status mlp_forward(exec *cx, mlp *m, const activation *x, mlp_saved *s) {
    activation all;
    TRY(gather_input(cx, m, x, &all));
    TRY(project_inputs(cx, m, &all, s));
    return activation_close(cx, &all);
}

/* True if this pass uses SmoothQuant. It needs a down projection that is FP8 and not packed. */
static bool smooths(const mlp *m) {
    return m->smooths && m->down.source.kind != &weight_packed &&
           cast_spec_is_fp8(&m->down.spec.input.rowwise) && cast_spec_is_fp8(&m->down.spec.weight.rowwise);
}

ott_status mlp_activate(exec *cx, mlp *m, mlp_saved *s) {
    TRY(activation_open(cx, "swiglu output", s->gate.dtype, s->gate.rows, s->gate.columns, &m->hidden_specs,
                        &s->y));
    const tensor *up = is_gated(m) ? &s->up : NULL;
    const qlist *fused = smooths(m) ? NULL : activation_fused(&s->y);
    if (m->activates)
        TRY(op_activate_forward(cx, &(activate_forward_args){&s->gate, up, &s->y.t, fused, m->function}));
    else
        TRY(op_swiglu_forward(cx, &(swiglu_forward_args){&s->gate, up, &s->y.t, fused}));
    if (!smooths(m)) return activation_finish(cx, &s->y);
    TRY(activation_smooth(cx, &s->y));
    return activation_quantize(cx, &s->y);
}

ott_status mlp_project(exec *cx, mlp *m, mlp_saved *s, const tensor *out) {
    return linear_forward(cx, &m->down, &s->y, out);
}

/* Replaces t by its FP8 copy. */
static ott_status store_fp8(exec *cx, const mlp *m, const tensor *t, plan_buffer *buffer,
                            activation *stored) {
    TRY(activation_adopt(cx, "stored mlp input", *t, buffer, &m->stored_specs, stored));
    TRY(activation_quantize(cx, stored));
    return activation_close_tensor(cx, stored);
}

static ott_status restore_input(exec *cx, activation *stored, tensor *t, plan_buffer *buffer) {
    TRY(exec_open(cx, "restored mlp input", t->dtype, t->rows, t->columns, t, buffer));
    TRY(op_dequantize(cx, &(dequantize_args){.q = activation_copy(stored, 0), .y = t}));
    return activation_close(cx, stored);
}

static ott_status store_inputs(exec *cx, const mlp *m, mlp_saved *s) {
    if (!m->stores_fp8) return OTT_OK;
    if (is_fused(m)) return store_fp8(cx, m, &s->gate_up, &s->gate_up_buffer, &s->stored_gate_up);
    TRY(store_fp8(cx, m, &s->gate, &s->gate_buffer, &s->stored_gate));
    return is_gated(m) ? store_fp8(cx, m, &s->up, &s->up_buffer, &s->stored_up) : OTT_OK;
}

static ott_status restore_inputs(exec *cx, const mlp *m, mlp_saved *s) {
    if (!m->stores_fp8) return OTT_OK;
    if (!is_fused(m)) {
        TRY(restore_input(cx, &s->stored_gate, &s->gate, &s->gate_buffer));
        return is_gated(m) ? restore_input(cx, &s->stored_up, &s->up, &s->up_buffer) : OTT_OK;
    }
    TRY(restore_input(cx, &s->stored_gate_up, &s->gate_up, &s->gate_up_buffer));
    split_gate_up(&s->gate_up, &s->gate, &s->up);
    return OTT_OK;
}

ott_status mlp_keep(exec *cx, mlp *m, mlp_saved *s) {
    TRY(store_inputs(cx, m, s));
    return activation_keep_for_backward(cx, &s->y, &m->hidden_specs, false);
}

ott_status mlp_keep_products(exec *cx, mlp_saved *s) {
    return activation_close(cx, &s->y);
}

ott_status mlp_discard(exec *cx, mlp_saved *s) {
    TRY(activation_close(cx, &s->stored_gate_up));
    TRY(activation_close(cx, &s->stored_gate));
    TRY(activation_close(cx, &s->stored_up));
    TRY(plan_close(cx->plan, &s->gate_up_buffer));
    TRY(plan_close(cx->plan, &s->gate_buffer));
    TRY(plan_close(cx->plan, &s->up_buffer));
    return activation_close(cx, &s->y);
}

/* Computes dy and accumulates down's weight gradient. Closes y. */
static ott_status backward_projection(exec *cx, mlp *m, mlp_saved *s, const activation *g, tensor *dy,
                                      plan_buffer *buffer) {
    activation all;
    TRY(exec_open(cx, "swiglu output gradient", s->gate.dtype, s->gate.rows, s->gate.columns, dy, buffer));
    TRY(tensor_ranks_gather(cx, &m->down.ranks, "gathered output gradient", &m->grad_specs, g, &all));
    TRY(linear_grad_input(cx, &m->down, &all, dy, false));
    TRY(linear_grad_weight(cx, &m->down, &s->y, &all));
    TRY(activation_close(cx, &all));
    return activation_close(cx, &s->y);
}

/* Computes the gradients of gate and up from dy, with quantized copies q_gate and q_up. dup NULL: no gate. */
static ott_status backward_activation(exec *cx, const mlp *m, const mlp_saved *s, const tensor *dy,
                                      const tensor *dgate, const tensor *dup, const qlist *q_gate,
                                      const qlist *q_up) {
    const tensor *up = dup ? &s->up : NULL;
    if (m->activates)
        return op_activate_backward(
            cx, &(activate_backward_args){dy, &s->gate, up, dgate, dup, q_gate, q_up, m->function});
    return op_swiglu_backward(cx, &(swiglu_backward_args){dy, &s->gate, up, dgate, dup, q_gate, q_up});
}

/* The gradients of gate and up overwrite gate and up in their fused buffer. */
static ott_status backward_fused(exec *cx, mlp *m, mlp_saved *s, const activation *x, const tensor *dy,
                                 plan_buffer *dy_buffer, const tensor *dx) {
    activation g;
    TRY(activation_adopt(cx, "gate and up gradient", s->gate_up, &s->gate_up_buffer, &m->grad_gate_up, &g));
    TRY(backward_activation(cx, m, s, dy, &s->gate, &s->up, NULL, NULL));
    TRY(activation_quantize(cx, &g));
    TRY(plan_close(cx->plan, dy_buffer));
    return linear_backward(cx, &m->gate_up, x, &g, dx, false);
}

static ott_status backward_plain(exec *cx, mlp *m, mlp_saved *s, const activation *x, const tensor *dy,
                                 plan_buffer *dy_buffer, const tensor *dx) {
    activation g;
    TRY(activation_adopt(cx, "up gradient", s->gate, &s->gate_buffer, &m->grad_up, &g));
    TRY(backward_activation(cx, m, s, dy, &g.t, NULL, activation_fused(&g), NULL));
    TRY(activation_finish(cx, &g));
    TRY(plan_close(cx->plan, dy_buffer));
    return linear_backward(cx, &m->up, x, &g, dx, false);
}

/* The gradients of gate and up overwrite gate and up in their two buffers. */
static ott_status backward_separate(exec *cx, mlp *m, mlp_saved *s, const activation *x, const tensor *dy,
                                    plan_buffer *dy_buffer, const tensor *dx) {
    activation dgate, dup;
    TRY(activation_adopt(cx, "gate gradient", s->gate, &s->gate_buffer, &m->grad_gate, &dgate));
    TRY(activation_adopt(cx, "up gradient", s->up, &s->up_buffer, &m->grad_up, &dup));
    TRY(backward_activation(cx, m, s, dy, &dgate.t, &dup.t, activation_fused(&dgate),
                            activation_fused(&dup)));
    TRY(activation_finish(cx, &dgate));
    TRY(activation_finish(cx, &dup));
    TRY(plan_close(cx->plan, dy_buffer));
    TRY(linear_backward(cx, &m->gate, x, &dgate, dx, false));
    return linear_backward(cx, &m->up, x, &dup, dx, true);
}

/* x and dx have the rows of all sequence-parallel ranks. The ranks must sum their dx afterwards. */
static ott_status backward_inputs(exec *cx, mlp *m, mlp_saved *s, const activation *x, const tensor *dy,
                                  plan_buffer *dy_buffer, const tensor *dx) {
    if (is_fused(m)) return backward_fused(cx, m, s, x, dy, dy_buffer, dx);
    if (!is_gated(m)) return backward_plain(cx, m, s, x, dy, dy_buffer, dx);
    return backward_separate(cx, m, s, x, dy, dy_buffer, dx);
}

ott_status mlp_backward(exec *cx, mlp *m, mlp_saved *s, const activation *x, const activation *g,
                        const tensor *dx) {
    const tensor_ranks *ranks = &m->down.ranks;
    tensor dy;
    plan_buffer dy_buffer;
    activation all;
    partial_sum sum;
    TRY(backward_projection(cx, m, s, g, &dy, &dy_buffer));
    TRY(restore_inputs(cx, m, s));
    TRY(gather_input(cx, m, x, &all));
    TRY(tensor_partial_open(cx, ranks, OTT_F32, dx, &sum));
    TRY(backward_inputs(cx, m, s, &all, &dy, &dy_buffer, &sum.t));
    TRY(activation_close(cx, &all));
    return tensor_partial_close(cx, ranks, dx, &sum);
}
