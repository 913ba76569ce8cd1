/*
 * train.freeze. Frozen parameters keep their bits and have no gradients, moments or weight-gradient GEMMs.
 * The other parameters get the same gradients as without freezing. Quantized copies of frozen weights are
 * made once. Runs with frozen parameters stop and resume on any ranks, also with frozen weights stored in
 * FP8, and with parameters frozen for some steps only (train.freeze_schedule).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/pack.h"
#include "run/freezing.h"
#include "run/inference.h"
#include "train/mesh_run.h"

static void open_kept(rig *r, const fixture *f, int which, const char *freeze, const char *format) {
    const char *more[] = {freeze, format, NULL};
    rig_open(r, f, &(rig_options){.precision = &fixture_precisions[which], .more = more});
}

static void open_rig(rig *r, const fixture *f, int which, const char *freeze) {
    const char *more[] = {freeze, NULL};
    rig_open(r, f, &(rig_options){.precision = &fixture_precisions[which], .more = freeze ? more : NULL});
}

/* Writes frozen parameters as first letters: e(mbedding), n(orm), q k v o, g(ate) u(p) d(own), h(ead). */
static void spell(const rig *r, char *out) {
    static const struct {
        const char *part;
        char letter;
    } letters[] = {{"embed", 'e'},     {"norm", 'n'},   {"q_proj", 'q'},    {"k_proj", 'k'},
                   {"v_proj", 'v'},    {"o_proj", 'o'}, {"gate_proj", 'g'}, {"up_proj", 'u'},
                   {"down_proj", 'd'}, {"lm_head", 'h'}};
    const model *m = r->t->m;
    for (int i = 0; i < m->parameter_count; i++)
        for (size_t j = 0; j < sizeof letters / sizeof *letters; j++)
            if (m->parameters[i].frozen && strstr(m->parameters[i].name, letters[j].part)) {
                *out++ = letters[j].letter;
                break;
            }
    *out = '\0';
}

static void names(void **state) {
    static const struct {
        const char *freeze, *frozen;
    } rows[] = {
        {"--train.freeze=model.embed_tokens", "e"},
        {"--train.freeze=tok_embeddings,output", "eh"}, /* torchtitan's names */
        {"--train.freeze=model.layers.0", "nqkvongud"},
        {"--train.freeze=layers.0.attention.wq", "q"},
        {"--train.freeze=layers.0.attention", "qkvo"}, /* KempnerForge's names */
        {"--train.freeze=model.layers.*.mlp.up_proj.weight", "uu"},
        {"--train.freeze=model.norm,model.layers.?.input_layernorm", "nnn"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rig r;
        char found[64];
        open_rig(&r, *state, BF16, rows[i].freeze);
        spell(&r, found);
        assert_string_equal(found, rows[i].frozen);
        rig_close(&r);
    }
}

static void refused(void **state) {
    static const struct {
        const char *freeze, *part;
    } rows[] = {{"--train.freeze=model.embed_tokens,model.layer.0",
                 "has \"model.layer.0\", which names no parameter; the nearest is model.layers.0"},
                {"--train.freeze=model.layers.7", "the nearest is model.layers.1"},
                {"--train.freeze=tok_embedings.weight", "the nearest is tok_embeddings"},
                {"--train.freeze=zzzzzzzzz", "names look like model.layers.0.self_attn.q_proj"},
                {"--train.freeze=*", "nothing is left to train"},
                {"--train.frozen_dtype=fp8", "no parameter is frozen"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rig r;
        mem *account;
        FIXTURE_OK(mem_open(&account));
        const char *more[] = {rows[i].freeze, NULL};
        const rig_options o = {.precision = &fixture_precisions[BF16], .more = more};
        assert_int_equal(rig_try(&r, account, *state, &o), OTT_ERR_CONFIG);
        assert_non_null(strstr(status_text(), rows[i].part));
        mem_close(account);
    }
}

/* Runs one step, with and without frozen parameters. Trained parameters get the same update in both. */
static void check_step(const fixture *f, int which) {
    static const char *const freeze = "--train.freeze=model.embed_tokens,model.layers.0.mlp,model.norm";
    const char *const all[] = {"--train.grad_clip_norm=0", NULL};
    const char *const part[] = {"--train.grad_clip_norm=0", freeze, NULL};
    rig full, frozen;
    rig_open(&full, f, &(rig_options){.precision = &fixture_precisions[which], .more = all});
    rig_open(&frozen, f, &(rig_options){.precision = &fixture_precisions[which], .more = part});
    assert_true(frozen.t->m->trained_bytes < full.t->m->trained_bytes);
    assert_true(plan_bytes(frozen.t->cx.plan) <= plan_bytes(full.t->cx.plan));
    snapshot before = snapshot_take(&frozen);
    step_result a = rig_step(&full), b = rig_step(&frozen);
    assert_true(a.loss == b.loss && b.grad_norm < a.grad_norm);
    int kept = 0;
    for (int i = 0; i < full.t->m->parameter_count; i++) {
        const parameter *p = &full.t->m->parameters[i], *q = &frozen.t->m->parameters[i];
        size_t bytes = (size_t)parameter_count(p) * sizeof(float);
        const char *start =
            (const char *)before.data + ((const char *)q->value.data - (const char *)frozen.t->m->values);
        float *x = rig_copy(&full, p->value.data, parameter_count(p));
        float *y = rig_copy(&frozen, q->value.data, parameter_count(q));
        assert_memory_equal(y, q->frozen ? start : (const char *)x, bytes);
        if (q->frozen) assert_null(q->grad.data);
        kept += q->frozen;
        free(x);
        free(y);
    }
    assert_int_equal(kept, 5);
    assert_int_equal(full.t->cx.gemms[GEMM_GRAD_WEIGHT][0] + full.t->cx.gemms[GEMM_GRAD_WEIGHT][1],
                     frozen.t->cx.gemms[GEMM_GRAD_WEIGHT][0] + frozen.t->cx.gemms[GEMM_GRAD_WEIGHT][1] + 3);
    snapshot_free(&before);
    rig_close(&full);
    rig_close(&frozen);
}

static void only_the_rest_moves(void **state) {
    static const int precisions[] = {FP32, BF16, TENSORWISE, ROWWISE, ROWWISE_WITH_GW_HP, DELAYED, MXFP8};
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) check_step(*state, precisions[i]);
}

/* ---- quantized copies of frozen weights ---- */

/* Counts how often ops quantized one master. */
typedef struct makings {
    const void *master;
    int count;
} makings;

static void count_making(void *user, enum op_index op, const void *args, double began, double seconds) {
    makings *m = user;
    (void)began, (void)seconds;
    if (op == OP_INDEX_quantize) m->count += ((const quantize_args *)args)->x->data == m->master;
    if (op == OP_INDEX_convert) m->count += ((const convert_args *)args)->x->data == m->master;
    const adamw_args *a = op == OP_INDEX_adamw ? args : NULL;
    if (a && a->q) m->count += a->param->data == m->master;
}

enum { STEPS = 3 };

/* Returns how often a weight is quantized in STEPS steps and a validation. renewed: the test reports before
   every step that masters have changed. *end: the final state; the caller frees it. */
static int count_makings(const fixture *f, int which, const char *weight, bool renewed, snapshot *end) {
    static const char *const more[] = {"--train.freeze=model.layers.0.mlp", "--train.grad_accum_steps=2",
                                       NULL};
    rig r;
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[which], .more = more});
    makings made = {.master = rig_parameter(&r, weight)->value.data};
    exec_times times = {.on_op = count_making, .user = &made};
    FIXTURE_OK(exec_times_open(&times, r.device));
    r.t->cx.times = &times;
    for (int i = 0; i < STEPS; i++) {
        if (renewed) model_weights_changed(r.t->m);
        rig_step(&r);
    }
    rig_validate(&r);
    *end = snapshot_take(&r);
    exec_times_close(&times, r.device);
    rig_close(&r);
    return made.count;
}

/* A frozen weight is quantized once. A trained weight is quantized for each step and for the last validation.
   The bits equal a run that quantizes all weights every time. */
static void made_once(void **state) {
    static const struct {
        int precision, of_frozen, of_trained;
    } rows[] = {{FP32, 0, 0},
                {BF16, 1, STEPS + 1},
                {TENSORWISE, 1, STEPS + 1},
                {ROWWISE, 1, STEPS + 1},
                {ROWWISE_WITH_GW_HP, 1, STEPS + 1},
                {DELAYED, STEPS + 1, STEPS + 1},
                {BLOCK, 1, STEPS + 1},
                {MXFP8, 1, STEPS + 1}};
    static const char frozen[] = "model.layers.0.mlp.up_proj.weight",
                      trained[] = "model.layers.1.mlp.up_proj.weight";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snapshot end[3];
        int which = rows[i].precision;
        assert_int_equal(count_makings(*state, which, frozen, false, &end[0]), rows[i].of_frozen);
        assert_int_equal(count_makings(*state, which, trained, false, &end[1]), rows[i].of_trained);
        count_makings(*state, which, frozen, true, &end[2]);
        assert_true(snapshot_equal(&end[0], &end[2]));
        for (int s = 0; s < 3; s++) snapshot_free(&end[s]);
    }
}

/* Stops after two steps and resumes, with the same results. Resuming with the argument other_freeze fails
   with a message that contains `part`. */
static void check_resumes(const fixture *f, int which, const char *format, const char *other_freeze,
                          const char *part) {
    static const char *const freeze = "--train.freeze=layers.1,tok_embeddings";
    rig through, stopped, other;
    char path[160];
    bool fell_back;
    run_state run;
    open_kept(&through, f, which, freeze, format);
    open_kept(&stopped, f, which, freeze, format);
    for (int i = 0; i < 2; i++) rig_step(&through), rig_step(&stopped);
    rig_save(&stopped, f, "frozen", path);
    rig_close(&stopped);
    open_kept(&stopped, f, which, freeze, format);
    FIXTURE_OK(checkpoint_load(stopped.t->m, stopped.t->cx.log, NULL, path, &stopped.t->run, &fell_back));
    for (int i = 0; i < 2; i++) rig_step(&through), rig_step(&stopped);
    snapshot a = snapshot_take(&through), b = snapshot_take(&stopped);
    assert_true(snapshot_equal(&a, &b));
    assert_true(rig_validate(&through) == rig_validate(&stopped));
    snapshot_free(&a);
    snapshot_free(&b);
    rig_close(&through);
    rig_close(&stopped);
    open_rig(&other, f, which, other_freeze);
    assert_int_equal(checkpoint_load(other.t->m, other.t->cx.log, NULL, path, &run, &fell_back),
                     OTT_ERR_SHAPE);
    assert_non_null(strstr(status_text(), part));
    rig_close(&other);
}

static void resumes(void **state) {
    check_resumes(*state, TENSORWISE, NULL, NULL, "train.freeze");
}

/* ---- stored in FP8 ---- */

static const char *const in_fp8 = "--train.frozen_dtype=fp8";

static void resumes_in_fp8(void **state) {
    static const int precisions[] = {BF16, TENSORWISE, ROWWISE, DELAYED, BLOCK};
    static const char *const part =
        "is kept in FP8 in the checkpoint and fp32 in this run: set train.frozen_dtype";
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
        check_resumes(*state, precisions[i], in_fp8, "--train.freeze=layers.1,tok_embeddings", part);
}

/* Trains on several ranks for two steps, with frozen projections. format: the option that chooses the format
   in which the projections are stored. */
static void run_kept(const fixture *f, int which, const mesh_layout *layout, const char *format,
                     const char *recomputation, outcome *out) {
    const char *more[] = {"--train.freeze=layers.*_proj",
                          format,
                          recomputation,
                          "--model.n_kv_heads=4",
                          "--model.dim=256",
                          "--model.head_dim=64",
                          "--model.ffn_hidden_dim=256",
                          "--train.grad_accum_steps=2",
                          NULL};
    mesh_run(f, &(mesh_run_options){.precision = &fixture_precisions[which], .more = more, .layout = *layout},
             out);
}

/* Tests recipes that scale a weight in the same way for forward and backward. The stored codes of a frozen
   weight are the same as a cast of its master. So losses and gradients are the same as in a run with the
   master, on every layout. */
static void on_ranks(void **state) {
    static const struct {
        int precision;
        mesh_layout layout;
        const char *recomputation;
    } rows[] = {
        {TENSORWISE, {.size = {[MESH_DP_SHARD] = 2}}, "--train.activation_checkpointing=selective"},
        {BLOCK, {.size = {[MESH_DP_SHARD] = 2, [MESH_TP] = 2}}, "--train.activation_checkpointing=none"},
        {TENSORWISE,
         {.size = {[MESH_PP] = 2, [MESH_TP] = 2}, .schedule = PP_1F1B, .sequence_parallel = true},
         "--train.activation_checkpointing=full"},
        {BLOCK,
         {.size = {[MESH_PP] = 2, [MESH_DP_SHARD] = 2}, .schedule = PP_GPIPE},
         "--train.activation_checkpointing=full"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        outcome codes, masters;
        run_kept(*state, rows[i].precision, &rows[i].layout, in_fp8, rows[i].recomputation, &codes);
        run_kept(*state, rows[i].precision, &rows[i].layout, "--train.frozen_dtype=fp32",
                 rows[i].recomputation, &masters);
        for (int s = 0; s < MESH_RUN_STEPS; s++) {
            assert_true(codes.step[s].loss == masters.step[s].loss);
            assert_true(codes.step[s].grad_norm == masters.step[s].grad_norm);
        }
        assert_true(outcome_distance(&codes, &masters, OUTCOME_GRADIENT) == 0);
        assert_true(outcome_distance(&codes, &masters, OUTCOME_MOMENT2) == 0);
        assert_true(codes.evaluated.loss == masters.evaluated.loss);
        outcome_free(&codes);
        outcome_free(&masters);
    }
}

/* The log reports how GEMMs read the FP8 codes of frozen weights. Evaluation and generation read them too. */
static void is_run_as_it_was_trained(void **state) {
    static captured_log logged;
    const fixture *f = *state;
    const char *more[] = {"--train.freeze=layers.*_proj", in_fp8, "--train.max_steps=1", NULL};
    char path[160];
    config *cfg;
    char *checkpoint;
    inference_plan opened;
    rig r;
    model *m;
    FIXTURE_OK(fixture_run(
        f, &(run_options){
               .name = "kept", .precision = &fixture_precisions[ROWWISE], .more = more, .logged = &logged}));
    assert_true(captured_log_has(
        &logged, "Kept in FP8: 14 frozen weights; forward uses 14 directly, 0 dequantized to bf16, 0 "
                 "requantized; backward 0 directly, 0 dequantized to bf16, 14 requantized"));
    assert_true(captured_log_has(&logged, "recipe rowwise has scales for other blocks of elements"));
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[ROWWISE], .more = more});
    snprintf(path, sizeof path, "%s/kept", f->folder);
    FIXTURE_OK(inference_find(r.account, path, NULL, 0, &cfg, &checkpoint));
    FIXTURE_OK(inference_read(r.account, cfg, checkpoint, &opened));
    FIXTURE_OK(inference_open(&opened, r.device, 8, NULL, &m));
    for (int i = 0; i < m->parameter_count; i++) {
        const parameter *p = &m->parameters[i], *q = &r.t->m->parameters[i];
        assert_int_equal(p->codes != NULL, q->codes != NULL);
        if (!p->codes) continue;
        float *x = rig_copy_wide(&r, &p->value), *y = rig_copy_wide(&r, &q->value);
        assert_memory_equal(x, y, (size_t)parameter_count(p) * sizeof *x);
        assert_memory_equal(p->codes->scale_inv, q->codes->scale_inv,
                            (size_t)p->codes->scale_rows * sizeof *x);
        free(x);
        free(y);
    }
    FIXTURE_OK(model_pack(m));
    model_close(m);
    mem_free(r.account, checkpoint);
    config_close(cfg);
    rig_close(&r);
}

/* A configuration is refused if tensor parallelism would split scale blocks of frozen FP8 weights. */
static void blocks_are_not_split(void **state) {
    mem *account;
    rig r;
    group two = {.size = 2};
    const char *more[] = {"--train.freeze=layers.*_proj",
                          in_fp8,
                          "--train.frozen_granularity=block",
                          "--model.ffn_hidden_dim=192",
                          "--model.n_kv_heads=4",
                          NULL};
    const rig_options o = {.precision = &fixture_precisions[BF16], .more = more, .tensor_ranks = &two};
    FIXTURE_OK(mem_open(&account));
    assert_int_equal(rig_try(&r, account, *state, &o), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), "which splits scale blocks of 128 x"));
    mem_close(account);
}

/* ---- train.freeze_schedule ---- */

/* Parameters behave as frozen in the scheduled steps, and train again afterwards. */
static void frozen_for_some_steps(void **state) {
    const char *more[] = {"--train.freeze_schedule=[\"0 layers.0.mlp\", \"2\", \"3 lm_head norm\"]", NULL};
    static const char name[] = "model.layers.0.mlp.up_proj.weight";
    rig frozen, r;
    int resting;
    open_rig(&frozen, *state, TENSORWISE, "--train.freeze=layers.0.mlp");
    rig_open(&r, *state, &(rig_options){.precision = &fixture_precisions[TENSORWISE], .more = more});
    FIXTURE_OK(freezing_check(r.cfg));
    FIXTURE_OK(freezing_apply(r.cfg, r.t, freezing_at(r.cfg, 0), &resting));
    assert_int_equal(resting, 3);
    float *before = rig_copy_wide(&r, &rig_parameter(&r, name)->shard.value), *after;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(freezing_at(r.cfg, i), i / 2);
        step_result a = rig_step(&frozen), b = rig_step(&r);
        assert_true(a.loss == b.loss);
        assert_true(i == 2 ? a.grad_norm < b.grad_norm : a.grad_norm == b.grad_norm);
        after = rig_copy_wide(&r, &rig_parameter(&r, name)->shard.value);
        bool moved = memcmp(before, after, (size_t)parameter_count(rig_parameter(&r, name)) * sizeof *after);
        assert_int_equal(moved, i == 2);
        free(after);
        if (i == 1) FIXTURE_OK(freezing_apply(r.cfg, r.t, freezing_at(r.cfg, 2), &resting));
    }
    free(before);
    FIXTURE_OK(freezing_apply(r.cfg, r.t, freezing_at(r.cfg, 3), &resting));
    assert_int_equal(resting, 2);
    rig_close(&frozen);
    rig_close(&r);
}

/* A run follows train.freeze_schedule, also if it is stopped and resumed in the middle of the schedule. */
static void a_run_follows_its_schedule(void **state) {
    static captured_log logged;
    static const char schedule[] = "--train.freeze_schedule=[\"1 layers.0\", \"3 lm_head\"]",
                      steps[] = "--train.max_steps=5";
    const char *more[] = {schedule, steps, NULL};
    const char *again[] = {schedule, steps, "--checkpoint.load_path=latest", NULL};
    run_options o = {
        .name = "follows-a", .precision = &fixture_precisions[BF16], .more = more, .logged = &logged};
    FIXTURE_OK(fixture_run(*state, &o));
    assert_true(captured_log_has(&logged, "Freeze schedule: from step 2 on, 9 parameters are frozen"));
    assert_true(captured_log_has(&logged, "Freeze schedule: from step 4 on, 1 parameters are frozen"));
    o.name = "follows-b";
    o.stop_after = 2;
    FIXTURE_OK(fixture_run(*state, &o));
    o.stop_after = 0;
    o.more = again;
    FIXTURE_OK(fixture_run(*state, &o));
    assert_true(captured_log_has(&logged, "Freeze schedule: from step 3 on, 9 parameters are frozen"));
    fixture_expect_same_run(*state, "follows-a", "follows-b", 5);
}

static void incomplete_schedules_are_refused(void **state) {
    static const struct {
        const char *schedule, *message;
    } rows[] = {{"\"soon lm_head\"", "is not a step and names of parameters"},
                {"\"1 lm_head\", \"1 norm\"", "steps must ascend, but 1 follows 1"},
                {"\"0 layers.7\"", "\"layers.7\", which names no trained parameter"},
                {"\"0 *\"", "freezes every parameter"},
                {"\"0 lm_head\", \"9 layers.7\"", "\"layers.7\", which names no trained parameter"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char schedule[120], name[16];
        const char *more[] = {schedule, "--train.max_steps=1", NULL};
        snprintf(name, sizeof name, "frozen-%zu", i);
        snprintf(schedule, sizeof schedule, "--train.freeze_schedule=[%s]", rows[i].schedule);
        assert_int_equal(
            fixture_run(*state,
                        &(run_options){.name = name, .precision = &fixture_precisions[BF16], .more = more}),
            OTT_ERR_CONFIG);
        if (!strstr(status_text(), rows[i].message)) fail_msg("%s: %s", schedule, status_text());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(names),
                                       cmocka_unit_test(refused),
                                       cmocka_unit_test(only_the_rest_moves),
                                       cmocka_unit_test(made_once),
                                       cmocka_unit_test(resumes),
                                       cmocka_unit_test(resumes_in_fp8),
                                       cmocka_unit_test(on_ranks),
                                       cmocka_unit_test(is_run_as_it_was_trained),
                                       cmocka_unit_test(frozen_for_some_steps),
                                       cmocka_unit_test(a_run_follows_its_schedule),
                                       cmocka_unit_test(incomplete_schedules_are_refused),
                                       cmocka_unit_test(blocks_are_not_split)};
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
