/* With train.activation_checkpointing = memory_budget, blocks are recomputed until the step's memory fits the
   budget. No bit changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "train/mesh_run.h"

enum { LAYERS = 4 };
#define BLOCKS "--model.n_layers=4", "--train.seq_len=64", "--train.batch_size=4"

static void open_rig(rig *r, const fixture *f, const char *way, const char *share) {
    const char *const more[] = {BLOCKS, way, share, NULL};
    rig_open(r, f, &(rig_options){.precision = &fixture_precisions[TENSORWISE], .more = more});
}

static int count(const rig *r, checkpointing kind) {
    int found = 0;
    for (int i = 0; i < LAYERS; i++) found += r->t->m->blocks[i].checkpointing == kind;
    return found;
}

static snapshot train(rig *r) {
    rig_step(r);
    rig_step(r);
    return snapshot_take(r);
}

#define BUDGET "--train.activation_checkpointing=memory_budget"

static void fits_with_the_same_bits(void **state) {
    static const char *const ways[][2] = {
        {"--train.activation_checkpointing=none", NULL},  {"--train.activation_checkpointing=full", NULL},
        {BUDGET, "--train.activation_memory_budget=1"},   {BUDGET, "--train.activation_memory_budget=0"},
        {BUDGET, "--train.activation_memory_budget=0.6"}, {BUDGET, "--train.activation_memory_budget=0.2"}};
    enum { WAYS = sizeof ways / sizeof *ways };
    rig r[WAYS];
    int64_t bytes[WAYS];
    snapshot end[WAYS];
    for (int i = 0; i < WAYS; i++) {
        open_rig(&r[i], *state, ways[i][0], ways[i][1]);
        bytes[i] = plan_bytes(r[i].t->train_plan);
        end[i] = train(&r[i]);
        assert_true(snapshot_equal(&end[0], &end[i]));
    }
    assert_true(bytes[1] < bytes[0] && bytes[2] == bytes[0] && bytes[3] == bytes[1]);
    assert_int_equal(count(&r[2], CHECKPOINT_NONE), LAYERS);
    assert_true((double)bytes[4] <= (double)bytes[1] + 0.6 * (double)(bytes[0] - bytes[1]));
    assert_true((double)bytes[5] <= (double)bytes[1] + 0.2 * (double)(bytes[0] - bytes[1]));
    assert_true(bytes[5] < bytes[4] && bytes[4] < bytes[0]);
    assert_true(count(&r[4], CHECKPOINT_NONE) < LAYERS && count(&r[4], CHECKPOINT_FULL) < LAYERS);
    for (int i = 0; i < WAYS; i++) {
        snapshot_free(&end[i]);
        rig_close(&r[i]);
    }
}

/* Ranks that run blocks together (tensor, sequence or context parallelism) choose the same blocks to
   recompute. */
static void ranks_choose_alike(void **state) {
    static const mesh_layout layouts[] = {{.size = {[MESH_DP_SHARD] = 3}},
                                          {.size = {[MESH_PP] = 2}, .schedule = PP_1F1B},
                                          {.size = {[MESH_TP] = 2}, .sequence_parallel = true}};
    static const char *const none[] = {BLOCKS, "--train.grad_accum_steps=2", NULL};
    static const char *const some[] = {BLOCKS, "--train.grad_accum_steps=2", BUDGET,
                                       "--train.activation_memory_budget=0.4", NULL};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        outcome a, b;
        char what[160];
        mesh_run_options o = {.precision = &fixture_precisions[BF16], .more = none, .layout = layouts[i]};
        mesh_run(*state, &o, &a);
        o.more = some;
        mesh_run(*state, &o, &b);
        if (!outcome_equal(&a, &b, what)) fail_msg("layout %zu: %s", i, what);
        outcome_free(&a);
        outcome_free(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(fits_with_the_same_bits),
                                       cmocka_unit_test(ranks_choose_alike)};
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
