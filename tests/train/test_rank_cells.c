/*
 * Trains random configurations ("cells") on several ranks. A cell is a random model family, mesh, schedule
 * and precision, with random other settings. The test trains each cell for two steps and compares it with one
 * rank that trains on the same micro-batches. The test train.matrix covers every pair of mesh dimensions with
 * one family; this test covers all families.
 *
 *     train_test_rank_cells                            the cells of the test
 *     train_test_rank_cells --cells 500 --seed 9       500 cells of another seed
 *     train_test_rank_cells --seed 9 --cell 17         one cell; a failure prints this command
 *     train_test_rank_cells --seed 9 --cell 17 --with --peft.use_dora=false     with a setting changed
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "kinds/family.h"
#include "train/mesh_way.h"

enum { CELLS = 40, FEW_CELLS = 4, ARGUMENTS = 40, HEADS = 4, EXPERTS = 4, SEQUENCES = 2 };

typedef struct cell {
    uint64_t seed, number, draws;
    const family *family;
    mesh_way way;
    int precision;
    int64_t layers, length;
    bool adapts; /* trains LoRA or DoRA adapters */
    char text[ARGUMENTS][56];
    int count;
    char name[400];
} cell;

/* ---- draws ---- */

static uint32_t draw(cell *c, uint32_t limit) {
    return rng_u32(c->seed, c->number, c->draws++) % limit;
}
static bool one_in(cell *c, uint32_t n) {
    return draw(c, n) == 0;
}

#define PICK(c, ...) (((const int[]){__VA_ARGS__})[draw(c, sizeof((const int[]){__VA_ARGS__}) / sizeof(int))])

static void say(cell *c, const char *format, ...) {
    va_list list;
    assert_in_range(c->count, 0, ARGUMENTS - 1);
    va_start(list, format);
    int length = vsnprintf(c->text[c->count], sizeof *c->text, format, list);
    va_end(list);
    assert_in_range(length, 1, (int)sizeof *c->text - 1);
    c->count++;
}

static void say_number(cell *c, const char *key, int64_t value) {
    say(c, "--%s=%lld", key, (long long)value);
}

static bool is_fp8(const cell *c) {
    return c->precision >= TENSORWISE;
}
/* True for recipes with scale blocks, which ranks must not split. */
static bool has_blocks(const cell *c) {
    return c->precision == BLOCK || c->precision == MXFP8;
}

/* ---- the mesh ---- */

static bool fits(const cell *c) {
    int64_t *size = (int64_t[MESH_DIMENSIONS]){0}, ranks = way_ranks(&c->way);
    for (int d = 0; d < MESH_DIMENSIONS; d++) size[d] = way_size(&c->way, (mesh_dimension)d);
    return ranks >= 2 && ranks <= MESH_RUN_RANKS_MAX && HEADS % (size[MESH_TP] * size[MESH_CP]) == 0;
}

static void draw_mesh(cell *c) {
    mesh_way *w = &c->way;
    do {
        w->layout.size[MESH_PP] = PICK(c, 1, 1, 2, 2, 3, 4);
        w->layout.size[MESH_DP_REPLICATE] = PICK(c, 1, 1, 1, 2);
        w->layout.size[MESH_DP_SHARD] = PICK(c, 1, 1, 2, 3);
        w->layout.size[MESH_CP] = PICK(c, 1, 1, 1, 2, 4);
        w->layout.size[MESH_EP] = w->experts ? PICK(c, 1, 2, 2, 4) : 1;
        w->layout.size[MESH_TP] = PICK(c, 1, 1, 1, 2, 4);
    } while (!fits(c));
    w->layout.sequence_parallel = way_size(w, MESH_TP) > 1 && one_in(c, 2);
    w->layout.schedule = PICK(c, PP_GPIPE, PP_1F1B, PP_INTERLEAVED_1F1B);
    if (way_size(w, MESH_PP) == 1) w->layout.schedule = 0;
    w->kinds = (way_data_ranks(w) > 1 ? WAY_DATA : 0) | (way_size(w, MESH_PP) > 1 ? WAY_PIPELINE : 0) |
               (way_size(w, MESH_CP) > 1 ? WAY_CONTEXT : 0) | (way_size(w, MESH_TP) > 1 ? WAY_TENSOR : 0);
}

/* Chooses random numbers of layers and micro-batches. Each part of a pipeline has at least one layer. The
   schedule interleaved_1f1b needs a multiple of `stages` micro-batches. */
static void draw_lengths(cell *c) {
    int64_t stages = way_size(&c->way, MESH_PP);
    bool interleaved = c->way.layout.schedule == PP_INTERLEAVED_1F1B && stages > 1;
    c->layers = stages * (interleaved ? PIPELINE_INTERLEAVED_CHUNKS : 1) + draw(c, 2);
    if (c->layers < 2) c->layers = 2;
    c->way.micro_batches = (int)(interleaved ? stages * PICK(c, 1, 2) : PICK(c, 1, 1, 2, 3));
    if (stages > 1 && !interleaved) c->way.micro_batches += (int)draw(c, (uint32_t)stages);
    c->length = 16 * way_size(&c->way, MESH_CP);
    if (c->precision == BLOCK && c->way.kinds & WAY_CONTEXT) c->length *= 4;
}

/* ---- precision ---- */

/* Draws the precision. Tensor parallelism changes the order of sums, which in any precision but fp32 may
   route a token to another expert. So cells with experts and tensor parallelism have fp32. */
static void draw_precision(cell *c) {
    bool shards = c->way.kinds & WAY_TENSOR;
    c->precision = shards ? PICK(c, FP32, FP32, FP32, BF16, TENSORWISE, ROWWISE, CURRENT, MXFP8, BLOCK)
                          : PICK(c, FP32, FP32, BF16, BF16, TENSORWISE, TENSORWISE, ROWWISE,
                                 ROWWISE_WITH_GW_HP, DELAYED, CURRENT, BLOCK, MXFP8);
    if (shards && (c->way.experts || (c->family->latent && has_blocks(c)))) c->precision = FP32;
    if (c->precision == BLOCK && way_size(&c->way, MESH_TP) > 2) c->precision = ROWWISE;
    c->way.gather_masters = is_fp8(c) && one_in(c, 3);
    if (c->way.gather_masters) say(c, "--float8.enable_fsdp_float8_all_gather=false");
    if (c->precision == TENSORWISE && one_in(c, 3))
        say(c, "--float8.precompute_float8_dynamic_scale_for_fsdp=true");
    if (c->way.experts && is_fp8(c) && c->precision != TENSORWISE && c->precision != DELAYED &&
        c->precision != CURRENT && one_in(c, 2))
        say(c, "--float8.moe_experts=true");
}

/* ---- the model ---- */

static void draw_experts(cell *c) {
    if (!c->way.experts) return;
    bool sigmoid = c->family->experts == FAMILY_EXPERTS_SIGMOID || one_in(c, 3);
    say_number(c, "model.num_experts", EXPERTS);
    say(c, "--model.moe_router=%s", sigmoid ? "sigmoid_topk" : "softmax_topk");
    say_number(c, "model.moe_top_k", 1 + draw(c, 3));
    say_number(c, "model.moe_shared_experts", draw(c, 2));
    say(c, "--model.moe_aux_loss_weight=%s", one_in(c, 2) ? "0.02" : "0");
    if (one_in(c, 3)) say(c, "--model.moe_sequence_aux_loss_weight=0.02");
    if (one_in(c, 3)) say(c, "--model.moe_router_z_loss_weight=0.01");
    if (one_in(c, 3)) say(c, "--model.moe_capacity_factor=0.75");
    if (one_in(c, 3)) say(c, "--model.moe_gradient_scale=true");
    if (one_in(c, 3)) say_number(c, "model.moe_first_dense_layers", 1);
    if (one_in(c, 3)) say_number(c, "model.moe_frequency", 2);
}

/* True if layers must be wide: under BLOCK with tensor parallelism, shards must be complete blocks of 128. */
static bool is_wide(const cell *c) {
    return c->precision == BLOCK && c->way.kinds & WAY_TENSOR;
}

/* Draws the numbers of heads. Ranks divide key heads as they divide query heads. If there are fewer key heads
   than ranks, several ranks use the same key head. */
static void draw_heads(cell *c) {
    bool wide = is_wide(c);
    int64_t tp = way_size(&c->way, MESH_TP);
    int64_t keys = has_blocks(c) || c->way.kinds & WAY_CONTEXT ? HEADS : PICK(c, 1, 2, 4);
    say_number(c, "model.dim", wide ? 256 : 64);
    say_number(c, "model.ffn_hidden_dim", wide ? 512 : 128);
    say_number(c, "model.head_dim", c->family->latent || c->precision == MXFP8 ? 32 : wide ? 128 : 16);
    say_number(c, "model.n_heads", HEADS);
    say_number(c, "model.n_kv_heads", c->family->latent || keys % tp ? HEADS : keys);
    if (!c->family->latent) return;
    say_number(c, "model.kv_lora_rank", 32);
    say_number(c, "model.q_lora_rank", one_in(c, 2) ? 32 : 0);
    say_number(c, "model.qk_nope_head_dim", 16);
    say_number(c, "model.qk_rope_head_dim", 16);
    say_number(c, "model.v_head_dim", 16);
}

static void draw_attention(cell *c) {
    bool softcaps = family_is(c->family, FAMILY_GEMMA2) || one_in(c, 8);
    if (c->family->window != FAMILY_WINDOW_NONE) {
        say_number(c, "model.sliding_window", one_in(c, 2) ? 5 : 0);
        if (c->family->window == FAMILY_WINDOW_PATTERN) say_number(c, "model.full_attention_every", 2);
    }
    if (softcaps) say(c, "--model.attention_softcap=4");
    if (softcaps) say(c, "--model.final_logit_softcap=8");
}

/* Sets the family's multipliers. With a larger attention multiplier, softmax would be so steep that changed
   FP8 codes would change gradients by half. */
static void draw_multipliers(cell *c) {
    if (!family_is(c->family, FAMILY_GRANITE) && !one_in(c, 8)) return;
    say(c, "--model.embedding_multiplier=3");
    say(c, "--model.residual_multiplier=0.5");
    if (!c->family->latent) say(c, "--model.attention_multiplier=%s", is_wide(c) ? "0.1" : "0.3");
    say(c, "--model.logits_scaling=2");
}

static void draw_model(cell *c) {
    say(c, "--model.family=%s", c->family->name);
    say(c, "--model.tie_embeddings=%s", one_in(c, 2) ? "true" : "false");
    say_number(c, "model.n_layers", c->layers);
    say_number(c, "model.max_seq_len", c->length);
    say_number(c, "train.seq_len", c->length);
    draw_heads(c);
    draw_attention(c);
    draw_multipliers(c);
    draw_experts(c);
}

/* ---- trained parameters ---- */

/* Draws the optimizer. No Muon with expert parallelism: it needs full matrices. Muon and Lion only if results
   must be equal: they make large updates from tiny gradients, so another order of sums has no bound. */
static void draw_optimizer(cell *c) {
    static const char *const names[] = {"sgd", "schedule_free_adamw", "lion", "muon"};
    bool equal = (c->way.kinds & ~way_bits(&c->way)) == 0, single = way_size(&c->way, MESH_EP) == 1;
    const char *name = one_in(c, 4) ? names[draw(c, !equal ? 2 : !single ? 3 : 4)] : "adamw";
    say(c, "--optimizer.name=%s", name);
    say(c, "--optimizer.eps=0.1"); /* an update is nearly linear in the gradient */
    if (strcmp(name, "schedule_free_adamw") == 0) say(c, "--scheduler.name=none");
    if (strcmp(name, "schedule_free_adamw") == 0) say(c, "--scheduler.warmup_steps=0");
    if (strcmp(name, "adamw") != 0 || !one_in(c, 4)) return;
    say(c, "--train.master_dtype=bf16");
    say(c, "--optimizer.state_dtype=bf16");
}

static void draw_adapters(cell *c) {
    c->adapts = one_in(c, 6);
    if (!c->adapts) return;
    say(c, "--peft.enabled=true");
    say_number(c, "peft.dim", 16);
    say(c, "--peft.match_all_linear=true");
    say(c, "--peft.use_dora=%s", one_in(c, 2) ? "true" : "false");
    say(c, "--peft.dropout=%s", one_in(c, 2) ? "0.1" : "0");
    say(c, "--peft.dropout_position=pre");
}

/* ---- settings that change no bit of a comparison ---- */

static void draw_settings(cell *c) {
    static const char *const reshard[] = {"default", "always", "never"};
    static const char *const frozen[] = {"tok_embeddings", "layers.0", "norm"};
    say(c, "--distributed.reshard_after_forward=%s", reshard[draw(c, 3)]);
    if (one_in(c, 6) && !c->adapts) say(c, "--train.freeze=%s", frozen[draw(c, 3)]);
    /* With an FP8 head each chunk of a chunked loss has one scale. Under context parallelism, a rank's chunks
       have other tokens than on one rank, so the results would differ. */
    if (one_in(c, 4) && !(is_fp8(c) && (has_blocks(c) || c->way.kinds & WAY_CONTEXT))) {
        say(c, "--train.loss_fn=chunked_cross_entropy");
        say(c, "--train.ce_chunk_size=16");
    }
    if (one_in(c, 4)) say(c, "--train.z_loss_weight=0.1");
}

/* ---- a cell ---- */

static const char *schedule_name(const mesh_way *w) {
    static const char *const names[] = {
        [PP_GPIPE] = "gpipe", [PP_1F1B] = "1f1b", [PP_INTERLEAVED_1F1B] = "interleaved_1f1b"};
    return way_size(w, MESH_PP) > 1 ? names[w->layout.schedule] : "";
}

static void name_cell(cell *c) {
    static const char *const names[MESH_DIMENSIONS] = {[MESH_PP] = "pp",
                                                       [MESH_DP_REPLICATE] = "dp_replicate",
                                                       [MESH_DP_SHARD] = "dp_shard",
                                                       [MESH_CP] = "cp",
                                                       [MESH_EP] = "ep",
                                                       [MESH_TP] = "tp"};
    int length = snprintf(c->name, sizeof c->name, "--seed %llu --cell %llu: %s, %s, %d micro-batches",
                          (unsigned long long)c->seed, (unsigned long long)c->number, c->family->name,
                          fixture_precisions[c->precision].name, c->way.micro_batches);
    for (int d = 0; d < MESH_DIMENSIONS; d++)
        if (way_size(&c->way, (mesh_dimension)d) > 1)
            length += snprintf(c->name + length, sizeof c->name - (size_t)length, ", %s %d %s", names[d],
                               (int)c->way.layout.size[d], d == MESH_PP ? schedule_name(&c->way) : "");
    snprintf(c->name + length, sizeof c->name - (size_t)length, "%s",
             c->way.layout.sequence_parallel ? ", sequence parallel" : "");
}

static void draw_cell(cell *c, uint64_t seed, uint64_t number) {
    *c = (cell){.seed = seed, .number = number};
    c->family = &family_table[draw(c, FAMILY_COUNT)];
    c->way.experts =
        c->family->experts != FAMILY_EXPERTS_NONE || (family_is(c->family, FAMILY_LLAMA) && one_in(c, 3));
    draw_mesh(c);
    draw_precision(c);
    draw_lengths(c);
    draw_model(c);
    draw_optimizer(c);
    draw_adapters(c);
    draw_settings(c);
    name_cell(c);
}

static void run(const fixture *f, const cell *c, const mesh_way *w, const char *recomputation, outcome *out) {
    const char *arguments[ARGUMENTS + 3];
    char micro_batches[64];
    int count = 0;
    for (; count < c->count; count++) arguments[count] = c->text[count];
    snprintf(micro_batches, sizeof micro_batches, "--train.grad_accum_steps=%d", w->micro_batches);
    arguments[count++] = micro_batches;
    arguments[count++] = recomputation;
    arguments[count] = NULL;
    mesh_run(f,
             &(mesh_run_options){.precision = &fixture_precisions[c->precision],
                                 .more = arguments,
                                 .layout = w->layout,
                                 .histories_every = way_data_ranks(&c->way) / way_data_ranks(w)},
             out);
}

/* ---- the test ---- */

static fixture *shared;

static const char *draw_recomputation(cell *c) {
    static const char *const ways[] = {
        "--train.activation_checkpointing=none", "--train.activation_checkpointing=selective",
        "--train.activation_checkpointing=full", "--train.activation_checkpointing=op"};
    return ways[draw(c, 4)];
}

/* Compares a run with a run without the kinds of parallelism that must not change bits. */
static void expect_bits(const cell *c, const outcome *found) {
    mesh_way less = way_without(&c->way, way_bits(&c->way));
    outcome expected;
    char what[160];
    if (less.kinds == c->way.kinds) return;
    run(shared, c, &less, "--train.activation_checkpointing=none", &expected);
    if (!outcome_equal(&expected, found, what)) fail_msg("%s: different %s", c->name, what);
    outcome_free(&expected);
}

/* Expects that ranks and one rank differ by at most the bound. Gradients near zero, such as a key bias's
   gradient, are compared relative to the norm of all gradients. */
static void expect_near(const cell *c, const outcome *found) {
    mesh_way one_rank = way_without(&c->way, WAY_ALL);
    outcome one;
    if ((c->way.kinds & ~way_bits(&c->way)) == 0) return; /* expect_bits already compared with one rank */
    run(shared, c, &one_rank, "--train.activation_checkpointing=none", &one);
    double bound = way_gradient_bound(&c->way, c->precision, c->layers, SEQUENCES * c->length);
    double apart = outcome_distance(&one, found, way_gradient_kind(&c->way, c->precision));
    way_expect_within(c->name, "gradients", apart, bound);
    /* twice the bound, because the weights already differ in the second step */
    way_expect_near(&one, found, 2 * bound, c->name);
    outcome_free(&one);
}

static void ranks_train_as_one(void **state) {
    cell *c = *state;
    const char *recomputation = draw_recomputation(c);
    outcome found;
    run(shared, c, &c->way, recomputation, &found);
    expect_bits(c, &found);
    expect_near(c, &found);
    outcome_free(&found);
}

/* cmocka passes a test its own state only if the group's setup sets no state, so `shared` has the fixture. */
static int setup(void **state) {
    (void)state;
    return fixture_setup((void **)&shared);
}

static int teardown(void **state) {
    (void)state;
    return fixture_teardown((void **)&shared);
}

/* ---- the command line ---- */

typedef struct wanted {
    uint64_t seed, first, count;
    const char *with; /* one further setting, to find out which setting causes a failure */
} wanted;

static bool read_arguments(int count, char **arguments, wanted *w) {
    for (int i = 1; i + 1 < count; i += 2) {
        uint64_t value = strtoull(arguments[i + 1], NULL, 10);
        if (strcmp(arguments[i], "--cells") == 0)
            w->count = value;
        else if (strcmp(arguments[i], "--seed") == 0)
            w->seed = value;
        else if (strcmp(arguments[i], "--cell") == 0)
            w->first = value, w->count = 1;
        else if (strcmp(arguments[i], "--with") == 0)
            w->with = arguments[i + 1];
        else
            return false;
    }
    return count % 2 == 1 && w->count > 0 && w->count <= 1000000;
}

int main(int count, char **arguments) {
    wanted w = {.seed = 1, .count = fixture_takes_few() ? FEW_CELLS : CELLS};
    if (!read_arguments(count, arguments, &w)) {
        fprintf(stderr, "usage: %s [--cells N] [--seed S] [--cell K] [--with --KEY=VALUE]\n", arguments[0]);
        return 2;
    }
    cell *cells = calloc(w.count, sizeof *cells);
    struct CMUnitTest *tests = calloc(w.count, sizeof *tests);
    for (uint64_t i = 0; i < w.count; i++) {
        draw_cell(&cells[i], w.seed, w.first + i);
        if (w.with) say(&cells[i], "%s", w.with);
        for (int k = 0; w.count == 1 && k < cells[i].count; k++) printf("%s\n", cells[i].text[k]);
        tests[i] = (struct CMUnitTest){cells[i].name, ranks_train_as_one, NULL, NULL, &cells[i]};
    }
    int failed = _cmocka_run_group_tests("rank cells", tests, w.count, setup, teardown);
    free(tests);
    free(cells);
    return failed;
}
