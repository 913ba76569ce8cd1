/*
 * Pipeline stages, with ranks as threads. With every schedule, recipe and kind of activation checkpointing,
 * the stages together have the losses, gradients, updated weights and FP8 state of one rank with the same
 * micro-batches, bit for bit. Each stage holds only the stage's layers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "comm/ranks.h"
#include "model/init.h"
#include "model/tiny_model.h"
#include "train/stage.h"

enum { STAGES_MAX = 4, BATCHES_MAX = 8, SEQUENCES = 2, LENGTH = 8, TOKENS = SEQUENCES * LENGTH };

typedef struct kind {
    const char *recipe;
    checkpointing checkpointing;
    bool tied;
    kind_pp_schedule schedule;
    int stages, micro_batches;
    bool own_loss; /* square_loss instead of cross-entropy */
} kind;

/* A loss function of the caller: half the mean square of each token's logits. */
static ott_status square_loss(void *user, const ott_loss_batch *b) {
    (void)user;
    for (int64_t i = 0; i < b->sequences * b->length * b->vocab; i++) {
        float *x = &b->logits[i], part = *x / (float)b->vocab;
        b->loss[i / b->vocab] += 0.5f * *x * part;
        *x = part;
    }
    return OTT_OK;
}

static int layers_of(const kind *k) {
    /* one layer more than a multiple of the parts, so that one stage or one part has more layers */
    return k->schedule == PP_INTERLEAVED_1F1B ? 2 * k->stages + 1 : k->stages + 1;
}

static void open_model(tiny *t, const kind *k, const pipeline_stage *shape, group *ranks, group *shards) {
    model_options o = tiny_options();
    o.layers = layers_of(k);
    o.tied = k->tied;
    o.init_std = 0.3;
    o.init_style = INIT_HF;
    o.optimizer = optimizer_find("adamw");
    o.stage = shape;
    o.shard_ranks = shards;
    o.stage_ranks = ranks;
    tiny_open(t, &o, 1, NULL);
    HARNESS_OK(model_initialize(t->m, 5, 1));
    tiny_convert(t, recipe_find(k->recipe), NULL, NULL);
    t->m->loss.chunk = TOKENS / 2;
    if (k->own_loss) t->m->loss.caller.function = square_loss;
    for (int64_t i = 0; i < o.layers; i++) t->m->blocks[i].checkpointing = k->checkpointing;
}

static void set_batch(tiny *t, int number) {
    int32_t token[TOKENS], target[TOKENS];
    uint32_t vocab = (uint32_t)t->m->options.vocab;
    for (int i = 0; i < TOKENS; i++) {
        token[i] = (int32_t)(rng_u32(6, (uint64_t)number, (uint64_t)i) % vocab);
        target[i] = (int32_t)(rng_u32(7, (uint64_t)number, (uint64_t)i) % vocab);
    }
    tiny_batch(t, SEQUENCES, LENGTH, token, target);
}

/* ---- a rank's step: the full model or a stage ---- */

typedef struct rank_run {
    tiny t;
    pipeline_stage shape;
    stage *stage; /* NULL: this rank runs the full model */
    group *group; /* ranks of all stages */
    /* ranks that shard this stage's parameters and train on other rows; NULL: they are not sharded */
    group *shards;
    int micro_batches;
    model_slot *slot;
    batch batches[BATCHES_MAX], last; /* last: the batch that is evaluated */
    tensor losses[BATCHES_MAX], evaluated, state;
    plan *evaluation;
    void *evaluation_arena;
} rank_run;

static ott_status train(exec *cx, void *user) {
    rank_run *r = user;
    if (r->stage) {
        TRY(stage_train(cx, r->stage, r->batches, &r->t.grad_scale, r->losses));
        return stage_share_gradients(cx, r->stage);
    }
    for (int i = 0; i < r->micro_batches; i++) {
        cx->is_first_microbatch = i == 0;
        TRY(model_run(cx, r->t.m, r->t.slot, &r->batches[i], &r->t.grad_scale, &r->losses[i]));
        if (!plan_recording(cx->plan)) TRY(model_update_scales(cx, r->t.m, cx->data_group));
    }
    return OTT_OK;
}

static ott_status evaluate(exec *cx, rank_run *r) {
    cx->is_first_microbatch = true;
    return r->stage ? stage_evaluate(cx, r->stage, r->batches, &r->evaluated)
                    : model_run(cx, r->t.m, r->t.slot, r->batches, NULL, &r->evaluated);
}

static ott_status update(exec *cx, rank_run *r) {
    const model *m = r->t.m;
    const optimizer_options o = {
        .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f, .max_norm = 0.5f};
    const optimizer_ranks ranks = {.shard = r->shards, .stages = r->group, .trained = m->trained_count};
    return optimizer_update(cx, m->options.optimizer, &o, m->parameters, m->parameter_count, &ranks,
                            &r->state);
}

/* Runs a call with an immediate plan: operations are executed and not recorded. */
static ott_status in_immediate_plan(rank_run *r, ott_status (*call)(exec *cx, rank_run *r)) {
    exec cx = r->t.h.cx;
    TRY(plan_create(r->t.h.device, &cx.plan));
    plan_immediate(cx.plan);
    ott_status status = call(&cx, r);
    plan_destroy(cx.plan);
    return status;
}

static ott_status step(rank_run *r) {
    plan_replay(r->t.h.plan);
    TRY(train(&r->t.h.cx, r));
    TRY(in_immediate_plan(r, update));
    r->t.h.cx.step++;
    return in_immediate_plan(r, evaluate);
}

static ott_status run_rank(void *argument) {
    rank_run *r = argument;
    ott_status status = step(r);
    group_close(r->group);
    group_close(r->shards);
    return status;
}

static void open_rank(rank_run *r, const kind *k, group *ranks, group *shards, store_reshard reshard) {
    float host[STEP_STATE_COUNT] = {[STEP_LOSS_SCALE] = 1.0f};
    *r = (rank_run){.group = ranks, .shards = shards, .micro_batches = k->micro_batches};
    if (ranks)
        r->shape =
            (pipeline_stage){k->schedule, k->stages, ranks->rank, k->schedule == PP_INTERLEAVED_1F1B ? 2 : 1};
    open_model(&r->t, k, ranks ? &r->shape : NULL, ranks, shards);
    for (int i = 0; i < k->micro_batches; i++) {
        set_batch(&r->t, shards ? i * shards->size + shards->rank : i);
        r->batches[i] = r->t.batch;
        r->losses[i] = r->t.losses;
    }
    r->evaluated = harness_tensor(&r->t.h, OTT_F32, 1, TOKENS);
    optimizer_schedule(optimizer_find("adamw"), &(optimizer_options){.beta1 = 0.9f, .beta2 = 0.95f}, 0.01, 1,
                       host);
    r->state = harness_tensor_of(&r->t.h, OTT_F32, 1, STEP_STATE_COUNT, host);
    r->t.m->store.micro_batches = true;
    r->t.m->store.options.reshard = reshard;
    if (ranks) HARNESS_OK(stage_open(r->t.m, k->micro_batches, &r->stage));
    harness_record(&r->t.h, train, r);
    plan_poison(r->t.h.plan);
}

static void close_rank(rank_run *r) {
    stage_close(r->stage);
    tiny_close(&r->t);
}

/* ---- comparisons ---- */

static void fail_different(const kind *k, const char *name, const char *what) {
    static const char *const schedules[] = {"1f1b", "gpipe", "interleaved_1f1b"};
    fail_msg("%s, %s on %d stages%s: %s of %s differ", k->recipe, schedules[k->schedule], k->stages,
             k->tied ? ", tied" : "", what, name);
}

static void expect_tensor(const kind *k, tiny *a, const tensor *x, tiny *b, const tensor *y, const char *name,
                          const char *what) {
    size_t bytes = (size_t)tensor_count(*x) * sizeof(float);
    float *left = malloc(bytes + 1), *right = malloc(bytes + 1);
    assert_int_equal(tensor_count(*x), tensor_count(*y));
    harness_get(&a->h, x, left);
    harness_get(&b->h, y, right);
    if (memcmp(left, right, bytes) != 0) fail_different(k, name, what);
    free(left);
    free(right);
}

static void expect_parameters(const kind *k, rank_run *one, rank_run *r) {
    for (int i = 0; i < r->t.m->parameter_count; i++) {
        const parameter *p = &r->t.m->parameters[i], *q = tiny_parameter(&one->t, p->name);
        expect_tensor(k, &one->t, &q->shard.grad, &r->t, &p->shard.grad, p->name, "gradient");
        expect_tensor(k, &one->t, &q->shard.value, &r->t, &p->shard.value, p->name, "value");
        expect_tensor(k, &one->t, &q->shard.slot[1], &r->t, &p->shard.slot[1], p->name, "moment");
        if (!p->repeated) assert_int_equal(p->number, q->number);
    }
}

static const linear *linear_named(const model *m, const char *name) {
    for (int i = 0; i < m->modules.count; i++)
        if (m->modules.items[i].kind == MODULE_LINEAR && strcmp(m->modules.items[i].name, name) == 0)
            return m->modules.items[i].linear;
    return NULL;
}

static void expect_scales(const kind *k, rank_run *one, rank_run *r) {
    for (int i = 0; i < r->t.m->modules.count; i++) {
        const model_module *e = &r->t.m->modules.items[i];
        if (e->kind != MODULE_LINEAR) continue;
        for (int t = 0; t < TENSOR_COUNT; t++) {
            const delayed_state *a = &linear_named(one->t.m, e->name)->delayed[t],
                                *b = &e->linear->delayed[t];
            assert_true(!a->scale.data == !b->scale.data);
            if (!a->scale.data) continue;
            expect_tensor(k, &one->t, &a->scale, &r->t, &b->scale, e->name, "scale");
            expect_tensor(k, &one->t, &a->amax_history, &r->t, &b->amax_history, e->name, "amax history");
        }
    }
}

static void compare(const kind *k) {
    static rank_run one, ranks[STAGES_MAX];
    group *groups[STAGES_MAX];
    thread_groups opened = {0};
    open_rank(&one, k, NULL, NULL, STORE_RESHARD_DEFAULT);
    HARNESS_OK(step(&one));
    ranks_groups(&opened, k->stages, 1, k->stages, groups);
    for (int r = 0; r < k->stages; r++) open_rank(&ranks[r], k, groups[r], NULL, STORE_RESHARD_DEFAULT);
    ranks_run(k->recipe, k->stages, ranks, sizeof *ranks, run_rank);
    int parameters = 0;
    for (int r = 0; r < k->stages; r++) {
        expect_parameters(k, &one, &ranks[r]);
        expect_scales(k, &one, &ranks[r]);
        expect_tensor(k, &one.t, &one.state, &ranks[r].t, &ranks[r].state, "the step", "norm");
        for (int i = 0; i < ranks[r].t.m->parameter_count; i++)
            parameters += !ranks[r].t.m->parameters[i].repeated;
    }
    assert_int_equal(parameters, one.t.m->parameter_count); /* every parameter is on exactly one stage */
    rank_run *last = &ranks[k->stages - 1];
    for (int i = 0; i < k->micro_batches; i++)
        expect_tensor(k, &one.t, &one.losses[i], &last->t, &last->losses[i], "a micro-batch", "losses");
    expect_tensor(k, &one.t, &one.evaluated, &last->t, &last->evaluated, "an evaluation", "losses");
    for (int r = 0; r < k->stages; r++) close_rank(&ranks[r]);
    close_rank(&one);
    ranks_close(&opened);
}

/* ---- stages with sharded parameters ---- */

enum { SHARDS = 2 };

/* Joins a tensor of a parameter's shards to the full tensor. */
static float *join_shards(rank_run *ranks, const parameter *p, size_t member) {
    float *all = malloc((size_t)parameter_count(p) * sizeof(float));
    for (int d = 0; d < SHARDS; d++) {
        const parameter *own = tiny_parameter(&ranks[d].t, p->name);
        const tensor *part = (const tensor *)((const char *)&own->shard + member);
        harness_get(&ranks[d].t.h, part, all + own->shard.first * (p->rank > 1 ? p->columns : 1));
    }
    return all;
}

static void expect_joined(const kind *k, rank_run *flat, rank_run *staged) {
    static const size_t members[] = {offsetof(parameter_shard, grad), offsetof(parameter_shard, value),
                                     offsetof(parameter_shard, slot[1])};
    static const char *const names[] = {"gradient", "value", "moment"};
    for (int i = 0; i < staged->t.m->parameter_count; i++)
        for (int n = 0; n < 3; n++) {
            const parameter *p = &staged->t.m->parameters[i];
            float *a = join_shards(flat, p, members[n]), *b = join_shards(staged, p, members[n]);
            if (memcmp(a, b, (size_t)parameter_count(p) * sizeof *a) != 0)
                fail_different(k, p->name, names[n]);
            free(a);
            free(b);
        }
}

/* Compares a pipeline of stages that shard their parameters with ranks that shard them without a pipeline. */
static void compare_sharded(const kind *k, store_reshard reshard) {
    static rank_run flat[SHARDS], ranks[SHARDS * STAGES_MAX];
    group *flat_groups[SHARDS], *stages[SHARDS * STAGES_MAX], *shards[SHARDS * STAGES_MAX];
    thread_groups opened = {0};
    ranks_groups(&opened, SHARDS, 1, SHARDS, flat_groups);
    ranks_groups(&opened, SHARDS * k->stages, SHARDS, k->stages, stages);
    ranks_groups(&opened, SHARDS * k->stages, 1, SHARDS, shards);
    for (int d = 0; d < SHARDS; d++) open_rank(&flat[d], k, NULL, flat_groups[d], reshard);
    for (int i = 0; i < SHARDS * k->stages; i++) open_rank(&ranks[i], k, stages[i], shards[i], reshard);
    ranks_run(k->recipe, SHARDS, flat, sizeof *flat, run_rank);
    ranks_run(k->recipe, SHARDS * k->stages, ranks, sizeof *ranks, run_rank);
    for (int s = 0; s < k->stages; s++) expect_joined(k, flat, &ranks[SHARDS * s]);
    for (int i = 0; i < SHARDS * k->stages; i++) close_rank(&ranks[i]);
    for (int d = 0; d < SHARDS; d++) close_rank(&flat[d]);
    ranks_close(&opened);
}

/* ---- the tests ---- */

static const kind_pp_schedule schedules[] = {PP_GPIPE, PP_1F1B, PP_INTERLEAVED_1F1B};
static const char *const recipes[] = {"bf16", "tensorwise", "rowwise", "delayed"};
static const checkpointing modes[] = {CHECKPOINT_NONE, CHECKPOINT_SELECTIVE, CHECKPOINT_FULL};

static void four_stages_are_one_rank(void **state) {
    (void)state;
    for (int s = 0; s < 3; s++)
        for (int r = 0; r < 4; r++)
            for (int tied = 0; tied <= 1; tied++)
                compare(&(kind){recipes[r], modes[(r + s) % 3], tied, schedules[s], 4, 4, false});
    compare(&(kind){"bf16", CHECKPOINT_NONE, true, PP_INTERLEAVED_1F1B, 4, 8, false});
}

/* Tests fewer micro-batches than stages, and numbers of micro-batches that are not divisible by the number of
   stages. */
static void any_number_of_micro_batches(void **state) {
    (void)state;
    for (int s = 0; s < 2; s++) {
        compare(&(kind){"tensorwise", CHECKPOINT_NONE, true, schedules[s], 4, 2, false});
        compare(&(kind){"tensorwise", CHECKPOINT_FULL, false, schedules[s], 2, 5, false});
        compare(&(kind){"fp32", CHECKPOINT_NONE, true, schedules[s], 3, 1, false});
    }
}

static void stages_may_be_sharded(void **state) {
    (void)state;
    static const store_reshard kept[] = {STORE_RESHARD_DEFAULT, STORE_RESHARD_ALWAYS, STORE_RESHARD_NEVER};
    for (int s = 0; s < 3; s++)
        for (int tied = 0; tied <= 1; tied++)
            for (int r = 0; r < 3; r++)
                compare_sharded(&(kind){recipes[r], modes[r], tied, schedules[s], 2, 4, false}, kept[r]);
}

/* With a loss function of the caller, stages give the losses and gradients of one rank. */
static void the_caller_may_compute_the_loss(void **state) {
    (void)state;
    for (int s = 0; s < 3; s++)
        for (int r = 0; r < 4; r++)
            compare(&(kind){recipes[r], CHECKPOINT_NONE, false, schedules[s], 2, 4, true});
}

/* A stage holds only the activations of in-flight micro-batches: stage r has (stages - r) micro-batches with
   1f1b, and all micro-batches with gpipe. */
static void memory_is_that_of_micro_batches_in_flight(void **state) {
    (void)state;
    enum { STAGES = 4, MICRO_BATCHES = 8 };
    int64_t saved[2][STAGES];
    for (int s = 0; s < 2; s++)
        for (int rank = 0; rank < STAGES; rank++) {
            static rank_run r;
            /* a step is only recorded, so no messages are sent */
            static const group_table nowhere = {0};
            group ranks = {.table = &nowhere, .rank = rank, .size = STAGES};
            kind k = {"bf16", CHECKPOINT_NONE, false, schedules[s], STAGES, MICRO_BATCHES, false};
            open_rank(&r, &k, &ranks, NULL, STORE_RESHARD_DEFAULT);
            saved[s][rank] = plan_saved(r.t.h.plan);
            close_rank(&r);
        }
    /* inner stages have one layer each, and neither embedding nor head */
    for (int rank = 1; rank < STAGES - 1; rank++) {
        double each = (double)saved[0][rank] / MICRO_BATCHES;
        /* one micro-batch more, for the message buffer */
        assert_true((double)saved[1][rank] < each * (STAGES - rank + 1));
        assert_true((double)saved[1][rank] > each * (STAGES - rank - 1));
    }
    assert_true(saved[1][STAGES - 1] * 3 < saved[0][STAGES - 1]);
}

/* A stage has memory for its own layers only. */
static void a_stage_holds_its_layers(void **state) {
    (void)state;
    kind k = {"bf16", CHECKPOINT_NONE, true, PP_1F1B, 2, 2, false};
    static tiny full, first, last;
    pipeline_stage a = {PP_1F1B, 2, 0, 1}, b = {PP_1F1B, 2, 1, 1};
    open_model(&full, &k, NULL, NULL, NULL);
    open_model(&first, &k, &a, NULL, NULL);
    open_model(&last, &k, &b, NULL, NULL);
    assert_int_equal(first.m->modules.items[0].role, ROLE_EMBEDDING);
    assert_true(last.m->modules.items[0].role == ROLE_EMBEDDING && last.m->modules.items[0].repeated);
    int64_t table = parameter_count(full.m->embedding.weight);
    assert_int_equal(model_shard_count(first.m) + model_shard_count(last.m),
                     model_shard_count(full.m) + table);
    assert_int_equal(model_parameter_count(last.m), model_parameter_count(full.m));
    assert_int_equal(last.m->all_parameter_count, full.m->parameter_count);
    assert_true(first.m->block_bytes < full.m->block_bytes && last.m->block_bytes < full.m->block_bytes);
    assert_null(last.m->blocks[0].ffn);
    assert_int_equal(last.m->trained_count, full.m->trained_count);
    tiny_close(&full);
    tiny_close(&first);
    tiny_close(&last);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_stages_are_one_rank),
        cmocka_unit_test(any_number_of_micro_batches),
        cmocka_unit_test(stages_may_be_sharded),
        cmocka_unit_test(the_caller_may_compute_the_loss),
        cmocka_unit_test(memory_is_that_of_micro_batches_in_flight),
        cmocka_unit_test(a_stage_holds_its_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
