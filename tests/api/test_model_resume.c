/*
 * Runs of the program and loops over a model of the public API resume from each other's checkpoints. In every
 * order, all losses and the files of weights, moments and FP8 state equal an uninterrupted run's.
 */
#include "api/handle.h"
#include "api/run_case.h"
#include "data/data.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 6, SEQUENCES = 2, LENGTH = 16, ROW_ARGUMENTS = 6, ARGUMENTS = 32 };

/* The settings of a run. */
typedef struct style {
    const char *name, *more[ROW_ARGUMENTS];
    int micro_batches;
} style;

static const style styles[] = {
    {"bf16", {"--train.mixed_precision=bf16"}, 1},
    {"tensorwise",
     {"--train.mixed_precision=fp8", "--float8.recipe_name=tensorwise", "--model.tie_embeddings=true",
      "--train.loss_fn=chunked_cross_entropy", "--train.ce_chunk_size=16"},
     1},
    {"delayed",
     {"--train.mixed_precision=fp8", "--float8.recipe_name=delayed", "--float8.amax_history_len=4",
      "--train.activation_checkpointing=full", "--train.freeze=model.norm"},
     1},
    {"delayed, two micro-batches",
     {"--train.mixed_precision=fp8", "--float8.recipe_name=delayed", "--train.grad_accum_steps=2"},
     2},
    {"block", {"--train.mixed_precision=fp8", "--float8.recipe_name=block"}, 1},
};

/* A run's settings, and the losses of its steps. */
typedef struct history {
    const style *style;
    char folder[64]; /* holds all run folders */
    double loss[STEPS];
} history;

static ott_config *open_config(ott_context *c, const history *h, const char *run_name, const char *load) {
    static const char *const common[] = {"--model.dim=32",
                                         "--model.n_layers=2",
                                         "--model.n_heads=4",
                                         "--model.n_kv_heads=2",
                                         "--model.ffn_hidden_dim=64",
                                         "--model.vocab_size=96",
                                         "--data.format=synthetic",
                                         "--train.batch_size=2",
                                         "--train.seq_len=16",
                                         "--train.max_steps=6",
                                         "--train.threads=2",
                                         "--train.seed=7",
                                         "--optimizer.lr=1e-2",
                                         "--scheduler.warmup_steps=2",
                                         "--checkpoint.interval=2",
                                         "--checkpoint.keep_last_n=0",
                                         "--metrics.peak_tflops=0.1"};
    const char *arguments[ARGUMENTS];
    char run_folder[160], load_path[200];
    int count = 0;
    ott_config *out;
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) arguments[count++] = common[i];
    for (int i = 0; i < ROW_ARGUMENTS && h->style->more[i]; i++) arguments[count++] = h->style->more[i];
    snprintf(run_folder, sizeof run_folder, "--run.dir=%s/%s", h->folder, run_name);
    snprintf(load_path, sizeof load_path, "--checkpoint.load_path=%s/%s", h->folder, load ? load : "");
    arguments[count++] = run_folder;
    if (load) arguments[count++] = load_path;
    succeed(ott_config_open(c, count, arguments, &out));
    return out;
}

/* ---- the program ---- */

static void note_loss(void *user, const ott_progress *p) {
    ((history *)user)->loss[p->step - 1] = p->loss;
}

/* Trains all remaining steps with ott_train. Stores the loss of each step in h. */
static void run_program(history *h, const char *run_name, const char *load) {
    ott_context *c = open_context();
    succeed(train_and_close(c, open_config(c, h, run_name, load), note_loss, NULL, h));
    ott_context_close(c);
}

/* ---- the public API ---- */

typedef struct loop {
    ott_context *c;
    ott_config *cfg;
    ott_module *m;
    ott_optimizer *o;
    dataset *rows;
    ott_tensor *tokens[2], *targets[2]; /* tensors for each micro-batch of a step */
} loop;

static void open_loop(loop *l, const history *h) {
    dataset *validation;
    l->c = open_context();
    l->cfg = open_config(l->c, h, "none", NULL);
    succeed(ott_model_open(l->c, l->cfg, &l->m));
    succeed(ott_model_optimizer_open(l->m, &l->o));
    succeed(data_open(l->c->account, &(cancellation){.log = &l->c->log}, l->cfg->values,
                      &l->cfg->values->model.vocab_size, &l->rows, &validation));
    assert_null(validation);
    for (int i = 0; i < h->style->micro_batches; i++) {
        l->tokens[i] = open_tensor(l->c, OTT_I32, SEQUENCES, LENGTH);
        l->targets[i] = open_tensor(l->c, OTT_I32, SEQUENCES, LENGTH);
    }
}

static void close_loop(loop *l, const history *h) {
    for (int i = 0; i < h->style->micro_batches; i++) {
        ott_tensor_close(l->tokens[i]);
        ott_tensor_close(l->targets[i]);
    }
    dataset_close(l->rows);
    ott_optimizer_close(l->o);
    ott_module_close(l->m);
    ott_config_close(l->cfg);
    ott_context_close(l->c);
}

/* Reads a micro-batch from row `first` of the run's data on. Adds its number of targets to *labels. */
static void read_rows(loop *l, int micro_batch, int64_t first, int64_t *labels) {
    int32_t token[SEQUENCES * LENGTH], target[SEQUENCES * LENGTH], position[LENGTH], start[LENGTH];
    float values[SEQUENCES * LENGTH];
    for (int i = 0; i < SEQUENCES; i++) {
        dataset_row row = {token + i * LENGTH, target + i * LENGTH, position, start, 0, 0};
        succeed(dataset_load_row(l->rows, 7, first + i, &row));
        assert_int_equal(row.documents, 1);
        *labels += row.labels;
    }
    for (int i = 0; i < SEQUENCES * LENGTH; i++) values[i] = (float)token[i];
    succeed(ott_tensor_write(l->tokens[micro_batch], values, SEQUENCES * LENGTH));
    for (int i = 0; i < SEQUENCES * LENGTH; i++) values[i] = (float)target[i];
    succeed(ott_tensor_write(l->targets[micro_batch], values, SEQUENCES * LENGTH));
}

static double one_step(loop *l, const style *s, const ott_model_counters *at) {
    int64_t labels = 0;
    double loss = 0, part;
    for (int i = 0; i < s->micro_batches; i++) read_rows(l, i, at->samples + (int64_t)i * SEQUENCES, &labels);
    succeed(ott_optimizer_zero_grad(l->o));
    for (int i = 0; i < s->micro_batches; i++) {
        if (s->micro_batches > 1) succeed(ott_module_set_micro_batch(l->m, i));
        succeed(ott_model_loss(l->m, l->tokens[i], l->targets[i], labels, &part));
        loss += part;
    }
    succeed(ott_optimizer_step(l->o, NULL));
    return loss;
}

/* Trains two steps from checkpoint `from` (NULL: none), saves checkpoint `to`, stores the losses in h. */
static void run_api(history *h, const char *from, const char *to) {
    loop l;
    char path[200];
    ott_model_counters at;
    ott_model_counters_init(&at);
    open_loop(&l, h);
    snprintf(path, sizeof path, "%s/%s", h->folder, from ? from : "");
    if (from) succeed(ott_checkpoint_load(path, l.m, l.o));
    for (int i = 0; i < 2; i++) {
        succeed(ott_model_read_counters(l.m, &at));
        assert_int_equal(at.samples, at.step * SEQUENCES * h->style->micro_batches);
        assert_int_equal(at.tokens, at.samples * LENGTH);
        h->loss[at.step] = one_step(&l, h->style, &at);
    }
    snprintf(path, sizeof path, "%s/%s", h->folder, to);
    succeed(ott_checkpoint_save(path, l.m, l.o));
    succeed(ott_checkpoint_save(path, l.m, l.o)); /* replaces the loop's previous checkpoint */
    close_loop(&l, h);
}

/* ---- comparing ---- */

static void expect_same_files(const history *h, const char *a, const char *b) {
    expect_same_checkpoints(h->style->name, h->folder, a, b);
}

/* Compares the losses. A tolerance is allowed if a step has several micro-batches: ott_train adds their
   losses in fp32, and the API's loop in double. */
static void expect_same_losses(const history *full, const history *h) {
    for (int i = 0; i < STEPS; i++) {
        double bound = h->style->micro_batches > 1 ? 1e-6 : 0;
        if (!(fabs(full->loss[i] - h->loss[i]) <= bound))
            fail_msg("%s, step %d: the loss is %.17g, not %.17g", h->style->name, i + 1, h->loss[i],
                     full->loss[i]);
    }
}

static void check(const style *s) {
    history full = {.style = s}, first, second;
    make_folder(full.folder);
    first = second = full;
    run_program(&full, "whole", NULL);
    /* The program, then the API, then the program train two steps each. */
    memcpy(first.loss, full.loss, 2 * sizeof *full.loss);
    run_api(&first, "whole/checkpoints/step-2", "ours");
    expect_same_files(&full, "whole/checkpoints/step-4", "ours");
    run_program(&first, "after", "ours");
    expect_same_files(&full, "whole/checkpoints/step-6", "after/checkpoints/step-6");
    expect_same_losses(&full, &first);
    /* The API, then the program, then the API train two steps each. */
    run_api(&second, NULL, "fresh");
    expect_same_files(&full, "whole/checkpoints/step-2", "fresh");
    run_program(&second, "middle", "fresh");
    second.loss[4] = second.loss[5] = 0;
    run_api(&second, "middle/checkpoints/step-4", "last");
    expect_same_files(&full, "whole/checkpoints/step-6", "last");
    expect_same_losses(&full, &second);
    remove_folder(full.folder);
}

static void test_resume_from_each_other(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) check(&styles[i]);
}

/* ott_checkpoint_save does not replace a checkpoint of a program's run. A checkpoint without an optimizer can
   be evaluated, but a run cannot resume from it. */
static void test_save_over_a_run(void **state) {
    (void)state;
    history h = {.style = &styles[0]};
    loop l;
    char path[200];
    make_folder(h.folder);
    run_program(&h, "run", NULL);
    open_loop(&l, &h);
    snprintf(path, sizeof path, "%s/run/checkpoints/step-2", h.folder);
    succeed(ott_checkpoint_load(path, l.m, NULL));
    assert_error(ott_checkpoint_save(path, l.m, l.o), OTT_ERR_IO, "is not a checkpoint of a module");
    snprintf(path, sizeof path, "%s/weights", h.folder);
    succeed(ott_checkpoint_save(path, l.m, NULL));
    succeed(ott_checkpoint_load(path, l.m, NULL));
    assert_error(ott_checkpoint_load(path, l.m, l.o), OTT_ERR_UNSUPPORTED, "holds weights only");
    close_loop(&l, &h);
    remove_folder(h.folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_resume_from_each_other),
                                       cmocka_unit_test(test_save_over_a_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
