/*
 * Layers that differ in kind: a model whose second layer has another feed-forward than its first, a single
 * projection u with y = silu(u) * u. Its list, gradients and every kind of checkpointing follow from the kind's row.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/tiny_model.h"

/* ---- the second kind, in the MLP's places ---- */

static bool has(const model_options *o, module_role role) {
    (void)o;
    return role == ROLE_UP || role == ROLE_DOWN;
}

static void store_nothing(block *b, bool store) {
    (void)b;
    (void)store;
}

static ott_status connect(block *b) {
    b->mlp.hidden_specs = b->mlp.grad_up = (activation_specs){0};
    TRY(linear_connect(&b->mlp.up, &b->mlp_input, &b->mlp.grad_up));
    return linear_connect(&b->mlp.down, &b->mlp.hidden_specs, &b->grad_mlp);
}

static ott_status forward(exec *cx, block *b, block_saved *s) {
    TRY(exec_open(cx, "up", s->n2.t.dtype, s->n2.t.rows, b->mlp.up.out, &s->mlp.up, &s->mlp.up_buffer));
    return linear_forward(cx, &b->mlp.up, &s->n2, &s->mlp.up);
}

static ott_status activate(exec *cx, block *b, block_saved *s) {
    const tensor *u = &s->mlp.up;
    TRY(activation_open(cx, "output", u->dtype, u->rows, u->columns, &b->mlp.hidden_specs, &s->mlp.y));
    TRY(op_swiglu_forward(
        cx, &(swiglu_forward_args){.gate = u, .up = u, .y = &s->mlp.y.t, .q = activation_fused(&s->mlp.y)}));
    return activation_finish(cx, &s->mlp.y);
}

static ott_status project(exec *cx, block *b, block_saved *s, const tensor *out) {
    return linear_forward(cx, &b->mlp.down, &s->mlp.y, out);
}

static ott_status keep(exec *cx, block *b, block_saved *s) {
    return activation_keep_for_backward(cx, &s->mlp.y, &b->mlp.hidden_specs, false);
}

static ott_status keep_products(exec *cx, block_saved *s) {
    return activation_close(cx, &s->mlp.y);
}

static ott_status discard(exec *cx, block_saved *s) {
    TRY(plan_close(cx->plan, &s->mlp.up_buffer));
    return activation_close(cx, &s->mlp.y);
}

/* du is the sum of the gradients that silu(u) * u has by either factor. */
static ott_status backward_activation(exec *cx, const tensor *u, const tensor *dy, const tensor *du) {
    tensor other;
    plan_buffer buffer;
    TRY(exec_open(cx, "gradient of a factor", u->dtype, u->rows, u->columns, &other, &buffer));
    TRY(op_swiglu_backward(
        cx, &(swiglu_backward_args){.dy = dy, .gate = u, .up = u, .dgate = du, .dup = &other}));
    TRY(op_add(cx, &(add_args){.x = du, .delta = &other, .y = du}));
    return plan_close(cx->plan, &buffer);
}

static ott_status backward(exec *cx, block *b, block_saved *s, const activation *g, const tensor *dn2) {
    const tensor *u = &s->mlp.up;
    tensor dy;
    plan_buffer dy_buffer;
    activation du;
    TRY(exec_open(cx, "output gradient", u->dtype, u->rows, u->columns, &dy, &dy_buffer));
    TRY(linear_grad_input(cx, &b->mlp.down, g, &dy, false));
    TRY(linear_grad_weight(cx, &b->mlp.down, &s->mlp.y, g));
    TRY(activation_close(cx, &s->mlp.y));
    TRY(activation_open(cx, "up gradient", u->dtype, u->rows, u->columns, &b->mlp.grad_up, &du));
    TRY(backward_activation(cx, u, &dy, &du.t));
    TRY(activation_quantize(cx, &du));
    TRY(plan_close(cx->plan, &dy_buffer));
    TRY(plan_close(cx->plan, &s->mlp.up_buffer));
    return linear_backward(cx, &b->mlp.up, &s->n2, &du, dn2, false);
}

static const ffn_kind squared = {has,     store_nothing, connect,       forward, activate,
                                 project, keep,          keep_products, discard, backward};

/* ---- models ---- */

static const ffn_kind *const kinds[] = {&ffn_mlp, &squared};

static void open_mixed(tiny *t, const char *name) {
    model_options o = tiny_options();
    o.ffn = kinds;
    tiny_open(t, &o, 1, NULL);
    tiny_randomize(t);
    tiny_convert(t, recipe_find(name), NULL, NULL);
    tiny_random_batch(t, 2, 8);
}

static void each_layer_has_its_own_modules(void **state) {
    (void)state;
    tiny t;
    open_mixed(&t, "fp32");
    int gates = 0, ups = 0;
    for (int i = 0; i < t.m->modules.count; i++) {
        const model_module *m = &t.m->modules.of[i];
        gates += m->role == ROLE_GATE;
        ups += m->role == ROLE_UP;
        if (m->role == ROLE_GATE) assert_int_equal(m->layer, 0);
        if (m->role == ROLE_UP) assert_ptr_equal(m->linear, &t.m->blocks[m->layer].mlp.up);
    }
    assert_int_equal(gates, 1);
    assert_int_equal(ups, 2);
    assert_true(modules_has(&t.m->options, 0, ROLE_GATE));
    assert_false(modules_has(&t.m->options, 1, ROLE_GATE));
    assert_int_equal(t.m->blocks[1].parameter_count, t.m->blocks[0].parameter_count - 1);
    tiny_close(&t);
}

/* The loss with one weight moved by `by`. */
static double loss_near(tiny *t, const parameter *p, int64_t at, float by) {
    float value, moved;
    char *place = (char *)p->value.data + 4 * at;
    HARNESS_OK(device_copy_out(t->h.device, &value, place, 4));
    moved = value + by;
    HARNESS_OK(device_copy_in(t->h.device, place, &moved, 4));
    tiny_again(t);
    HARNESS_OK(device_copy_in(t->h.device, place, &value, 4));
    return tiny_loss(t);
}

static void gradients_are_finite_differences(void **state) {
    (void)state;
    static const char *const names[] = {
        "model.layers.0.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight",
        "model.layers.1.mlp.down_proj.weight", "model.layers.1.input_layernorm.weight"};
    tiny t;
    open_mixed(&t, "fp32");
    tiny_run(&t);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const parameter *p = tiny_parameter(&t, names[i]);
        HARNESS_OK(device_zero(t.h.device, t.m->grads, t.m->trained_bytes));
        tiny_again(&t);
        float *grad = calloc((size_t)parameter_count(p), sizeof *grad);
        harness_get(&t.h, &p->grad, grad);
        int64_t best = 0;
        for (int64_t j = 0; j < parameter_count(p); j++)
            if (fabsf(grad[j]) > fabsf(grad[best])) best = j;
        double difference = (loss_near(&t, p, best, 1e-2f) - loss_near(&t, p, best, -1e-2f)) / 2e-2;
        assert_true(fabs(difference - (double)grad[best]) < 0.02 * fabs((double)grad[best]));
        free(grad);
    }
    tiny_close(&t);
}

/* Losses and gradients, with this checkpointing in all blocks. */
static void run(const char *name, checkpointing mode, float **losses, float **grads, int64_t *count) {
    tiny t;
    open_mixed(&t, name);
    for (int i = 0; i < 2; i++) t.m->blocks[i].checkpointing = mode;
    tiny_run(&t);
    *losses = tiny_losses(&t);
    *grads = tiny_gradients(&t);
    *count = tiny_gradient_count(&t);
    tiny_close(&t);
}

static void recomputed_is_kept(void **state) {
    (void)state;
    static const char *const recipes[] = {"bf16", "tensorwise"};
    static const checkpointing modes[] = {CHECKPOINT_SELECTIVE, CHECKPOINT_OP, CHECKPOINT_FULL};
    for (int r = 0; r < 2; r++) {
        float *losses, *grads, *losses_again, *grads_again;
        int64_t count;
        run(recipes[r], CHECKPOINT_NONE, &losses, &grads, &count);
        for (int i = 0; i < 3; i++) {
            run(recipes[r], modes[i], &losses_again, &grads_again, &count);
            assert_memory_equal(losses, losses_again, 16 * sizeof *losses);
            assert_memory_equal(grads, grads_again, (size_t)count * sizeof *grads);
            free(losses_again);
            free(grads_again);
        }
        free(losses);
        free(grads);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_layer_has_its_own_modules),
        cmocka_unit_test(gradients_are_finite_differences),
        cmocka_unit_test(recomputed_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
