/*
 * A model with two kinds of mixer: attention in the first layer, and a kind of this test in the second layer.
 * This kind adds the projection of the previous token to each token's projection. Its cache for generation is
 * one row, not keys and values. The test defines only the table of functions (model/mixer.h). It checks the
 * module list, gradients, all kinds of checkpointing, and the cache.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "model/cache.h"
#include "model/tiny_model.h"

/* ---- the mixer: u[t] = q[t] + q[t-1], with q = x W_q^T, and y = u W_o^T ---- */

static bool has(const model_options *o, module_role role) {
    (void)o;
    return role == ROLE_Q || role == ROLE_O;
}

static void prepare(const model *m, int64_t layer, mixer_layer a) {
    (void)m;
    (void)layer;
    memset(a.attention, 0, sizeof *a.attention);
}

static ott_status connect(attention *a, activation_specs *input, activation_specs *grad_output) {
    a->core.input_specs = a->grad_q = (activation_specs){0};
    TRY(linear_connect(&a->q, &a->core.input_specs, &a->grad_q));
    return attention_core_connect(&a->core, input, grad_output);
}

/* y[t] = x[t] + x[t-1]. The row before the first is `before`; NULL: zero. */
static ott_status add_previous(exec *cx, const tensor *x, const tensor *before, const tensor *y) {
    tensor first = tensor_rows(*x, 0, 1), to = tensor_rows(*y, 0, 1);
    TRY(before ? op_add(cx, &(add_args){.x = &first, .delta = before, .y = &to})
               : op_convert(cx, &(convert_args){.x = &first, .y = &to}));
    if (x->rows == 1) return OTT_OK;
    tensor early = tensor_rows(*x, 0, x->rows - 1), late = tensor_rows(*x, 1, x->rows - 1);
    to = tensor_rows(*y, 1, x->rows - 1);
    return op_add(cx, &(add_args){.x = &late, .delta = &early, .y = &to});
}

/* With a cache: reads the state, the last row of earlier tokens, and writes the new state. */
static ott_status add_previous_cached(exec *cx, const sequence_cache *c, const tensor *x, const tensor *y) {
    if (!c) return add_previous(cx, x, NULL, y);
    tensor state = tensor_matrix(c->data, x->dtype, 1, x->columns), last = tensor_rows(*x, x->rows - 1, 1);
    TRY(add_previous(cx, x, c->past > 0 ? &state : NULL, y));
    return op_convert(cx, &(convert_args){.x = &last, .y = &state});
}

static ott_status forward(exec *cx, attention *a, const sequence_metadata *at, const activation *x,
                          attention_saved *saved) {
    attention_core_saved *s = &saved->core;
    TRY(exec_open(cx, "q", x->t.dtype, x->t.rows, a->q.out, &s->q, &s->q_buffer));
    TRY(linear_forward(cx, &a->q, x, &s->q));
    TRY(activation_open(cx, "u", x->t.dtype, x->t.rows, a->q.out, &a->core.output_specs, &s->o));
    TRY(add_previous_cached(cx, at->cache, &s->q, &s->o.t));
    return activation_quantize(cx, &s->o);
}

/* du[t] = du[t] + du[t+1]: the same sum in the other direction. */
static ott_status add_next(exec *cx, const tensor *du, const tensor *dq) {
    int64_t rows = du->rows;
    tensor last = tensor_rows(*du, rows - 1, 1), to = tensor_rows(*dq, rows - 1, 1);
    TRY(op_convert(cx, &(convert_args){.x = &last, .y = &to}));
    tensor early = tensor_rows(*du, 0, rows - 1), late = tensor_rows(*du, 1, rows - 1);
    to = tensor_rows(*dq, 0, rows - 1);
    return op_add(cx, &(add_args){.x = &early, .delta = &late, .y = &to});
}

static ott_status backward(exec *cx, attention *a, const sequence_metadata *at, attention_saved *saved,
                           const activation *x, const activation *g, const tensor *dx) {
    attention_core_saved *s = &saved->core;
    activation dq;
    (void)at;
    TRY(attention_core_backward_project(cx, &a->core, s, g));
    TRY(activation_open(cx, "q gradient", x->t.dtype, x->t.rows, a->q.out, &a->grad_q, &dq));
    TRY(add_next(cx, &s->dout, &dq.t));
    TRY(attention_core_close(cx, s));
    TRY(activation_quantize(cx, &dq));
    return linear_backward(cx, &a->q, x, &dq, dx, false);
}

static int64_t state_bytes(mixer_layer a, ott_dtype act, int64_t capacity) {
    (void)capacity;
    return a.attention->q.out * dtype_bytes(act);
}

static double flops(const model_options *o, int64_t seq_len) {
    (void)o;
    (void)seq_len;
    return 7;
}

static const mixer_kind shift = {
    .at = {[ROLE_Q] = offsetof(attention, q), [ROLE_O] = offsetof(attention, core.o)},
    .has = has,
    .prepare = prepare,
    .connect = connect,
    .forward = forward,
    .project = attention_core_project,
    .keep = attention_core_keep,
    .discard = attention_discard,
    .backward = backward,
    .cache_bytes = state_bytes,
    .flops = flops};

/* ---- models ---- */

static const mixer_kind *const kinds[] = {&mixer_attention, &shift};

enum { TOKENS = 12, VOCAB = 64 };

static void open_mixed(tiny *t, const char *name) {
    model_options o = tiny_options();
    o.mixer = kinds;
    tiny_open(t, &o, 1, NULL);
    tiny_randomize(t);
    tiny_convert(t, recipe_find(name), NULL, NULL);
    tiny_random_batch(t, 1, TOKENS);
}

static void each_layer_has_its_own_modules(void **state) {
    (void)state;
    tiny t;
    open_mixed(&t, "fp32");
    int keys = 0, queries = 0;
    for (int i = 0; i < t.m->modules.count; i++) {
        const model_module *m = &t.m->modules.items[i];
        keys += m->role == ROLE_K;
        queries += m->role == ROLE_Q;
        if (m->role == ROLE_Q) assert_ptr_equal(m->linear, &t.m->blocks[m->layer].attention.q);
    }
    assert_int_equal(keys, 1);
    assert_int_equal(queries, 2);
    assert_true(modules_has(&t.m->options, 0, ROLE_K));
    assert_false(modules_has(&t.m->options, 1, ROLE_K));
    /* heads x 2 head_dim x 6 for each token that attention sees, and the FLOPs that the other kind states */
    assert_true(model_mixer_flops(&t.m->options, 10) == 6.0 * 4 * 16 * 10 + 7);
    tiny_close(&t);
}

static void gradients_are_finite_differences(void **state) {
    (void)state;
    static const char *const names[] = {
        "model.layers.0.self_attn.k_proj.weight", "model.layers.1.self_attn.q_proj.weight",
        "model.layers.1.self_attn.o_proj.weight", "model.layers.1.input_layernorm.weight", NULL};
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

static ott_status logits_pass(exec *cx, void *user) {
    tiny *t = user;
    return model_logits(cx, t->m, t->slot, &t->batch, &t->losses);
}

/* Tokens one by one, and in chunks of 5, give the logits of one pass over the sequence. */
static void cached_is_one_pass(void **state) {
    (void)state;
    tiny t;
    model_cache *c;
    int32_t tokens[TOKENS], target[TOKENS] = {0};
    float expected[VOCAB], got[VOCAB];
    open_mixed(&t, "bf16");
    for (int i = 0; i < TOKENS; i++) tokens[i] = (i * i * 7 + 3) % VOCAB;
    tiny_batch(&t, 1, TOKENS, tokens, target);
    t.losses = harness_tensor(&t.h, t.m->activation, 1, VOCAB);
    harness_record(&t.h, logits_pass, &t);
    harness_replay(&t.h, logits_pass, &t);
    harness_get(&t.h, &t.losses, expected);
    HARNESS_OK(model_cache_open(t.m, NULL, TOKENS, &c));
    for (int64_t part = 1; part <= 5; part += 4) {
        model_cache_truncate(c, 0);
        for (int64_t done = 0, count; done < TOKENS; done += count) {
            count = part < TOKENS - done ? part : TOKENS - done;
            HARNESS_OK(model_cache_extend(c, tokens + done, count, got));
        }
        assert_memory_equal(got, expected, sizeof got);
    }
    model_cache_close(c);
    tiny_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_layer_has_its_own_modules),
        cmocka_unit_test(gradients_are_finite_differences),
        cmocka_unit_test(recomputed_is_kept),
        cmocka_unit_test(cached_is_one_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
