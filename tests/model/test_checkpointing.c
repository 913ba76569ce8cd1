/*
 * Activation checkpointing changes when tensors are computed and which tensors are kept, but not the results.
 * In every recipe, losses and all gradients have the same bits in all modes. The memory plan gets smaller,
 * and exactly the GEMMs that the documentation lists for the mode are recomputed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/tiny_model.h"

#define LAYERS    6
#define SEQUENCES 4
#define LENGTH    40
#define TOKENS    (SEQUENCES * LENGTH)

/* A checkpointing mode that is applied to every `every`-th block. The other blocks keep all activations. */
typedef struct mode {
    const char *name;
    checkpointing checkpointing;
    int every;
    int recomputed; /* number of GEMMs recomputed in a block; 3: of q, k and v; 6: also of o, gate and up */
} mode;

static const mode modes[] = {
    {"none", CHECKPOINT_NONE, 1, 0},
    {"selective", CHECKPOINT_SELECTIVE, 1, 3},
    {"op", CHECKPOINT_OP, 1, 0},
    {"full", CHECKPOINT_FULL, 1, 6},
    {"full every 2", CHECKPOINT_FULL, 2, 6},
    {"op every 3", CHECKPOINT_OP, 3, 0},
    {"selective every 4", CHECKPOINT_SELECTIVE, 4, 3},
};
enum { NONE, SELECTIVE, OP_MODE, FULL, FULL_EVERY_2, OP_EVERY_3, SELECTIVE_EVERY_4, MODES };

typedef struct kind {
    const char *name, *recipe;
    const char *filter[3];       /* layers that stay in high precision; ends with NULL */
    bool fused, stores, smooths; /* fused projections; store_mlp_inputs; smooth_swiglu */
} kind;

static const kind kinds[] = {
    {.name = "fp32", .recipe = "fp32"},
    {.name = "bf16", .recipe = "bf16"},
    {.name = "fp16", .recipe = "fp16"},
    {.name = "tensorwise", .recipe = "tensorwise"},
    {.name = "rowwise", .recipe = "rowwise"},
    {.name = "rowwise_with_gw_hp", .recipe = "rowwise_with_gw_hp"},
    /* If FP8 and high-precision layers read an activation, it is kept in both formats for backward. */
    {.name = "tensorwise, partly", .recipe = "tensorwise", .filter = {"k_proj", "up_proj"}},
    {.name = "rowwise, partly", .recipe = "rowwise", .filter = {"q_proj", "down_proj"}},
    {.name = "rowwise, fused", .recipe = "rowwise", .fused = true},
    {.name = "tensorwise, stored", .recipe = "tensorwise", .stores = true},
    {.name = "rowwise, fused and stored", .recipe = "rowwise", .fused = true, .stores = true},
    {.name = "tensorwise, smooth", .recipe = "tensorwise", .smooths = true},
    {.name = "rowwise_with_gw_hp, partly", .recipe = "rowwise_with_gw_hp", .filter = {"o_proj", "gate_proj"}},
};
#define KINDS (sizeof kinds / sizeof *kinds)

/* The results of one training pass. */
typedef struct outcome {
    float *losses, *grads;
    int64_t tokens, gradients; /* number of losses; number of gradient elements */
    int64_t arena_bytes, saved_bytes;
    int64_t products[GEMM_COUNT]; /* number of GEMMs of each kind, in any precision */
} outcome;

static int blocks_with(const mode *m) {
    return (LAYERS + m->every - 1) / m->every;
}

static outcome run(const kind *k, const mode *m) {
    static tiny t;
    model_options o = tiny_options();
    o.layers = LAYERS;
    o.fused_qkv = o.fused_gate_up = k->fused;
    tiny_open(&t, &o, 1, NULL);
    tiny_randomize(&t);
    convert_options convert = {.recipe = recipe_find(k->recipe), .filter = k->filter};
    while (k->filter[convert.filter_count]) convert.filter_count++;
    convert.store_mlp_inputs = k->stores;
    convert.smooth_mlp = k->smooths;
    HARNESS_OK(model_convert(t.m, &convert, NULL));
    tiny_random_batch(&t, SEQUENCES, LENGTH);
    for (int i = 0; i < LAYERS; i += m->every) t.m->blocks[i].checkpointing = m->checkpointing;
    tiny_run(&t);
    outcome out = {.losses = tiny_losses(&t),
                   .grads = tiny_gradients(&t),
                   .tokens = t.losses.columns,
                   .gradients = tiny_gradient_count(&t),
                   .arena_bytes = plan_bytes(t.h.plan),
                   .saved_bytes = plan_saved(t.h.plan)};
    for (int g = 0; g < GEMM_COUNT; g++) out.products[g] = t.h.cx.gemms[g][0] + t.h.cx.gemms[g][1];
    tiny_close(&t);
    return out;
}

static void outcome_free(outcome *o) {
    free(o->losses);
    free(o->grads);
}

static bool same_numbers(const outcome *a, const outcome *b) {
    return a->tokens == b->tokens && a->gradients == b->gradients &&
           memcmp(a->losses, b->losses, (size_t)a->tokens * sizeof *a->losses) == 0 &&
           memcmp(a->grads, b->grads, (size_t)a->gradients * sizeof *a->grads) == 0;
}

/* Fails if a result is NaN, or if all are 0. Then equal results of two modes would prove nothing. */
static void assert_telling(const outcome *o) {
    double squares = 0;
    for (int64_t i = 0; i < o->gradients; i++) {
        assert_true(isfinite(o->grads[i]));
        squares += (double)o->grads[i] * (double)o->grads[i];
    }
    assert_true(squares > 1e-6);
}

static void check_products(const kind *k, const outcome *o, const mode *m) {
    int64_t linears = (k->fused ? 4 : 7) * LAYERS + 1; /* the head runs in one chunk */
    int64_t again = !k->fused ? m->recomputed : m->recomputed == 3 ? 1 : m->recomputed == 6 ? 3 : 0;
    assert_int_equal(o->products[GEMM_OUTPUT], linears + again * blocks_with(m));
    assert_int_equal(o->products[GEMM_GRAD_INPUT], linears);
    assert_int_equal(o->products[GEMM_GRAD_WEIGHT], linears);
}

/* Checks the memory of the modes: full < selective < none. "op" takes more than "full". It takes less than
   "none", unless gate and up are stored in FP8 in "none" (k->stores). */
static void check_bytes(const kind *k, const int64_t *bytes) {
    assert_true(bytes[FULL] < bytes[SELECTIVE]);
    assert_true(bytes[SELECTIVE] < bytes[NONE]);
    assert_true(bytes[FULL] < bytes[OP_MODE]);
    if (!k->stores) assert_true(bytes[OP_MODE] < bytes[NONE]);
    assert_true(bytes[FULL] < bytes[FULL_EVERY_2]);
    assert_true(bytes[FULL_EVERY_2] < bytes[NONE]);
}

static void same_bits_in_every_mode(void **state) {
    const kind *k = *state;
    int64_t bytes[MODES];
    outcome kept = run(k, &modes[NONE]);
    assert_telling(&kept);
    for (int i = 0; i < MODES; i++) {
        outcome o = run(k, &modes[i]);
        if (!same_numbers(&kept, &o))
            fail_msg("%s: activation checkpointing %s changes the bits", k->name, modes[i].name);
        check_products(k, &o, &modes[i]);
        bytes[i] = o.arena_bytes;
        print_message("  %-18s %8lld bytes\n", modes[i].name, (long long)o.arena_bytes);
        outcome_free(&o);
    }
    check_bytes(k, bytes);
    outcome_free(&kept);
}

/* Checks that all recipes give different results. If two were equal, a recipe might not be applied. */
static void recipes_differ(void **state) {
    (void)state;
    outcome outcomes[KINDS];
    for (size_t i = 0; i < KINDS; i++) outcomes[i] = run(&kinds[i], &modes[NONE]);
    for (size_t i = 0; i < KINDS; i++)
        for (size_t j = 0; j < i; j++)
            if (same_numbers(&outcomes[i], &outcomes[j]))
                fail_msg("%s and %s give the same bits", kinds[i].name, kinds[j].name);
    for (size_t i = 0; i < KINDS; i++) outcome_free(&outcomes[i]);
}

/* float8.store_mlp_inputs reduces the memory of a pass. Losses do not change, and MLP gradients change a
   little. Without FP8 layers the option has no effect. */
static void stored_inputs(void **state) {
    (void)state;
    kind plain = {.recipe = "rowwise"}, stored = {.recipe = "rowwise", .stores = true};
    outcome a = run(&plain, &modes[NONE]), b = run(&stored, &modes[NONE]);
    assert_memory_equal(a.losses, b.losses, (size_t)a.tokens * sizeof *a.losses);
    double apart = 0, size = 0;
    for (int64_t i = 0; i < a.gradients; i++) {
        double difference = (double)a.grads[i] - (double)b.grads[i];
        apart += difference * difference;
        size += (double)a.grads[i] * (double)a.grads[i];
    }
    assert_true(apart > 0 && apart < 0.09 * size); /* the FP8 error bound of test_fp8_model.c */
    assert_true(b.arena_bytes < a.arena_bytes);
    /* gate and up have o.hidden elements each per token. An element takes 2 bytes or, in FP8, 1 byte and a
       share of the row's scale. */
    const model_options o = tiny_options();
    int64_t all = 2 * LAYERS * TOKENS * o.hidden * 2;
    assert_in_range(a.saved_bytes - b.saved_bytes, all / 4, all / 2);
    outcome_free(&a);
    outcome_free(&b);
    plain.recipe = stored.recipe = "bf16";
    a = run(&plain, &modes[NONE]);
    b = run(&stored, &modes[NONE]);
    assert_true(same_numbers(&a, &b) && a.arena_bytes == b.arena_bytes);
    outcome_free(&a);
    outcome_free(&b);
}

/* ---- the phase of an op ---- */

typedef struct parts_seen {
    const exec *cx;
    int count[OP_COUNT][PART_OPTIMIZER + 1];
} parts_seen;

static void count_op(void *user, enum op_index op, const void *args, double began, double seconds) {
    parts_seen *seen = user;
    (void)args;
    assert_true(began >= 0 && seconds >= 0);
    seen->count[op][seen->cx->part]++;
}

/* The pass that calls an op decides if the op counts as forward or backward. Recomputation is backward. */
static void recomputation_is_part_of_backward(void **state) {
    (void)state;
    tiny t;
    model_options o = tiny_options();
    tiny_open(&t, &o, 1, NULL);
    tiny_randomize(&t);
    tiny_convert(&t, recipe_find("bf16"), NULL, NULL);
    tiny_random_batch(&t, 2, 8);
    for (int64_t i = 0; i < o.layers; i++) t.m->blocks[i].checkpointing = CHECKPOINT_FULL;
    parts_seen seen = {.cx = &t.h.cx};
    exec_times times = {.on_op = count_op, .user = &seen};
    HARNESS_OK(exec_times_open(&times, t.h.device));
    t.h.cx.times = &times;
    tiny_run(&t);
    exec_times_close(&times, t.h.device);
    const int *norms = seen.count[OP_INDEX_rmsnorm_forward], *ropes = seen.count[OP_INDEX_rope];
    assert_int_equal(norms[PART_FORWARD], 2 * o.layers + 1);
    assert_true(norms[PART_BACKWARD] >= o.layers);
    assert_true(ropes[PART_FORWARD] > 0 && ropes[PART_BACKWARD] > ropes[PART_FORWARD]);
    assert_int_equal(seen.count[OP_INDEX_embedding_forward][PART_FORWARD], 1);
    assert_int_equal(seen.count[OP_INDEX_embedding_backward][PART_BACKWARD], 1);
    assert_int_equal(seen.count[OP_INDEX_cross_entropy][PART_FORWARD], 1);
    for (int op = 0; op < OP_COUNT; op++) {
        assert_int_equal(seen.count[op][PART_NONE], 0);
        assert_int_equal(seen.count[op][PART_OPTIMIZER], 0);
    }
    tiny_close(&t);
}

int main(void) {
    enum { OTHERS = 3 };
    struct CMUnitTest tests[KINDS + OTHERS] = {cmocka_unit_test(recipes_differ),
                                               cmocka_unit_test(stored_inputs),
                                               cmocka_unit_test(recomputation_is_part_of_backward)};
    for (size_t i = 0; i < KINDS; i++)
        tests[OTHERS + i] = (struct CMUnitTest){.name = kinds[i].name,
                                                .test_func = same_bits_in_every_mode,
                                                .initial_state = (void *)(uintptr_t)&kinds[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
