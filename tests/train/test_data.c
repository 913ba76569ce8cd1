/*
 * Training on every kind of data: which files data.dataset_path selects, how files are read, the loss as a
 * mean over the step's labels, packed and unpacked rows, epochs, and resuming within an epoch.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file/file.h"
#include "base/text/str.h"
#include "data/dataset.h"
#include "support/token_file.h"
#include "data/data.h"
#include "data/phases.h"
#include "resolve/resolve.h"
#include "train/train_fixture.h"

/* ---- files ---- */

static const char *path_of(const fixture *f, const char *name) {
    static char path[4][200];
    static int next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", f->folder, name);
    return out;
}

static void write_file(const fixture *f, const char *name, const char *text) {
    FILE *file = fopen(path_of(f, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

/* Writes samples: prompts of 1 to 5 letters with completions of 2 to 8 letters. */
static void write_samples(const fixture *f, const char *name, int count) {
    char text[8192] = "";
    for (int i = 0; i < count; i++)
        sprintf(text + strlen(text), "{\"q\": \"%.*s\", \"a\": \"%.*s\"}\n", 1 + i * 3 % 5, "what?",
                2 + i * 5 % 7, &"because of it"[i % 5]);
    write_file(f, name, text);
}

static void write_tokens(const fixture *f, const char *name, int32_t first, int64_t count) {
    int32_t tokens[1000];
    mem *account;
    for (int64_t i = 0; i < count; i++) tokens[i] = (int32_t)((first + i) % 200);
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(token_file_write(account, path_of(f, name), tokens, count));
    mem_close(account);
}

/* ---- opening ---- */

typedef struct opened {
    mem *account;
    config *cfg;
    dataset *train, *validation;
    captured_log logged;
    ott_status status;
} opened;

static opened *open_data(const fixture *f, const char *const *more) {
    opened *o = calloc(1, sizeof *o);
    FIXTURE_OK(mem_open(&o->account));
    logger log = capture_log(&o->logged);
    o->cfg = fixture_config(f, o->account, "data", NULL, more);
    model_options shape;
    FIXTURE_OK(model_options_resolve(o->cfg, &shape));
    o->status =
        data_open(o->account, &(cancellation){.log = &log}, o->cfg, &shape.vocab, &o->train, &o->validation);
    return o;
}

static void close_data(opened *o) {
    dataset_close(o->train);
    dataset_close(o->validation);
    config_close(o->cfg);
    assert_int_equal(mem_read(o->account).now, 0);
    mem_close(o->account);
    free(o);
}

#define WITH(...) ((const char *const[]){__VA_ARGS__, NULL})

static opened *open_good(const fixture *f, const char *const *more) {
    opened *o = open_data(f, more);
    FIXTURE_OK(o->status);
    return o;
}

static void refuse(const fixture *f, ott_status expected, const char *message, const char *const *more) {
    opened *o = open_data(f, more);
    if (o->status != expected || !strstr(status_text(), message))
        fail_msg("status %d, \"%s\" does not contain \"%s\"", o->status, status_text(), message);
    assert_true(!o->train && !o->validation);
    close_data(o);
}

static char *option(const char *key, const char *value) {
    static char text[8][400];
    static int next;
    char *out = text[next++ % 8];
    snprintf(out, sizeof text[0], "--%s=%s", key, value);
    return out;
}

static char *data_path(const fixture *f, const char *name) {
    return option("data.dataset_path", path_of(f, name));
}

static void paths_mean_files(void **state) {
    const fixture *f = *state;
    FIXTURE_OK(file_make_folder(path_of(f, "shards")));
    write_tokens(f, "shards/a_1.bin", 0, 100);
    write_tokens(f, "shards/a_2.bin", 100, 200);
    write_tokens(f, "shards/b_1.bin", 0, 400);
    write_file(f, "shards/notes.txt", "no tokens");
    static const struct {
        const char *path, *pattern;
        int64_t tokens;
    } cases[] = {{"shards", NULL, 700},         {"shards", "a_*.bin", 300}, {"shards/?_1.bin", NULL, 500},
                 {"shards/a_1.bin", NULL, 100}, {"shards/a_1", NULL, 100},  {"shards", "*.txt", 9}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *pattern = cases[i].pattern ? option("data.file_pattern", cases[i].pattern) : NULL;
        opened *o = open_good(
            f, WITH(data_path(f, cases[i].path), "--eval.enabled=false", "--train.seq_len=8", pattern));
        assert_int_equal(dataset_tokens(o->train), cases[i].tokens);
        close_data(o);
    }
    refuse(f, OTT_ERR_NOT_FOUND, "matches \"*.xyz\"",
           WITH(data_path(f, "shards"), "--data.file_pattern=*.xyz", "--eval.enabled=false"));
    refuse(f, OTT_ERR_NOT_FOUND, "absent.txt", WITH(data_path(f, "absent.txt")));
    FIXTURE_OK(file_make_folder(path_of(f, "empty")));
    refuse(f, OTT_ERR_NOT_FOUND, "has no *.npy, *.bin, *.jsonl or *.txt", WITH(data_path(f, "empty")));
}

static void formats_are_found_out(void **state) {
    const fixture *f = *state;
    write_file(f, "hs.jsonl", "{\"ctx\": \"ab\", \"endings\": [\"c\", \"d\"], \"label\": 1}\n");
    write_file(f, "text.jsonl", "{\"text\": \"some words, and then some more of them\"}\n");
    write_samples(f, "qa.jsonl", 20);
    refuse(f, OTT_ERR_CONFIG, "\"hellaswag\" needs a tokenizer",
           WITH(data_path(f, "hs.jsonl"), "--eval.enabled=false"));
    refuse(f, OTT_ERR_CONFIG, "\"text\" needs a tokenizer", WITH("--data.format=text"));
    opened *o = open_good(f, WITH(data_path(f, "text.jsonl"), "--eval.enabled=false"));
    assert_false(dataset_has_samples(o->train));
    assert_int_equal(dataset_tokens(o->train), 38);
    close_data(o);
    refuse(f, OTT_ERR_FORMAT, "qa.jsonl:1: the row has no field \"text\"; it has q, a",
           WITH(data_path(f, "qa.jsonl"), "--eval.enabled=false"));
    o = open_good(f, WITH(data_path(f, "qa.jsonl"), "--data.prompt_field=q", "--data.completion_field=a"));
    assert_true(dataset_has_samples(o->train));
    assert_int_equal(dataset_rows(o->train), 18); /* 2 of 20 rows are held out */
    assert_int_equal(dataset_rows(o->validation), 2);
    assert_true(captured_log_has(&o->logged, "Training data: "));
    assert_true(captured_log_has(&o->logged, "18 rows of 24 with 18 samples"));
    close_data(o);
    write_file(f, "squad.jsonl",
               "{\"context\": \"c\", \"question\": \"q\", \"answers\": {\"text\": [\"a\"]}}\n");
    refuse(f, OTT_ERR_CONFIG,
           "SQuAD's (context, question, answers), and --data.format=hellaswag needs others: set data.format "
           "to squad",
           WITH(data_path(f, "squad.jsonl"), "--data.format=hellaswag", "--eval.enabled=false"));
    refuse(f, OTT_ERR_CONFIG, "set data.format to hellaswag",
           WITH(data_path(f, "hs.jsonl"), "--data.format=squad", "--eval.enabled=false"));
    write_file(f, "one.jsonl", "{\"text\": 5}\n");
    refuse(f, OTT_ERR_FORMAT, "one.jsonl:1: text is a whole number, not a text: set data.text_field",
           WITH(data_path(f, "one.jsonl"), "--eval.enabled=false"));
    refuse(f, OTT_ERR_FORMAT, "it has text: set data.prompt_field to a field with a text",
           WITH(data_path(f, "one.jsonl"), "--eval.enabled=false", "--data.prompt_field=q",
                "--data.completion_field=text"));
    refuse(f, OTT_ERR_UNSUPPORTED, "read_parquet", WITH(data_path(f, "x.parquet")));
    refuse(f, OTT_ERR_CONFIG, "data.num_samples_limit = 5 limits documents or samples",
           WITH("--data.num_samples_limit=5"));
    refuse(f, OTT_ERR_CONFIG, "model.vocab_size = 100 is too small", WITH("--model.vocab_size=100"));
}

/* Writes a tokenizer of 300 words. */
static void write_tokenizer(const fixture *f) {
    char *text = calloc(1, 20000);
    strcpy(text, "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0");
    for (int i = 1; i < 300; i++) sprintf(text + strlen(text), ", \"w%d\": %d", i, i);
    strcat(text, "}, \"merges\": []}}");
    write_file(f, "tokenizer.json", text);
    free(text);
}

/* A preset's vocabulary becomes as large as the tokenizer's. A configured vocabulary size stays the same. */
static void vocabulary_follows_the_tokenizer(void **state) {
    const fixture *f = *state;
    write_tokenizer(f);
    write_file(f, "a.txt", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    char *path = data_path(f, "a.txt"), *tokens = option("data.tokenizer_path", path_of(f, "tokenizer.json"));
    static captured_log logged;
    logger log = capture_log(&logged);
    str written = {0};
    config *cfg;
    mem *account;
    model_options shape;
    dataset *train, *validation;
    FIXTURE_OK(mem_open(&account));
    written.account = account;
    const char *arguments[] = {path, tokens, "--model.preset=debug", "--train.seq_len=8",
                               "--train.batch_size=1"};
    FIXTURE_OK(config_parse(account, NULL, 5, arguments, &cfg));
    FIXTURE_OK(model_options_resolve(cfg, &shape));
    assert_int_equal(shape.vocab, 256);
    FIXTURE_OK(data_open(account, &(cancellation){.log = &log}, cfg, &shape.vocab, &train, &validation));
    assert_int_equal(shape.vocab, 300);
    assert_int_equal(cfg->model.vocab_size, 300);
    assert_true(captured_log_has(&logged, "model.vocab_size = 300, from the tokenizer"));
    FIXTURE_OK(config_write_toml(cfg, &written));
    assert_non_null(strstr(written.text, "vocab_size = 300"));
    str_free(&written);
    dataset_close(train);
    config_close(cfg);
    mem_close(account);
    refuse(f, OTT_ERR_CONFIG, "model.vocab_size = 256 is too small",
           WITH(path, tokens, "--model.vocab_size=256", "--train.seq_len=8", "--eval.enabled=false"));
    opened *o = open_good(f, WITH(path, tokens, "--model.vocab_size=400", "--train.seq_len=8",
                                  "--train.batch_size=1", "--eval.enabled=false"));
    assert_int_equal(o->cfg->model.vocab_size, 400);
    close_data(o);
}

/* Documents begin with BOS if transformers puts BOS before a text, or if a key asks for it. The saved
   configuration has the resolved value. */
static void bos_is_that_of_the_tokenizer(void **state) {
    static const struct {
        const char *config, *key;
        int64_t tokens;
        const char *message;
    } cases[] = {{"{\"bos_token\": \"w1\", \"eos_token\": \"w2\"}", "--data.shuffle=true", 41,
                  "Each document ends with w2 (data.add_bos, data.add_eos)"},
                 {"{\"bos_token\": \"w1\", \"eos_token\": \"w2\", \"add_bos_token\": true}",
                  "--data.shuffle=true", 42,
                  "Each document begins with w1 and ends with w2 (data.add_bos, data.add_eos)"},
                 {"{\"bos_token\": \"w1\", \"eos_token\": \"w2\"}", "--data.add_bos=true", 42,
                  "Each document begins with w1 and ends with w2 (data.add_bos, data.add_eos)"},
                 {"{\"bos_token\": \"w1\", \"eos_token\": \"w2\", \"add_bos_token\": true}",
                  "--data.add_bos=false", 41, "Each document ends with w2 (data.add_bos, data.add_eos)"}};
    const fixture *f = *state;
    write_tokenizer(f);
    write_file(f, "forty.txt", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(f, "tokenizer_config.json", cases[i].config);
        opened *o = open_good(f, WITH(data_path(f, "forty.txt"),
                                      option("data.tokenizer_path", path_of(f, "tokenizer.json")),
                                      "--model.vocab_size=300", "--train.seq_len=8", "--train.batch_size=1",
                                      "--eval.enabled=false", cases[i].key));
        assert_int_equal(dataset_tokens(o->train), cases[i].tokens);
        assert_int_equal(o->cfg->data.add_bos, cases[i].tokens == 42);
        assert_true(config_was_set(o->cfg, "data.add_bos"));
        if (!captured_log_has(&o->logged, cases[i].message))
            fail_msg("case %d: no \"%s\"", (int)i, cases[i].message);
        close_data(o);
    }
    assert_int_equal(unlink(path_of(f, "tokenizer_config.json")), 0);
}

static void rows_are_as_long_as_samples(void **state) {
    const fixture *f = *state;
    write_samples(f, "qa.jsonl", 40);
    config *cfg;
    mem *account;
    FIXTURE_OK(mem_open(&account));
    char *path = data_path(f, "qa.jsonl");
    const char *arguments[] = {path,
                               "--data.prompt_field=q",
                               "--data.completion_field=a",
                               "--model.preset=debug",
                               "--model.max_seq_len=2048",
                               "--data.pad_seq_len_divisible=8"};
    FIXTURE_OK(config_parse(account, NULL, 6, arguments, &cfg));
    model_options shape;
    dataset *train, *validation;
    FIXTURE_OK(model_options_resolve(cfg, &shape));
    FIXTURE_OK(data_open(account, NULL, cfg, &shape.vocab, &train, &validation));
    assert_int_equal(dataset_longest(train), 13);
    assert_int_equal(cfg->train.seq_len, 16);
    assert_int_equal(dataset_length(train), 16);
    assert_null(validation);
    dataset_close(train);
    config_close(cfg);
    mem_close(account);
    opened *o = open_good(f, WITH(path, "--data.prompt_field=q", "--data.completion_field=a",
                                  "--train.seq_len=8", "--eval.enabled=false"));
    assert_true(dataset_left_out(o->train) > 0);
    assert_true(captured_log_has(&o->logged, "samples longer than train.seq_len = 8 are left out"));
    close_data(o);
}

static void mixes_datasets(void **state) {
    const fixture *f = *state;
    char datasets[500];
    write_tokens(f, "one.bin", 0, 500);
    write_tokens(f, "two.bin", 0, 1000);
    snprintf(datasets, sizeof datasets, "--data.datasets=[\"%s=3\", \"%s=1\"]", path_of(f, "one.bin"),
             path_of(f, "two.bin"));
    opened *o = open_good(f, WITH("--data.dataset_path=", datasets, "--eval.enabled=false"));
    assert_int_equal(dataset_tokens(o->train), 1500);
    assert_int_equal(dataset_rows(o->train), 20 + 41);
    close_data(o);
    o = open_good(f, WITH("--data.dataset_path=", datasets, "--eval.enabled=false",
                          "--data.phases=[\"3 two.bin=5 lr_scale=0.5\"]"));
    data_phase p;
    assert_int_equal(phases_count(o->cfg), 1);
    assert_int_equal(phases_read(o->cfg, 0, &p), OTT_OK);
    assert_true(p.start_step == 3 && p.lr_scale == 0.5 && p.count == 1 && p.weights[0].weight == 5);
    assert_string_equal(p.weights[0].name, "two.bin");
    assert_true(phases_begin_at(o->cfg, 3) == 0 && phases_begin_at(o->cfg, 4) == -1);
    close_data(o);
    refuse(f, OTT_ERR_CONFIG, "is not a path and a weight above 0",
           WITH("--data.dataset_path=", "--data.datasets=[\"a=x\"]", "--eval.enabled=false"));
    refuse(f, OTT_ERR_NOT_FOUND, "absent",
           WITH("--data.dataset_path=", datasets, "--data.datasets=[\"absent=1\"]", "--eval.enabled=false"));
}

static void incomplete_phases_are_refused(void **state) {
    static const struct {
        const char *more, *message;
    } cases[] = {
        {"--data.phases=[\"3 three=5\"]", "none of data.datasets has the name three"},
        {"--data.phases=[\"3 two.bin=5 two.bin=1\"]", "gives two.bin two weights from step 3 on: 5 and 1"},
        {"--data.phases=[\"5 lr_scale=0\"]", "\"5 lr_scale=0\" is not a step and weights"},
        {"--data.phases=[\"5 one.bin=-1\"]", "weights are 0 or more"},
        {"--data.phases=[\"soon one.bin=1\"]", "\"soon one.bin=1\" is not a step"},
        {"--data.phases=[\"5 one.bin=1\", \"5 one.bin=2\"]", "step 5 does not come after step 5"},
        {"--data.phases=[\"5 one.bin=0 two.bin=0\"]", "no dataset has a weight above 0"},
        {"--data.anneal_weights=[\"one.bin=1\"]", "data.anneal_start_step is 0"},
    };
    const fixture *f = *state;
    char datasets[500];
    write_tokens(f, "one.bin", 0, 500);
    write_tokens(f, "two.bin", 0, 1000);
    snprintf(datasets, sizeof datasets, "--data.datasets=[\"%s\", \"%s=1\"]", path_of(f, "one.bin"),
             path_of(f, "two.bin"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(f, OTT_ERR_CONFIG, cases[i].message,
               WITH("--data.dataset_path=", datasets, "--eval.enabled=false", cases[i].more));
    refuse(f, OTT_ERR_CONFIG, "both set when the mixture changes",
           WITH("--data.dataset_path=", datasets, "--eval.enabled=false", "--data.phases=[\"5\"]",
                "--data.anneal_start_step=4"));
    refuse(f, OTT_ERR_CONFIG, "has a constant learning rate",
           WITH("--data.dataset_path=", datasets, "--eval.enabled=false", "--data.phases=[\"5 lr_scale=2\"]",
                "--scheduler.name=none", "--optimizer.name=schedule_free_adamw"));
    refuse(f, OTT_ERR_CONFIG, "data.datasets names no datasets",
           WITH("--data.format=tokens", "--eval.enabled=false", "--data.phases=[\"5 one.bin=2\"]"));
}

static void epochs_set_the_steps(void **state) {
    const fixture *f = *state;
    write_tokens(f, "t.bin", 0, 241); /* a file of 10 rows of 24 tokens */
    static const struct {
        const char *epochs, *steps;
        int64_t expected;
    } cases[] = {{"3", NULL, 6}, {"3", "4", 4}, {"30", "1000", 75}, {"0", "5", 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *steps =
            cases[i].steps ? option("train.max_steps", cases[i].steps) : "--train.max_steps=6";
        opened *o =
            open_good(f, WITH(data_path(f, "t.bin"), "--train.grad_accum_steps=2", "--eval.enabled=false",
                              option("train.num_epochs", cases[i].epochs), steps));
        assert_int_equal(o->cfg->train.max_steps, cases[i].expected);
        close_data(o);
    }
    refuse(f, OTT_ERR_CONFIG,
           "train.num_epochs = 1, with 10 rows in an epoch: too few rows for steps of 12 rows",
           WITH(data_path(f, "t.bin"), "--train.grad_accum_steps=6", "--eval.enabled=false",
                "--train.num_epochs=1"));
}

/* ---- the loss ---- */

static void open_rig(rig *r, const fixture *f, const char *const *more) {
    rig_open(r, f, &(rig_options){.precision = &fixture_precisions[FP32], .more = more});
}

static step_result one_step(const fixture *f, const char *const *more, double *grad_norm) {
    rig r;
    open_rig(&r, f, more);
    step_result s = rig_step(&r);
    *grad_norm = s.grad_norm;
    rig_close(&r);
    return s;
}

static void check_near(const char *what, double a, double b) {
    if (!(fabs(a - b) <= 2e-6 * fabs(b))) fail_msg("%s: %.9g, not %.9g", what, a, b);
}

#define QA                                                                                                   \
    "--data.prompt_field=q", "--data.completion_field=a", "--data.shuffle=false", "--eval.enabled=false"

/* Trains on six samples in one step, in three ways: one sample per row, several samples packed into a row,
   and micro-batches with different numbers of labels. If packed samples attended to each other, the losses
   would differ. */
static void packing_changes_no_loss(void **state) {
    const fixture *f = *state;
    write_samples(f, "six.jsonl", 6);
    char *path = data_path(f, "six.jsonl");
    double grad_norm, other;
    step_result padded = one_step(f, WITH(path, QA, "--train.batch_size=6"), &grad_norm);
    int64_t labels = 0; /* bytes of all completions, as in write_samples */
    for (int i = 0; i < 6; i++) labels += 2 + i * 5 % 7;
    assert_int_equal(padded.labels, labels);
    assert_int_equal(padded.tokens, 6 * 24);
    step_result parts =
        one_step(f, WITH(path, QA, "--train.batch_size=2", "--train.grad_accum_steps=3"), &other);
    assert_int_equal(parts.labels, labels);
    check_near("loss in micro-batches", parts.loss, padded.loss);
    check_near("gradient in micro-batches", other, grad_norm);
    step_result packed = one_step(
        f, WITH(path, QA, "--train.batch_size=1", "--train.seq_len=64", "--data.pack_sequences=true"),
        &other);
    assert_int_equal(packed.labels, labels);
    assert_int_equal(packed.tokens, 64);
    check_near("packed loss", packed.loss, padded.loss);
    check_near("packed gradient", other, grad_norm);
}

/* Checks that cu_seqlens ends with empty documents up to its padded length, and that the arrays of a batch
   are aligned. */
static void check_batch(const rig *r, const batch *b) {
    int64_t tokens = b->count * b->length, documents = b->at.cu_seqlens.columns - 1, places = b->count;
    const tensor *parts[] = {&b->token, &b->target, &b->at.position, &b->at.cu_seqlens, &r->t->losses[0]};
    int32_t *start = (int32_t *)(void *)rig_copy(r, b->at.cu_seqlens.data, documents + 1);
    while (places < documents) places *= 2;
    assert_true(documents == (places < tokens ? places : tokens));
    assert_int_equal(start[0], 0);
    assert_int_equal(start[documents], tokens);
    assert_int_equal(b->at.longest, b->length);
    for (int64_t i = 0; i < documents; i++)
        assert_true(start[i] <= start[i + 1] && start[i + 1] - start[i] <= b->at.longest);
    for (int i = 0; i < 5; i++)
        assert_int_equal((uintptr_t)parts[i]->data % (uintptr_t)r->device->can->alignment, 0);
    free(start);
}

/* A backend's op table with an attention workspace that depends on the number of documents, as in GPU
   libraries. */
static const op_table *plain_ops;
static int64_t workspace_by_documents(const device *d, enum op_index op, const void *args) {
    int64_t bytes = plain_ops->workspace ? plain_ops->workspace(d, op, args) : 0;
    if (op != OP_INDEX_attention_backward) return bytes;
    return bytes + 4096 * ((const attention_backward_args *)args)->cu_seqlens->columns;
}

/* The number of documents is padded. The padded number grows with the documents in the rows and never
   shrinks. The step's memory plan uses the padded number. */
static void documents_have_few_counts(void **state) {
    const fixture *f = *state;
    int64_t counts = 0, before = 0;
    rig r;
    write_samples(f, "many.jsonl", 40);
    open_rig(&r, f,
             WITH(data_path(f, "many.jsonl"), QA, "--train.batch_size=3", "--train.seq_len=31",
                  "--data.pack_sequences=true"));
    op_table own = *r.device->ops;
    plain_ops = r.device->ops;
    own.workspace = workspace_by_documents;
    r.device->ops = &own;
    FIXTURE_OK(trainer_convert(r.t, r.t->recipe));
    for (int step = 0; step < 6; step++) {
        rig_step(&r);
        const batch *b = &r.t->batches[0];
        check_batch(&r, b);
        assert_true(b->at.cu_seqlens.columns >= before);
        counts += b->at.cu_seqlens.columns != before;
        before = b->at.cu_seqlens.columns;
    }
    assert_true(before > 4); /* proves that rows have several documents */
    assert_true(counts <= 2);
    r.device->ops = plain_ops;
    rig_close(&r);
}

static void evaluates_over_labels(void **state) {
    const fixture *f = *state;
    write_samples(f, "six.jsonl", 6);
    char *path = data_path(f, "six.jsonl"), *eval = option("eval.dataset_path", path_of(f, "six.jsonl"));
    evaluation padded, packed;
    rig r;
    open_rig(&r, f, WITH(path, QA, eval, "--eval.enabled=true", "--train.batch_size=2", "--eval.steps=9"));
    FIXTURE_OK(trainer_evaluate(r.t, 9, &padded));
    rig_close(&r);
    open_rig(&r, f,
             WITH(path, QA, eval, "--eval.enabled=true", "--train.batch_size=1", "--train.seq_len=64",
                  "--data.pack_sequences=true"));
    FIXTURE_OK(trainer_evaluate(r.t, 9, &packed));
    rig_close(&r);
    assert_true(padded.batches == 3 && packed.batches == 1 && padded.labels == packed.labels);
    check_near("validation loss", packed.loss, padded.loss);
}

static void no_label_is_an_error(void **state) {
    const fixture *f = *state;
    step_result s;
    write_file(f, "none.jsonl", "{\"q\": \"abc\", \"a\": \"\"}\n{\"q\": \"abcd\", \"a\": \"\"}\n");
    rig r;
    open_rig(&r, f, WITH(data_path(f, "none.jsonl"), QA));
    assert_int_equal(trainer_step(r.t, 1e-3, &s), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), "none.jsonl: no token of step 1 has a label"));
    rig_close(&r);
}

/* ---- resume within an epoch ---- */

enum { STEPS = 7, BREAK = 5 };

static void run_steps(rig *r, int first, int last, step_result *out) {
    for (int i = first; i < last; i++) out[i] = rig_step(r);
}

static void check_resume(const fixture *f, const char *const *more) {
    char path[160];
    step_result full[STEPS], parts[STEPS];
    rig r;
    open_rig(&r, f, more);
    run_steps(&r, 0, STEPS, full);
    int64_t epoch = dataset_epoch(r.train_data, r.t->run.samples - 1);
    assert_true(epoch > 0);
    snapshot end = snapshot_take(&r);
    rig_close(&r);
    open_rig(&r, f, more);
    run_steps(&r, 0, BREAK, parts);
    assert_true(r.t->run.samples % dataset_rows(r.train_data) != 0); /* the run stopped within an epoch */
    rig_save(&r, f, "saved", path);
    rig_close(&r);
    open_rig(&r, f, more);
    FIXTURE_OK(trainer_load(r.t, path));
    run_steps(&r, BREAK, STEPS, parts);
    for (int i = 0; i < STEPS; i++)
        assert_true(parts[i].loss == full[i].loss && parts[i].labels == full[i].labels);
    snapshot other = snapshot_take(&r);
    assert_true(snapshot_equal(&end, &other));
    snapshot_free(&end);
    snapshot_free(&other);
    rig_close(&r);
    FIXTURE_OK(file_remove_tree(path_of(f, "saved")));
}

static void resumes_inside_an_epoch(void **state) {
    const fixture *f = *state;
    char datasets[500];
    write_samples(f, "qa.jsonl", 9);
    write_tokens(f, "one.bin", 0, 121);
    write_tokens(f, "two.bin", 50, 170);
    snprintf(datasets, sizeof datasets, "--data.datasets=[\"%s=3\", \"%s=1\"]", path_of(f, "one.bin"),
             path_of(f, "two.bin"));
    char *path = data_path(f, "qa.jsonl");
    const char *fields[] = {"--data.prompt_field=q", "--data.completion_field=a"};
    check_resume(f, WITH(path, fields[0], fields[1], "--eval.enabled=false", "--train.batch_size=1",
                         "--data.pack_sequences=true", "--train.max_steps=7"));
    check_resume(f, WITH(path, fields[0], fields[1], "--eval.enabled=false", "--train.grad_accum_steps=2",
                         "--train.max_steps=7"));
    check_resume(f, WITH("--data.dataset_path=", datasets, "--eval.enabled=false", "--train.max_steps=7",
                         "--data.phases=[\"3 two.bin=5\", \"5 one.bin=0 lr_scale=0.5\"]"));
}

/* Runs the training loop on samples. The metrics count labels and tokens separately. */
static void a_run_counts_labels(void **state) {
    const fixture *f = *state;
    captured_log *logged = calloc(1, sizeof *logged);
    int64_t bytes;
    write_samples(f, "qa.jsonl", 30);
    FIXTURE_OK(fixture_run(f, &(run_options){.name = "labels",
                                             .precision = &fixture_precisions[BF16],
                                             .more = WITH(data_path(f, "qa.jsonl"), "--data.prompt_field=q",
                                                          "--data.completion_field=a", "--train.num_epochs=1",
                                                          "--metrics.log_style=automodel"),
                                             .logged = logged}));
    assert_true(captured_log_has(
        logged, "Training complete: 6 steps")); /* max_steps is 6; 27 rows have 13 steps of 2 rows */
    char *metrics = fixture_read(f, "labels/metrics.jsonl", &bytes);
    assert_non_null(strstr(metrics, "\"num_tokens_per_step\":48"));
    assert_null(strstr(metrics, "\"num_label_tokens\":48"));
    assert_non_null(strstr(metrics, "\"val_loss\":"));
    free(metrics);
    free(logged);
}

#define TEST(name) cmocka_unit_test(name)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(paths_mean_files),
        TEST(formats_are_found_out),
        TEST(rows_are_as_long_as_samples),
        TEST(vocabulary_follows_the_tokenizer),
        TEST(bos_is_that_of_the_tokenizer),
        TEST(mixes_datasets),
        TEST(incomplete_phases_are_refused),
        TEST(epochs_set_the_steps),
        TEST(packing_changes_no_loss),
        TEST(documents_have_few_counts),

        TEST(evaluates_over_labels),
        TEST(no_label_is_an_error),
        TEST(resumes_inside_an_epoch),
        TEST(a_run_counts_labels),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
