/*
 * Frozen matrices stored in FP8. Tests which matrices are stored in FP8, and with which scales. The model
 * must have the losses and gradients of a model with fp32 masters that have the codes' values: bit for bit if
 * the masters' casts give the same codes. A model packed for inference reads the stored codes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/cache.h"
#include "model/init.h"
#include "model/pack.h"
#include "model/tiny_model.h"

enum { SEQUENCES = 2, LENGTH = 12, WIDTH = 160, EXPERTS = 4, EXPERT_WIDTH = 144 };
/* Kinds of models: separate projections; fused projections; experts; experts that run in FP8. */
typedef enum build { APART, FUSED, MIXTURE, FP8_EXPERTS } build;

typedef struct kind {
    const char *recipe; /* the recipe of the GEMMs */
    const char *kept;   /* the recipe of the stored codes; NULL: the GEMMs' recipe */
    kind_frozen_granularity granularity;
    const char *freeze; /* NULL: all projections of the blocks */
    build build;
} kind;

static model_options options_of(const kind *k) {
    model_options o = tiny_options();
    o.dim = WIDTH; /* larger than a scale block, and no multiple of its size */
    o.head_dim = WIDTH / 4;
    o.hidden = 2 * WIDTH;
    o.init_std = 0.2;
    o.fused_qkv = o.fused_gate_up = k->build == FUSED;
    o.frozen_granularity = k->granularity;
    if (k->build <= FUSED) return o;
    o.moe_every = 1;
    o.moe = (moe_options){.experts = EXPERTS,
                          .choices = 2,
                          .hidden = EXPERT_WIDTH,
                          .shared_hidden = 48,
                          .rule = {.score = ROUTE_SIGMOID, .normalized = true, .scale = 1.0f}};
    return o;
}

static void open_model(tiny *t, const kind *k, ott_dtype frozen) {
    const convert_options c = {.recipe = recipe_find(k->recipe),
                               .kept = recipe_find(k->kept ? k->kept : k->recipe),
                               .experts = k->build == FP8_EXPERTS};
    const char *freeze = k->freeze ? k->freeze : "model.layers.*_proj";
    const str_list list = {&freeze, 1};
    model_options o = options_of(k);
    o.freeze = &list;
    o.frozen = frozen;
    o.frozen_convert = &c;
    tiny_open(t, &o, 1, NULL);
    HARNESS_OK(model_initialize(t->m, 5, 1));
    HARNESS_OK(model_convert(t->m, &c, NULL));
    tiny_random_batch(t, SEQUENCES, LENGTH);
}

/* Reads the values of a parameter that is stored in codes. */
static float *values_of(tiny *t, const parameter *p) {
    int64_t count = parameter_count(p);
    float *values = malloc((size_t)count * sizeof *values);
    harness_get(&t->h, &p->value, values);
    frozen_multiply(p, 0, count, values);
    return values;
}

/* Dequantizes the codes of `from` into the frozen masters of `to`. Returns the number of parameters. */
static int copy_frozen(tiny *from, tiny *to) {
    int copied = 0;
    for (int i = 0; i < from->m->parameter_count; i++) {
        const parameter *p = &from->m->parameters[i];
        if (!p->codes) continue;
        float *values = values_of(from, p);
        harness_put(&to->h, &to->m->parameters[i].value, values);
        free(values);
        copied++;
    }
    model_weights_changed(to->m);
    return copied;
}

static void expect_same(tiny *a, tiny *b, const kind *k) {
    float *x = tiny_losses(a), *y = tiny_losses(b);
    if (memcmp(x, y, (size_t)a->losses.columns * sizeof *x) != 0)
        fail_msg("%s: a loss is %g, not %g", k->recipe, (double)x[0], (double)y[0]);
    free(x);
    free(y);
    int64_t count = tiny_gradient_count(a);
    assert_int_equal(count, tiny_gradient_count(b));
    x = tiny_gradients(a);
    y = tiny_gradients(b);
    for (int64_t i = 0; i < count; i++)
        if (memcmp(&x[i], &y[i], sizeof *x) != 0)
            fail_msg("%s: gradient %lld is %g, not %g", k->recipe, (long long)i, (double)x[i], (double)y[i]);
    free(x);
    free(y);
}

/* A model with stored codes must equal a model with the codes' values as masters. The casts of the masters
   give the same codes if scales are powers of two, or if both models compute the scales of each quantized
   copy from the values. */
static void values_are_what_counts(void **state) {
    static const kind kinds[] = {
        {"fp32", NULL, FROZEN_RECIPE, NULL, APART},
        {"bf16", NULL, FROZEN_BLOCK, NULL, FUSED},
        {"bf16", "tensorwise", FROZEN_RECIPE, NULL, APART},
        {"rowwise", NULL, FROZEN_RECIPE, NULL, FUSED},
        {"rowwise", "bf16", FROZEN_TENSOR, NULL, APART},
        {"bf16", "tensorwise", FROZEN_RECIPE, NULL, MIXTURE},
        {"rowwise", NULL, FROZEN_BLOCK, NULL, MIXTURE},
        {"rowwise", NULL, FROZEN_RECIPE, NULL, FP8_EXPERTS},
        {"block", NULL, FROZEN_RECIPE, NULL, FP8_EXPERTS},
        {"rowwise_with_gw_hp", NULL, FROZEN_RECIPE, NULL, APART},
        {"block", NULL, FROZEN_RECIPE, NULL, APART},
        {"block", NULL, FROZEN_CHANNEL, NULL, APART},
        {"mxfp8", NULL, FROZEN_RECIPE, NULL, APART},
        {"tensorwise", NULL, FROZEN_CHANNEL, NULL, APART},
        {"current", NULL, FROZEN_BLOCK, "model.layers.1.mlp", APART},
    };
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        static tiny codes, masters;
        open_model(&codes, &kinds[i], OTT_E4M3);
        open_model(&masters, &kinds[i], OTT_F32);
        assert_true(copy_frozen(&codes, &masters) > 0);
        tiny_run(&codes);
        tiny_run(&masters);
        expect_same(&codes, &masters, &kinds[i]);
        tiny_close(&codes);
        tiny_close(&masters);
    }
}

/* The stored codes equal a cast of the original weights. So the losses have the same bits as with the
   original weights, also if scales are not powers of two. */
static void codes_are_the_casts(void **state) {
    static const char *const recipes[] = {"tensorwise", "rowwise", "current", "block"};
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        static tiny codes, masters;
        const kind k = {.recipe = recipes[i], .freeze = "model.layers.*_proj"};
        open_model(&codes, &k, OTT_E4M3);
        open_model(&masters, &k, OTT_F32);
        tiny_run(&codes);
        tiny_run(&masters);
        float *x = tiny_losses(&codes), *y = tiny_losses(&masters);
        assert_memory_equal(x, y, (size_t)codes.losses.columns * sizeof *x);
        free(x);
        free(y);
        tiny_close(&codes);
        tiny_close(&masters);
    }
}

static const parameter *find(tiny *t, const char *name) {
    return tiny_parameter(t, name);
}

/* Frozen embeddings, heads and layers without FP8 are stored in bf16. A layer that a module rule matches is
   stored with scales of the rule's recipe, any other frozen layer with scales of the recipe c.kept. */
static void which_are_kept(void **state) {
    static tiny t;
    const char *filter[] = {"layers.0"}, *freeze = "*";
    const module_rule rule = {"*.down_proj", recipe_find("block")};
    const str_list list = {&freeze, 1};
    const convert_options c = {.recipe = recipe_find("bf16"),
                               .kept = recipe_find("rowwise"),
                               .filter = filter,
                               .filter_count = 1,
                               .rules = &rule,
                               .rule_count = 1};
    model_options o = options_of(&(kind){0});
    (void)state;
    o.freeze = &list;
    o.frozen = OTT_E4M3;
    o.frozen_convert = &c;
    harness_open(&t.h, 1, NULL);
    HARNESS_OK(model_open(t.h.device, &o, MODEL_INFERENCE, 16, &t.m));
    assert_int_equal(find(&t, "model.embed_tokens.weight")->value.dtype, OTT_BF16);
    assert_int_equal(find(&t, "lm_head.weight")->value.dtype, OTT_BF16);
    assert_int_equal(find(&t, "model.norm.weight")->value.dtype, OTT_F32);
    assert_int_equal(find(&t, "model.layers.0.mlp.up_proj.weight")->value.dtype, OTT_BF16);
    const frozen_codes *up = find(&t, "model.layers.1.mlp.up_proj.weight")->codes;
    const frozen_codes *down = find(&t, "model.layers.1.mlp.down_proj.weight")->codes;
    assert_int_equal(up->cast.grain, GRANULARITY_ROW);
    assert_int_equal(up->scale_rows, 2 * WIDTH);
    assert_int_equal(up->scale_columns, 1);
    assert_int_equal(down->cast.grain, GRANULARITY_128X128);
    assert_int_equal(down->scale_rows, 2);
    assert_int_equal(down->scale_columns, 3);
    model_close(t.m);
    harness_close(&t.h);
}

/* All weights of a mixture of experts are stored in FP8, except the router's. No scale block has elements of
   two experts' matrices. */
static void experts_are_kept(void **state) {
    static tiny t;
    const kind k = {.recipe = "block", .freeze = "model.layers.*", .build = MIXTURE};
    (void)state;
    open_model(&t, &k, OTT_E4M3);
    assert_int_equal(find(&t, "model.layers.1.mlp.gate.weight")->value.dtype, OTT_BF16);
    assert_non_null(find(&t, "model.layers.1.mlp.shared_experts.up_proj.weight")->codes);
    const frozen_codes *up = find(&t, "model.layers.1.mlp.experts.up_proj.weight")->codes;
    const frozen_codes *down = find(&t, "model.layers.1.mlp.experts.down_proj.weight")->codes;
    assert_int_equal(up->rows, EXPERT_WIDTH);
    assert_int_equal(up->scale_rows, 2 * EXPERTS);
    assert_int_equal(frozen_block_at(up, 2 * EXPERT_WIDTH + 127), 4);
    assert_int_equal(frozen_block_at(up, 2 * EXPERT_WIDTH + 128), 5);
    assert_int_equal(down->scale_columns, 2);
    tiny_close(&t);
}

/* A frozen weight in FP8 takes one byte per element, and its scales. Nothing else is kept. */
static void only_the_codes_are_kept(void **state) {
    static const kind kinds[] = {{.recipe = "block"}, {.recipe = "rowwise", .build = FP8_EXPERTS}};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        static tiny t;
        open_model(&t, &kinds[k], OTT_E4M3);
        for (int i = 0; i < t.m->modules.count; i++) {
            const model_module *e = &t.m->modules.items[i];
            bool in_block = e->kind == MODULE_LINEAR && e->layer != MODULES_OUTSIDE;
            if (!in_block || e->role == ROLE_ROUTER) continue;
            assert_null(e->linear->source.block);
            assert_int_equal(tensor_bytes(e->weight->value), parameter_count(e->weight));
            assert_null(e->weight->grad.data);
            assert_null(e->weight->shard.slot[0].data);
        }
        tiny_close(&t);
    }
}

static void run_cached(tiny *t, float *logits) {
    int32_t token[LENGTH];
    model_cache *c;
    for (int i = 0; i < LENGTH; i++) token[i] = i * 5;
    HARNESS_OK(model_cache_open(t->m, NULL, LENGTH, &c));
    HARNESS_OK(model_cache_extend(c, token, LENGTH, logits));
    model_cache_close(c);
}

static void packed_codes_give_the_same_bits(void **state) {
    static const kind kinds[] = {{"bf16", "rowwise", FROZEN_RECIPE, NULL, APART},
                                 {"rowwise", NULL, FROZEN_RECIPE, NULL, FUSED},
                                 {"block", NULL, FROZEN_TENSOR, NULL, APART},
                                 {"rowwise", NULL, FROZEN_TENSOR, NULL, MIXTURE},
                                 {"rowwise", NULL, FROZEN_RECIPE, NULL, FP8_EXPERTS}};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        static tiny t;
        float expected[64], got[64];
        open_model(&t, &kinds[i], OTT_E4M3);
        run_cached(&t, expected);
        HARNESS_OK(model_pack(t.m));
        run_cached(&t, got);
        assert_memory_equal(got, expected, sizeof got);
        tiny_close(&t);
    }
}

/* A weight with a NaN has no valid scale. Storing it in FP8 is an error. */
static void values_must_be_finite(void **state) {
    static tiny t;
    const kind k = {.recipe = "rowwise"};
    frozen_filling f;
    float values[WIDTH] = {0};
    (void)state;
    open_model(&t, &k, OTT_E4M3);
    parameter *p = tiny_parameter(&t, "model.layers.0.self_attn.q_proj.weight");
    HARNESS_OK(frozen_fill_open(t.h.account, p, &f));
    values[3] = NAN;
    frozen_fill_measure(&f, 0, WIDTH, values);
    assert_int_equal(frozen_fill_scales(&f, t.h.device), OTT_ERR_FORMAT);
    assert_non_null(strstr(status_text(), "model.layers.0.self_attn.q_proj.weight contains NaN"));
    frozen_fill_close(&f);
    tiny_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_what_counts),  cmocka_unit_test(codes_are_the_casts),
        cmocka_unit_test(which_are_kept),          cmocka_unit_test(experts_are_kept),
        cmocka_unit_test(only_the_codes_are_kept), cmocka_unit_test(packed_codes_give_the_same_bits),
        cmocka_unit_test(values_must_be_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
