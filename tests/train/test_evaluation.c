/* Evaluation with a separate batch size (eval.batch_size). The loss equals the loss of a run that trains with
   this batch size. Evaluation does not change training. The memory plan covers the larger batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "train/mesh_run.h"

static const char *const own_sizes[] = {"--eval.batch_size=3", "--eval.seq_len=40", NULL};
static const char *const trained_so[] = {"--train.batch_size=3", "--train.seq_len=40", NULL};

static void open_rig(rig *r, const fixture *f, int which, const char *const *more) {
    rig_open(r, f, &(rig_options){.precision = &fixture_precisions[which], .more = more});
}

static evaluation evaluate(rig *r) {
    evaluation e;
    FIXTURE_OK(trainer_evaluate(r->t, r->cfg->eval.steps, &e));
    return e;
}

static void is_of_its_batches(void **state) {
    for (int which = FP32; which <= TENSORWISE; which++) {
        rig a, b;
        open_rig(&a, *state, which, own_sizes);
        open_rig(&b, *state, which, trained_so);
        evaluation x = evaluate(&a), y = evaluate(&b);
        assert_true(x.batches == 2 && x.tokens == 2 * 3 * 40 && x.labels == y.labels);
        assert_true(x.loss == y.loss);
        rig_close(&a);
        rig_close(&b);
    }
}

static void does_not_change_training(void **state) {
    rig a, b;
    open_rig(&a, *state, TENSORWISE, own_sizes);
    open_rig(&b, *state, TENSORWISE, NULL);
    for (int i = 0; i < 3; i++) {
        evaluate(&a);
        assert_true(rig_step(&a).loss == rig_step(&b).loss);
    }
    snapshot x = snapshot_take(&a), y = snapshot_take(&b);
    assert_true(snapshot_equal(&x, &y));
    snapshot_free(&x);
    snapshot_free(&y);
    rig_close(&a);
    rig_close(&b);
}

/* The memory plan that is made before the first step has enough memory for the larger evaluation batch. */
static void is_planned(void **state) {
    static const char *const large[] = {"--eval.batch_size=8", "--eval.seq_len=64", NULL};
    rig a, b;
    open_rig(&a, *state, BF16, NULL);
    open_rig(&b, *state, BF16, large);
    assert_true(b.t->planned_bytes > a.t->planned_bytes);
    evaluate(&b);
    rig_close(&a);
    rig_close(&b);
}

/* Evaluation uses the separate batch size with data, pipeline, context and tensor parallelism too. */
static void so_on_ranks(void **state) {
    static const mesh_layout layouts[] = {{.size = {[MESH_DP_SHARD] = 2}},
                                          {.size = {[MESH_PP] = 2}, .schedule = PP_1F1B},
                                          {.size = {[MESH_CP] = 2}},
                                          {.size = {[MESH_TP] = 2}, .sequence_parallel = true}};
    static const char *const more[] = {"--eval.batch_size=3", "--eval.seq_len=40",
                                       "--train.grad_accum_steps=2", NULL};
    outcome one;
    mesh_run_options o = {.precision = &fixture_precisions[FP32], .more = more};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        outcome all;
        bool reads_more = layouts[i].size[MESH_DP_SHARD] > 1;
        const char *const apart[] = {"--eval.batch_size=3", "--eval.seq_len=40",
                                     reads_more ? "--train.grad_accum_steps=1" : more[2], NULL};
        o.layout = (mesh_layout){0};
        o.more = more;
        mesh_run(*state, &o, &one);
        o.layout = layouts[i];
        o.more = apart;
        mesh_run(*state, &o, &all);
        assert_true(all.evaluated.tokens == one.evaluated.tokens &&
                    all.evaluated.labels == one.evaluated.labels);
        double distance = all.evaluated.loss / one.evaluated.loss - 1;
        if (!(distance < 1e-5 && distance > -1e-5)) fail_msg("layout %zu: losses differ by %g", i, distance);
        outcome_free(&all);
        outcome_free(&one);
    }
}

static void expect_refused(const fixture *f, const char *argument, const char *part) {
    const char *const more[] = {argument, NULL};
    ott_status status = fixture_run(
        f, &(run_options){.name = "refused", .precision = &fixture_precisions[FP32], .more = more});
    assert_int_equal(status, OTT_ERR_CONFIG);
    if (!strstr(status_text(), part)) fail_msg("%s", status_text());
}

static void sizes_that_are_refused(void **state) {
    expect_refused(*state, "--eval.batch_size=100000", "fewer than eval.batch_size = 100000");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_of_its_batches),
        cmocka_unit_test(does_not_change_training),
        cmocka_unit_test(is_planned),
        cmocka_unit_test(so_on_ranks),
        cmocka_unit_test(sizes_that_are_refused),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
