/*
 * Data-parallel training, with ranks as threads. N ranks equal one rank with N micro-batches, bit for bit, in
 * losses, gradients and everything an update writes. All ranks agree.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "comm/ranks.h"
#include "train/schedule.h"
#include "train/train_fixture.h"

enum { RANKS_MAX = 4, STEPS = 3, ARGUMENTS = 12 };

/* The results of a run. */
typedef struct outcome {
    step_result step[STEPS];
    snapshot state;
    float *grads, *scales;
    int64_t grad_count, scale_count;
    int64_t fp8_gemms, gemms;
} outcome;

static void outcome_take(outcome *o, rig *r) {
    trainer_gemms(r->t, &o->fp8_gemms, &o->gemms);
    o->state = snapshot_take(r);
    o->grad_count = r->t->m->trained_bytes / (int64_t)sizeof(float);
    o->grads = rig_copy(r, r->t->m->grads, o->grad_count);
    o->scale_count = r->t->m->delayed.block_bytes / (int64_t)sizeof(float);
    o->scales = o->scale_count ? rig_copy(r, r->t->m->delayed.block, o->scale_count) : NULL;
}

static void outcome_free(outcome *o) {
    snapshot_free(&o->state);
    free(o->grads);
    free(o->scales);
}

static void expect_same_steps(const outcome *one, const outcome *rank, const char *what) {
    for (int i = 0; i < STEPS; i++) {
        const step_result *a = &one->step[i], *b = &rank->step[i];
        if (a->loss != b->loss || a->z_loss != b->z_loss || a->grad_norm != b->grad_norm ||
            a->labels != b->labels || a->tokens != b->tokens || a->skipped != b->skipped)
            fail_msg("%s, step %d: loss %.9g and %.9g, norm %.9g and %.9g", what, i + 1, a->loss, b->loss,
                     a->grad_norm, b->grad_norm);
    }
    assert_int_equal(one->gemms, rank->gemms); /* GEMM counts of all ranks */
    assert_int_equal(one->fp8_gemms, rank->fp8_gemms);
}

static void expect_same(const outcome *one, const outcome *rank, const char *what) {
    expect_same_steps(one, rank, what);
    if (memcmp(one->grads, rank->grads, (size_t)one->grad_count * sizeof(float)) != 0)
        fail_msg("%s: gradients differ", what);
    if (!snapshot_equal(&one->state, &rank->state)) fail_msg("%s: weights or moments differ", what);
    assert_int_equal(one->scale_count, rank->scale_count);
    if (one->scale_count && memcmp(one->scales, rank->scales, (size_t)one->scale_count * sizeof(float)) != 0)
        fail_msg("%s: amax histories differ", what);
}

/* ---- one rank ---- */

/* amax histories roll once per step on N ranks with one micro-batch each, but N times on one rank with N
   micro-batches. So the single rank's model has no histories (delayed.block) before the last micro-batch. */
typedef struct waiting {
    trainer *t;
    void *histories, *before;
} waiting;

static void begin_step(waiting *w) {
    w->histories = w->t->m->delayed.block;
    w->before = w->t->delayed_before;
    w->t->delayed_before = NULL;
    if (w->t->options.grad_accum > 1) w->t->m->delayed.block = NULL;
}

static void micro_batch_done(void *user, int64_t done, int64_t total) {
    waiting *w = user;
    if (done >= total - 1) w->t->m->delayed.block = w->histories;
}

static void run_one(const fixture *f, const rig_options *o, outcome *out) {
    rig r;
    rig_open(&r, f, o);
    waiting w = {.t = r.t};
    r.t->micro_batch_done = micro_batch_done;
    r.t->micro_batch_user = &w;
    for (int i = 0; i < STEPS; i++) {
        begin_step(&w);
        out->step[i] = rig_step(&r);
        r.t->delayed_before = w.before;
    }
    outcome_take(out, &r);
    rig_close(&r);
}

/* ---- ranks ---- */

typedef struct rank_run {
    rig r;
    group *group;
    char *found; /* receives the name of a non-finite value; NULL: no search */
    outcome out;
} rank_run;

static ott_status train_rank(void *argument) {
    rank_run *k = argument;
    ott_status status = OTT_OK;
    for (int i = 0; i < STEPS && status == OTT_OK; i++)
        status = trainer_step(k->r.t, schedule_learning_rate(k->r.cfg, i, k->r.cfg->train.max_steps),
                              &k->out.step[i]);
    if (k->found && status == OTT_OK) status = trainer_find_nonfinite(k->r.t, k->found);
    group_close(k->group);
    return status;
}

/* Trains on `size` ranks. Every `shards` consecutive ranks together hold one copy of the parameters. Ranks
   with the same index in these groups hold the same shard. */
static void run_ranks(const fixture *f, const rig_options *o, int size, int shards, rank_run *ranks) {
    group *all[RANKS_MAX], *shard[RANKS_MAX], *replica[RANKS_MAX];
    thread_groups opened = {0};
    ranks_groups(&opened, size, 1, size, all);
    ranks_groups(&opened, size, 1, shards, shard);
    ranks_groups(&opened, size, shards, size / shards, replica);
    for (int k = 0; k < size; k++) {
        rig_options own = *o;
        ranks[k] = (rank_run){.group = all[k]};
        own.data_group = ranks[k].group;
        if (shards > 1) {
            own.shard_group = shard[k];
            own.replica_group = replica[k];
        }
        rig_open(&ranks[k].r, f, &own);
    }
    ranks_run("micro-batches", size, ranks, sizeof *ranks, train_rank);
    for (int k = 0; k < size; k++) {
        outcome_take(&ranks[k].out, &ranks[k].r);
        rig_close(&ranks[k].r);
    }
    ranks_close(&opened);
}

/* ---- the comparison ---- */

static void compare(const fixture *f, int way, int size, const char *const *more) {
    const char *arguments[ARGUMENTS];
    char micro_batches[64], what[128];
    rank_run *ranks = calloc(RANKS_MAX, sizeof *ranks);
    outcome one = {0};
    int count = 0;
    snprintf(micro_batches, sizeof micro_batches, "--train.grad_accum_steps=%d", size);
    arguments[count++] = micro_batches;
    for (; more && *more; more++) arguments[count++] = *more;
    arguments[count] = NULL;
    rig_options o = {.precision = &fixture_precisions[way], .more = arguments};
    run_one(f, &o, &one);
    o.more = arguments + 1;
    run_ranks(f, &o, size, 1, ranks);
    for (int k = 0; k < size; k++) {
        snprintf(what, sizeof what, "%s, rank %d of %d%s%s", fixture_precisions[way].name, k, size,
                 arguments[1] ? ", " : "", arguments[1] ? arguments[1] : "");
        expect_same(&one, &ranks[k].out, what);
        outcome_free(&ranks[k].out);
    }
    outcome_free(&one);
    free(ranks);
}

static void ranks_are_micro_batches(void **state) {
    static const int precisions[] = {FP32, FP16, DELAYED}; /* train.matrix tests the other precisions */
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
        for (int size = 1; size <= RANKS_MAX; size *= 2) compare(*state, precisions[i], size, NULL);
}

/* A micro-batch adds to some gradients several times: with a chunked head, with a tied head, and to
   biases. */
static void gradients_of_many_parts_too(void **state) {
    const char *const chunks[] = {"--train.loss_fn=chunked_cross_entropy", "--train.ce_chunk_size=16",
                                  "--train.z_loss_weight=0.1", NULL};
    const char *const tied[] = {"--model.tie_embeddings=true", "--model.attention_bias=true",
                                "--model.qk_norm=true", NULL};
    for (int size = 2; size <= RANKS_MAX; size *= 2) {
        compare(*state, BF16, size, chunks);
        compare(*state, BF16, size, tied);
        compare(*state, TENSORWISE, size, tied);
    }
}

/* A weight is NaN on one rank. All ranks report the weight and the rank. */
static void every_rank_names_what_is_not_finite(void **state) {
    enum { SIZE = 3, BAD = 2 };
    char found[SIZE][160];
    rank_run ranks[SIZE] = {0};
    group *all[SIZE];
    thread_groups opened = {0};
    ranks_groups(&opened, SIZE, 1, SIZE, all);
    for (int k = 0; k < SIZE; k++) {
        ranks[k] = (rank_run){.group = all[k], .found = found[k]};
        rig_open(&ranks[k].r, *state,
                 &(rig_options){.precision = &fixture_precisions[DELAYED], .data_group = all[k]});
        if (k >= BAD - 1) rig_poke(&ranks[k].r, "model.layers.1.self_attn.q_proj.weight", 0, NAN);
        if (k == BAD) rig_poke(&ranks[k].r, "model.layers.0.mlp.up_proj.weight", 0, NAN);
    }
    ranks_run("not finite", SIZE, ranks, sizeof *ranks, train_rank);
    for (int k = 0; k < SIZE; k++) {
        assert_true(ranks[k].out.step[0].skipped);
        assert_string_equal(found[k], "output of model.layers.0.mlp.up_proj on rank 2");
        rig_close(&ranks[k].r);
    }
    ranks_close(&opened);
}

/* Negative control: two ranks must not have one rank's loss, as the second rank trains on other rows. */
static void each_rank_has_rows_of_its_own(void **state) {
    rank_run *ranks = calloc(2, sizeof *ranks);
    outcome one = {0};
    const rig_options o = {.precision = &fixture_precisions[FP32]};
    run_one(*state, &o, &one);
    run_ranks(*state, &o, 2, 1, ranks);
    assert_int_equal(ranks[0].out.step[0].tokens, 2 * one.step[0].tokens);
    assert_true(ranks[0].out.step[0].loss != one.step[0].loss);
    for (int k = 0; k < 2; k++) outcome_free(&ranks[k].out);
    outcome_free(&one);
    free(ranks);
}

static void expect_near(const outcome *full, const outcome *shard) {
    for (int s = 0; s < STEPS; s++) {
        const step_result *a = &full->step[s], *b = &shard->step[s];
        assert_true(fabs(a->loss - b->loss) <= (s == 0 ? 0 : 1e-4 * a->loss));
        assert_true(fabs(a->grad_norm - b->grad_norm) <= 1e-3 * a->grad_norm);
    }
    assert_true(shard->grad_count < full->grad_count * 6 / 10);
}

/* Compares ranks that shard the parameters over two ranks with ranks that have full copies. With four ranks,
   each pair has a copy. */
static void compare_shards(const fixture *f, const char *const *more, int size) {
    rank_run *full = calloc(RANKS_MAX, sizeof *full), *shards = calloc(RANKS_MAX, sizeof *shards);
    const rig_options o = {.precision = &fixture_precisions[TENSORWISE], .more = more};
    run_ranks(f, &o, size, 1, full);
    run_ranks(f, &o, size, 2, shards);
    for (int k = 0; k < size; k++) {
        expect_near(&full[k].out, &shards[k].out);
        assert_true(shards[k].out.step[STEPS - 1].loss == shards[0].out.step[STEPS - 1].loss);
        outcome_free(&full[k].out);
        outcome_free(&shards[k].out);
    }
    free(full);
    free(shards);
}

/* Tests MoE layers: token counts, losses and biases of experts are computed over all ranks, and expert
   weights are sharded like any matrix. */
static void mixtures_of_experts_too(void **state) {
    const char *const mixture[] = {"--model.num_experts=4", "--model.moe_router=sigmoid_topk",
                                   "--model.moe_aux_loss_weight=0.02", "--model.moe_shared_experts=1", NULL};
    const char *const softmax[] = {"--model.num_experts=6", "--model.moe_sequence_aux_loss_weight=0.01",
                                   "--model.moe_router_z_loss_weight=0.01", "--train.grad_accum_steps=2",
                                   NULL};
    compare(*state, BF16, 2, mixture);
    compare(*state, TENSORWISE, 4, mixture);
    compare_shards(*state, mixture, 2);
    compare_shards(*state, softmax, 4);
}

/* For every setting of gathering and resharding: ranks that shard the parameters make the same updates as
   ranks with full copies, except for the order of sums. */
static void sharded_as_the_configuration_says(void **state) {
    static const char *const ways[][4] = {
        {"--distributed.reshard_after_forward=default", "--train.grad_accum_steps=2"},
        {"--distributed.defer_fsdp_grad_sync=true", "--train.grad_accum_steps=2"},
        {"--distributed.reshard_after_forward=never", "--train.grad_accum_steps=2",
         "--float8.precompute_float8_dynamic_scale_for_fsdp=true"},
        {"--distributed.reshard_after_forward=always", "--train.grad_accum_steps=2",
         "--float8.enable_fsdp_float8_all_gather=false"},
        {"--float8.force_recompute_fp8_weight_in_bwd=true", "--train.grad_accum_steps=2",
         "--distributed.reshard_after_forward=never"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int size = 2; size <= 4; size += 2) compare_shards(*state, ways[i], size);
}

/* Compares sharded ranks with one rank. The gradients are clipped, so that the norm affects all later values.
   Shards end within most matrices, and some ranks have no elements of a parameter. */
static void a_shared_norm_is_one_rank_s(void **state) {
    static const int precisions[] = {BF16, TENSORWISE, ROWWISE, DELAYED};
    rank_run *shards = calloc(RANKS_MAX, sizeof *shards);
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
        for (int size = 2; size <= RANKS_MAX; size++) {
            char micro_batches[64], what[64];
            const char *more[] = {micro_batches, "--model.dim=96", "--model.ffn_hidden_dim=432",
                                  "--train.grad_clip_norm=0.3", NULL};
            outcome one = {0};
            snprintf(micro_batches, sizeof micro_batches, "--train.grad_accum_steps=%d", size);
            run_one(*state, &(rig_options){.precision = &fixture_precisions[precisions[i]], .more = more},
                    &one);
            run_ranks(*state,
                      &(rig_options){.precision = &fixture_precisions[precisions[i]], .more = more + 1}, size,
                      size, shards);
            for (int k = 0; k < size; k++) {
                snprintf(what, sizeof what, "%s, sharded, rank %d of %d",
                         fixture_precisions[precisions[i]].name, k, size);
                expect_same_steps(&one, &shards[k].out, what);
                outcome_free(&shards[k].out);
            }
            outcome_free(&one);
        }
    free(shards);
}

/* With this optimizer, ranks that shard the parameters must make the same updates as one rank. Muon needs
   full matrices. Stochastic rounding depends on an element's position in the full tensor. */
static void compare_optimizer(const fixture *f, const char *name, bool narrow) {
    enum { SIZE = 3 };
    char setting[64];
    rank_run *shards = calloc(RANKS_MAX, sizeof *shards);
    const char *more[] = {"--train.grad_accum_steps=3",
                          setting,
                          "--scheduler.name=none",
                          "--optimizer.lr=0.002",
                          narrow ? "--train.master_dtype=bf16" : NULL,
                          "--optimizer.state_dtype=bf16",
                          NULL};
    outcome one = {0};
    snprintf(setting, sizeof setting, "--optimizer.name=%s", name);
    run_one(f, &(rig_options){.precision = &fixture_precisions[BF16], .more = more}, &one);
    run_ranks(f, &(rig_options){.precision = &fixture_precisions[BF16], .more = more + 1}, SIZE, SIZE,
              shards);
    assert_true(one.step[STEPS - 1].loss != one.step[0].loss);
    for (int k = 0; k < SIZE; k++) {
        expect_same_steps(&one, &shards[k].out, name);
        outcome_free(&shards[k].out);
    }
    outcome_free(&one);
    free(shards);
}

static void each_optimizer_is_one_rank_s(void **state) {
    static const char *const names[] = {"lion", "sgd", "adam", "muon", "schedule_free_adamw"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int narrow = 0; narrow < 2; narrow++) compare_optimizer(*state, names[i], narrow);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_micro_batches),
        cmocka_unit_test(each_optimizer_is_one_rank_s),
        cmocka_unit_test(a_shared_norm_is_one_rank_s),
        cmocka_unit_test(gradients_of_many_parts_too),
        cmocka_unit_test(mixtures_of_experts_too),
        cmocka_unit_test(each_rank_has_rows_of_its_own),
        cmocka_unit_test(every_rank_names_what_is_not_finite),
        cmocka_unit_test(sharded_as_the_configuration_says),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
