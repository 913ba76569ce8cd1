/*
 * Parameters sharded over N ranks: blocks are gathered before use and released afterwards, and gradients are
 * reduced to each rank's shard. After two steps, losses, gradients, updated weights and amax histories have
 * the bits of one rank that holds all parameters and runs the micro-batches one after the other. The test
 * covers every recipe and every setting of the gather. Initial weights are equal too. Passes over ranges of
 * layers equal the full pass.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "comm/self.h"
#include "comm/ranks.h"
#include "model/init.h"
#include "model/tiny_model.h"
#include "resolve/resolve.h"
#include "tensor/dry_run.h"

enum { RANKS_MAX = 8, STEPS = 2, SEQUENCES = 2, LENGTH = 12, TOKENS = SEQUENCES * LENGTH };

typedef struct kind {
    const char *recipe, *family; /* family NULL: llama */
    bool tied, fused, bias;
    int64_t vocab; /* a multiple of 16 in FP8; otherwise a prime that no number of ranks divides */
    checkpointing checkpointing;
    int64_t hidden;     /* feed-forward width; 0: 256 */
    bool narrow;        /* k and v have 4 rows, fewer than ranks */
    bool power_of_two;  /* power-of-two scales */
    const char *freeze; /* NULL: no parameter */
    bool codes;         /* frozen matrices are stored in FP8 */
    int micro_batches;  /* micro-batches per rank; 0: one */
    store_options store;
} kind;

static const kind kinds[] = {
    {.recipe = "fp32", .vocab = 131},
    {.recipe = "bf16", .vocab = 131, .tied = true, .bias = true, .checkpointing = CHECKPOINT_FULL},
    {.recipe = "tensorwise", .vocab = 64, .fused = true, .checkpointing = CHECKPOINT_SELECTIVE},
    {.recipe = "rowwise", .vocab = 64, .tied = true, .checkpointing = CHECKPOINT_OP},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Converts the model to the recipe of `k`. A run may convert its model several times. */
static void convert(tiny *t, const kind *k) {
    recipe r = *recipe_find(k->recipe);
    cast_spec *casts[] = {&r.input.rowwise,     &r.input.columnwise,    &r.weight.rowwise,
                          &r.weight.columnwise, &r.grad_output.rowwise, &r.grad_output.columnwise};
    for (int i = 0; k->power_of_two && i < 6; i++) casts[i]->scale.power_of_two = true;
    convert_summary summary;
    HARNESS_OK(model_convert(t->m, &(convert_options){.recipe = &r, .any_dimension = k->narrow}, &summary));
}

static void follow_family(model_options *o, const family *f) {
    o->family = f;
    o->tied = f->tied;
    o->qkv_bias = f->qkv_bias;
    o->qk_norm = f->qk_norm;
    o->fused_qkv = f->fused_qkv;
    o->fused_gate_up = f->fused_gate_up;
    o->full_attention_every = f->full_attention_every;
    o->local_theta = f->local_theta;
    o->window = f->full_attention_every ? LENGTH / 2 : 0;
    o->logit_softcap = f->full_attention_every ? 3 : 0;
    if (!f->latent) return;
    o->latent = (latent_shape){.query_rank = 48, .key_rank = 32, .nope_dim = 16, .rope_dim = 16, .value = 16};
    o->head_dim = latent_key_width(&o->latent);
    o->kv_heads = o->heads;
}

static void open_model(tiny *t, const kind *k, group *ranks) {
    model_options o = tiny_options();
    o.dim = 64; /* shards are complete reduction blocks: 64 rows, or 16 of down_proj */
    o.head_dim = 16;
    o.hidden = 256;
    o.vocab = k->vocab;
    o.tied = k->tied;
    o.fused_qkv = o.fused_gate_up = k->fused;
    o.qkv_bias = k->bias;
    o.init_std = 0.3;
    o.init_style = INIT_HF;
    o.optimizer = optimizer_find("adamw");
    o.shard_ranks = ranks;
    if (k->hidden) o.hidden = k->hidden;
    if (k->family) follow_family(&o, family_find(k->family));
    if (k->narrow) {
        o.kv_heads = 1;
        o.heads = 8;
        o.head_dim = 4;
    }
    str_list freeze = {&k->freeze, 1};
    const convert_options kept = {.kept = recipe_find(k->recipe)};
    if (k->freeze) o.freeze = &freeze;
    if (k->codes) {
        o.frozen = OTT_E4M3;
        o.frozen_convert = &kept;
    }
    tiny_open(t, &o, 1, NULL);
    t->m->store.options = k->store;
    t->m->store.micro_batches = k->micro_batches > 1;
    HARNESS_OK(model_initialize(t->m, 5, 1));
    convert(t, k);
    t->m->loss.chunk = TOKENS / 2;
    for (int64_t i = 0; i < o.layers; i++) t->m->blocks[i].checkpointing = k->checkpointing;
}

/* Sets the tokens of micro-batch r. One rank runs all micro-batches, or each rank r runs micro-batch r. */
static void set_batch(tiny *t, int r) {
    int32_t token[TOKENS], target[TOKENS];
    uint32_t vocab = (uint32_t)t->m->options.vocab;
    for (int i = 0; i < TOKENS; i++) {
        token[i] = (int32_t)(rng_u32(6, (uint64_t)r, (uint64_t)i) % vocab);
        target[i] = (int32_t)(rng_u32(7, (uint64_t)r, (uint64_t)i) % vocab);
    }
    tiny_batch(t, SEQUENCES, LENGTH, token, target);
}

static int micro_batches_of(const kind *k) {
    return k->micro_batches ? k->micro_batches : 1;
}

/* All tensors of the full model that are compared. */
typedef struct outcome {
    float *losses[RANKS_MAX], *start, *grads, *values, *moments, *histories;
    int64_t history_count;
} outcome;

static void outcome_free(outcome *o) {
    for (int r = 0; r < RANKS_MAX; r++) free(o->losses[r]);
    free(o->start);
    free(o->grads);
    free(o->values);
    free(o->moments);
    free(o->histories);
}

static int64_t all_elements(const model *m) {
    return model_parameter_count(m);
}

/* Copies one tensor of every parameter's shard into `all`, which has the elements of all full parameters.
   member: the tensor's offset in struct parameter_shard. */
static void collect(tiny *t, size_t member, float *all) {
    for (int i = 0; i < t->m->parameter_count; i++) {
        const parameter *p = &t->m->parameters[i];
        const tensor *part = (const tensor *)((const char *)&p->shard + member);
        const parameter_part at = parameter_shard_part(p);
        float *to = all + parameter_run_at(&at, p->columns, 0, 1).first;
        if (part->data) harness_get(&t->h, part, to);
        all += parameter_count(p);
    }
}

static ott_status update(exec *cx, const tiny *t, const tensor *state) {
    const optimizer_options o = {/* the gradient is not clipped, because the test computes no norm */
                                 .beta1 = 0.9f,
                                 .beta2 = 0.95f,
                                 .epsilon = 1e-8f,
                                 .weight_decay = 0.1f};
    return optimizer_update(cx, t->m->options.optimizer, &o, t->m->parameters, t->m->parameter_count,
                            &(optimizer_ranks){.shard = t->m->store.ranks}, state);
}

static tensor step_state(tiny *t) {
    float host[STEP_STATE_COUNT] = {[STEP_LOSS_SCALE] = 1.0f};
    optimizer_schedule(t->m->options.optimizer, &(optimizer_options){.beta1 = 0.9f, .beta2 = 0.95f}, 0.01, 1,
                       host);
    return harness_tensor_of(&t->h, OTT_F32, 1, STEP_STATE_COUNT, host);
}

/* Runs the optimizer update at the end of a step. It is not in the recorded pass. */
static ott_status update_now(tiny *t, const tensor *state) {
    exec cx = t->h.cx;
    TRY(plan_create(t->h.device, &cx.plan));
    plan_immediate(cx.plan);
    ott_status status = model_update_scales(&cx, t->m, t->m->store.ranks ? t->m->store.ranks : comm_self());
    if (status == OTT_OK) status = update(&cx, t, state);
    plan_destroy(cx.plan);
    t->h.cx.step++;
    return status;
}

static outcome outcome_alloc(const model *m) {
    outcome o = {0};
    float **all[] = {&o.start, &o.grads, &o.values, &o.moments};
    for (int i = 0; i < 4; i++) *all[i] = calloc((size_t)all_elements(m), sizeof(float));
    return o;
}

static void collect_all(tiny *t, outcome *o) {
    collect(t, offsetof(parameter_shard, grad), o->grads);
    collect(t, offsetof(parameter_shard, value), o->values);
    collect(t, offsetof(parameter_shard, slot), o->moments);
}

static void collect_histories(tiny *t, outcome *o) {
    free(o->histories);
    o->history_count = t->m->delayed.block_bytes / (int64_t)sizeof(float);
    o->histories = malloc((size_t)t->m->delayed.block_bytes + 1);
    if (o->history_count)
        HARNESS_OK(
            device_copy_out(t->h.device, o->histories, t->m->delayed.block, t->m->delayed.block_bytes));
}

/* ---- one rank ---- */

static outcome run_one(const kind *k, int micro_batches) {
    static tiny t;
    open_model(&t, k, NULL);
    outcome o = outcome_alloc(t.m);
    collect(&t, offsetof(parameter_shard, value), o.start);
    t.m->store.micro_batches = micro_batches > 1;
    tensor state = step_state(&t);
    for (int step = 0; step < STEPS; step++) {
        HARNESS_OK(device_zero(t.h.device, t.m->grads, t.m->trained_bytes));
        for (int r = 0; r < micro_batches; r++) {
            set_batch(&t, r);
            if (step + r == 0)
                tiny_run(&t);
            else
                tiny_again(&t);
            free(o.losses[r]);
            o.losses[r] = tiny_losses(&t);
        }
        HARNESS_OK(update_now(&t, &state));
    }
    collect_all(&t, &o);
    collect_histories(&t, &o);
    tiny_close(&t);
    return o;
}

/* ---- ranks ---- */

typedef struct rank_run {
    tiny t;
    tensor state;
    group *group;
    int micro_batches;
    ott_status (*run)(struct rank_run *r);
} rank_run;

static ott_status run_a_step(rank_run *k) {
    tiny *t = &k->t;
    plan_replay(t->h.plan);
    TRY(device_zero(t->h.device, t->m->grads, t->m->trained_bytes));
    TRY(model_run(&t->h.cx, t->m, t->slot, &t->batch, &t->grad_scale, &t->losses));
    return update_now(t, &k->state);
}

static ott_status run_steps(rank_run *k) {
    for (int i = 0; i < STEPS; i++) TRY(run_a_step(k));
    return OTT_OK;
}

static ott_status run_rank(void *argument) {
    rank_run *k = argument;
    ott_status status = k->run(k);
    group_close(k->group);
    return status;
}

static ott_status pass(exec *cx, void *user) {
    tiny *t = user;
    return model_run(cx, t->m, t->slot, &t->batch, &t->grad_scale, &t->losses);
}

static void open_rank(rank_run *r, const kind *k, group *ranks) {
    r->group = ranks;
    open_model(&r->t, k, ranks);
    set_batch(&r->t, ranks->rank);
    r->state = step_state(&r->t);
    harness_record(&r->t.h, pass, &r->t);
    plan_poison(r->t.h.plan);
}

static outcome run_ranks(const kind *k, int size, ott_status (*run)(rank_run *r)) {
    static rank_run ranks[RANKS_MAX];
    group *groups[RANKS_MAX];
    thread_groups opened = {0};
    ranks_groups(&opened, size, 1, size, groups);
    memset(ranks, 0, sizeof ranks);
    for (int r = 0; r < size; r++) {
        open_rank(&ranks[r], k, groups[r]);
        ranks[r].run = run;
        ranks[r].micro_batches = micro_batches_of(k);
    }
    outcome o = outcome_alloc(ranks[0].t.m);
    for (int r = 0; r < size; r++) collect(&ranks[r].t, offsetof(parameter_shard, value), o.start);
    ranks_run(k->recipe, size, ranks, sizeof *ranks, run_rank);
    for (int r = 0; r < size; r++) {
        o.losses[r] = tiny_losses(&ranks[r].t);
        collect_all(&ranks[r].t, &o);
        collect_histories(&ranks[r].t, &o);
    }
    for (int r = 0; r < size; r++) tiny_close(&ranks[r].t);
    ranks_close(&opened);
    return o;
}

/* ---- the tests ---- */

static void expect_same(const float *a, const float *b, int64_t count, const kind *k, int size,
                        const char *what) {
    for (int64_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("%s on %d ranks: %s %lld is %.9g, not %.9g", k->recipe, size, what, (long long)i,
                     (double)b[i], (double)a[i]);
}

static void compare(const kind *k, int size) {
    static tiny t;
    open_model(&t, k, NULL);
    int64_t count = all_elements(t.m);
    tiny_close(&t);
    outcome one = run_one(k, size), many = run_ranks(k, size, run_steps);
    expect_same(one.start, many.start, count, k, size, "initial weight");
    for (int r = 0; r < size; r++) expect_same(one.losses[r], many.losses[r], TOKENS, k, size, "loss");
    expect_same(one.grads, many.grads, count, k, size, "gradient");
    expect_same(one.values, many.values, count, k, size, "weight");
    expect_same(one.moments, many.moments, count, k, size, "moment");
    assert_int_equal(one.history_count, many.history_count);
    expect_same(one.histories, many.histories, one.history_count, k, size, "amax history");
    outcome_free(&one);
    outcome_free(&many);
}

static void shards_match_the_full_model(void **state) {
    (void)state;
    for (int i = 0; i < KINDS; i++)
        for (int size = 2; size <= 4; size++) compare(&kinds[i], size);
}

/* Tests families that have norms over all heads, biases, learned positions, a parallel residual or MLA. */
static void families_are_too(void **state) {
    static const char *const names[] = {"olmo2",      "gemma2", "gemma3_text", "cohere2",
                                        "starcoder2", "gpt2",   "deepseek_v3"};
    (void)state;
    for (int i = 0; i < 7; i++)
        compare(&(kind){.recipe = i % 2 ? "bf16" : "tensorwise",
                        .family = names[i],
                        .vocab = 64,
                        .checkpointing = (checkpointing)(i % 4)},
                2 + i % 2);
}

static const char *const recipes[] = {"bf16",    "tensorwise", "rowwise", "rowwise_with_gw_hp",
                                      "delayed", "current",    "block",   "mxfp8"};
enum { RECIPES = sizeof recipes / sizeof *recipes };
static const int sizes[] = {2, 3, 4, 8};
static const checkpointing modes[] = {CHECKPOINT_NONE, CHECKPOINT_SELECTIVE, CHECKPOINT_OP, CHECKPOINT_FULL};

#ifdef OTT_TEST_PART /* a pass takes ten times as long in this build: only every third case runs */
enum { EVERY = 3 };
#else
enum { EVERY = 1 };
#endif

/* Some scale blocks of 128 rows begin or end within a shard. */
static void every_recipe_on_every_number_of_ranks(void **state) {
    (void)state;
    for (int i = 0; i < RECIPES; i += EVERY)
        for (int n = 1; n < 4; n += 2)
            compare(
                &(kind){
                    .recipe = recipes[i], .vocab = 64, .hidden = 272, .checkpointing = modes[(i + n) % 4]},
                sizes[n]);
}

static void whatever_travels_and_when(void **state) {
    (void)state;
    for (int i = 0; i < RECIPES; i++)
        for (int way = i % 2; way < 12; way += 2 * EVERY)
            compare(&(kind){.recipe = recipes[i],
                            .vocab = 64,
                            .tied = way % 5 == 0,
                            .bias = way % 2,
                            .checkpointing = modes[(i + way / 3) % 4],
                            .store = {.gather_masters = way & 1,
                                      .no_prefetch = way & 2,
                                      .precompute_scales = (way + i) % 2,
                                      .reshard = (store_reshard)(way / 4)}},
                    sizes[(i + way) % 4]);
}

/* Cases in which torchao quantizes a sharded weight differently than the full weight. Ottava must not: scales
   that are not powers of two; bf16 weights, which are rounded twice; uneven or empty shards; scales that are
   precomputed from older weights; a tied embedding, which must not read FP8 codes. */
static void what_other_shards_get_wrong(void **state) {
    (void)state;
    static const char *const wrong[] = {"tensorwise", "rowwise", "block"};
    for (int i = 0; i < 3; i++)
        for (int ahead = 0; ahead < 2; ahead++) {
            kind k = {.recipe = wrong[i], .vocab = 64, .store.precompute_scales = ahead};
            k.power_of_two = true;
            compare(&k, 4);
            k.power_of_two = false;
            k.narrow = true; /* half of 8 ranks have no row of k and v */
            compare(&k, 8);
            k.tied = true;
            k.freeze = "model.layers.0.mlp";
            compare(&k, 3);
        }
}

/* Frozen weights that are stored in FP8 are gathered as codes. With the bf16 recipe, a rank converts the
   gathered codes when a GEMM reads them. */
static void frozen_codes_travel(void **state) {
    static const char *const names[] = {"bf16", "tensorwise", "rowwise", "block"};
    (void)state;
    for (int i = 0; i < 4; i++)
        compare(&(kind){.recipe = names[i],
                        .vocab = 64,
                        .hidden = 272,
                        .fused = i == 1,
                        .freeze = i == 2 ? "model.layers.1.mlp" : "model.layers.*_proj",
                        .codes = true,
                        .checkpointing = modes[i]},
                i % 2 ? 4 : 3);
}

/* A rank stores only its own shard of the parameters. */
static void a_rank_holds_its_part(void **state) {
    (void)state;
    static tiny full, part;
    group two = {.rank = 1, .size = 2};
    open_model(&full, &kinds[0], NULL);
    open_model(&part, &kinds[0], &two);
    assert_true(part.m->block_bytes < full.m->block_bytes * 6 / 10);
    /* the embedding's shard is a complete reduction block: 64 x 64 elements */
    assert_int_equal(part.m->parameters[0].rows, 131);
    assert_int_equal(part.m->parameters[0].shard.first, 128);
    assert_int_equal(part.m->parameters[0].shard.value.rows, 3);
    assert_null(part.m->parameters[0].value.data);
    tiny_close(&full);
    tiny_close(&part);
}

/* Returns how many elements of all parameters are in the shards of rank `rank` of `size` ranks. */
static int64_t held(const model *m, int rank, int size) {
    group ranks = {.rank = rank, .size = size};
    parameter_store s = {.ranks = &ranks};
    arena *memory;
    int64_t count = 0;
    HARNESS_OK(arena_open(m->device->account, MEM_OTHER, &memory));
    for (int i = 0; i < m->parameter_count; i++) {
        parameter p = m->parameters[i];
        HARNESS_OK(store_divide(&s, memory, &p));
        int64_t before = p.shard.first * (p.rank > 1 ? p.local.columns : 1);
        if (tensor_count(p.shard.value) > 0) assert_int_equal(before % REDUCE_BLOCK, 0);
        count += tensor_count(p.shard.value);
    }
    arena_close(memory);
    return count;
}

static void open_preset(harness *h, const char *preset, device **counting, config **cfg, model **m) {
    const char *arguments[] = {preset, "--train.seq_len=512"};
    model_options o;
    harness_open(h, 1, NULL);
    HARNESS_OK(config_parse(h->account, NULL, 2, arguments, cfg));
    HARNESS_OK(model_options_resolve(*cfg, &o));
    HARNESS_OK(dry_run_open(h->account, h->device, counting));
    HARNESS_OK(model_open(*counting, &o, MODEL_TRAINING, 16, m));
}

/* Every shard begins at a block of REDUCE_BLOCK elements, and has at most 1.02 times the mean size. */
static void shards_are_even(void **state) {
    static const struct {
        const char *preset;
        int size;
    } cases[] = {{"--model.preset=42M", 2}, {"--model.preset=42M", 3}, {"--model.preset=42M", 8},
                 {"--model.preset=8B", 8},  {"--model.preset=8B", 24}, {"--model.preset=8B", 64}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        harness h;
        device *counting;
        config *cfg;
        model *m;
        open_preset(&h, cases[i].preset, &counting, &cfg, &m);
        double mean = (double)model_parameter_count(m) / cases[i].size;
        int64_t sum = 0;
        for (int r = 0; r < cases[i].size; r++) {
            int64_t count = held(m, r, cases[i].size);
            if ((double)count > 1.02 * mean)
                fail_msg("%s on %d ranks: rank %d has %.4f of the mean", cases[i].preset, cases[i].size, r,
                         (double)count / mean);
            sum += count;
        }
        assert_int_equal(sum, model_parameter_count(m));
        model_close(m);
        device_close(counting);
        config_close(cfg);
        harness_close(&h);
    }
}

/* ---- sums in another order ---- */

static ott_status run_micro_batches(rank_run *r) {
    tiny *t = &r->t;
    group *ranks = t->m->store.ranks;
    TRY(store_zero_gradients(&t->m->store, t->h.device));
    for (int i = 0; i < r->micro_batches; i++) {
        set_batch(t, i * ranks->size + ranks->rank);
        plan_replay(t->h.plan);
        TRY(pass(&t->h.cx, t));
    }
    exec cx = t->h.cx;
    TRY(plan_create(t->h.device, &cx.plan));
    plan_immediate(cx.plan);
    ott_status status = store_reduce_once(&cx, &t->m->store);
    plan_destroy(cx.plan);
    return status;
}

/* Adds up the gradients of all micro-batches in double. magnitude: the sums of their absolute values. */
static void sum_gradients(const kind *k, int micro_batches, double *sum, double *magnitude) {
    static tiny t;
    open_model(&t, k, NULL);
    int64_t count = all_elements(t.m);
    float *one = calloc((size_t)count, sizeof *one);
    for (int r = 0; r < micro_batches; r++) {
        set_batch(&t, r);
        tiny_run(&t);
        collect(&t, offsetof(parameter_shard, grad), one);
        for (int64_t i = 0; i < count; i++) {
            sum[i] += (double)one[i];
            magnitude[i] += fabs((double)one[i]);
        }
    }
    free(one);
    tiny_close(&t);
}

/* A sum of n fp32 values has n - 1 roundings, each with an error of at most 2^-24 times the sum of
   magnitudes. bf16 gradients are also rounded before the sum and after it. */
static double bound_of(const kind *k, int n) {
    double rounding = k->store.reduce_bf16 ? 0x1p-8 : 0;
    return 1.01 * ((double)(n - 1) * 0x1p-24 + 2 * rounding);
}

static void expect_within(const kind *k, int size) {
    static tiny t;
    int n = size * micro_batches_of(k);
    open_model(&t, k, NULL);
    int64_t count = all_elements(t.m), differ = 0;
    tiny_close(&t);
    double *sum = calloc((size_t)count, sizeof *sum), *magnitude = calloc((size_t)count, sizeof *sum);
    sum_gradients(k, n, sum, magnitude);
    outcome many = run_ranks(k, size, run_micro_batches);
    for (int64_t i = 0; i < count; i++) {
        double off = fabs((double)many.grads[i] - sum[i]);
        differ += off > 0;
        if (!(off <= bound_of(k, n) * magnitude[i]))
            fail_msg("%s on %d ranks: gradient %lld is %.9g, not %.9g", k->recipe, size, (long long)i,
                     (double)many.grads[i], sum[i]);
    }
    assert_true(differ > 0); /* if all sums were exact in any order, the test would prove nothing */
    free(sum);
    free(magnitude);
    outcome_free(&many);
}

static void sums_in_another_order_are_near(void **state) {
    (void)state;
    for (int size = 2; size <= 3; size++)
        for (int tied = 0; tied < 2; tied++) {
            kind k = {.recipe = "tensorwise", .vocab = 64, .tied = tied, .micro_batches = 3};
            expect_within(&k, size);
            k.store.reduce_once = true;
            expect_within(&k, size);
            k.store.reduce_bf16 = true;
            k.micro_batches = 1;
            expect_within(&k, size);
        }
}

/* ---- ranges of layers ---- */

static ott_status pass_in_ranges(exec *cx, void *user) {
    tiny *t = user;
    int64_t layers = t->m->options.layers;
    model_stream stream;
    activation grad;
    cx->phase = PHASE_TRAIN;
    for (int64_t i = 0; i < layers; i++)
        TRY(model_forward(cx, t->m, t->slot, &t->batch, (layer_range){i, i + 1}, &stream));
    TRY(model_loss(cx, t->m, t->slot, &t->batch, &t->grad_scale, &t->losses, &grad));
    for (int64_t i = layers - 1; i >= 0; i--)
        TRY(model_backward(cx, t->m, t->slot, &t->batch, (layer_range){i, i + 1}, &grad));
    return OTT_OK;
}

static void ranges_together_are_the_full_pass(void **state) {
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        static tiny t;
        open_model(&t, &kinds[i], NULL);
        set_batch(&t, 0);
        tiny_run(&t);
        float *losses = tiny_losses(&t), *grads = tiny_gradients(&t);
        HARNESS_OK(device_zero(t.h.device, t.m->grads, t.m->trained_bytes));
        harness_record(&t.h, pass_in_ranges, &t);
        harness_replay(&t.h, pass_in_ranges, &t);
        float *losses_again = tiny_losses(&t), *grads_again = tiny_gradients(&t);
        expect_same(losses, losses_again, TOKENS, &kinds[i], 1, "loss");
        expect_same(grads, grads_again, tiny_gradient_count(&t), &kinds[i], 1, "gradient");
        free(losses);
        free(grads);
        free(losses_again);
        free(grads_again);
        tiny_close(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_match_the_full_model),
        cmocka_unit_test(families_are_too),
        cmocka_unit_test(every_recipe_on_every_number_of_ranks),
        cmocka_unit_test(whatever_travels_and_when),
        cmocka_unit_test(what_other_shards_get_wrong),
        cmocka_unit_test(frozen_codes_travel),
        cmocka_unit_test(a_rank_holds_its_part),
        cmocka_unit_test(shards_are_even),
        cmocka_unit_test(sums_in_another_order_are_near),
        cmocka_unit_test(ranges_together_are_the_full_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
