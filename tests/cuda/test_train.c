/*
 * Full training runs on the emulated GPU, with the trainer and the loop of `ottava train`. They match the
 * same runs on the CPU bit for bit: losses, gradient norms and health in metrics.jsonl; weights, moments and
 * histories in the checkpoint. Tests every recipe, also with features that change computation or memory.
 * `cuda_test_train --write` makes the table of these runs in docs/explanation/gpu.md.
 *
 * The CPU stores columnwise codes in the source's layout, the GPU transposed. That changes no bit: a
 * contraction reads the same codes in the same order (the tests fenced.*). Scales depend on the source only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "backend/open.h"
#include "base/text/str.h"
#include "cudart.h"
#include "support/page.h"
#include "train/train_fixture.h"

#define PAGE  TEST_SOURCE_DIR "/docs/explanation/gpu.md"
#define TITLE "| run |"

enum { ARGUMENTS = 24, STEPS_LONG = 20, STEPS = 2, STEPS_OF_GRAPHS = 4, STEPS_OF_CHANGES = 3 };

/* ---- rows and columns ---- */

static const int columns[] = {FP32,    BF16,    FP16,  TENSORWISE, ROWWISE, ROWWISE_WITH_GW_HP,
                              DELAYED, CURRENT, BLOCK, MXFP8};
enum { COLUMNS = sizeof columns / sizeof *columns };

#define IN(column) (1 << (column))
enum {
    ALL = (1 << PRECISIONS) - 1,
    FAMILIES = IN(BF16) | IN(TENSORWISE) | IN(DELAYED) | IN(MXFP8) /* one for each way to cast and scale */
};
#define SMALL "--model.dim=32", "--model.ffn_hidden_dim=64", "--train.seq_len=16"

typedef struct row {
    const char *name;
    int steps, in;        /* bit mask of the columns with cells */
    const char *more[11]; /* further settings; ends with NULL */
} row;

#define MIXTURE     "--model.num_experts=4", "--model.moe_expert_hidden_dim=32"
#define ALLOW_SLOW  "--float8.allow_slow_products=true"
#define OFFLOAD_ALL "--train.offload=state"

static const row rows[] = {
    {"20 steps", STEPS_LONG, ALL, {SMALL}},
    {"two micro-batches", STEPS, ALL, {"--train.grad_accum_steps=2"}},
    {"activation checkpointing: selective", STEPS, ALL, {"--train.activation_checkpointing=selective"}},
    {"activation checkpointing: full", STEPS, ALL, {"--train.activation_checkpointing=full"}},
    {"activation checkpointing: op, two micro-batches",
     STEPS,
     ALL,
     {"--train.activation_checkpointing=op", "--train.grad_accum_steps=2"}},
    {"packed documents", STEPS, ALL, {"--data.pack_sequences=true", "--data.dataset_path=rows.jsonl"}},
    {"fused q, k, v and gate, up, with biases",
     STEPS,
     ALL,
     {"--model.fused_qkv=true", "--model.fused_gate_up=true", "--model.attention_bias=true"}},
    {"QK norm, sliding window, tied embeddings",
     STEPS,
     ALL,
     {"--model.qk_norm=true", "--model.sliding_window=9", "--model.tie_embeddings=true"}},
    {"chunked loss",
     STEPS,
     ALL,
     {"--train.loss_fn=chunked_cross_entropy", "--train.ce_chunk_size=128", "--model.max_seq_len=72",
      "--train.seq_len=72"}},
    {"sizes that FP8 pads",
     STEPS,
     ALL,
     {"--model.ffn_hidden_dim=72", "--train.seq_len=15", "--float8.pad_inner_dim=true"}},
    {"frozen weights in FP8",
     STEPS,
     ALL,
     {"--train.freeze=model.layers.*_proj", "--train.frozen_dtype=fp8", "--train.grad_accum_steps=2"}},
    {"LoRA with dropout, frozen weights in FP8",
     STEPS,
     IN(BF16) | IN(TENSORWISE),
     {SMALL, "--peft.dim=4", "--peft.dropout=0.25", "--peft.dropout_position=pre",
      "--train.frozen_dtype=fp8"}},
    {"latent attention",
     STEPS,
     IN(BF16) | IN(TENSORWISE),
     {SMALL, "--model.family=deepseek_v3", "--model.n_kv_heads=4", "--model.kv_lora_rank=16",
      "--model.q_lora_rank=32", "--model.qk_nope_head_dim=16", "--model.qk_rope_head_dim=16",
      "--model.v_head_dim=16"}},
    {"health metrics at every step", STEPS, ALL, {"--float8.health_interval=1"}},
    {"state in host memory (fp32: moments)", STEPS, ALL, {OFFLOAD_ALL}},
    {"CUDA graphs, two micro-batches",
     STEPS_OF_GRAPHS,
     FAMILIES | IN(FP16),
     {SMALL, "--train.compile_mode=reduce-overhead", "--train.grad_accum_steps=2"}},
    {"masters, gradients and moments in bf16", STEPS, FAMILIES, {SMALL, STATE_IN_BF16}},
    {"masters, gradients and moments in bf16, CUDA graphs",
     STEPS_OF_GRAPHS,
     IN(BF16) | IN(DELAYED),
     {SMALL, STATE_IN_BF16, "--train.compile_mode=reduce-overhead"}},
    {"masters and gradients in bf16, moments in fp8", STEPS, IN(BF16) | IN(DELAYED), {SMALL, MOMENTS_IN_FP8}},
    {"first block and embedding frozen",
     STEPS,
     FAMILIES,
     {SMALL, "--train.freeze=model.embed_tokens,model.layers.0"}},
    {"prompts without loss, a padding token",
     STEPS,
     IN(BF16) | IN(FP16) | IN(TENSORWISE),
     {SMALL, "--data.dataset_path=rows.jsonl", "--train.seq_len=64", "--data.prompt_field=prompt",
      "--data.completion_field=text", "--model.pad_token_id=32"}},
    {"bf16, then FP8, then bf16",
     STEPS_OF_CHANGES,
     IN(TENSORWISE) | IN(DELAYED) | IN(BLOCK),
     {SMALL, "--float8.schedule=bf16:1,fp8:1,bf16"}},
    {"layers that fall back to bf16",
     STEPS_OF_CHANGES,
     IN(TENSORWISE) | IN(DELAYED),
     {SMALL, "--float8.health_interval=1", "--float8.fallback_sqnr_db=30", "--float8.fallback_window=1"}},
    {"another recipe for some layers, no FP8 for others",
     STEPS,
     IN(TENSORWISE) | IN(DELAYED) | IN(CURRENT),
     {SMALL, "--float8.module=*.down_proj=rowwise", "--float8.keep_first_layers=1",
      "--float8.filter_fqns=output"}},
    {"MLP inputs stored in FP8, Smooth-SwiGLU, a z-loss",
     STEPS,
     IN(TENSORWISE) | IN(ROWWISE),
     {SMALL, "--float8.store_mlp_inputs=true", "--float8.smooth_swiglu=true", "--train.z_loss_weight=0.01"}},
    {"E4M3 gradients, power-of-two scales",
     STEPS,
     IN(CURRENT),
     {SMALL, "--float8.fp8_format=e4m3", "--float8.round_scales_to_power_of_2=true"}},
    {"most recent of three amaxes, a margin",
     STEPS_OF_CHANGES,
     IN(DELAYED),
     {SMALL, "--float8.amax_compute_algo=most_recent", "--float8.amax_history_len=3", "--float8.margin=1"}},
    {"block scales in fp32", STEPS, IN(BLOCK), {SMALL, "--float8.use_f32_scales=true"}},
    {"OCP MX scales", STEPS, IN(MXFP8), {SMALL, "--float8.mx_scale=floor"}},
    {"Muon", STEPS, IN(BF16), {SMALL, "--optimizer.name=muon"}},
    {"Muon, state in bf16", STEPS, IN(BF16), {SMALL, STATE_IN_BF16, "--optimizer.name=muon"}},
    {"schedule-free AdamW, state in bf16",
     STEPS,
     IN(BF16),
     {SMALL, STATE_IN_BF16, "--optimizer.name=schedule_free_adamw", "--scheduler.name=none"}},
    {"mixture of experts, router biases, a shared expert",
     STEPS,
     IN(BF16) | IN(TENSORWISE),
     {SMALL, MIXTURE, "--model.moe_router=sigmoid_topk", "--model.moe_shared_experts=1"}},
    {"FP8 experts, expert capacity, balanced gradients, CUDA graphs",
     STEPS_OF_GRAPHS,
     IN(ROWWISE) | IN(ROWWISE_WITH_GW_HP) | IN(BLOCK) | IN(MXFP8),
     {SMALL, MIXTURE, "--float8.moe_experts=true", "--model.moe_capacity_factor=0.9",
      "--model.moe_gradient_scale=true", "--train.compile_mode=reduce-overhead"}},
};
/* What cuBLASLt refuses, and the GPU, for the last rows of the table. */
static const struct {
    row row;
    unsigned refuses; /* CUBLASLT_REFUSES_* */
    const char *gpu;  /* ten times the compute capability; NULL: the recipe's */
} fallbacks[] = {
    {{"cuBLASLt refuses results in 16 bits", STEPS, ALL, {SMALL}}, CUBLASLT_REFUSES_16_BIT, NULL},
    {{"cuBLASLt refuses scales", STEPS, ALL, {SMALL, ALLOW_SLOW}}, CUBLASLT_REFUSES_SCALES, NULL},
    {{"cuBLASLt refuses FP8", STEPS, ALL, {SMALL, ALLOW_SLOW}}, CUBLASLT_REFUSES_FP8, NULL},
    {{"cuBLASLt refuses to run any product", STEPS, ALL, {SMALL}}, CUBLASLT_REFUSES_RUN, NULL},
    {{"cuBLASLt refuses all products", STEPS, ALL, {SMALL, ALLOW_SLOW}}, CUBLASLT_REFUSES_ALL, NULL},
    {{"A100, emulated FP8", STEPS, ALL, {SMALL, ALLOW_SLOW, "--float8.emulate=true"}}, 0, "80"},
    {{"L40S", STEPS, ALL & ~(IN(BLOCK) | IN(MXFP8)), {SMALL}}, 0, "89"},
    {{"B200", STEPS, ALL & ~IN(BLOCK), {SMALL}}, 0, "100"},
};
enum {
    COMMON = sizeof rows / sizeof *rows,
    ROWS = COMMON + sizeof fallbacks / sizeof *fallbacks,
};

static const row *row_at(int i) {
    return i < COMMON ? &rows[i] : &fallbacks[i - COMMON].row;
}

/* ---- a cell ---- */

typedef struct cell {
    const row *row;
    int column, number; /* number: the row's number in the table */
    bool equal;
    char name[96];
} cell;

static cell cells[ROWS][COLUMNS];

static bool has_cell(int i, int column) {
    return row_at(i)->in & IN(columns[column]);
}

static fixture *the_fixture;

/* Sets the emulated GPU: a Hopper, or a Blackwell if the recipe needs one; and what its cuBLASLt refuses. */
static void plant_fallback(const cell *c) {
    const char *gpu = columns[c->column] == MXFP8 ? "100" : "90";
    cublaslt_refuses = 0;
    unsetenv(TEST_EMULATES_VARIABLE);
    if (c->number >= COMMON) {
        cublaslt_refuses = fallbacks[c->number - COMMON].refuses;
        if (fallbacks[c->number - COMMON].gpu) gpu = fallbacks[c->number - COMMON].gpu;
    }
    if (strcmp(gpu, "80") == 0) setenv(TEST_EMULATES_VARIABLE, "1", 1);
    setenv(CUDART_CAPABILITY, gpu, 1);
}

/* Makes the training run of one table cell, on the CPU or on an emulated GPU. */
static void run_on(const char *where, const cell *c, char name[64]) {
    static captured_log logged;
    enum { OWN = 6 };
    char steps[48], interval[48], evaluations[48];
    const precision *p = &fixture_precisions[columns[c->column]];
    const char *more[ARGUMENTS] = {
        "--model.dim=64", "--model.ffn_hidden_dim=128", "--train.seq_len=32", steps, interval, evaluations};
    for (int i = 0; c->row->more[i]; i++) more[OWN + i] = c->row->more[i];
    bool is_refused = columns[c->column] == FP32 && more[OWN] && strcmp(more[OWN], OFFLOAD_ALL) == 0;
    if (is_refused) more[OWN] = "--train.offload=moments"; /* GEMMs in fp32 read the masters */
    snprintf(steps, sizeof steps, "--train.max_steps=%d", c->row->steps);
    snprintf(evaluations, sizeof evaluations, "--eval.interval=%d", c->row->steps);
    snprintf(interval, sizeof interval, "--checkpoint.interval=%d", c->row->steps);
    snprintf(name, 64, "%s-%s-%d", p->name, *where ? where : "cpu", c->number);
    setenv(TEST_DEVICE_VARIABLE, where, 1);
    plant_fallback(c);
    FIXTURE_OK(fixture_run(the_fixture,
                           &(run_options){.name = name, .precision = p, .more = more, .logged = &logged}));
    assert_true(captured_log_has(&logged, *where ? "Device: cuda:0 " : "Device: cpu "));
}

static void run_equals_the_cpus(void **state) {
    cell *c = *state;
    char cpu[64], gpu[64];
    run_on("", c, cpu);
    run_on("cuda", c, gpu);
    fixture_expect_same_run(the_fixture, cpu, gpu, c->row->steps);
    c->equal = true;
}

/* ---- the table ---- */

static bool writes;

static void make_table(str *out) {
    str_append(out, TITLE);
    for (int k = 0; k < COLUMNS; k++) str_printf(out, " %s |", fixture_precisions[columns[k]].name);
    str_append(out, "\n|---|");
    for (int k = 0; k < COLUMNS; k++) str_append(out, "---|");
    for (int i = 0; i < ROWS; i++) {
        str_printf(out, "\n| %s |", row_at(i)->name);
        for (int k = 0; k < COLUMNS; k++)
            str_append(out, !has_cell(i, k) ? " |" : cells[i][k].equal ? " equal |" : " differs |");
    }
    str_append(out, "\n");
    FIXTURE_OK(str_finish(out));
}

static void the_page_has_the_table(void **state) {
    mem *account;
    FIXTURE_OK(mem_open(&account));
    str table = {.account = account};
    (void)state;
    make_table(&table);
    page_table_expect(PAGE, TITLE, table.text, writes, "cuda_test_train");
    str_free(&table);
    mem_close(account);
}

/* ---- all ---- */

/* Writes documents of 8 to 47 bytes to the folder where the runs start. */
static void write_documents(void) {
    FILE *file = fopen("rows.jsonl", "wb");
    assert_non_null(file);
    for (int i = 0; i < 400; i++)
        fprintf(file, "{\"prompt\": \"%d of it? \", \"text\": \"%.*s\"}\n", i, 8 + i * 7 % 40,
                &"the sea and the shore were not one, nor was the tide that ran between"[i % 20]);
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state) {
    int failed = fixture_setup(state);
    the_fixture = *state;
    if (!failed) failed = chdir(the_fixture->folder);
    if (!failed) write_documents();
    *state = NULL; /* no group state: each test's state is its cell */
    return failed;
}

static int teardown(void **state) {
    *state = the_fixture;
    return fixture_teardown(state);
}

int main(int count, char **arguments) {
    struct CMUnitTest tests[ROWS * COLUMNS + 1];
    int tests_count = 0;
    writes = count == 2 && strcmp(arguments[1], "--write") == 0;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        if (!has_cell(i / COLUMNS, i % COLUMNS)) continue;
        cell *c = &cells[i / COLUMNS][i % COLUMNS];
        *c = (cell){.row = row_at(i / COLUMNS), .column = i % COLUMNS, .number = i / COLUMNS};
        snprintf(c->name, sizeof c->name, "%s: %s", fixture_precisions[columns[c->column]].name,
                 c->row->name);
        tests[tests_count++] = (struct CMUnitTest){c->name, run_equals_the_cpus, NULL, NULL, c};
    }
    tests[tests_count++] = (struct CMUnitTest)cmocka_unit_test(the_page_has_the_table);
    return _cmocka_run_group_tests("train", tests, (size_t)tests_count, setup, teardown);
}
