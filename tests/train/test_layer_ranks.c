/*
 * Compares ranks that compute each layer together with one rank. Ranks are threads. The test covers tensor
 * parallelism with and without sequence parallelism, and context parallelism.
 *
 * Some results have the same bits as on one rank: FP8 codes of equal values, because casts use the scales of
 * the full tensor (test nn.shard), and the outputs of column-parallel layers and of attention with exchanged
 * heads. All ranks that compute a layer together have the same losses and unsharded parameters. A sum over
 * ranks is added in another order than on one rank, so values that depend on such a sum differ by rounding.
 * To separate rounding from errors, the runs have fp32 activations, also under the FP8 recipes.
 *
 * Bound in fp32: a sum of K <= 512 products has an error of at most K u = 512 * 2^-24 = 3.1e-5 of the sum of
 * magnitudes, in any order. So sums in two orders differ by at most 6.1e-5. With 2 layers, a value depends on
 * 4 such sums in forward, on 4 in backward, and on two sums of the loss. This gives 10 * 6.1e-5 = 6.1e-4 of
 * the norm of its tensor. Norm and softmax amplify errors, but rounding errors also partly cancel.
 *
 * Bound under FP8: the fp32 bound, as long as no value gets another code. A code rarely changes within one
 * step. So the fp32 bound applies to the first step's gradients under every recipe. After the first step,
 * runs differ by the noise of the format. If two tensors differ by a relative d, then a fraction d / 2^-4 of
 * their codes differ, by 2^-4 each. The codes then differ by 2^-4 sqrt(16 d) of the norm. With every further
 * cast d approaches 2^-4, but does not exceed it. Three updates of at most 0.01 have then moved values apart
 * by 3 * 0.01 * 2^-4 = 1.9e-3. The loss is a mean over all tokens and changes by the square of the noise:
 * 2^-8 = 3.9e-3. a_missing_maximum_shows checks that the first step exceeds the bound if ranks do not reduce
 * the amaxes.
 *
 * Bound in bf16: each of the 10 sums may be rounded to the neighboring value, which is 2^-8 away: 3.9e-2.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "comm/ranks.h"
#include "train/schedule.h"
#include "train/train_fixture.h"

enum { RANKS_MAX = 4, STEPS = 3, ARGUMENTS = 24 };

#define GRADIENT_BOUND      6.1e-4 /* gradients of the first step */
#define GRADIENT_BOUND_BF16 3.9e-2
#define LOSS_BOUND          3.9e-3 /* losses of all steps, and values after the last step */
#define VALUE_BOUND         1.9e-3
#define VALUE_BOUND_FP32    1.8e-5 /* 3 * 0.01 * 6.1e-4 */

/* ---- a recipe with fp32 activations ---- */

static cast_spec with_fp32(cast_spec s) {
    if (!cast_spec_is_fp8(&s)) s.format = OTT_F32;
    return s;
}

static recipe recipe_with_fp32(int way) {
    recipe r = *recipe_find(fixture_precisions[way].name);
    quant_spec *specs[] = {&r.input, &r.weight, &r.grad_output};
    r.activation = OTT_F32;
    for (int i = 0; i < 3; i++) {
        specs[i]->rowwise = with_fp32(specs[i]->rowwise);
        specs[i]->columnwise = with_fp32(specs[i]->columnwise);
    }
    return r;
}

/* ---- runs ---- */

typedef struct rank_run {
    rig r;
    group *group;
    int done, until; /* steps done, and steps to do in total */
    step_result step[STEPS];
} rank_run;

static ott_status train_rank(void *argument) {
    rank_run *k = argument;
    ott_status status = OTT_OK;
    for (; k->done < k->until && status == OTT_OK; k->done++)
        status = trainer_step(k->r.t, schedule_learning_rate(k->r.cfg, k->done, k->r.cfg->train.max_steps),
                              &k->step[k->done]);
    if (status != OTT_OK || k->done == STEPS) group_close(k->group);
    return status;
}

/* A process group that ignores max reductions. Every rank keeps its own amax. */
typedef struct deaf_group {
    group g, *inner;
} deaf_group;

static bool is_maximum(const collective *c) {
    return c->kind == COLLECTIVE_ALL_REDUCE && c->reduce == REDUCE_MAX;
}
static ott_status deaf_start(group *g, exec *cx, group_request *request) {
    deaf_group *d = (deaf_group *)g;
    return is_maximum(&request->call) ? OTT_OK : d->inner->table->start(d->inner, cx, request);
}
static ott_status deaf_wait(group *g, exec *cx, group_request *request) {
    deaf_group *d = (deaf_group *)g;
    return is_maximum(&request->call) ? OTT_OK : d->inner->table->wait(d->inner, cx, request);
}
static void deaf_close(group *g) {
    group_close(((deaf_group *)g)->inner);
}
static const group_table deaf_table = {.start = deaf_start, .wait = deaf_wait, .close = deaf_close};

/* How the ranks share the layers. */
typedef struct layout {
    int size;
    bool sequence, context, deaf;
} layout;

typedef struct layer_ranks {
    thread_groups opened;
    deaf_group deaf[RANKS_MAX];
    rank_run rank[RANKS_MAX];
    int size;
} layer_ranks;

static void open_ranks(layer_ranks *w, const fixture *f, const rig_options *o, layout how) {
    group *groups[RANKS_MAX];
    w->size = how.size;
    w->opened = (thread_groups){0};
    ranks_groups(&w->opened, how.size, 1, how.size, groups);
    for (int k = 0; k < how.size; k++) {
        rig_options own = *o;
        rank_run *rank = &w->rank[k];
        *rank = (rank_run){.group = groups[k]};
        w->deaf[k] = (deaf_group){{&deaf_table, k, how.size}, rank->group};
        if (how.deaf) rank->group = &w->deaf[k].g;
        own.tensor_ranks = how.context ? NULL : rank->group;
        own.context_ranks = how.context ? rank->group : NULL;
        own.sequence_parallel = how.sequence;
        rig_open(&rank->r, f, &own);
    }
}

static void run_ranks(layer_ranks *w, int until) {
    for (int k = 0; k < w->size; k++) w->rank[k].until = until;
    ranks_run("layers together", w->size, w->rank, sizeof *w->rank, train_rank);
}

static void close_ranks(layer_ranks *w) {
    for (int k = 0; k < w->size; k++) rig_close(&w->rank[k].r);
    ranks_close(&w->opened);
}

/* ---- comparisons ---- */

/* apart: sum of squared differences from one rank's elements; norm: sum of one rank's squared elements. */
typedef struct distance {
    double apart, norm;
    int64_t count;
} distance;

static double distance_of(const distance *d, bool gradient) {
    if (!gradient) return sqrt(d->apart / (double)d->count);
    return d->norm > 0 ? sqrt(d->apart / d->norm) : sqrt(d->apart);
}

/* Compares a rank's shard of a parameter's value or gradient with the same rows and columns of one rank's
   tensor. Adds the result to *d. */
static void add_part(distance *d, const rig *one, const rig *rank, int i, bool gradient) {
    const parameter *full = &one->t->m->parameters[i], *part = &rank->t->m->parameters[i];
    const parameter_part *at = &part->local;
    if (gradient && full->frozen) return;
    float *a =
        rig_copy(one, gradient ? full->shard.grad.data : full->shard.value.data, parameter_count(full));
    float *b =
        rig_copy(rank, gradient ? part->shard.grad.data : part->shard.value.data, at->rows * at->columns);
    assert_string_equal(full->name, part->name);
    for (int64_t element = 0; element < at->rows * at->columns; element++) {
        double x = a[parameter_run_at(at, full->columns, element, 1).first], y = b[element];
        d->apart += (x - y) * (x - y);
        d->norm += x * x;
        d->count++;
    }
    free(a);
    free(b);
}

/* Returns the largest distance of a parameter on the ranks from the same parameter on one rank. Gradients:
   norm of the difference / gradient's norm. Values: root mean square of the difference. */
static double farthest(const rig *one, const layer_ranks *w, bool gradient) {
    double most = 0;
    for (int i = 0; i < one->t->m->parameter_count; i++) {
        distance d = {0};
        for (int k = 0; k < w->size; k++) add_part(&d, one, &w->rank[k].r, i, gradient);
        if (!(distance_of(&d, gradient) <= most)) most = distance_of(&d, gradient);
    }
    return most;
}

static double loss_apart(const rank_run *one, const rank_run *rank) {
    double most = 0;
    for (int i = 0; i < STEPS; i++) {
        double apart = fabs(one->step[i].loss - rank->step[i].loss) / one->step[i].loss;
        if (!(apart <= most)) most = apart;
        if (one->step[i].z_loss > 0) {
            apart = fabs(one->step[i].z_loss - rank->step[i].z_loss) / one->step[i].z_loss;
            if (!(apart <= most)) most = apart;
        }
        assert_int_equal(one->step[i].labels, rank->step[i].labels);
        assert_int_equal(one->step[i].tokens, rank->step[i].tokens);
    }
    return most;
}

/* Checks that all ranks that compute layers together have equal bits of losses, norms, unsharded values. */
static void expect_agreement(const layer_ranks *w, const char *what) {
    for (int k = 1; k < w->size; k++) {
        const rank_run *a = &w->rank[0], *b = &w->rank[k];
        for (int i = 0; i < STEPS; i++)
            if (a->step[i].loss != b->step[i].loss || a->step[i].grad_norm != b->step[i].grad_norm)
                fail_msg("%s: ranks 0 and %d disagree at step %d", what, k, i + 1);
        for (int i = 0; i < a->r.t->m->parameter_count; i++) {
            const parameter *p = &a->r.t->m->parameters[i], *q = &b->r.t->m->parameters[i];
            if (parameter_is_split(p)) continue;
            float *x = rig_copy(&a->r, p->shard.value.data, parameter_count(p));
            float *y = rig_copy(&b->r, q->shard.value.data, parameter_count(q));
            if (memcmp(x, y, (size_t)parameter_count(p) * sizeof *x) != 0)
                fail_msg("%s: ranks 0 and %d have different values of %s", what, k, p->name);
            free(x);
            free(y);
        }
    }
}

/* ---- the comparison with one rank ---- */

/* `wide` and `narrow`: model sizes with which shards consist of complete scale blocks, of 128 and of 32.
   `always`: optimizer.eps is so large that an update is nearly linear in the gradient. */
static const char *const wide[] = {"--model.dim=256", "--model.n_kv_heads=4", "--model.ffn_hidden_dim=256",
                                   NULL};
static const char *const narrow[] = {"--model.dim=128", "--model.n_kv_heads=4", "--model.ffn_hidden_dim=128",
                                     NULL};
static const char *const always[] = {"--optimizer.eps=0.1", "--train.seq_len=32", "--optimizer.lr=1e-2",
                                     NULL};

static int add_arguments(const char **to, int count, const char *const *more) {
    for (; more && *more; more++) to[count++] = *more;
    to[count] = NULL;
    return count;
}

typedef struct run {
    rank_run one;
    layer_ranks ranks;
    double loss, gradient, value;
} run;

static void run_both(run *t, int until) {
    t->one.until = until;
    FIXTURE_OK(train_rank(&t->one));
    run_ranks(&t->ranks, until);
}

static void compare(run *t, const fixture *f, int way, layout how, const char *const *more) {
    const char *arguments[ARGUMENTS];
    recipe row;
    int count = add_arguments(arguments, 0, way == BLOCK ? wide : narrow);
    count = add_arguments(arguments, count, always);
    add_arguments(arguments, count, more);
    rig_options o = {.precision = &fixture_precisions[way], .more = arguments};
    if (way >= TENSORWISE) row = recipe_with_fp32(way);
    if (way >= TENSORWISE) o.row = &row;
    *t = (run){0};
    rig_open(&t->one.r, f, &o);
    open_ranks(&t->ranks, f, &o, how);
    run_both(t, 1);
    t->gradient = farthest(&t->one.r, &t->ranks, true);
    run_both(t, STEPS);
    t->loss = loss_apart(&t->one, &t->ranks.rank[0]);
    t->value = farthest(&t->one.r, &t->ranks, false);
}

static void close_run(run *t) {
    rig_close(&t->one.r);
    close_ranks(&t->ranks);
}

static void expect_near(const fixture *f, int way, layout how, const char *const *more) {
    run *t = calloc(1, sizeof *t);
    bool rounds = way == FP32;
    double gradient = way == BF16 ? GRADIENT_BOUND_BF16 : GRADIENT_BOUND;
    char what[160];
    compare(t, f, way, how, more);
    snprintf(what, sizeof what, "%s, %d ranks%s%s%s", fixture_precisions[way].name, how.size,
             how.sequence  ? ", sequence parallel"
             : how.context ? ", context parallel"
                           : "",
             more ? ", " : "", more ? more[0] : "");
    expect_agreement(&t->ranks, what);
    if (!(t->gradient <= gradient && t->loss <= (rounds ? GRADIENT_BOUND : LOSS_BOUND) &&
          t->value <= (rounds ? VALUE_BOUND_FP32 : VALUE_BOUND)))
        fail_msg("%s: loss %.3g, gradients %.3g, values %.3g apart", what, t->loss, t->gradient, t->value);
    close_run(t);
    free(t);
}

#if FIXTURE_SANITIZED /* with a sanitizer a step takes ten times as long, so only two recipes run */
static const int ways[] = {TENSORWISE, BLOCK};
#else
static const int ways[] = {FP32,    BF16,    TENSORWISE, ROWWISE, ROWWISE_WITH_GW_HP,
                           DELAYED, CURRENT, BLOCK,      MXFP8};
#endif
enum { WAYS = sizeof ways / sizeof *ways };

static void recipes_are_near_one_rank(void **state) {
    for (int i = 0; i < WAYS; i++)
        for (int sequence = 0; sequence < 2; sequence++) {
            expect_near(*state, ways[i], (layout){.size = 2, .sequence = sequence}, NULL);
            if (ways[i] != BLOCK && !FIXTURE_SANITIZED)
                expect_near(*state, ways[i], (layout){.size = 4, .sequence = sequence}, NULL);
        }
}

/* Context parallelism with 4 ranks exchanges heads, so that each rank gets one head of q, k and v. A rank's
   tokens are complete scale blocks of 32 (of 128 under the recipe BLOCK). */
static void so_is_context_parallelism(void **state) {
    static const char *const blocks[] = {"--train.seq_len=128", "--model.max_seq_len=128", NULL};
    for (int i = 0; i < WAYS; i++) {
        const char *const *more = ways[i] == BLOCK ? blocks : NULL;
        expect_near(*state, ways[i], (layout){.size = 2, .context = true}, more);
        if (ways[i] != BLOCK && ways[i] != MXFP8 && !FIXTURE_SANITIZED)
            expect_near(*state, ways[i], (layout){.size = 4, .context = true}, NULL);
    }
}

/* Writes short texts, one per line. */
static void write_documents(const char *path) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 200; i++)
        fprintf(file, "{\"text\": \"Document %d has %d words of its own, %s.\"}\n", i, i % 7,
                i % 3 ? "not many" : "but more than the last one that was read");
    assert_int_equal(fclose(file), 0);
}

/* Tests ranks that have rows from the middle of a sequence, documents that continue on the next rank, sliding
   windows, and fused projections. */
static void of_any_documents(void **state) {
    const fixture *f = *state;
    char path[128], documents[160];
    snprintf(path, sizeof path, "%s/documents.jsonl", f->folder);
    snprintf(documents, sizeof documents, "--data.dataset_path=%s", path);
    write_documents(path);
    const char *const long_one[] = {"--train.batch_size=1", "--train.seq_len=64", NULL};
    const char *const packed[] = {"--data.pack_sequences=true", "--train.batch_size=1", "--train.seq_len=64",
                                  documents, NULL};
    const char *const window[] = {"--model.sliding_window=20", "--train.batch_size=1", "--train.seq_len=64",
                                  NULL};
    const char *const fused[] = {"--model.fused_qkv=true", "--model.fused_gate_up=true", NULL};
    const char *const tied[] = {"--model.tie_embeddings=true", "--model.attention_bias=true",
                                "--model.qk_norm=true", NULL};
    const char *const chunks[] = {"--train.loss_fn=chunked_cross_entropy", "--train.ce_chunk_size=32",
                                  "--train.z_loss_weight=0.1", NULL};
    const char *const *const models[] = {long_one, packed, window, fused, tied, chunks};
    for (int i = 0; i < 6; i++) expect_near(f, FP32, (layout){.size = 2, .context = true}, models[i]);
    /* a rank's query heads read one key head, shared with other ranks, or two key heads */
    const char *const one[] = {"--model.n_kv_heads=1",
                               "--data.pack_sequences=true",
                               "--train.batch_size=1",
                               "--train.seq_len=64",
                               documents,
                               NULL};
    const char *const half[] = {"--model.n_kv_heads=2", "--model.sliding_window=20", "--train.batch_size=1",
                                "--train.seq_len=64",   "--model.fused_qkv=true",    NULL};
    const char *const parts[] = {"--model.n_heads=6", "--model.n_kv_heads=3", "--model.head_dim=16",
                                 "--model.qk_norm=true", NULL};
    expect_near(f, FP32, (layout){.size = 2, .context = true}, one);
    expect_near(f, BF16, (layout){.size = 4, .context = true}, one);
    expect_near(f, FP32, (layout){.size = 4, .context = true}, half);
    expect_near(f, FP32, (layout){.size = 2, .context = true}, parts);
    expect_near(f, CURRENT, (layout){.size = 2, .context = true}, parts);
}

static void so_are_other_models(void **state) {
    const char *const chunks[] = {"--train.loss_fn=chunked_cross_entropy", "--train.ce_chunk_size=16",
                                  "--train.z_loss_weight=0.1", NULL};
    const char *const tied[] = {"--model.tie_embeddings=true", "--model.attention_bias=true",
                                "--model.qk_norm=true", NULL};
    const char *const batches[] = {"--train.grad_accum_steps=2", NULL};
    const char *const stored[] = {"--float8.store_mlp_inputs=true", "--float8.smooth_swiglu=true", NULL};
    const char *const fused[] = {"--model.fused_qkv=true", "--model.fused_gate_up=true",
                                 "--model.attention_bias=true", NULL};
    const char *const *const models[] = {chunks, tied, batches, stored, fused};
    expect_near(*state, BLOCK, (layout){.size = 2}, fused);
    for (int i = 0; i < 5; i++)
        for (int sequence = 0; sequence < 2; sequence++) {
            if (fixture_takes_few() && sequence != i % 2) continue;
            expect_near(*state, CURRENT, (layout){.size = 2, .sequence = sequence}, models[i]);
            if (models[i] != stored)
                expect_near(*state, FP32, (layout){.size = 2, .sequence = sequence}, models[i]);
        }
}

/* Mixtures of experts. Routing losses are computed over the tokens of all ranks of a micro-batch, with one or
   two sequences. If each rank computed these losses over only the rank's tokens, the router's gradients would
   differ by percents. An expert's capacity, and the factor that balances its gradient, also count the tokens
   of all ranks. */
static const char *const mixture[] = {"--model.num_experts=4",
                                      "--model.moe_shared_experts=1",
                                      "--model.moe_router=sigmoid_topk",
                                      "--model.moe_aux_loss_weight=1",
                                      "--model.moe_sequence_aux_loss_weight=1",
                                      "--model.moe_router_z_loss_weight=0.1",
                                      NULL};

static double norm_with(const fixture *f, const char *weight) {
    const char *const more[] = {"--model.num_experts=4", weight, NULL};
    rig r;
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[FP32], .more = more});
    double found = rig_step(&r).grad_norm;
    rig_close(&r);
    return found;
}

/* Checks that routing losses have an effect. Otherwise no comparison would detect errors in them. */
static void losses_of_routing_train(void **state) {
    static const char *const weights[] = {"--model.moe_aux_loss_weight=1000",
                                          "--model.moe_sequence_aux_loss_weight=1000",
                                          "--model.moe_router_z_loss_weight=1000"};
    double none = norm_with(*state, "--model.moe_aux_loss_weight=0");
    for (int i = 0; i < 3; i++) assert_true(norm_with(*state, weights[i]) > 1.1 * none);
}

static void so_are_mixtures(void **state) {
    const char *one[ARGUMENTS];
    int count = add_arguments(one, 0, mixture);
    one[count++] = "--train.batch_size=1";
    one[count] = NULL;
    for (int sequence = 0; sequence < 2; sequence++)
        expect_near(*state, FP32, (layout){.size = 2, .sequence = sequence}, mixture);
    for (int size = 2; size <= 4; size += 2)
        expect_near(*state, FP32, (layout){.size = size, .context = true}, mixture);
    expect_near(*state, FP32, (layout){.size = 2, .context = true}, one);
    one[count++] = "--model.moe_capacity_factor=0.75";
    one[count++] = "--model.moe_gradient_scale=true";
    one[count] = NULL;
    for (int size = 2; size <= 4; size += 2)
        expect_near(*state, FP32, (layout){.size = size, .context = true}, one);
}

#define HALF_A_SEQUENCE "--train.batch_size=1", "--train.seq_len=64"
/* MLA with narrow values and query latents; MLA with values as wide as keys, without query latents. */
static const char *const latents[] = {"--model.family=deepseek_v3",
                                      "--model.kv_lora_rank=32",
                                      "--model.q_lora_rank=64",
                                      "--model.qk_nope_head_dim=32",
                                      "--model.qk_rope_head_dim=32",
                                      "--model.v_head_dim=32",
                                      HALF_A_SEQUENCE,
                                      NULL};
static const char *const wide_values[] = {"--model.family=deepseek_v2",
                                          "--model.kv_lora_rank=32",
                                          "--model.qk_nope_head_dim=32",
                                          "--model.qk_rope_head_dim=32",
                                          "--model.v_head_dim=64",
                                          HALF_A_SEQUENCE,
                                          NULL};
/* MLA with values wider than keys, and projections with biases. */
static const char *const wider_values[] = {"--model.family=deepseek_v3",
                                           "--model.kv_lora_rank=32",
                                           "--model.qk_nope_head_dim=32",
                                           "--model.qk_rope_head_dim=32",
                                           "--model.v_head_dim=96",
                                           "--model.attention_bias=true",
                                           "--model.attention_output_bias=true",
                                           "--model.rope_interleaved=false",
                                           HALF_A_SEQUENCE,
                                           NULL};
/* With these sizes all shards are complete scale blocks of 128. */
static const char *const wide_latents[] = {
    "--model.family=deepseek_v3",  "--model.kv_lora_rank=128",    "--model.q_lora_rank=128",
    "--model.qk_nope_head_dim=64", "--model.qk_rope_head_dim=64", "--model.v_head_dim=64",
    "--train.seq_len=128",         "--model.max_seq_len=128",     NULL};

/* Tests latent attention (MLA). A rank's tokens keep their global positions. Projections to latents are not
   sharded under any recipe. */
static void so_is_latent_attention(void **state) {
    static const struct {
        int way;
        layout how;
        const char *const *model;
    } cells[] = {{TENSORWISE, {.size = 2, .context = true}, latents},
                 {MXFP8, {.size = 2, .context = true}, latents},
                 {FP32, {.size = 4, .context = true}, latents},
                 {BF16, {.size = 4, .context = true}, wide_values},
                 {FP32, {.size = 4}, latents},
                 {FP32, {.size = 4, .sequence = true}, latents},
                 {TENSORWISE, {.size = 2, .sequence = true}, latents},
                 {DELAYED, {.size = 2}, latents},
                 {MXFP8, {.size = 2, .sequence = true}, latents},
                 {BLOCK, {.size = 2}, wide_latents},
                 {BF16, {.size = 2}, wide_values},
                 {FP32, {.size = 2, .sequence = true}, wide_values},
                 {FP32, {.size = 2, .context = true}, wider_values},
                 {BF16, {.size = 2}, wider_values},
                 {FP32, {.size = 2, .sequence = true}, wider_values}};
    const size_t every = FIXTURE_SANITIZED ? 5 : fixture_takes_few() ? 2 : 1;
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i += every)
        expect_near(*state, cells[i].way, cells[i].how, cells[i].model);
}

/* Tests biases of outputs that ranks sum, norms over all heads, and position tables. The recipe is rowwise:
   with tensorwise scales, a sum in another order changes an FP8 code of the GPT-2 model. */
static void so_are_other_families(void **state) {
    const char *const olmo2[] = {"--model.family=olmo2", NULL};
    const char *const starcoder2[] = {"--model.family=starcoder2", NULL};
    const char *const gpt2[] = {"--model.family=gpt2", NULL};
    const char *const *const models[] = {olmo2, starcoder2, gpt2};
    expect_near(*state, FP32, (layout){.size = 4}, olmo2);
    for (int i = 0; i < 3; i++)
        for (int sequence = 0; sequence < 2; sequence++) {
            if (fixture_takes_few() && sequence != i % 2) continue;
            expect_near(*state, ROWWISE, (layout){.size = 2, .sequence = sequence}, models[i]);
            expect_near(*state, FP32, (layout){.size = 2, .sequence = sequence}, models[i]);
        }
}

/* Tests per-head norm weights, biases of a gated feed-forward, and sliding windows in some layers. */
static void so_are_variants(void **state) {
    const char *const norms[] = {"--model.family=cohere", "--model.qk_norm=true", NULL};
    const char *const biases[] = {"--model.attention_bias=true", "--model.attention_output_bias=true",
                                  "--model.mlp_bias=true", "--model.activation=geglu", NULL};
    const char *const windows[] = {"--model.family=qwen2", "--model.sliding_window=9",
                                   "--model.full_attention_layers=0", NULL};
    expect_near(*state, FP32, (layout){.size = 2}, norms);
    expect_near(*state, FP32, (layout){.size = 2, .sequence = true}, norms);
    expect_near(*state, BF16, (layout){.size = 2, .context = true}, norms);
    expect_near(*state, FP32, (layout){.size = 2, .sequence = true}, biases);
    expect_near(*state, FP32, (layout){.size = 2, .context = true}, windows);
}

/* ---- equal bits ---- */

/* Checks that two layouts with the same shards have equal losses, weights and moments on every rank. */
static void expect_same(const layer_ranks *a, const layer_ranks *b, const char *what) {
    for (int k = 0; k < a->size; k++) {
        snapshot x = snapshot_take(&a->rank[k].r), y = snapshot_take(&b->rank[k].r);
        for (int i = 0; i < STEPS; i++)
            if (a->rank[k].step[i].loss != b->rank[k].step[i].loss) fail_msg("%s: the losses differ", what);
        if (!snapshot_equal(&x, &y)) fail_msg("%s: rank %d has different weights or moments", what, k);
        snapshot_free(&x);
        snapshot_free(&y);
    }
}

static void expect_same_bits(const fixture *f, int way, layout how[2], const char *const *more) {
    layer_ranks *w = calloc(2, sizeof *w);
    for (int i = 0; i < 2; i++) {
        const char *arguments[ARGUMENTS];
        int count = add_arguments(arguments, 0, way == BLOCK ? wide : narrow);
        count = add_arguments(arguments, count, always);
        add_arguments(arguments, count, more);
        open_ranks(&w[i], f, &(rig_options){.precision = &fixture_precisions[way], .more = arguments},
                   how[i]);
        run_ranks(&w[i], STEPS);
    }
    expect_same(&w[0], &w[1], fixture_precisions[way].name);
    for (int i = 0; i < 2; i++) close_ranks(&w[i]);
    free(w);
}

/* Sequence parallelism gives the same bits as tensor parallelism alone, whether the recipe gathers FP8 codes,
   bf16 tensors or nothing. Norms are frozen, because ranks add the gradients of norm weights in another
   order. Experts are tested too. */
static void sequence_parallelism_changes_no_bit(void **state) {
    layout how[2] = {{.size = 2}, {.size = 2, .sequence = true}};
    static const char *const frozen[] = {"--train.freeze=*norm*", NULL};
    const char *experts[ARGUMENTS], *of_latents[ARGUMENTS];
    int count = add_arguments(experts, 0, mixture);
    add_arguments(experts, count, frozen);
    count = add_arguments(of_latents, 0, latents);
    add_arguments(of_latents, count, frozen);
    for (int i = 0; i < WAYS; i++) expect_same_bits(*state, ways[i], how, frozen);
    expect_same_bits(*state, CURRENT, how, experts);
    expect_same_bits(*state, CURRENT, how, of_latents);
    if (FIXTURE_SANITIZED) return;
    expect_same_bits(*state, BF16, how, experts);
    expect_same_bits(*state, BF16, how, of_latents);
}

/* ---- negative controls and refused settings ---- */

/* Negative control: the ranks do not reduce amaxes, so their scales differ. Recipes with power-of-two scales
   are left out, because another power of two changes no rounding. */
static void a_missing_maximum_shows(void **state) {
    static const int scaled[] = {TENSORWISE, CURRENT};
    if (FIXTURE_SANITIZED) skip(); /* only compares rounding; a sanitizer finds nothing more */
    for (int i = 0; i < 2; i++)
        for (int sequence = 0; sequence < 2; sequence++) {
            run *t = calloc(1, sizeof *t);
            compare(t, *state, scaled[i], (layout){.size = 2, .sequence = sequence, .deaf = true}, NULL);
            assert_true(t->gradient > 10 * GRADIENT_BOUND);
            close_run(t);
            free(t);
        }
}

static void expect_refusals(const fixture *f, int way, const char *const *more, layout how,
                            const char *text) {
    group one = {.rank = 0, .size = how.size}; /* the settings are refused before any message is sent */
    rig_options o = {.precision = &fixture_precisions[way],
                     .more = more,
                     .tensor_ranks = &one,
                     .sequence_parallel = how.sequence};
    rig r;
    mem *account;
    FIXTURE_OK(mem_open(&account));
    assert_int_equal(rig_try(&r, account, f, &o), OTT_ERR_CONFIG);
    if (!strstr(status_text(), text)) fail_msg("%s: no \"%s\"", status_text(), text);
    mem_close(account);
}

static void expect_refusal(const fixture *f, int way, const char *argument, layout how, const char *text) {
    const char *const more[] = {argument, NULL};
    expect_refusals(f, way, more, how, text);
}

static void what_does_not_divide_is_refused(void **state) {
    layout two = {.size = 2}, three = {.size = 3}, four = {.size = 4};
    const fixture *f = *state;
    expect_refusal(
        f, BF16, NULL, three,
        "model.n_heads (4) must be divisible by distributed.tp (3): set distributed.tp to a divisor");
    expect_refusal(f, BF16, NULL, four, "model.n_kv_heads (2) must be divisible by distributed.tp (4)");
    expect_refusal(f, BF16, NULL, four, "or use distributed.cp instead");
    expect_refusal(f, BF16, "--model.ffn_hidden_dim=65", two, "model.ffn_hidden_dim (65) must be divisible");
    expect_refusal(f, BF16, "--model.vocab_size=257", two, "model.vocab_size (257) must be divisible");
    expect_refusal(f, BF16, "--model.vocab_size=257", two, "or round model.vocab_size up");
    expect_refusal(
        f, TENSORWISE, NULL, two,
        "self_attn.k_proj: with distributed.tp = 2 a rank's part of the weight is 8 x 32, but FP8 requires "
        "multiples of 16");
    expect_refusal(f, TENSORWISE, NULL, two, "float8.pad_inner_dim = true");
    expect_refusal(f, BLOCK, NULL, two, "splits scale blocks of 128");
    expect_refusal(f, MXFP8, NULL, two, "splits scale blocks of 32");
    static const char *const heads[] = {"--model.dim=256", "--model.fused_qkv=true",
                                        NULL}; /* q, k and v have 128, 64 and 64 rows on a rank */
    expect_refusals(f, BLOCK, heads, two, "a rank's part of the weight is 64 x 256");
    expect_refusal(f, BF16, "--optimizer.state_dtype=fp8", two,
                   "a rank has 16 of the 32 columns of model.layers.0.self_attn.o_proj.weight");
}

static void what_has_no_heads_is_refused(void **state) {
    static const char *const tokens[] = {"--model.n_kv_heads=4", NULL};
    group three = {.size = 3}, four = {.size = 4};
    rig_options o = {.precision = &fixture_precisions[BF16], .context_ranks = &three};
    rig r;
    mem *account;
    FIXTURE_OK(mem_open(&account));
    assert_int_equal(rig_try(&r, account, *state, &o), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(),
                           "model.n_heads (4) must be divisible by distributed.tp x distributed.cp (1 x 3)"));
    o.context_ranks = &four;
    /* a rank has 12 rows of the sequence, which is less than a scale block of 32 */
    o.precision = &fixture_precisions[MXFP8];
    o.more = tokens;
    assert_int_equal(rig_try(&r, account, *state, &o), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), "splits scale blocks of 32"));
    mem_close(account);
}

static void rows_that_do_not_divide_are_refused(void **state) {
    const char *more[] = {"--train.batch_size=1", "--train.seq_len=23", NULL};
    group one = {.rank = 0, .size = 2};
    rig_options o = {.precision = &fixture_precisions[BF16],
                     .more = more,
                     .tensor_ranks = &one,
                     .sequence_parallel = true};
    rig r;
    mem *account;
    FIXTURE_OK(mem_open(&account));
    assert_int_equal(rig_try(&r, account, *state, &o), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), "the 23 tokens of a micro-batch"));
    mem_close(account);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recipes_are_near_one_rank),
        cmocka_unit_test(so_are_other_models),
        cmocka_unit_test(so_is_context_parallelism),
        cmocka_unit_test(of_any_documents),
        cmocka_unit_test(so_are_mixtures),
        cmocka_unit_test(losses_of_routing_train),
        cmocka_unit_test(so_is_latent_attention),
        cmocka_unit_test(so_are_other_families),
        cmocka_unit_test(so_are_variants),
        cmocka_unit_test(sequence_parallelism_changes_no_bit),
        cmocka_unit_test(a_missing_maximum_shows),
        cmocka_unit_test(what_does_not_divide_is_refused),
        cmocka_unit_test(what_has_no_heads_is_refused),
        cmocka_unit_test(rows_that_do_not_divide_are_refused),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
