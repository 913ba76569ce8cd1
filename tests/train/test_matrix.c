/*
 * Tests the table of docs/explanation/parallelism.md: every recipe (column) with every way to spread a run
 * over ranks (row). A row with one way runs with every kind of recomputation. A row with a pair of ways,
 * such as dp_shard with tp, runs with one kind, which changes from cell to cell. Each run has two steps and
 * is compared with one rank that trains on the same micro-batches. This test makes the page's table:
 * `train_test_matrix --write` updates it. docs/explanation/numerics.md derives the bounds.
 *
 * The embedding is tied in every second cell. Cells with ep have experts. The number of layers is not
 * divisible by the number of stages, nor a shard's size by the number of ranks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/text/str.h"
#include "support/page.h"
#include "train/mesh_way.h"

#define PAGE  TEST_SOURCE_DIR "/docs/explanation/parallelism.md"
#define TITLE "| spread over | ranks | micro-batches of each | bits of |"

enum {
    ROWS_MAX = 80,
    COLUMNS = 7,
    RECOMPUTATIONS = 3,
    ARGUMENTS = 24,
    CELL = 96,
    LINE = 1024,
    MEMORY = 72,
    SEQUENCES = 2 /* sequences per micro-batch */
};

static const int recipes[COLUMNS] = {BF16, TENSORWISE, ROWWISE, ROWWISE_WITH_GW_HP, DELAYED, BLOCK, MXFP8};
static const char *const recomputations[RECOMPUTATIONS] = {"--train.activation_checkpointing=none",
                                                           "--train.activation_checkpointing=selective",
                                                           "--train.activation_checkpointing=full"};

/* ---- rows ---- */

#define SIZES(...) .layout.size = {__VA_ARGS__}
static const mesh_way single_ways[] = {
    {"dp_replicate", WAY_DATA, SIZES([MESH_DP_REPLICATE] = 2)},
    {"dp_shard", WAY_DATA, SIZES([MESH_DP_SHARD] = 2), .gather_masters = true},
    {"dp_shard, FP8 all-gather", WAY_DATA, SIZES([MESH_DP_SHARD] = 2)},
    {"hybrid", WAY_DATA, SIZES([MESH_DP_REPLICATE] = 2, [MESH_DP_SHARD] = 2)},
    {"pp gpipe", WAY_PIPELINE, SIZES([MESH_PP] = 2), .layout.schedule = PP_GPIPE},
    {"pp 1f1b", WAY_PIPELINE, SIZES([MESH_PP] = 2), .layout.schedule = PP_1F1B},
    {"pp interleaved_1f1b", WAY_PIPELINE, SIZES([MESH_PP] = 2), .layout.schedule = PP_INTERLEAVED_1F1B},
    {"cp", WAY_CONTEXT, SIZES([MESH_CP] = 2)},
    {"tp", WAY_TENSOR, SIZES([MESH_TP] = 2)},
    {"tp, sequence_parallel", WAY_TENSOR, SIZES([MESH_TP] = 2), .layout.sequence_parallel = true},
};
static const mesh_way other_ways[] = {
    {"dp_shard of 3, uneven", WAY_DATA, SIZES([MESH_DP_SHARD] = 3)},
    {"dp_replicate, accumulating", WAY_DATA, SIZES([MESH_DP_REPLICATE] = 2), .micro_batches = 2},
    {"dp_shard, accumulating", WAY_DATA, SIZES([MESH_DP_SHARD] = 2), .micro_batches = 2},
    {"dp_shard x pp 1f1b x tp", WAY_DATA | WAY_PIPELINE | WAY_TENSOR,
     SIZES([MESH_PP] = 2, [MESH_DP_SHARD] = 2, [MESH_TP] = 2), .layout.schedule = PP_1F1B},
    {"dp_shard x cp x tp, sequence_parallel", WAY_DATA | WAY_CONTEXT | WAY_TENSOR,
     SIZES([MESH_DP_SHARD] = 2, [MESH_CP] = 2, [MESH_TP] = 2), .layout.sequence_parallel = true},
};
static const mesh_way expert_ways[] = {
    {"ep", WAY_DATA, SIZES([MESH_EP] = 2), .experts = true},
    {"ep of 4", WAY_DATA, SIZES([MESH_EP] = 4), .experts = true},
    {"dp_shard x ep", WAY_DATA, SIZES([MESH_DP_SHARD] = 2, [MESH_EP] = 2), .experts = true},
    {"ep x pp 1f1b", WAY_DATA | WAY_PIPELINE, SIZES([MESH_PP] = 2, [MESH_EP] = 2), .layout.schedule = PP_1F1B,
     .experts = true},
};
enum {
    SINGLE_WAYS = sizeof single_ways / sizeof *single_ways,
    OTHER_WAYS = sizeof other_ways / sizeof *other_ways,
    EXPERT_WAYS = sizeof expert_ways / sizeof *expert_ways
};

/* Returns micro-batches per step of a rank: twice as many with a pipeline, half with data parallelism. */
static int default_micro_batches(const mesh_way *r) {
    if (r->kinds & WAY_PIPELINE) return way_data_ranks(r) == 1 ? 4 : 2;
    return way_data_ranks(r) == 1 ? 2 : 1;
}

static mesh_way pair_of(const mesh_way *a, const mesh_way *b) {
    mesh_way r = *a;
    assert_in_range(snprintf(r.name, sizeof r.name, "%s x %s", a->name, b->name), 1, sizeof r.name - 1);
    r.kinds |= b->kinds;
    for (int d = 0; d < MESH_DIMENSIONS; d++)
        if (b->layout.size[d]) r.layout.size[d] = b->layout.size[d];
    if (b->kinds & WAY_PIPELINE) r.layout.schedule = b->layout.schedule;
    r.layout.sequence_parallel |= b->layout.sequence_parallel;
    return r;
}

static int list_rows(mesh_way *rows) {
    int count = 0;
    for (int i = 0; i < SINGLE_WAYS; i++) rows[count++] = single_ways[i];
    for (int i = 0; i < OTHER_WAYS; i++) rows[count++] = other_ways[i];
    for (int i = 0; i < SINGLE_WAYS; i++)
        for (int j = i + 1; j < SINGLE_WAYS; j++)
            if (single_ways[i].kinds != single_ways[j].kinds)
                rows[count++] = pair_of(&single_ways[i], &single_ways[j]);
    for (int i = 0; i < EXPERT_WAYS; i++) rows[count++] = expert_ways[i];
    for (int i = 0; i < count; i++)
        if (!rows[i].micro_batches) rows[i].micro_batches = default_micro_batches(&rows[i]);
    assert_in_range(count, 1, ROWS_MAX);
    return count;
}

/* ---- names ---- */

static void name_bits(const mesh_way *r, char text[CELL]) {
    static const char *const names[] = {"one rank", "dp", "",        "", "cp", "dp x cp", "",
                                        "",         "tp", "dp x tp", "", "",   "cp x tp", "dp x cp x tp"};
    unsigned left = r->kinds & ~way_bits(r);
    snprintf(text, CELL, "%s", left == r->kinds ? "" : names[left]);
}

/* ---- runs ---- */

typedef struct job {
    mesh_way way;
    int recipe, layers;
    bool tied;
    int recomputation;
    int64_t histories_every;      /* micro-batches per roll of the amax histories */
    const char *const *more;      /* further settings; NULL: none */
    bool narrow, narrow_gradient; /* masters and moments in bf16; gradients in bf16 */
    bool fp8_moments;             /* moments in FP8, not in bf16 */
    bool wide;                    /* model sizes with which tensor parallelism splits no scale block of 128 */
    /* Tokens of a sequence. A long sequence gives each rank of context parallelism complete scale blocks. */
    int64_t length;
} job;

static const char *format(char *text, size_t size, const char *key, int64_t value) {
    assert_in_range(snprintf(text, size, "--%s=%lld", key, (long long)value), 1, size - 1);
    return text;
}

static void run(const fixture *f, const job *j, outcome *out) {
    enum { NUMBERS = 7 };
    char number[NUMBERS][64];
    const char *arguments[ARGUMENTS] = {
        "--model.n_kv_heads=4",
        "--optimizer.eps=0.1", /* with this eps, an update is nearly linear in the gradient */
        recomputations[j->recomputation],
        j->tied ? "--model.tie_embeddings=true" : "--model.tie_embeddings=false",
        format(number[0], sizeof *number, "model.dim",
               !j->wide         ? 64
               : j->fp8_moments ? 256
                                : 128),
        format(number[1], sizeof *number, "model.ffn_hidden_dim", j->wide ? 256 : 64),
        format(number[2], sizeof *number, "model.head_dim", j->wide ? 64 : 16),
        format(number[3], sizeof *number, "model.n_layers", j->layers),
        format(number[4], sizeof *number, "model.max_seq_len", j->length),
        format(number[5], sizeof *number, "train.seq_len", j->length),
        format(number[6], sizeof *number, "train.grad_accum_steps", j->way.micro_batches),
    };
    int count = NUMBERS + 4;
    if (j->way.experts) arguments[count++] = "--model.num_experts=4";
    if (j->way.experts) arguments[count++] = "--model.moe_router=sigmoid_topk";
    if (j->way.experts) arguments[count++] = "--model.moe_aux_loss_weight=0.02";
    if (j->way.gather_masters) arguments[count++] = "--float8.enable_fsdp_float8_all_gather=false";
    if (j->narrow) arguments[count++] = "--train.master_dtype=bf16";
    if (j->narrow)
        arguments[count++] = j->fp8_moments ? "--optimizer.state_dtype=fp8" : "--optimizer.state_dtype=bf16";
    for (int i = 0; j->more && j->more[i]; i++) arguments[count++] = j->more[i];
    if (j->narrow_gradient) arguments[count++] = "--train.grad_dtype=bf16";
    mesh_run(f,
             &(mesh_run_options){.precision = &fixture_precisions[j->recipe],
                                 .more = arguments,
                                 .layout = j->way.layout,
                                 .histories_every = j->histories_every / way_data_ranks(&j->way)},
             out);
}

/* Outcomes of runs, kept for comparison with later cells. */
typedef struct memory {
    const fixture *f;
    job jobs[MEMORY];
    outcome outcomes[MEMORY];
    int count;
} memory;

static bool same_job(const job *a, const job *b) {
    return memcmp(&a->way.layout, &b->way.layout, sizeof a->way.layout) == 0 &&
           a->way.micro_batches == b->way.micro_batches && a->way.gather_masters == b->way.gather_masters &&
           a->way.experts == b->way.experts && a->recipe == b->recipe && a->layers == b->layers &&
           a->tied == b->tied && a->histories_every == b->histories_every && a->wide == b->wide &&
           a->length == b->length;
}

static const outcome *recall(memory *m, const job *j) {
    for (int i = 0; i < m->count; i++)
        if (same_job(&m->jobs[i], j)) return &m->outcomes[i];
    assert_in_range(m->count, 0, MEMORY - 1);
    run(m->f, j, &m->outcomes[m->count]);
    m->jobs[m->count] = *j;
    return &m->outcomes[m->count++];
}

static void forget(memory *m) {
    for (int i = 0; i < m->count; i++) outcome_free(&m->outcomes[i]);
    m->count = 0;
}

/* ---- cells ---- */

static job job_of(const mesh_way *r, int number, int column) {
    bool is_block = recipes[column] == BLOCK;
    job j = {.way = *r, .recipe = recipes[column], .layers = 2, .tied = (number + column) % 2};
    j.length = !(r->kinds & WAY_CONTEXT) ? 16 : is_block ? 128 : 32;
    j.wide = is_block && r->kinds & WAY_TENSOR;
    if (r->kinds & WAY_PIPELINE) j.layers = r->layout.schedule == PP_INTERLEAVED_1F1B ? 5 : 3;
    j.histories_every = way_data_ranks(r);
    return j;
}

static const outcome *recall_without(memory *m, const job *j, unsigned kinds) {
    job less = *j;
    less.way = way_without(&j->way, kinds);
    less.recomputation = 0;
    return recall(m, &less);
}

/* Writes the cell: "equal", or the bound and the measured distance. */
static void judge(memory *m, const job *j, const outcome *found, char cell[CELL]) {
    char what[160], text[320];
    unsigned left_out = way_bits(&j->way);
    const outcome *one = recall_without(m, j, WAY_ALL);
    snprintf(text, sizeof text, "%s, %s%s, %s", j->way.name, fixture_precisions[j->recipe].name,
             j->tied ? ", tied" : "", recomputations[j->recomputation]);
    if (j->way.kinds & left_out && !outcome_equal(recall_without(m, j, left_out), found, what))
        fail_msg("%s: different %s", text, what);
    snprintf(cell, CELL, "equal");
    if (outcome_equal(one, found, what)) return;
    double bound = way_gradient_bound(&j->way, j->recipe, j->layers, SEQUENCES * j->length);
    double apart = outcome_distance(one, found, way_gradient_kind(&j->way, j->recipe));
    way_expect_within(text, "gradients", apart, bound);
    way_expect_near(one, found, bound, text);
    snprintf(cell, CELL, "≤ %.2g (%.2g)", bound, apart);
}

/* Runs a cell of the table with `count` kinds of recomputation, from kind `first` on, and writes the cell's
   text. All kinds must give the same bits. */
static void find_cell(memory *m, const mesh_way *r, int number, int column, int first, int count,
                      char cell[CELL]) {
    job j = job_of(r, number, column);
    outcome found, again;
    char what[160];
    j.recomputation = first;
    run(m->f, &j, &found);
    judge(m, &j, &found, cell);
    for (int k = first + 1; k < first + count; k++) {
        j.recomputation = k;
        run(m->f, &j, &again);
        if (!outcome_equal(&found, &again, what))
            fail_msg("%s, %s, %s: different %s", r->name, fixture_precisions[j.recipe].name,
                     recomputations[k], what);
        outcome_free(&again);
    }
    outcome_free(&found);
}

/* ---- the table ---- */

typedef struct table {
    mesh_way rows[ROWS_MAX];
    int count;
    char cells[ROWS_MAX][COLUMNS][CELL]; /* "" if the cell did not run */
} table;

static void name_row(const mesh_way *r, char line[LINE]) {
    char bits[CELL];
    name_bits(r, bits);
    snprintf(line, LINE, "| %s | %d | %d | %s |", r->name, (int)way_ranks(r), r->micro_batches, bits);
}

static const char *cell_of(const char *line, int column, char cell[CELL]) {
    for (; column > 0; column--) line = strchr(line, '|') + 1;
    snprintf(cell, CELL, "%.*s", (int)strcspn(line, "|") - 2, line + 1);
    return cell;
}

static void expect_row(const table *t, int i, const char *page) {
    char name[LINE], cell[CELL];
    name_row(&t->rows[i], name);
    const char *line = strstr(page, name);
    if (!line) fail_msg("%s has no row \"%s\": run train_test_matrix --write", PAGE, name);
    for (int c = 0; c < COLUMNS; c++)
        if (*t->cells[i][c] && strcmp(t->cells[i][c], cell_of(line + strlen(name), c, cell)) != 0)
            fail_msg("%s %s: \"%s\", and in %s \"%s\"", name, fixture_precisions[recipes[c]].name,
                     t->cells[i][c], PAGE, cell);
}

static void expect_table(const table *t) {
    page_table there;
    int lines = 0;
    page_table_open(&there, PAGE, TITLE);
    for (const char *at = there.begin; at < there.end; at++) lines += *at == '\n';
    *there.end = '\0';
    for (int i = 0; i < t->count; i++) expect_row(t, i, there.begin);
    assert_int_equal(lines, t->count + 2);
    page_table_close(&there);
}

static void make_text(const table *t, str *out) {
    char line[LINE];
    str_append(out, TITLE);
    for (int c = 0; c < COLUMNS; c++) str_printf(out, " %s |", fixture_precisions[recipes[c]].name);
    str_append(out, "\n|---|---|---|---|");
    for (int c = 0; c < COLUMNS; c++) str_append(out, "---|");
    for (int i = 0; i < t->count; i++) {
        name_row(&t->rows[i], line);
        str_printf(out, "\n%s", line);
        for (int c = 0; c < COLUMNS; c++) str_printf(out, " %s |", t->cells[i][c]);
    }
    str_append(out, "\n");
    FIXTURE_OK(str_finish(out));
}

static void write_table(const table *t) {
    page_table there;
    mem *account;
    page_table_open(&there, PAGE, TITLE);
    FIXTURE_OK(mem_open(&account));
    str text = {.account = account};
    make_text(t, &text);
    page_table_write(&there, text.text);
    str_free(&text);
    mem_close(account);
    page_table_close(&there);
}

/* ---- the test ---- */

static bool writes;

/* Fills a recipe's column of the table. Rows with one way to spread the run over ranks run with every kind of
   recomputation. Rows with a pair of such ways run with one kind, which changes from cell to cell. */
static void find_column(memory *m, table *t, int column) {
    for (int i = 0; i < t->count; i++) {
        bool is_pair = i >= SINGLE_WAYS + OTHER_WAYS;
        find_cell(m, &t->rows[i], i, column, is_pair ? (i + column) % RECOMPUTATIONS : 0,
                  is_pair ? 1 : RECOMPUTATIONS, t->cells[i][column]);
    }
    forget(m);
}

/* Runs a few cells of the table, each with one kind of recomputation, in builds with slow steps. */
static void find_some(memory *m, table *t) {
    for (int i = 0; i < t->count; i += FIXTURE_SANITIZED ? 13 : i < SINGLE_WAYS + OTHER_WAYS ? 1 : 4)
        find_cell(m, &t->rows[i], i, i % COLUMNS, i % RECOMPUTATIONS, 1, t->cells[i][i % COLUMNS]);
    forget(m);
}

static void every_cell_is_as_written(void **state) {
    static memory m;
    table *t = calloc(1, sizeof *t);
    m.f = *state;
    t->count = list_rows(t->rows);
    if (!writes && fixture_takes_few())
        find_some(&m, t);
    else
        for (int c = 0; c < COLUMNS; c++) find_column(&m, t, c);
    (writes ? write_table : expect_table)(t);
    free(t);
}

/* Compares a run with a run without the kinds of parallelism that must not change bits. */
static void expect_bits(const fixture *f, const job *j) {
    outcome found, expected;
    char what[160];
    job less = *j;
    less.way = way_without(&j->way, way_bits(&j->way));
    run(f, j, &found);
    run(f, &less, &expected);
    if (!outcome_equal(&expected, &found, what))
        fail_msg("%s, state in bf16%s%s: different %s", j->way.name,
                 j->narrow_gradient ? ", gradients too" : "", j->fp8_moments ? ", moments in fp8" : "", what);
    outcome_free(&found);
    outcome_free(&expected);
}

static void expect_bits_of(const fixture *f, const char *const *ways, int number, bool fp8_moments) {
    static mesh_way rows[ROWS_MAX];
    int count = list_rows(rows);
    for (int i = 0; i < number; i++) {
        int k = 0;
        while (k < count && strcmp(rows[k].name, ways[i]) != 0) k++;
        assert_in_range(k, 0, count - 1);
        job j = job_of(&rows[k], i, 1);
        j.narrow = true;
        j.narrow_gradient = rows[k].kinds == WAY_PIPELINE;
        j.fp8_moments = fp8_moments;
        j.wide = fp8_moments && rows[k].kinds & WAY_TENSOR;
        expect_bits(f, &j);
    }
}

/* bf16 masters and moments are rounded in the same way on every rank. bf16 gradients are rounded each time
   when all data-parallel ranks have added a micro-batch. Fewer ranks run more micro-batches and round more
   often, so their bits differ. */
static void state_in_bf16_has_the_same_bits(void **state) {
    static const char *const ways[] = {"dp_replicate", "dp_shard",      "dp_shard, FP8 all-gather",
                                       "pp 1f1b",      "dp_shard x tp", "ep"};
    expect_bits_of(*state, ways, 6, false);
}

/* FP8 moments have one scale for each group of elements in a row. Sharding does not change the groups. */
static void moments_in_fp8_have_the_same_bits(void **state) {
    static const char *const ways[] = {"dp_shard", "pp 1f1b", "dp_shard x tp", "ep"};
    expect_bits_of(*state, ways, 4, true);
}

/* Tests every routing option of MoE layers: more experts per token than a rank has, capacity limits, and all
   weighted losses. The expert GEMMs run in FP8, with the experts divided among ranks or each expert sharded
   over ranks. */
static void experts_divided_have_the_same_bits(void **state) {
    static const mesh_way shared = {"dp_shard of experts", WAY_DATA, SIZES([MESH_DP_SHARD] = 2),
                                    .experts = true};
    static const struct {
        const mesh_way *way;
        int column; /* the recipe's column in the table */
        const char *more[6];
    } cells[] = {
        {&expert_ways[0],
         0,
         {"--model.moe_top_k=3", "--model.moe_capacity_factor=0.25", "--model.moe_shared_experts=1",
          "--model.moe_gradient_scale=true"}},
        {&expert_ways[1],
         1,
         {"--model.num_experts=8", "--model.moe_router=softmax_topk",
          "--model.moe_sequence_aux_loss_weight=0.02", "--model.moe_router_z_loss_weight=0.01",
          "--model.moe_normalize_weights=false"}},
        {&expert_ways[0],
         2,
         {"--float8.moe_experts=true", "--model.moe_groups=2", "--model.moe_top_groups=1",
          "--model.moe_top_k=1", "--train.activation_checkpointing=full"}},
        {&shared,
         3,
         {"--float8.moe_experts=true", "--model.moe_capacity_factor=0.5", "--model.moe_gradient_scale=true"}},
        {&shared, 5, {"--float8.moe_experts=true"}},
        {&expert_ways[1], 5, {"--float8.moe_experts=true", "--model.moe_gradient_scale=true"}},
        {&expert_ways[0], 6, {"--float8.moe_experts=true", "--train.activation_checkpointing=selective"}}};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        mesh_way way = *cells[i].way;
        way.micro_batches = 1;
        job j = job_of(&way, 0, cells[i].column);
        j.more = cells[i].more;
        expect_bits(*state, &j);
    }
}

/* Runs latent attention (MLA) with pipeline stages and sharding. */
static void latents_on_every_mesh_have_the_same_bits(void **state) {
    static const char *const more[] = {"--model.family=deepseek_v3",  "--model.head_dim=32",
                                       "--model.kv_lora_rank=32",     "--model.q_lora_rank=32",
                                       "--model.qk_nope_head_dim=16", "--model.qk_rope_head_dim=16",
                                       "--model.v_head_dim=16",       NULL};
    static const mesh_way meshes[] = {
        {"pp 1f1b x tp", WAY_PIPELINE | WAY_TENSOR, SIZES([MESH_PP] = 2, [MESH_TP] = 2),
         .layout.schedule = PP_1F1B, .micro_batches = 2},
        {"dp_shard x cp x tp, sequence_parallel", WAY_DATA | WAY_CONTEXT | WAY_TENSOR,
         SIZES([MESH_DP_SHARD] = 2, [MESH_CP] = 2, [MESH_TP] = 2), .layout.sequence_parallel = true,
         .micro_batches = 1}};
    for (int i = 0; i < 2; i++) {
        job j = job_of(&meshes[i], i, i);
        j.more = more;
        expect_bits(*state, &j);
    }
}

/* Only the first stage has the position table. The last stage sends the first stage the tied head's gradient
   of the token embedding. */
static void learned_positions_on_every_pipeline_have_the_same_bits(void **state) {
    static const char *const models[][3] = {{"--model.family=gpt2"},
                                            {"--model.family=gpt2", "--train.freeze=tok_embeddings"}};
    static const mesh_way meshes[] = {
        {"pp gpipe", WAY_PIPELINE, SIZES([MESH_PP] = 2), .layout.schedule = PP_GPIPE, .micro_batches = 4},
        {"pp 1f1b of 3", WAY_PIPELINE, SIZES([MESH_PP] = 3), .layout.schedule = PP_1F1B, .micro_batches = 4},
        {"dp_shard x pp interleaved_1f1b", WAY_DATA | WAY_PIPELINE, SIZES([MESH_PP] = 2, [MESH_DP_SHARD] = 2),
         .layout.schedule = PP_INTERLEAVED_1F1B, .micro_batches = 2}};
    for (int i = 0; i < 6; i++) {
        job j = job_of(&meshes[i / 2], i, i % COLUMNS);
        j.tied = true;
        j.more = models[i % 2];
        expect_bits(*state, &j);
    }
}

#define ALL_LOSSES                                                                                           \
    "--model.moe_sequence_aux_loss_weight=0.02", "--model.moe_router_z_loss_weight=0.01",                    \
        "--model.moe_shared_experts=1"

/* Runs MoE layers on pipeline stages (one stage has no experts), with experts divided on each stage, and with
   tensor or context parallelism. */
static void experts_on_every_mesh_have_the_same_bits(void **state) {
    static const struct {
        mesh_way way;
        int column; /* the recipe's column in the table */
        const char *more[6];
    } cells[] = {
        {{"pp gpipe", WAY_PIPELINE, SIZES([MESH_PP] = 2), .layout.schedule = PP_GPIPE, .micro_batches = 4},
         0,
         {ALL_LOSSES, "--model.moe_first_dense_layers=2"}},
        {{"pp 1f1b", WAY_PIPELINE, SIZES([MESH_PP] = 2), .layout.schedule = PP_1F1B, .micro_batches = 4},
         4,
         {ALL_LOSSES, "--model.moe_gradient_scale=true", "--train.activation_checkpointing=full"}},
        {{"pp interleaved_1f1b", WAY_PIPELINE, SIZES([MESH_PP] = 2), .layout.schedule = PP_INTERLEAVED_1F1B,
          .micro_batches = 4},
         2,
         {"--float8.moe_experts=true", "--model.moe_frequency=2", "--model.moe_capacity_factor=0.75"}},
        {{"dp_shard x pp 1f1b x ep", WAY_DATA | WAY_PIPELINE,
          SIZES([MESH_PP] = 2, [MESH_DP_SHARD] = 2, [MESH_EP] = 2), .layout.schedule = PP_1F1B,
          .micro_batches = 2},
         1,
         {ALL_LOSSES}},
        {{"ep x tp", WAY_DATA | WAY_TENSOR, SIZES([MESH_EP] = 2, [MESH_TP] = 2), .micro_batches = 1},
         0,
         {ALL_LOSSES, "--train.grad_clip_norm=0.1"}},
        {{"ep x tp, sequence_parallel", WAY_DATA | WAY_TENSOR, SIZES([MESH_EP] = 2, [MESH_TP] = 2),
          .layout.sequence_parallel = true, .micro_batches = 1},
         6,
         {"--float8.moe_experts=true", "--model.moe_capacity_factor=0.75", "--model.moe_shared_experts=1"}},
        {{"pp 1f1b x tp, sequence_parallel", WAY_PIPELINE | WAY_TENSOR, SIZES([MESH_PP] = 2, [MESH_TP] = 2),
          .layout.schedule = PP_1F1B, .layout.sequence_parallel = true, .micro_batches = 2},
         1,
         {ALL_LOSSES}},
        {{"cp x ep", WAY_DATA | WAY_CONTEXT, SIZES([MESH_CP] = 2, [MESH_EP] = 2), .micro_batches = 1},
         0,
         {ALL_LOSSES, "--model.moe_capacity_factor=0.75", "--model.moe_gradient_scale=true"}},
        {{"pp gpipe x cp of 4", WAY_PIPELINE | WAY_CONTEXT, SIZES([MESH_PP] = 2, [MESH_CP] = 4),
          .layout.schedule = PP_GPIPE, .micro_batches = 2},
         2,
         {ALL_LOSSES, "--float8.moe_experts=true"}}};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        mesh_way way = cells[i].way;
        way.experts = true;
        job j = job_of(&way, (int)i, cells[i].column);
        j.more = cells[i].more;
        expect_bits(*state, &j);
    }
}

int main(int count, char **arguments) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_is_as_written),
        cmocka_unit_test(state_in_bf16_has_the_same_bits),
        cmocka_unit_test(moments_in_fp8_have_the_same_bits),
        cmocka_unit_test(experts_divided_have_the_same_bits),
        cmocka_unit_test(latents_on_every_mesh_have_the_same_bits),
        cmocka_unit_test(learned_positions_on_every_pipeline_have_the_same_bits),
        cmocka_unit_test(experts_on_every_mesh_have_the_same_bits)};
    writes = count == 2 && strcmp(arguments[1], "--write") == 0;
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
