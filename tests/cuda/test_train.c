/*
 * Whole training runs on the emulated GPU, by the trainer and the loop of `ottava train`: what they leave is what the same
 * runs leave on the CPU, bit for bit: losses, gradient norms and health in metrics.jsonl; weights, moments and histories in the
 * checkpoint. Every recipe, and every recipe with features that change what is computed or where it lies. docs/gpu.md has the
 * table that this test makes: `cuda_test_train --write` puts it there.
 *
 * The CPU's columnwise codes lie as their source does, the GPU's transposed. That changes no bit: a contraction reads the same
 * codes in the same order wherever they lie (the tests fenced.*), and scales are of the source.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "backend/open.h"
#include "base/str.h"
#include "cudart.h"
#include "support/page.h"
#include "train/train_fixture.h"

#define PAGE  TEST_SOURCE_DIR "/docs/gpu.md"
#define TITLE "| run |"

enum { ARGUMENTS = 24, STEPS_LONG = 20, STEPS = 2 };

/* ---- rows and columns ---- */

static const int columns[] = {FP32,    BF16,    FP16,  TENSORWISE, ROWWISE, ROWWISE_WITH_GW_HP,
                              DELAYED, CURRENT, BLOCK, MXFP8};
enum { COLUMNS = sizeof columns / sizeof *columns };

typedef struct row {
    const char *name;
    int steps;
    const char *more[8]; /* ends with NULL */
} row;

#define OFFLOAD_ALL "--train.offload=state"

static const row rows[] = {
    {"20 steps", STEPS_LONG, {NULL}},
    {"two micro-batches", STEPS, {"--train.grad_accum_steps=2"}},
    {"activation checkpointing: selective", STEPS, {"--train.activation_checkpointing=selective"}},
    {"activation checkpointing: full", STEPS, {"--train.activation_checkpointing=full"}},
    {"activation checkpointing: op, two micro-batches",
     STEPS,
     {"--train.activation_checkpointing=op", "--train.grad_accum_steps=2"}},
    {"packed documents", STEPS, {"--data.pack_sequences=true", "--data.dataset_path=rows.jsonl"}},
    {"fused q, k, v and gate, up, with biases",
     STEPS,
     {"--model.fused_qkv=true", "--model.fused_gate_up=true", "--model.attention_bias=true"}},
    {"norms of q and k, sliding window, tied head",
     STEPS,
     {"--model.qk_norm=true", "--model.sliding_window=9", "--model.tie_embeddings=true"}},
    {"loss in chunks",
     STEPS,
     {"--train.loss_fn=chunked_cross_entropy", "--train.ce_chunk_size=128", "--model.max_seq_len=72",
      "--train.seq_len=72"}},
    {"sizes that FP8 has to pad",
     STEPS,
     {"--model.ffn_hidden_dim=72", "--train.seq_len=15", "--float8.pad_inner_dim=true"}},
    {"frozen weights kept in FP8",
     STEPS,
     {"--train.freeze=model.layers.*_proj", "--train.frozen_dtype=fp8", "--train.grad_accum_steps=2"}},
    {"statistics of health each step", STEPS, {"--float8.health_interval=1"}},
    {"state in the host's memory (fp32: moments)", STEPS, {OFFLOAD_ALL}},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- a cell ---- */

typedef struct cell {
    const row *row;
    int column;
    bool equal;
    char name[96];
} cell;

static cell cells[ROWS][COLUMNS];
static fixture *the_fixture;

/* On the CPU, or the emulated GPU, which is a Hopper but where only a Blackwell has the recipe. */
static void run_on(const char *where, const cell *c, char name[64]) {
    static spoken said;
    enum { OWN = 5 };
    char steps[48], interval[48];
    const precision *p = &fixture_precisions[columns[c->column]];
    const char *more[ARGUMENTS] = {"--model.dim=64", "--model.ffn_hidden_dim=128", "--train.seq_len=32",
                                   steps, interval};
    for (int i = 0; c->row->more[i]; i++) more[OWN + i] = c->row->more[i];
    bool is_refused = columns[c->column] == FP32 && more[OWN] && strcmp(more[OWN], OFFLOAD_ALL) == 0;
    if (is_refused) more[OWN] = "--train.offload=moments"; /* products in fp32 read the masters */
    snprintf(steps, sizeof steps, "--train.max_steps=%d", c->row->steps);
    snprintf(interval, sizeof interval, "--checkpoint.interval=%d", c->row->steps);
    snprintf(name, 64, "%s-%s-%d", p->name, *where ? where : "cpu", (int)(c->row - rows));
    setenv(TEST_DEVICE_VARIABLE, where, 1);
    setenv(CUDART_CAPABILITY, columns[c->column] == MXFP8 ? "100" : "90", 1);
    FIXTURE_OK(
        fixture_run(the_fixture, &(run_options){.name = name, .precision = p, .more = more, .said = &said}));
    assert_true(spoken_has(&said, *where ? "Device: cuda:0 " : "Device: cpu "));
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
        str_printf(out, "\n| %s |", rows[i].name);
        for (int k = 0; k < COLUMNS; k++) str_append(out, cells[i][k].equal ? " equal |" : " differs |");
    }
    str_append(out, "\n");
    FIXTURE_OK(str_finish(out));
}

static void the_page_has_the_table(void **state) {
    mem *account;
    page_table there;
    (void)state;
    page_table_open(&there, PAGE, TITLE);
    FIXTURE_OK(mem_open(&account));
    str table = {.account = account};
    make_table(&table);
    if (writes)
        page_table_write(&there, table.text);
    else if (!strstr(there.page, table.text))
        fail_msg("%s: run cuda_test_train --write\n%s", PAGE, table.text);
    str_free(&table);
    mem_close(account);
    page_table_close(&there);
}

/* ---- all ---- */

/* Documents of 8 to 47 bytes, in the folder that the runs start in. */
static void write_documents(void) {
    FILE *file = fopen("rows.jsonl", "wb");
    assert_non_null(file);
    for (int i = 0; i < 400; i++)
        fprintf(file, "{\"text\": \"%.*s\"}\n", 8 + i * 7 % 40,
                &"the sea and the shore were not one, nor was the tide that ran between"[i % 20]);
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state) {
    int failed = fixture_setup(state);
    the_fixture = *state;
    if (!failed) failed = chdir(the_fixture->folder);
    if (!failed) write_documents();
    *state = NULL; /* a test's is its cell */
    return failed;
}

static int teardown(void **state) {
    *state = the_fixture;
    return fixture_teardown(state);
}

int main(int count, char **arguments) {
    struct CMUnitTest tests[ROWS * COLUMNS + 1];
    writes = count == 2 && strcmp(arguments[1], "--write") == 0;
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        cell *c = &cells[i / COLUMNS][i % COLUMNS];
        *c = (cell){.row = &rows[i / COLUMNS], .column = i % COLUMNS};
        snprintf(c->name, sizeof c->name, "%s: %s", fixture_precisions[columns[c->column]].name,
                 c->row->name);
        tests[i] = (struct CMUnitTest){c->name, run_equals_the_cpus, NULL, NULL, c};
    }
    tests[ROWS * COLUMNS] = (struct CMUnitTest)cmocka_unit_test(the_page_has_the_table);
    return cmocka_run_group_tests(tests, setup, teardown);
}
