/*
 * Pipeline-parallel training, with ranks as threads. With every schedule, steps, evaluations and weights
 * equal one rank's, bit for bit. Settings that name layers apply to the layers of all stages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "comm/ranks.h"
#include "train/schedule.h"
#include "train/train_fixture.h"

enum { STAGES = 2, STEPS = 2, ARGUMENTS = 12 };

typedef struct rank_run {
    rig r;
    pipeline_stage stage;
    group *group;
    bool poisoned;        /* the rank sets a weight of the last layer to NaN */
    char checkpoint[160]; /* path to resume from; "": start from scratch */
    char found[160];
    step_result step[STEPS];
    evaluation evaluated;
} rank_run;

static ott_status train(rank_run *k) {
    trainer *t = k->r.t;
    if (*k->checkpoint) TRY(trainer_load(t, k->checkpoint));
    for (int i = 0; i < STEPS; i++)
        TRY(trainer_step(t, schedule_learning_rate(k->r.cfg, i, k->r.cfg->train.max_steps), &k->step[i]));
    TRY(trainer_evaluate(t, 3, &k->evaluated));
    return k->poisoned ? trainer_find_nonfinite(t, k->found) : OTT_OK;
}

static ott_status train_rank(void *argument) {
    rank_run *k = argument;
    ott_status status = train(k);
    group_close(k->group);
    return status;
}

static const parameter *find(rank_run *k, const char *name) {
    const model *m = k->r.t->m;
    for (int i = 0; i < m->parameter_count; i++)
        if (strcmp(m->parameters[i].name, name) == 0) return &m->parameters[i];
    return NULL;
}

static void expect_same_tensor(rank_run *one, const tensor *a, rank_run *k, const tensor *b,
                               const char *name) {
    float *x = rig_copy(&one->r, a->data, tensor_count(*a)), *y = rig_copy(&k->r, b->data, tensor_count(*b));
    assert_int_equal(tensor_count(*a), tensor_count(*b));
    if (memcmp(x, y, (size_t)tensor_bytes(*a)) != 0) fail_msg("stage %d: different %s", k->stage.rank, name);
    free(x);
    free(y);
}

/* Compares the token counts of the experts of all stages, and how uneven these counts are. */
static void expect_same_loads(rank_run *one, rank_run *k) {
    const tensor *a = &one->r.t->m->balance.loads, *b = &k->r.t->m->balance.loads;
    if (a->data) expect_same_tensor(one, a, k, b, "expert loads");
    assert_true(one->step[STEPS - 1].balance.unevenness == k->step[STEPS - 1].balance.unevenness);
}

static void expect_same(rank_run *one, rank_run *k) {
    for (int i = 0; i < STEPS; i++) {
        const step_result *a = &one->step[i], *b = &k->step[i];
        if (a->loss != b->loss || a->z_loss != b->z_loss || a->grad_norm != b->grad_norm ||
            a->labels != b->labels || a->tokens != b->tokens || a->skipped != b->skipped)
            fail_msg("stage %d, step %d: loss %.9g and %.9g, norm %.9g and %.9g", k->stage.rank, i + 1,
                     a->loss, b->loss, a->grad_norm, b->grad_norm);
    }
    assert_true(one->evaluated.loss == k->evaluated.loss && one->evaluated.labels == k->evaluated.labels);
    int64_t gemms[2][2];
    trainer_gemms(one->r.t, &gemms[0][0], &gemms[0][1]);
    trainer_gemms(k->r.t, &gemms[1][0], &gemms[1][1]);
    assert_memory_equal(gemms[0], gemms[1], sizeof gemms[0]); /* GEMM counts of all stages */
    assert_memory_equal(&one->r.t->converted, &k->r.t->converted, sizeof one->r.t->converted);
    expect_same_loads(one, k);
    for (int i = 0; i < k->r.t->m->parameter_count; i++) {
        const parameter *p = &k->r.t->m->parameters[i], *q = find(one, p->name);
        expect_same_tensor(one, &q->shard.value, k, &p->shard.value, p->name);
        if (!p->frozen) expect_same_tensor(one, &q->shard.slot[0], k, &p->shard.slot[0], p->name);
    }
}

static void open_rank(rank_run *k, const fixture *f, const rig_options *o, kind_pp_schedule schedule,
                      group *ranks) {
    rig_options own = *o;
    k->group = own.stage_ranks = ranks;
    k->stage = (pipeline_stage){schedule, STAGES, ranks->rank,
                                schedule == PP_INTERLEAVED_1F1B ? PIPELINE_INTERLEAVED_CHUNKS : 1};
    own.stage = &k->stage;
    rig_open(&k->r, f, &own);
}

static void run_stages(const fixture *f, const rig_options *o, kind_pp_schedule schedule, bool poisoned,
                       rank_run *ranks, void (*look)(rank_run *one, rank_run *k), rank_run *one) {
    group *groups[STAGES];
    thread_groups opened = {0};
    ranks_groups(&opened, STAGES, 1, STAGES, groups);
    memset(ranks, 0, STAGES * sizeof *ranks);
    for (int s = 0; s < STAGES; s++) {
        open_rank(&ranks[s], f, o, schedule, groups[s]);
        ranks[s].poisoned = poisoned;
        if (one) memcpy(ranks[s].checkpoint, one->checkpoint, sizeof one->checkpoint);
        if (poisoned && s == STAGES - 1) rig_poke(&ranks[s].r, "model.layers.3.mlp.up_proj.weight", 0, NAN);
    }
    ranks_run("stages", STAGES, ranks, sizeof *ranks, train_rank);
    for (int s = 0; s < STAGES; s++) {
        look(one, &ranks[s]);
        rig_close(&ranks[s].r);
    }
    ranks_close(&opened);
}

static const kind_pp_schedule schedules[] = {PP_GPIPE, PP_1F1B, PP_INTERLEAVED_1F1B};

static void compare(const fixture *f, int way, const char *const *more) {
    static rank_run one, ranks[STAGES];
    const char *arguments[ARGUMENTS] = {"--model.n_layers=4", "--train.grad_accum_steps=4"};
    for (int i = 2; more && *more; i++) arguments[i] = *more++;
    const rig_options o = {.precision = &fixture_precisions[way], .more = arguments};
    one = (rank_run){0};
    rig_open(&one.r, f, &o);
    FIXTURE_OK(train(&one));
    for (int i = 0; i < 3; i++) run_stages(f, &o, schedules[i], false, ranks, expect_same, &one);
    rig_close(&one.r);
}

static void stages_train_as_one_rank(void **state) {
    static const int precisions[] = {FP32, BF16, FP16, TENSORWISE, ROWWISE, DELAYED};
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) compare(*state, precisions[i], NULL);
}

/* Amax histories roll after each micro-batch, as on one rank, even if several micro-batches are in flight.
   Recomputation casts with the scales of the first forward. */
static void histories_move_with_micro_batches(void **state) {
    static const char *const modes[] = {"full", "selective", "op"};
    for (int i = 0; i < 3; i++) {
        char mode[64];
        snprintf(mode, sizeof mode, "--train.activation_checkpointing=%s", modes[i]);
        compare(*state, DELAYED, (const char *const[]){mode, NULL});
    }
}

/* Tests gradient norms over all stages, filters that match layers of one stage only, and frozen layers on one
   stage only. */
static void rules_that_span_all_stages(void **state) {
    compare(*state, TENSORWISE,
            (const char *const[]){"--model.tie_embeddings=true", "--train.grad_clip_norm=0.1",
                                  "--train.freeze=model.layers.1.mlp,model.norm", NULL});
    compare(*state, TENSORWISE,
            (const char *const[]){"--float8.filter_fqns=layers.0,layers.1", "--float8.keep_last_layers=1",
                                  "--train.freeze=model.embed_tokens", "--train.z_loss_weight=0.1", NULL});
}

/* One rank trains the full model and writes a checkpoint. The pipeline stages with experts load the
   expert-balancing state from the checkpoint. */
static void stages_resume_with_a_mixture(void **state) {
    static rank_run one, ranks[STAGES];
    const char *const more[] = {"--model.n_layers=4",
                                "--train.grad_accum_steps=4",
                                "--model.num_experts=4",
                                "--model.moe_router=sigmoid_topk",
                                "--model.moe_frequency=3",
                                "--model.moe_bias_rate=0.1",
                                NULL};
    const rig_options o = {.precision = &fixture_precisions[BF16], .more = more};
    one = (rank_run){0};
    rig_open(&one.r, *state, &o);
    rig_step(&one.r);
    rig_save(&one.r, *state, "mixture", one.checkpoint);
    rig_close(&one.r);
    rig_open(&one.r, *state, &o);
    FIXTURE_OK(train(&one));
    for (int i = 0; i < 3; i++) run_stages(*state, &o, schedules[i], false, ranks, expect_same, &one);
    rig_close(&one.r);
}

static void expect_found(rank_run *one, rank_run *k) {
    (void)one;
    assert_true(k->step[0].skipped && k->step[1].skipped);
    assert_string_equal(k->found, "output of model.layers.3.mlp.up_proj on rank 1, stage 1");
}

/* A non-finite value skips the update on every stage. All stages report the value and where it is. */
static void not_finite_anywhere(void **state) {
    static rank_run ranks[STAGES];
    const char *const more[] = {"--model.n_layers=4", "--train.grad_accum_steps=4", NULL};
    const rig_options o = {.precision = &fixture_precisions[BF16], .more = more};
    run_stages(*state, &o, PP_1F1B, true, ranks, expect_found, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_train_as_one_rank),   cmocka_unit_test(histories_move_with_micro_batches),
        cmocka_unit_test(rules_that_span_all_stages), cmocka_unit_test(stages_resume_with_a_mixture),
        cmocka_unit_test(not_finite_anywhere),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
