/*
 * Adapters (peft.*): they train and the rest keeps its bits; the model starts as it is without them; recomputation, ranks
 * and a stop change no bit, with dropout before or after them; what ranks that share a layer add up stays within
 * rounding. The bound is that of train.layer_ranks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "train/mesh_run.h"

#define LORA        "--peft.dim=4", "--peft.alpha=6"
#define DROP_BEFORE "--peft.dropout=0.25", "--peft.dropout_position=pre"
#define DROP_AFTER  "--peft.dropout=0.25", "--peft.dropout_position=post"
#define BOUND       6.1e-4

static bool is_adapter(const parameter *p) {
    return strstr(p->name, ".lora_A.weight") || strstr(p->name, ".lora_B.weight");
}

/* ---- which layers have one ---- */

/* Adapters, by the first letters of their layers, in the order of the model. */
static void spell(const rig *r, char *out) {
    const model *m = r->t->m;
    for (int i = 0; i < m->modules.count; i++)
        if (m->modules.of[i].lora_a) *out++ = strrchr(m->modules.of[i].name, '.')[1];
    *out = '\0';
}

static void targets(void **state) {
    static const struct {
        const char *arguments[3], *layers;
    } rows[] = {
        {{"--peft.dim=2"}, "qkvogudqkvogud"},
        {{"--peft.target_modules=*_proj"}, "qkvogudqkvogud"},
        {{"--peft.target_modules=q_proj,v_proj"}, "qvqv"},
        {{"--peft.target_modules=model.layers.1.*"}, "qkvogud"},
        {{"--peft.target_modules=mlp.up_proj", "--peft.exclude_modules=layers.0.mlp.*"}, "u"},
        {{"--peft.target_modules=wq"}, "qq"}, /* torchtitan's */
        {{"--peft.match_all_linear=true", "--peft.exclude_modules=*.self_attn.*"}, "gudgud"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rig r;
        char found[64];
        rig_open(&r, *state,
                 &(rig_options){.precision = &fixture_precisions[BF16], .more = rows[i].arguments});
        spell(&r, found);
        assert_string_equal(found, rows[i].layers);
        for (int k = 0; k < r.t->m->parameter_count; k++)
            assert_int_equal(r.t->m->parameters[k].frozen, !is_adapter(&r.t->m->parameters[k]));
        rig_close(&r);
    }
}

static void refused(void **state) {
    static const struct {
        const char *argument, *part;
    } rows[] = {{"--peft.target_modules=qq_proj",
                 "peft.target_modules has \"qq_proj\", which names no linear "
                 "layer of a block; the nearest is"},
                {"--peft.target_modules=lm_head", "names no linear layer of a block"},
                {"--peft.exclude_modules=out_proj", "peft.exclude_modules has \"out_proj\""},
                {"--peft.exclude_modules=*", "nothing would train"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rig r;
        mem *account;
        const char *more[] = {rows[i].argument, NULL};
        FIXTURE_OK(mem_open(&account));
        assert_int_equal(rig_try(&r, account, *state,
                                 &(rig_options){.precision = &fixture_precisions[BF16], .more = more}),
                         OTT_ERR_CONFIG);
        if (!strstr(status_text(), rows[i].part)) fail_msg("%s", status_text());
        mem_close(account);
    }
}

/* ---- what moves ---- */

static void check_step(const fixture *f, int which) {
    const char *const more[] = {LORA, NULL};
    rig plain, adapted;
    rig_open(&plain, f, &(rig_options){.precision = &fixture_precisions[which]});
    rig_open(&adapted, f, &(rig_options){.precision = &fixture_precisions[which], .more = more});
    const model *m = adapted.t->m;
    snapshot before = snapshot_take(&adapted);
    assert_true(m->trained_bytes < plain.t->m->trained_bytes / 2);
    double loss = rig_step(&plain).loss;
    assert_true(rig_step(&adapted).loss == loss); /* B is zero */
    int64_t products = m->modules.count > 0 ? 2 * 14 : 0;
    assert_int_equal(adapted.t->cx.gemms[GEMM_GRAD_WEIGHT][0], products);
    assert_int_equal(adapted.t->cx.gemms[GEMM_GRAD_WEIGHT][1], 0);
    rig_step(&adapted);
    for (int i = 0; i < m->parameter_count; i++) {
        const parameter *p = &m->parameters[i];
        const char *start =
            (const char *)before.data + ((const char *)p->value.data - (const char *)m->values);
        float *now = rig_copy(&adapted, p->value.data, parameter_count(p));
        bool same = memcmp(now, start, (size_t)parameter_count(p) * sizeof *now) == 0;
        if (same != p->frozen) fail_msg("%s: %s", fixture_precisions[which].name, p->name);
        free(now);
    }
    snapshot_free(&before);
    rig_close(&plain);
    rig_close(&adapted);
}

static void only_adapters_move(void **state) {
    static const int precisions[] = {FP32, BF16, TENSORWISE, ROWWISE_WITH_GW_HP, DELAYED, BLOCK};
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) check_step(*state, precisions[i]);
}

/* ---- bits ---- */

static snapshot after_steps(const fixture *f, const char *const *more, int steps) {
    rig r;
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[TENSORWISE], .more = more});
    for (int i = 0; i < steps; i++) rig_step(&r);
    snapshot s = snapshot_take(&r);
    rig_close(&r);
    return s;
}

static void recomputation(void **state) {
    static const char *const modes[] = {"none", "selective", "full", "op"};
    static const char *const before[] = {DROP_BEFORE}, *const after[] = {DROP_AFTER};
    for (int position = 0; position < 2; position++) {
        snapshot kept = {0};
        for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
            char mode[64];
            const char *const *drop = position ? after : before;
            const char *const more[] = {LORA, drop[0], drop[1], mode, NULL};
            snprintf(mode, sizeof mode, "--train.activation_checkpointing=%s", modes[i]);
            snapshot s = after_steps(*state, more, 3);
            if (i == 0)
                kept = s;
            else if (!snapshot_equal(&kept, &s))
                fail_msg("%s: other bits", modes[i]);
            if (i > 0) snapshot_free(&s);
        }
        snapshot_free(&kept);
    }
}

static void goes_on(void **state) {
    static const char *const more[] = {LORA, DROP_BEFORE, "--train.max_steps=4", "--checkpoint.interval=2",
                                       NULL};
    static const char *const again[] = {
        LORA, DROP_BEFORE, "--train.max_steps=4", "--checkpoint.interval=2", "--checkpoint.load_path=latest",
        NULL};
    run_options o = {.name = "whole", .precision = &fixture_precisions[TENSORWISE], .more = more};
    FIXTURE_OK(fixture_run(*state, &o));
    o.name = "parts";
    o.stop_after = 2;
    FIXTURE_OK(fixture_run(*state, &o));
    o.stop_after = 0;
    o.more = again;
    FIXTURE_OK(fixture_run(*state, &o));
    fixture_expect_same_run(*state, "whole", "parts", 4);
}

/* ---- ranks ---- */

typedef struct spread {
    const char *name;
    mesh_layout layout;
    int micro_batches, of_one; /* of a rank in a step; of one that trains on the same */
    bool exact;
} spread;

#define SIZES(...) .layout.size = {__VA_ARGS__}
static const spread spreads[] = {
    {"dp_shard", SIZES([MESH_DP_SHARD] = 2), .micro_batches = 1, .of_one = 2, .exact = true},
    {"dp_shard of 4", SIZES([MESH_DP_SHARD] = 4), .micro_batches = 1, .of_one = 4, .exact = true},
    {"pp", SIZES([MESH_PP] = 2), .micro_batches = 2, .of_one = 2, .exact = true},
    {"tp", SIZES([MESH_TP] = 2), .micro_batches = 1, .of_one = 1},
    {"tp, sequence_parallel", SIZES([MESH_TP] = 2), .layout.sequence_parallel = true, .micro_batches = 1,
     .of_one = 1},
    {"cp", SIZES([MESH_CP] = 2), .micro_batches = 1, .of_one = 1},
    {"dp_shard x tp", SIZES([MESH_DP_SHARD] = 2, [MESH_TP] = 2), .micro_batches = 1, .of_one = 2},
};

static void check_spread(const fixture *f, const spread *s, int which, const char *const drop[2],
                         const char *fused) {
    char own[48], all[48], what[160];
    const char *const one_more[] = {LORA, drop[0], drop[1], fused, all, NULL};
    const char *const more[] = {LORA, drop[0], drop[1], fused, own, NULL};
    outcome one, ranks;
    snprintf(own, sizeof own, "--train.grad_accum_steps=%d", s->micro_batches);
    snprintf(all, sizeof all, "--train.grad_accum_steps=%d", s->of_one);
    mesh_run(f, &(mesh_run_options){.precision = &fixture_precisions[which], .more = one_more}, &one);
    mesh_run(f,
             &(mesh_run_options){.precision = &fixture_precisions[which], .more = more, .layout = s->layout},
             &ranks);
    if (s->exact && !outcome_equal(&one, &ranks, what)) fail_msg("%s: %s", s->name, what);
    for (int kind = OUTCOME_GRADIENT; kind <= OUTCOME_VALUE; kind++) {
        double distance = outcome_distance(&one, &ranks, (outcome_kind)kind);
        if (!(distance <= BOUND)) fail_msg("%s: %g apart in %d", s->name, distance, kind);
    }
    outcome_free(&one);
    outcome_free(&ranks);
}

static void on_ranks(void **state) {
    static const char *const before[] = {DROP_BEFORE}, *const after[] = {DROP_AFTER};
    for (size_t i = 0; i < sizeof spreads / sizeof *spreads; i++) {
        const spread *s = &spreads[i];
        check_spread(*state, s, s->exact ? TENSORWISE : FP32, i % 2 ? before : after,
                     "--model.fused_qkv=true");
        check_spread(*state, s, FP32, i % 2 ? after : before, "--model.fused_qkv=false");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets),       cmocka_unit_test(refused), cmocka_unit_test(only_adapters_move),
        cmocka_unit_test(recomputation), cmocka_unit_test(goes_on), cmocka_unit_test(on_ranks),
    };
    return cmocka_run_group_tests_name("train.adapters", tests, fixture_setup, fixture_teardown);
}
