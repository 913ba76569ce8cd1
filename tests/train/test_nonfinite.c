/*
 * A step with a non-finite loss or gradient changes no state, and the log names the first non-finite value.
 * The run continues if later steps are finite, and ends otherwise. With fp16 the loss scale adapts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "train/train_fixture.h"

/* ---- a poisoned parameter ---- */

typedef struct poison {
    const char *parameter;
    float value;
    const char *found; /* the tensor that the search must name */
} poison;

static const poison poisons[] = {
    {"model.layers.1.mlp.up_proj.weight", NAN, "output of model.layers.1.mlp.up_proj"},
    {"model.layers.0.self_attn.k_proj.weight", NAN, "output of model.layers.0.self_attn.k_proj"},
    {"model.layers.1.mlp.down_proj.weight", INFINITY, "output of model.layers.1.mlp.down_proj"},
    {"model.layers.0.post_attention_layernorm.weight", -INFINITY,
     "output of model.layers.0.post_attention_layernorm"},
    {"model.norm.weight", NAN, "output of model.norm"},
    {"lm_head.weight", NAN, "output of lm_head"},
};

static void check_skipped(rig *r, const poison *p, int64_t in_a_row) {
    char where[160];
    snapshot before = snapshot_take(r);
    int64_t updates = r->t->run.updates;
    step_result s = rig_step(r);
    assert_true(s.skipped);
    snapshot after = snapshot_take(r);
    assert_true(snapshot_equal(&before, &after));
    assert_int_equal(r->t->run.nan_steps, in_a_row);
    assert_int_equal(r->t->run.updates, updates);
    FIXTURE_OK(trainer_find_nonfinite(r->t, where));
    assert_string_equal(where, p->found);
    snapshot_free(&before);
    snapshot_free(&after);
}

static void check_poison(const fixture *f, const precision *how, const poison *p) {
    rig r;
    rig_open(&r, f, &(rig_options){.precision = how});
    assert_false(rig_step(&r).skipped);
    float healthy = rig_peek(&r, &rig_parameter(&r, p->parameter)->value, 5);
    rig_poke(&r, p->parameter, 5, p->value);
    check_skipped(&r, p, 1);
    check_skipped(&r, p, 2);
    rig_poke(&r, p->parameter, 5, healthy);
    step_result s = rig_step(&r);
    assert_false(s.skipped);
    assert_true(isfinite(s.loss) && isfinite(s.grad_norm));
    assert_int_equal(r.t->run.nan_steps, 0);
    assert_int_equal(r.t->run.step, 4);
    assert_int_equal(r.t->run.updates, 2);
    rig_close(&r);
}

/* For an infinite amax, the scale rules of TransformerEngine and MX give a finite scale, and the cast
   saturates. So the infinity is lost, as in their published code. torchao's scale rule turns it into NaN. */
static bool saturates_infinity(int precision_index) {
    return precision_index >= DELAYED;
}

static void poison_is_found_and_changes_nothing(void **state) {
    for (int i = 0; i < PRECISIONS; i++)
        for (size_t j = 0; j < sizeof poisons / sizeof *poisons; j++)
            if (!(isinf(poisons[j].value) && saturates_infinity(i)))
                check_poison(*state, &fixture_precisions[i], &poisons[j]);
}

/* A row of the embedding only affects tokens that read it. */
static void poisoned_embedding(void **state) {
    rig r;
    char where[160];
    rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[ROWWISE]});
    rig_poke(&r, "model.embed_tokens.weight", 7 * 32, NAN); /* byte 7 does not occur in the text */
    assert_false(rig_step(&r).skipped);
    rig_poke(&r, "model.embed_tokens.weight", 'e' * 32, NAN);
    assert_true(rig_step(&r).skipped);
    FIXTURE_OK(trainer_find_nonfinite(r.t, where));
    assert_string_equal(where, "output of model.embed_tokens");
    rig_close(&r);
}

/* The search names the first non-finite gradient in the order of backward. It never names a finite
   gradient. */
static void gradient_is_named(void **state) {
    rig r;
    char where[160];
    const float nan = NAN;
    rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[BF16]});
    assert_false(rig_step(&r).skipped);
    FIXTURE_OK(trainer_find_gradient(r.t, where));
    assert_string_equal(where, "");
    const char *const names[] = {"model.layers.0.mlp.up_proj.weight",
                                 "model.layers.1.self_attn.q_proj.weight"};
    for (int i = 0; i < 2; i++) {
        const parameter *p = rig_parameter(&r, names[i]);
        FIXTURE_OK(device_copy_in(r.device, (float *)p->shard.grad.data + 3, &nan, sizeof nan));
        FIXTURE_OK(trainer_find_gradient(r.t, where));
        assert_string_equal(where, names[i]);
    }
    rig_close(&r);
}

/* Runs with and without the search for non-finite values have equal bits. */
static void the_search_leaves_no_trace(void **state) {
    snapshot end[2];
    int64_t gemms[2], fp8;
    for (int search = 0; search < 2; search++) {
        rig r;
        char where[160];
        rig_open(&r, *state,
                 &(rig_options){.precision = &fixture_precisions[TENSORWISE],
                                .more = (const char *const[]){"--train.grad_accum_steps=2", NULL}});
        for (int i = 0; i < 3; i++) {
            assert_false(rig_step(&r).skipped);
            if (!search) continue;
            FIXTURE_OK(trainer_find_nonfinite(r.t, where));
            assert_string_equal(where, "");
        }
        end[search] = snapshot_take(&r);
        trainer_gemms(r.t, &fp8, &gemms[search]);
        rig_close(&r);
    }
    assert_true(snapshot_equal(&end[0], &end[1]));
    assert_int_equal(gemms[0], gemms[1]);
    snapshot_free(&end[0]);
    snapshot_free(&end[1]);
}

/* ---- fp16's loss scale ---- */

static void loss_scale_halves_until_it_fits(void **state) {
    rig r;
    rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[FP16]});
    assert_true(r.t->run.loss_scale == STEP_LOSS_SCALE_START);
    r.t->run.loss_scale = 1073741824.0f;
    snapshot before = snapshot_take(&r);
    int skipped = 0;
    for (; skipped < 20; skipped++) {
        float scale = r.t->run.loss_scale;
        step_result s = rig_step(&r);
        assert_true(isfinite(s.loss)); /* forward does not use the loss scale */
        if (!s.skipped) break;
        assert_true(r.t->run.loss_scale == scale / 2);
        snapshot after = snapshot_take(&r);
        assert_true(snapshot_equal(&before, &after));
        snapshot_free(&after);
    }
    print_message("  loss scale 2^30 -> %.0f after %d skipped steps\n", (double)r.t->run.loss_scale, skipped);
    assert_true(skipped >= 5 && skipped < 20);
    assert_int_equal(r.t->run.nan_steps, 0);
    assert_int_equal(r.t->run.updates, 1);
    assert_true(r.t->run.good_steps == 1);
    assert_false(rig_step(&r).skipped);
    assert_int_equal(r.t->run.updates, 2);
    snapshot_free(&before);
    rig_close(&r);
}

/* Gradients are divided by the loss scale before their norm is reported and the moments are updated. */
static void loss_scale_does_not_change_the_update(void **state) {
    double size[2];
    for (int i = 0; i < 2; i++) {
        rig r;
        rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[FP16]});
        r.t->run.loss_scale = i ? 65536.0f : 16384.0f;
        size[i] = rig_step(&r).grad_norm;
        rig_close(&r);
    }
    assert_true(fabs(size[1] / size[0] - 1) < 1e-2);
}

/* ---- full runs ---- */

static ott_status run_with(const fixture *f, const char *name, int p, const char *const *more,
                           captured_log *logged) {
    return fixture_run(
        f, &(run_options){.name = name, .precision = &fixture_precisions[p], .more = more, .logged = logged});
}

static bool has_file(const fixture *f, const char *name) {
    char path[200];
    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    FILE *file = fopen(path, "rb");
    if (file) fclose(file);
    return file != NULL;
}

/* With a learning rate of 1e38 the weights overflow, and every step after the first is skipped. */
static void absurd_learning_rate_ends_the_run(void **state) {
    static captured_log logged;
    const fixture *f = *state;
    const int kinds[] = {FP32, BF16, TENSORWISE, ROWWISE};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char name[40];
        snprintf(name, sizeof name, "absurd-%s", fixture_precisions[kinds[i]].name);
        const char *more[] = {"--optimizer.lr=1e38", "--scheduler.warmup_steps=0", "--train.max_steps=50",
                              NULL};
        assert_int_equal(run_with(f, name, kinds[i], more, &logged), OTT_ERR_DIVERGED);
        print_message("  %s: %s\n", fixture_precisions[kinds[i]].name, status_text());
        assert_int_equal(status_exit_code(OTT_ERR_DIVERGED), 1);
        assert_non_null(strstr(status_text(), "10 steps in a row"));
        assert_non_null(strstr(status_text(), "output of model."));
        assert_non_null(strstr(status_text(), "optimizer.lr"));
        assert_null(strchr(status_text(), '\n'));
        assert_int_equal(captured_log_count(&logged, "step skipped"), 10);
        assert_true(captured_log_has(&logged, "(consecutive=1, last_good_loss="));
        assert_true(captured_log_has(&logged, "(consecutive=10, last_good_loss="));
    }
}

/* The checkpoint has one NaN. The resumed run stops after train.max_consecutive_nan steps and saves
   nothing. */
static void poisoned_checkpoint_ends_the_run(void **state) {
    static captured_log logged;
    const fixture *f = *state;
    rig r;
    char path[160], load[200];
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[ROWWISE]});
    rig_step(&r);
    rig_poke(&r, "model.layers.0.self_attn.o_proj.weight", 3, NAN);
    rig_save(&r, f, "poisoned/checkpoints", path);
    rig_close(&r);
    snprintf(load, sizeof load, "--checkpoint.load_path=%s", path);
    const char *more[] = {load, "--train.max_consecutive_nan=3", "--train.max_steps=50", NULL};
    assert_int_equal(run_with(f, "poisoned", ROWWISE, more, &logged), OTT_ERR_DIVERGED);
    assert_non_null(strstr(status_text(), "3 steps in a row"));
    assert_non_null(strstr(status_text(), "output of model.layers.0.self_attn.o_proj"));
    assert_int_equal(captured_log_count(&logged, "output of model.layers.0.self_attn.o_proj"), 3);
    assert_true(captured_log_has(&logged, "NaN/Inf loss at step 2 (consecutive=1"));
    assert_true(has_file(f, "poisoned/metrics.jsonl"));
    assert_false(has_file(f, "poisoned/checkpoints/step-4/state.json"));
}

/* train.max_consecutive_nan counts only steps in a row: an fp16 run overflows, recovers and finishes. */
static void recovery_resets_the_counter(void **state) {
    static captured_log logged;
    const fixture *f = *state;
    rig r;
    char path[160], load[200];
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[FP16]});
    r.t->run.loss_scale = 1073741824.0f;
    rig_save(&r, f, "overflows/checkpoints", path);
    rig_close(&r);
    snprintf(load, sizeof load, "--checkpoint.load_path=%s", path);
    const char *more[] = {load, "--train.max_steps=16", "--train.max_consecutive_nan=12", NULL};
    FIXTURE_OK(run_with(f, "overflows", FP16, more, &logged));
    int skipped = captured_log_count(&logged, "step skipped");
    assert_in_range(skipped, 5, 12);
    assert_true(captured_log_has(&logged, "Training complete: 16 steps"));
    assert_int_equal(captured_log_count(&logged, "NaN/Inf gradient of "), skipped); /* losses are finite */
    assert_int_equal(captured_log_count(&logged, "NaN/Inf loss"), 0);
    const char *fewer[] = {load, "--train.max_steps=16", "--train.max_consecutive_nan=4", NULL};
    assert_int_equal(run_with(f, "overflows-too-often", FP16, fewer, &logged), OTT_ERR_DIVERGED);
    assert_int_equal(captured_log_count(&logged, "step skipped"), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(poison_is_found_and_changes_nothing),
        cmocka_unit_test(poisoned_embedding),
        cmocka_unit_test(gradient_is_named),
        cmocka_unit_test(the_search_leaves_no_trace),
        cmocka_unit_test(loss_scale_halves_until_it_fits),
        cmocka_unit_test(loss_scale_does_not_change_the_update),
        cmocka_unit_test(absurd_learning_rate_ends_the_run),
        cmocka_unit_test(poisoned_checkpoint_ends_the_run),
        cmocka_unit_test(recovery_resets_the_counter),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
