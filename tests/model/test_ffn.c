/*
 * Models with another kind of feed-forward in the second layer: y = silu(u) * u with one projection u, or a
 * mixture of experts. The table of this kind (model/ffn.h) must be enough for the module list, for
 * gradients and for all kinds of checkpointing. A mixture must equal a loop over its experts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "model/tiny_model.h"

/* ---- another kind of feed-forward, in place of the MLP ---- */

static bool has(const model_options *o, module_role role) {
    (void)o;
    return role == ROLE_UP || role == ROLE_DOWN;
}

static void prepare_nothing(model *m, ffn_layer f) {
    (void)m;
    (void)f;
}

static void store_nothing(ffn_layer f, bool store) {
    (void)f;
    (void)store;
}

static ott_status connect(mlp *f, activation_specs *input, activation_specs *grad_output) {
    f->hidden_specs = f->grad_up = (activation_specs){0};
    TRY(linear_connect(&f->up, input, &f->grad_up));
    return linear_connect(&f->down, &f->hidden_specs, grad_output);
}

static ott_status forward(exec *cx, mlp *f, const activation *x, mlp_saved *s) {
    TRY(exec_open(cx, "up", x->t.dtype, x->t.rows, f->up.out, &s->up, &s->up_buffer));
    return linear_forward(cx, &f->up, x, &s->up);
}

static ott_status run_activation(exec *cx, mlp *f, mlp_saved *s) {
    const tensor *u = &s->up;
    TRY(activation_open(cx, "output", u->dtype, u->rows, u->columns, &f->hidden_specs, &s->y));
    TRY(op_swiglu_forward(
        cx, &(swiglu_forward_args){.gate = u, .up = u, .y = &s->y.t, .q = activation_fused(&s->y)}));
    return activation_finish(cx, &s->y);
}

static ott_status keep(exec *cx, mlp *f, mlp_saved *s) {
    return activation_keep_for_backward(cx, &s->y, &f->hidden_specs, false);
}

static ott_status discard(exec *cx, mlp_saved *s) {
    TRY(plan_close(cx->plan, &s->up_buffer));
    return activation_close(cx, &s->y);
}

/* Computes du for y = silu(u) * u: du is the sum of the gradients of both factors. */
static ott_status backward_activation(exec *cx, const tensor *u, const tensor *dy, const tensor *du) {
    tensor other;
    plan_buffer buffer;
    TRY(exec_open(cx, "gradient of a factor", u->dtype, u->rows, u->columns, &other, &buffer));
    TRY(op_swiglu_backward(
        cx, &(swiglu_backward_args){.dy = dy, .gate = u, .up = u, .dgate = du, .dup = &other}));
    TRY(op_add(cx, &(add_args){.x = du, .delta = &other, .y = du}));
    return plan_close(cx->plan, &buffer);
}

static ott_status backward(exec *cx, mlp *f, mlp_saved *s, const activation *x, const activation *g,
                           const tensor *dx) {
    const tensor *u = &s->up;
    tensor dy;
    plan_buffer dy_buffer;
    activation du;
    TRY(exec_open(cx, "output gradient", u->dtype, u->rows, u->columns, &dy, &dy_buffer));
    TRY(linear_grad_input(cx, &f->down, g, &dy, false));
    TRY(linear_grad_weight(cx, &f->down, &s->y, g));
    TRY(activation_close(cx, &s->y));
    TRY(activation_open(cx, "up gradient", u->dtype, u->rows, u->columns, &f->grad_up, &du));
    TRY(backward_activation(cx, u, &dy, &du.t));
    TRY(activation_quantize(cx, &du));
    TRY(plan_close(cx->plan, &dy_buffer));
    TRY(plan_close(cx->plan, &s->up_buffer));
    return linear_backward(cx, &f->up, x, &du, dx, false);
}

static const ffn_kind squared = {.at = {[ROLE_UP] = offsetof(mlp, up), [ROLE_DOWN] = offsetof(mlp, down)},
                                 .has = has,
                                 .prepare = prepare_nothing,
                                 .store_inputs = store_nothing,
                                 .connect = connect,
                                 .forward = forward,
                                 .activate = run_activation,
                                 .project = mlp_project,
                                 .keep = keep,
                                 .keep_products = mlp_keep_products,
                                 .discard = discard,
                                 .backward = backward};

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
        const model_module *m = &t.m->modules.items[i];
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

static void gradients_are_finite_differences(void **state) {
    (void)state;
    static const char *const names[] = {
        "model.layers.0.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight",
        "model.layers.1.mlp.down_proj.weight", "model.layers.1.input_layernorm.weight", NULL};
    tiny t;
    open_mixed(&t, "fp32");
    tiny_run(&t);
    tiny_check_gradients(&t, names);
    tiny_close(&t);
}

static void recomputed_is_kept(void **state) {
    (void)state;
    tiny_check_recomputation(open_mixed);
}

/* ---- mixtures of experts ---- */

enum { EXPERTS = 6, CHOICES = 2 };

/* A model in which the second layer is a mixture of experts, with all options. */
static model_options mixture_options(void) {
    model_options o = tiny_options();
    o.moe_every = 2;
    o.moe = (moe_options){
        .experts = EXPERTS,
        .choices = CHOICES,
        .hidden = 24,
        .shared_hidden = 16,
        .rule = {.score = ROUTE_SIGMOID, .groups = 3, .chosen_groups = 2, .normalized = true, .scale = 1.5f},
        .biased = true,
        .bias_rate = 0.01,
        .balance = 0.1,
        .sequence_balance = 0.2,
        .z = 0.05,
        .sequence = 8};
    return o;
}

static void open_mixture(tiny *t, const model_options *o, const char *name) {
    tiny_open(t, o, 1, NULL);
    tiny_randomize(t);
    tiny_convert(t, recipe_find(name), NULL, NULL);
    tiny_random_batch(t, 2, 8);
}

static void a_mixture_has_its_modules(void **state) {
    (void)state;
    const model_options o = mixture_options();
    tiny t;
    open_mixture(&t, &o, "fp32");
    assert_null(t.m->blocks[0].moe.options);
    assert_ptr_equal(t.m->blocks[1].ffn, &ffn_moe);
    const parameter *gate = tiny_parameter(&t, "model.layers.1.mlp.experts.gate_proj.weight");
    assert_true(gate->of_experts);
    assert_int_equal(gate->rows, EXPERTS * 24);
    assert_int_equal(tiny_parameter(&t, "model.layers.1.mlp.shared_experts.down_proj.weight")->columns, 16);
    assert_true(tiny_parameter(&t, "model.layers.1.mlp.gate.e_score_correction_bias")->frozen);
    /* Number of weights in GEMMs per token. projections: weights of attention. mixture: weights of the chosen
       experts, the shared experts and the router. */
    int64_t projections = 2 * (2 * 32 + 2 * 16) * 32, mixture = 3 * (CHOICES * 24 + 16) * 32 + EXPERTS * 32;
    assert_int_equal(model_matmul_weights(t.m), projections + 3 * 48 * 32 + mixture + 64 * 32);
    tiny_close(&t);
}

/* Returns the loss that is trained, which includes the router's losses. */
static double total_loss(tiny *t) {
    balance_figures figures;
    HARNESS_OK(balance_begin(t->m));
    tiny_again(t);
    HARNESS_OK(balance_read(t->m, 1, &figures));
    return tiny_loss(t) + figures.loss + figures.z_loss;
}

static double total_loss_near(tiny *t, const parameter *p, int64_t at, float by) {
    float value, moved;
    char *place = (char *)p->value.data + 4 * at;
    HARNESS_OK(device_copy_out(t->h.device, &value, place, 4));
    moved = value + by;
    HARNESS_OK(device_copy_in(t->h.device, place, &moved, 4));
    double loss = total_loss(t);
    HARNESS_OK(device_copy_in(t->h.device, place, &value, 4));
    return loss;
}

static void check_gradient(tiny *t, const char *name) {
    const parameter *p = tiny_parameter(t, name);
    float *grad = calloc((size_t)parameter_count(p), sizeof *grad);
    int64_t best = 0;
    HARNESS_OK(device_zero(t->h.device, t->m->grads, t->m->trained_bytes));
    tiny_again(t);
    harness_get(&t->h, &p->grad, grad);
    for (int64_t j = 0; j < parameter_count(p); j++)
        if (fabsf(grad[j]) > fabsf(grad[best])) best = j;
    double step = 2e-3,
           difference = (total_loss_near(t, p, best, 2e-3f) - total_loss_near(t, p, best, -2e-3f));
    difference /= 2 * step;
    if (fabs(difference - (double)grad[best]) > 0.02 * fabs((double)grad[best]))
        fail_msg("%s: %g, by differences %g", name, (double)grad[best], difference);
    free(grad);
}

static void gradients_of_a_mixture_are_differences(void **state) {
    (void)state;
    static const char *const names[] = {
        "model.layers.1.mlp.gate.weight",
        "model.layers.1.mlp.experts.gate_proj.weight",
        "model.layers.1.mlp.experts.up_proj.weight",
        "model.layers.1.mlp.experts.down_proj.weight",
        "model.layers.1.mlp.shared_experts.up_proj.weight",
        "model.layers.1.post_attention_layernorm.weight",
        "model.layers.0.mlp.down_proj.weight",
    };
    static const route_rule rules[] = {
        {.score = ROUTE_SIGMOID, .groups = 3, .chosen_groups = 2, .normalized = true, .scale = 1.5f},
        {.score = ROUTE_SOFTMAX, .normalized = true, .scale = 1.0f},
        {.score = ROUTE_SOFTMAX, .scale = 1.0f}};
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        model_options o = mixture_options();
        const float one = 1.0f;
        tiny t;
        o.moe.rule = rules[r];
        open_mixture(&t, &o, "fp32");
        tensor scale = harness_tensor_of(&t.h, OTT_F32, 1, 1, &one);
        t.h.cx.pass_scale = &scale;
        tiny_run(&t);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) check_gradient(&t, names[i]);
        tiny_close(&t);
    }
}

static void a_recomputed_mixture_is_kept(void **state) {
    (void)state;
    static const checkpointing modes[] = {CHECKPOINT_SELECTIVE, CHECKPOINT_OP, CHECKPOINT_FULL};
    const model_options o = mixture_options();
    float *first[2] = {NULL, NULL};
    for (int i = -1; i < 3; i++) {
        tiny t;
        open_mixture(&t, &o, "tensorwise");
        for (int b = 0; i >= 0 && b < 2; b++) t.m->blocks[b].checkpointing = modes[i];
        tiny_run(&t);
        float *losses = tiny_losses(&t), *grads = tiny_gradients(&t);
        if (i >= 0) assert_memory_equal(losses, first[0], 16 * sizeof *losses);
        if (i >= 0) assert_memory_equal(grads, first[1], (size_t)tiny_gradient_count(&t) * sizeof *grads);
        for (int k = 0; k < 2; k++) {
            float *made = k == 0 ? losses : grads;
            if (i < 0)
                first[k] = made;
            else
                free(made);
        }
        tiny_close(&t);
    }
    free(first[0]);
    free(first[1]);
}

/* ---- biases ---- */

enum { BALANCED = 8, TOKENS = 512 };

/* Routes random tokens: each takes the expert with the highest score plus bias, and scores favor the first
   experts. Updates the biases `updates` times, by DeepSeek-V3's rule if by_sign is true. Returns the largest
   token count of an expert divided by the mean count. */
static double unevenness_after(harness *h, int updates, bool by_sign) {
    float bias[BALANCED] = {0}, load[BALANCED], count[BALANCED], noise[BALANCED * TOKENS];
    const float host[STEP_STATE_COUNT] = {[STEP_BALANCE] = 1};
    tensor state = harness_tensor_of(h, OTT_F32, 1, STEP_STATE_COUNT, host), counts, biases, loads;
    counts = harness_tensor(h, OTT_F32, 1, BALANCED);
    biases = harness_tensor_of(h, OTT_F32, 1, BALANCED, bias);
    for (int e = 0; e < BALANCED; e++) load[e] = 1.0f / BALANCED;
    loads = harness_tensor_of(h, OTT_F32, 1, BALANCED, load);
    for (int update = 0; update <= updates; update++) {
        memset(count, 0, sizeof count);
        rng_normals(3, (uint64_t)update, 0, BALANCED * TOKENS, noise);
        for (int t = 0; t < TOKENS; t++) {
            int best = 0;
            float top = -1;
            for (int e = 0; e < BALANCED; e++) {
                float score = 0.5f - 0.03f * (float)e + 0.05f * noise[t * BALANCED + e] + bias[e];
                if (score > top) top = score, best = e;
            }
            count[best]++;
        }
        harness_put(h, &counts, count);
        HARNESS_OK(op_balance_bias(&h->cx, &(balance_bias_args){.bias = &biases,
                                                                .load = &loads,
                                                                .count = &counts,
                                                                .state = &state,
                                                                .rate = 0.001f,
                                                                .by_sign = by_sign}));
        harness_get(h, &biases, bias);
    }
    float most = 0;
    for (int e = 0; e < BALANCED; e++) most = fmaxf(most, count[e]);
    return (double)most * BALANCED / TOKENS;
}

/* Biases of about 0.1 balance these experts. DeepSeek-V3's rule reaches them in about 120 updates. The rule
   that is proportional to the load needs hundreds of updates. */
static void biases_balance_the_load(void **state) {
    harness h;
    (void)state;
    harness_open(&h, 1, NULL);
    double before = unevenness_after(&h, 0, true), sign = unevenness_after(&h, 200, true),
           load = unevenness_after(&h, 200, false);
    print_message(
        "  unevenness: %.2f at the start, %.2f after 200 updates by sign, %.2f after 200 updates by load\n",
        before, sign, load);
    assert_true(before > 3);
    assert_true(sign < 1.4);
    assert_true(load > 2);
    harness_close(&h);
}

/* ---- a mixture against a loop over its experts ---- */

enum { ROWS = 40 };

typedef struct single_expert {
    moe *m;
    tensor x, out;         /* input and output, shape [ROWS, D] */
    tensor expert, weight; /* copies of the router's chosen experts and weights */
} single_expert;

static ott_status run_single_expert(exec *cx, void *user) {
    single_expert *a = user;
    activation x = {.t = a->x};
    moe_saved s = {0};
    cx->phase = PHASE_EVALUATE;
    TRY(moe_forward(cx, a->m, &x, &s));
    TRY(moe_activate(cx, a->m, &s));
    TRY(moe_project(cx, a->m, &s, &a->out));
    if (!plan_recording(cx->plan)) {
        TRY(device_copy(cx->device, a->expert.data, s.expert.data, tensor_bytes(s.expert)));
        TRY(device_copy(cx->device, a->weight.data, s.weight.data, tensor_bytes(s.weight)));
    }
    return moe_discard(cx, &s);
}

static tensor product(harness *h, const tensor *x, const linear *l, int expert) {
    int64_t out = l->out / EXPERTS;
    const tensor unsplit = l->source.copy.data ? l->source.copy : l->weight->value;
    operand a = {.t = *x}, b = {.t = tensor_rows(unsplit, expert * out, out)};
    tensor y = harness_tensor(h, x->dtype, x->rows, out);
    HARNESS_OK(op_gemm(&h->cx, &(gemm_args){.a = &a, .b = &b, .c = &y}));
    return y;
}

/* Runs expert e on the tokens that chose it. If e is choice k of token t, its output is written to
   made[k][t]; made is [CHOICES][ROWS][D]. */
static void run_expert(harness *h, const single_expert *a, int e, const int32_t *expert, const float *weight,
                       const float *x, float *made) {
    int64_t dim = a->x.columns, count = 0, source[ROWS * CHOICES];
    float *rows = calloc(ROWS * CHOICES * (size_t)dim, sizeof *rows);
    for (int k = 0; k < CHOICES; k++)
        for (int t = 0; t < ROWS; t++)
            if (expert[t * CHOICES + k] == e) {
                memcpy(rows + count * dim, x + t * dim, (size_t)dim * sizeof *x);
                source[count++] = k * ROWS + t;
            }
    if (count > 0) {
        tensor in = harness_tensor_of(h, a->x.dtype, count, dim, rows);
        tensor gate = product(h, &in, &a->m->gate, e), up = product(h, &in, &a->m->up, e);
        HARNESS_OK(op_swiglu_forward(&h->cx, &(swiglu_forward_args){.gate = &gate, .up = &up, .y = &gate}));
        float *hidden = calloc((size_t)tensor_count(gate), sizeof *hidden);
        harness_get(h, &gate, hidden);
        for (int64_t i = 0; i < tensor_count(gate); i++) {
            int64_t from = source[i / gate.columns];
            hidden[i] *= weight[from % ROWS * CHOICES + from / ROWS];
        }
        harness_put(h, &gate, hidden);
        tensor out = product(h, &gate, &a->m->down, e);
        harness_get(h, &out, rows);
        free(hidden);
    }
    for (int64_t i = 0; i < count; i++)
        memcpy(made + source[i] * dim, rows + i * dim, (size_t)dim * sizeof *made);
    free(rows);
}

static void compare_with_loop(tiny *t, single_expert *a) {
    int64_t dim = a->x.columns, size = ROWS * dim;
    float x[size], out[size], weight[ROWS * CHOICES], *made = calloc(CHOICES * (size_t)size, sizeof *made);
    int32_t expert[ROWS * CHOICES];
    plan *planned = t->h.cx.plan;
    harness_get(&t->h, &a->x, x);
    harness_get(&t->h, &a->out, out);
    harness_get(&t->h, &a->weight, weight);
    HARNESS_OK(device_copy_out(t->h.device, expert, a->expert.data, sizeof expert));
    t->h.cx.plan = NULL;
    for (int e = 0; e < EXPERTS; e++) run_expert(&t->h, a, e, expert, weight, x, made);
    t->h.cx.plan = planned;
    for (int64_t i = 0; i < size; i++) made[i] = made[i] + made[size + i];
    tensor sum = harness_tensor_of(&t->h, a->out.dtype, ROWS, dim, made);
    harness_get(&t->h, &sum, made);
    assert_memory_equal(out, made, sizeof out);
    free(made);
}

/* Compares a mixture with a loop over its experts. First no expert is favored. Then biases make all tokens
   choose the same two experts, so the other experts have no tokens. */
static void a_mixture_is_a_loop_over_its_experts(void **state) {
    (void)state;
    static const char *const recipes[] = {"fp32", "bf16"};
    for (int i = 0; i < 4; i++) {
        model_options o = mixture_options();
        const float favour[EXPERTS] = {0, 50, 0, 0, 50, 0}, none[EXPERTS] = {0};
        tiny t;
        o.moe.shared_hidden = 0;
        o.moe.rule.groups = o.moe.rule.chosen_groups = 0;
        open_mixture(&t, &o, recipes[i % 2]);
        single_expert a = {.m = &t.m->blocks[1].moe};
        harness_put(&t.h, &a.m->bias->value, i < 2 ? none : favour);
        a.x = harness_tensor_normal(&t.h, t.m->activation, ROWS, o.dim, 1.0, 5);
        a.out = harness_tensor(&t.h, t.m->activation, ROWS, o.dim);
        a.expert = harness_tensor(&t.h, OTT_I32, ROWS, CHOICES);
        a.weight = harness_tensor(&t.h, OTT_F32, ROWS, CHOICES);
        harness_record(&t.h, run_single_expert, &a);
        harness_replay(&t.h, run_single_expert, &a);
        compare_with_loop(&t, &a);
        tiny_close(&t);
    }
}

/* The capacity of an expert is half the mean load. So some tokens have no expert, but all results must be
   finite. */
static void a_full_expert_drops_tokens(void **state) {
    (void)state;
    model_options o = mixture_options();
    tiny t;
    o.moe.capacity = 0.5;
    o.moe.balances_gradients = true;
    open_mixture(&t, &o, "bf16");
    tiny_run(&t);
    float *grads = tiny_gradients(&t);
    for (int64_t i = 0; i < tiny_gradient_count(&t); i++) assert_true(isfinite(grads[i]));
    assert_true(isfinite(tiny_loss(&t)));
    free(grads);
    tiny_close(&t);
}

/* Experts run in FP8 only if convert_options.experts is true and the recipe has no tensorwise scales. The
   router and the shared experts stay in high precision. */
static void experts_in_fp8_are_asked_for(void **state) {
    (void)state;
    static const char *const recipes[] = {"rowwise", "rowwise_with_gw_hp", "block", "mxfp8"};
    model_options o = mixture_options();
    convert_summary plain, summary;
    o.moe.hidden = 32;
    for (int i = 0; i < 4; i++) {
        float *losses[2];
        tiny t;
        for (int full = 0; full < 2; full++) {
            open_mixture(&t, &o, recipes[i]);
            const convert_options none = {.recipe = recipe_find(recipes[i])};
            convert_options asked = {.recipe = none.recipe, .experts = true};
            HARNESS_OK(model_convert(t.m, &none, &plain));
            HARNESS_OK(model_convert(t.m, &asked, &summary));
            assert_int_equal(summary.converted, plain.converted + 3);
            const moe *m = &t.m->blocks[1].moe;
            assert_true(m->gate.grouped.fp8 && m->down.grouped.fp8 && !m->router.spec.fp8 &&
                        !m->shared.up.spec.fp8);
            for (int b = 0; full && b < 2; b++) t.m->blocks[b].checkpointing = CHECKPOINT_FULL;
            tiny_run(&t);
            losses[full] = tiny_losses(&t);
            tiny_close(&t);
        }
        assert_memory_equal(losses[0], losses[1], 16 * sizeof *losses[0]);
        free(losses[0]);
        free(losses[1]);
    }
}

static void experts_refuse_scales_of_tensors(void **state) {
    (void)state;
    static const char *const recipes[] = {"tensorwise", "delayed", "current"};
    model_options o = mixture_options();
    o.moe.hidden = 32;
    for (int i = 0; i < 3; i++) {
        tiny t;
        open_mixture(&t, &o, recipes[i]);
        const convert_options asked = {.recipe = recipe_find(recipes[i]), .experts = true};
        assert_int_equal(model_convert(t.m, &asked, NULL), OTT_ERR_CONFIG);
        if (!strstr(status_text(), "one scale for a tensor of tokens")) fail_msg("%s", status_text());
        const convert_options smooth = {.recipe = recipe_find(recipes[i]), .smooth_mlp = true};
        assert_int_equal(model_convert(t.m, &smooth, NULL), OTT_ERR_CONFIG);
        if (!strstr(status_text(), "not supported for mixtures")) fail_msg("%s", status_text());
        tiny_close(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_layer_has_its_own_modules),
        cmocka_unit_test(gradients_are_finite_differences),
        cmocka_unit_test(recomputed_is_kept),
        cmocka_unit_test(a_mixture_has_its_modules),
        cmocka_unit_test(gradients_of_a_mixture_are_differences),
        cmocka_unit_test(a_recomputed_mixture_is_kept),
        cmocka_unit_test(biases_balance_the_load),
        cmocka_unit_test(a_mixture_is_a_loop_over_its_experts),
        cmocka_unit_test(a_full_expert_drops_tokens),
        cmocka_unit_test(experts_in_fp8_are_asked_for),
        cmocka_unit_test(experts_refuse_scales_of_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
