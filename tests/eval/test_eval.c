/*
 * Compares evaluation, on any number of threads, with simple computations: a model run computes logits one
 * token at a time. Tests HellaSwag by the definitions of lm-eval and llm.c, loss, KL divergence and cosine.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "backend/open.h"
#include "base/file/file.h"
#include "data/dataset.h"
#include "support/token_file.h"
#include "model/cache.h"
#include "folders/hf/save.h"
#include "eval/eval.h"
#include "eval/row.h"
#include "formats/safetensors/safetensors.h"
#include "train/train_fixture.h"

#define WINDOW 64
#define VOCAB  256

/* ---- texts ---- */

static void assert_cleaned(const char *in, const char *out) {
    mem *account;
    FIXTURE_OK(mem_open(&account));
    str s = {.account = account};
    eval_clean((text_view){in, (int64_t)strlen(in)}, &s);
    FIXTURE_OK(str_finish(&s));
    assert_string_equal(s.text ? s.text : "", out);
    str_free(&s);
    mem_close(account);
}

/* Each expected text is what lm-eval's Python function preprocess returns. */
static void cleaning_is_lm_evals(void **state) {
    (void)state;
    assert_cleaned("", "");
    assert_cleaned(" \t\n", "");
    assert_cleaned("  a  b\n", "a b");
    assert_cleaned("a   b", "a  b"); /* double spaces are replaced in a single pass */
    assert_cleaned("a    b", "a  b");
    assert_cleaned("[header] How [title] One [step] two.", " How. One two.");
    assert_cleaned("a [title]", "a. ");
    assert_cleaned("a[title]b", "ab"); /* without a space before it, [title] is removed like any brackets */
    assert_cleaned("[a [b] c]", " c]");
    assert_cleaned("a] [b", "a] [b");
    /* brackets across lines stay, because . does not match a line break */
    assert_cleaned("[a\nb] c", "[a\nb] c");
    assert_cleaned("[a\n[b]c", "[a\nc");
    assert_cleaned("[]x[]", "x");
    assert_cleaned("\xc2\xa0 x\xe3\x80\x80", "x"); /* Unicode's white space is removed at both ends */
}

static void assert_capitalized(const char *in, const char *out) {
    mem *account;
    FIXTURE_OK(mem_open(&account));
    str s = {.account = account};
    text_change_case((text_view){in, (int64_t)strlen(in)}, TEXT_CAPITAL, &s);
    FIXTURE_OK(str_finish(&s));
    assert_string_equal(s.text ? s.text : "", out);
    str_free(&s);
    mem_close(account);
}

static void capitalizing_is_pythons(void **state) {
    (void)state;
    assert_capitalized("", "");
    assert_capitalized("he", "He");
    assert_capitalized("HE IS", "He is"); /* all letters but the first become lower case */
    assert_capitalized(" he", " he");
    assert_capitalized("\xc3\xa9T\xc3\x89", "\xc3\x89t\xc3\xa9"); /* e acute */
    assert_capitalized("\xc7\x86x", "\xc7\x85x");                 /* the title case of dz with caron */
    assert_capitalized("3 A", "3 a");
    assert_int_equal(text_characters((text_view){"a\xc3\xa9\xf0\x9f\x98\x80", 7}), 3);
    assert_int_equal(text_spaces_at_end((text_view){"a \xc2\xa0\n", 5}, true), 4);
    assert_int_equal(text_spaces_at_end((text_view){" ", 1}, true), 1);
    assert_int_equal(text_spaces_at_end((text_view){"", 0}, true), 0);
    assert_int_equal(text_spaces_at_end((text_view){"a\x1f ", 3}, true), 2);
    assert_int_equal(text_spaces_at_end((text_view){"a\x1f ", 3}, false), 1);
}

/* ---- rows, and their expected texts ---- */

typedef struct sample {
    const char *line;                /* a row of the file; %d is replaced by the label */
    const char *context, *ending[4]; /* the expected texts of lm-eval */
    const char *raw, *raw_ending[4]; /* the expected texts of llm.c */
} sample;

static const sample samples[] = {
    {"{\"activity_label\": \"Snow\", \"ctx_a\": \"The man is out.\", \"ctx_b\": \"then HE\", \"ctx\": \"The "
     "man is "
     "out. then HE\", \"label\": %d, \"endings\": [\"goes in\", \"the end of the man and the sea.\", \"x\", "
     "\"[substeps] sits  down.\"]}",
     "Snow: The man is out. Then he",
     {"goes in", "the end of the man and the sea.", "x", " sits down."},
     "The man is out. then HE",
     {"goes in", "the end of the man and the sea.", "x", "[substeps] sits  down."}},
    {"{\"activity_label\": \"Life\", \"ctx_a\": \"[header] How to [title] Go.\", \"ctx_b\": \"\", \"ctx\": "
     "\"[header] "
     "How to [title] Go.\", \"label\": \"%d\", \"endings\": [\"Ba\", \"stand thou\", "
     "\"\xc3\xa9\xc3\xa9\xc3\xa9\", "
     "\"qq zz\"], \"ind\": 3}",
     "Life: How to. Go.",
     {"Ba", "stand thou", "\xc3\xa9\xc3\xa9\xc3\xa9", "qq zz"},
     "[header] How to [title] Go.",
     {"Ba", "stand thou", "\xc3\xa9\xc3\xa9\xc3\xa9", "qq zz"}},
    {"{\"ctx\": \"A cleaned row is its own. she\", \"label\": %d, \"endings\": [\"sings the tho\", \"a\", "
     "\"\\u00fc\", "
     "\"the man\"]}",
     "A cleaned row is its own. she",
     {"sings the tho", "a", "\xc3\xbc", "the man"},
     "A cleaned row is its own. she",
     {"sings the tho", "a", "\xc3\xbc", "the man"}},
    {"{\"activity_label\": \"Sea\", \"ctx_a\": \"A ship.\", \"ctx_b\": \"it\", \"label\": %d, \"endings\": "
     "[\"sinks\", \"is the "
     "sea\", \"q\", \"sails\"]}",
     "Sea: A ship. It",
     {"sinks", "is the sea", "q", "sails"},
     "A ship. it", /* without ctx, the context is ctx_a and ctx_b */
     {"sinks", "is the sea", "q", "sails"}},
};
enum { SAMPLES = sizeof samples / sizeof *samples };

static void assert_text(text_view is, const char *wanted) {
    if ((int64_t)strlen(wanted) != is.bytes || memcmp(is.at, wanted, strlen(wanted)) != 0)
        fail_msg("\"%.*s\" should be \"%s\"", (int)is.bytes, is.at, wanted);
}

static void rows_become_texts(void **state) {
    (void)state;
    mem *account;
    FIXTURE_OK(mem_open(&account));
    for (int i = 0; i < SAMPLES; i++) {
        char line[600];
        eval_row row;
        snprintf(line, sizeof line, samples[i].line, 2);
        FIXTURE_OK(eval_row_read(account, line, (int64_t)strlen(line), &row));
        assert_int_equal(row.label, 2);
        assert_text(row.context, samples[i].context);
        assert_text(row.raw_context, samples[i].raw);
        for (int e = 0; e < 4; e++) {
            assert_text(row.ending[e], samples[i].ending[e]);
            assert_text(row.raw_ending[e], samples[i].raw_ending[e]);
        }
        assert_int_equal(row.characters[2], i == 1 ? 3 : 1);
        eval_row_free(&row);
    }
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
}

/* ---- runs ---- */

static const int kinds[] = {BF16, TENSORWISE, ROWWISE, DELAYED};

static int setup(void **state) {
    if (fixture_setup(state)) return -1;
    const char *more[] = {"--train.seq_len=64",         "--train.max_steps=30",
                          "--train.batch_size=3",       "--eval.enabled=false",
                          "--checkpoint.interval=1000", "--optimizer.lr=2e-2",
                          "--model.max_seq_len=128",    NULL};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const precision *p = &fixture_precisions[kinds[i]];
        FIXTURE_OK(fixture_run(*state, &(run_options){.name = p->name, .precision = p, .more = more}));
    }
    return 0;
}

static const char *path_of(const fixture *f, const char *name) {
    static char paths[4][160];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", f->folder, name);
    return path;
}

static void write_file(const fixture *f, const char *name, const char *text) {
    FILE *file = fopen(path_of(f, name), "wb");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* Returns options of an evaluation. They stay valid during the next three calls. */
static ott_eval_options options(const fixture *f, ott_eval_task task, const char *name) {
    static char data[4][160];
    static int next;
    char *path = data[next++ % 4];
    snprintf(path, sizeof data[0], "%s", path_of(f, name));
    return (ott_eval_options){.task = task,
                              .data = path,
                              .threads = 1,
                              .text_field = "text",
                              .hellaswag_forms = OTT_HELLASWAG_LM_EVAL | OTT_HELLASWAG_LLMC,
                              .kl_max = 1e-2,
                              .kl_mean = 3e-3,
                              .cosine = 0.999};
}

static ott_status evaluate_with(const fixture *f, const char *run, const ott_eval_options *o,
                                const eval_hooks *hooks, ott_eval_result *r) {
    mem *account;
    FIXTURE_OK(mem_open(&account));
    ott_status status = eval_run(account, NULL, path_of(f, run), o, hooks, r);
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
    return status;
}

static ott_eval_result evaluate(const fixture *f, const char *run, const ott_eval_options *o) {
    ott_eval_result r;
    FIXTURE_OK(evaluate_with(f, run, o, NULL, &r));
    return r;
}

/* ---- a separate computation ---- */

/* Evaluates a run's model one token at a time, to compute the expected results. */
typedef struct oracle {
    mem *account;
    device *device;
    eval_model e;
    model_cache *cache;
} oracle;

static void oracle_open(oracle *o, const fixture *f, const char *run) {
    FIXTURE_OK(mem_open(&o->account));
    FIXTURE_OK(test_device_open(o->account, 1, NULL, &o->device));
    FIXTURE_OK(eval_model_read(o->account, NULL, &(eval_source){.path = path_of(f, run)}, &o->e));
    FIXTURE_OK(eval_model_open(o->device, &o->e));
    FIXTURE_OK(model_cache_open(o->e.m, NULL, WINDOW, &o->cache));
}

static void oracle_close(oracle *o) {
    model_cache_close(o->cache);
    eval_model_close(&o->e);
    device_close(o->device);
    mem_close(o->account);
}

/* Computes logits[count][VOCAB]: row i has the logits after token i of a text. */
static void oracle_logits(oracle *o, const unsigned char *text, int64_t count, float (*logits)[VOCAB]) {
    model_cache_truncate(o->cache, 0);
    for (int64_t i = 0; i < count; i++) {
        int32_t token = text[i];
        FIXTURE_OK(model_cache_extend(o->cache, &token, 1, logits[i]));
    }
}

static double log_sum(const float *x) {
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < VOCAB; i++) most = fmax(most, (double)x[i]);
    for (int i = 0; i < VOCAB; i++) sum += exp((double)x[i] - most);
    return most + log(sum);
}

/* Returns the loss of `ending` after `context`. Both are bytes, truncated to the window. */
static double oracle_loss(oracle *o, const char *context, const char *ending) {
    static float logits[WINDOW][VOCAB];
    unsigned char text[512];
    size_t first = strlen(context),
           count = (size_t)snprintf((char *)text, sizeof text, "%s%s", context, ending);
    size_t drop = count - 1 > WINDOW ? count - 1 - WINDOW : 0;
    double loss = 0;
    oracle_logits(o, text + drop, (int64_t)(count - drop) - 1, logits);
    for (size_t i = first - drop; i < count - drop; i++)
        loss += log_sum(logits[i - 1]) - (double)logits[i - 1][text[drop + i]];
    return loss;
}

typedef struct choice {
    int sum, by_character, llmc;
    double loss[4]; /* loss of each ending, as lm-eval computes it */
    int64_t tokens[4];
} choice;

static int best_of(const double x[4]) {
    int best = 0;
    for (int i = 1; i < 4; i++)
        if (x[i] < x[best]) best = i;
    return best;
}

static int64_t characters_of(const char *text) {
    int64_t count = 0;
    for (; *text; text++) count += (*text & 0xc0) != 0x80;
    return count;
}

static choice oracle_choice(oracle *o, const sample *s) {
    choice c;
    double character[4], mean[4];
    for (int i = 0; i < 4; i++) {
        char ending[200];
        snprintf(ending, sizeof ending, " %s", s->ending[i]);
        c.loss[i] = oracle_loss(o, s->context, ending);
        c.tokens[i] = (int64_t)strlen(ending);
        character[i] = c.loss[i] / (double)characters_of(s->ending[i]);
        snprintf(ending, sizeof ending, " %s", s->raw_ending[i]);
        mean[i] = oracle_loss(o, s->raw, ending) / (double)strlen(ending);
    }
    c.sum = best_of(c.loss);
    c.by_character = best_of(character);
    c.llmc = best_of(mean);
    return c;
}

/* ---- HellaSwag ---- */

/* Evaluates every row with each of the labels 0 to 3. A metric must count the row as right only with the
   label of the ending that this metric chooses. */
static void check_choices(const fixture *f, const char *run, oracle *o) {
    for (int i = 0; i < SAMPLES; i++) {
        choice c = oracle_choice(o, &samples[i]);
        for (int label = 0; label < 4; label++) {
            char line[600];
            snprintf(line, sizeof line, samples[i].line, label);
            write_file(f, "row.jsonl", line);
            ott_eval_options request = options(f, OTT_EVAL_HELLASWAG, "row.jsonl");
            ott_eval_result r = evaluate(f, run, &request);
            assert_true(r.acc == (c.sum == label) && r.acc_norm == (c.by_character == label));
            assert_true(r.acc_llmc == (c.llmc == label));
            assert_true(isnan(r.acc_stderr)); /* the standard error of one row is not defined */
            assert_int_equal(r.tokens, c.tokens[label]);
            double wanted = c.loss[label] / (double)c.tokens[label];
            if (fabs(r.loss - wanted) > 1e-5 * wanted)
                fail_msg("%s, row %d: %g and %g", run, i, r.loss, wanted);
        }
    }
}

/* Tests recipes in which a token's values do not depend on other tokens. */
static void hellaswag_is_lm_evals_and_llmcs(void **state) {
    const fixture *f = *state;
    static const char *const runs[] = {"bf16", "rowwise", "delayed"};
    for (int i = 0; i < 3; i++) {
        oracle o;
        oracle_open(&o, f, runs[i]);
        check_choices(f, runs[i], &o);
        oracle_close(&o);
    }
}

static void write_rows(const fixture *f, const char *name, const int *labels, int count) {
    char text[4000] = "\n", line[600];
    for (int i = 0; i < count; i++) {
        snprintf(line, sizeof line, samples[i % SAMPLES].line, labels[i]);
        strcat(strcat(text, line), i % 2 ? "\r\n\n" : "\n");
    }
    write_file(f, name, text);
}

/* Checks the accuracies and standard errors of all rows, by lm-eval's definition, by llm.c's, and by both in
   one evaluation. The option `limit` is a number of rows. */
static void rows_are_counted(void **state) {
    const fixture *f = *state;
    oracle o;
    int labels[5], right = 0, right_norm = 0, llmc = 0;
    oracle_open(&o, f, "bf16");
    for (int i = 0; i < 5; i++) {
        choice c = oracle_choice(&o, &samples[i % SAMPLES]);
        labels[i] = i < 3 ? c.sum : (c.sum + 1) % 4;
        right += c.sum == labels[i];
        right_norm += c.by_character == labels[i];
        llmc += c.llmc == labels[i];
    }
    oracle_close(&o);
    write_rows(f, "rows.jsonl", labels, 5);
    ott_eval_options request = options(f, OTT_EVAL_HELLASWAG, "rows.jsonl");
    ott_eval_result both = evaluate(f, "bf16", &request);
    assert_int_equal(both.items, 5);
    assert_int_equal(both.total, 5);
    assert_true(both.acc == right / 5.0 && both.acc_norm == right_norm / 5.0 && both.acc_llmc == llmc / 5.0);
    assert_true(fabs(both.acc_stderr - sqrt(0.6 * 0.4 / 4)) < 1e-12 && right == 3);
    assert_true(isnan(both.kl_max) && isnan(both.bits_per_byte) && both.passed);
    request.hellaswag_forms = OTT_HELLASWAG_LM_EVAL;
    ott_eval_result one = evaluate(f, "bf16", &request);
    assert_true(one.acc == both.acc && one.acc_norm == both.acc_norm && one.loss == both.loss &&
                isnan(one.acc_llmc));
    request.hellaswag_forms = OTT_HELLASWAG_LLMC;
    ott_eval_result other = evaluate(f, "bf16", &request);
    assert_true(isnan(other.acc) && isnan(other.acc_norm) && other.acc_llmc == both.acc_llmc &&
                other.loss != one.loss);
    /* if both definitions make the same ids of a row, the row is evaluated once */
    assert_true(both.gemms < one.gemms + other.gemms);
    request.limit = 2;
    assert_int_equal(evaluate(f, "bf16", &request).items, 2);
}

/* If several endings have the smallest loss, the first of them is chosen. */
static void the_first_of_equals_is_chosen(void **state) {
    const fixture *f = *state;
    for (int label = 0; label < 4; label++) {
        char line[200];
        snprintf(line, sizeof line,
                 "{\"ctx\": \"The\", \"endings\": [\"a\", \"a\", \"a\", \"a\"], \"label\": %d}", label);
        write_file(f, "ties.jsonl", line);
        ott_eval_options o = options(f, OTT_EVAL_HELLASWAG, "ties.jsonl");
        ott_eval_result r = evaluate(f, "bf16", &o);
        double right = label == 0;
        assert_true(r.acc == right && r.acc_norm == right && r.acc_llmc == right);
    }
}

/* If context and ending exceed the window, the beginning of the context is left out, never the ending. */
static void contexts_lose_their_beginning(void **state) {
    const fixture *f = *state;
    static const char row[] =
        "{\"ctx\": \"%sThe man\", \"endings\": [\"sits\", \"then\", \"a b c\", \"in\"], \"label\": 1}";
    char line[400], before[101];
    double loss[3];
    /* In the first case the inputs just fill the window: the context, a space, and "then" without its last
       byte, which is only predicted. */
    const int more[] = {WINDOW - 7 - 5 + 1, 60, 100};
    for (int i = 0; i < 3; i++) {
        memset(before, 'x', sizeof before);
        before[more[i]] = 0;
        snprintf(line, sizeof line, row, before);
        write_file(f, "long.jsonl", line);
        ott_eval_options o = options(f, OTT_EVAL_HELLASWAG, "long.jsonl");
        o.hellaswag_forms = OTT_HELLASWAG_LM_EVAL;
        ott_eval_result r = evaluate(f, "bf16", &o);
        /* in the first case only the ending "a b c" exceeds the window, by one byte */
        assert_int_equal(r.truncated, i == 0 ? 1 : 4);
        loss[i] = r.loss;
        /* an ending that is truncated by both definitions counts once */
        o.hellaswag_forms = OTT_HELLASWAG_LM_EVAL | OTT_HELLASWAG_LLMC;
        assert_int_equal(evaluate(f, "bf16", &o).truncated, r.truncated);
    }
    assert_true(loss[0] == loss[1] && loss[1] == loss[2]); /* 53 times x begins each window */
}

/* ---- bad rows ---- */

static void check_refused(const fixture *f, const char *run, const ott_eval_options *o, ott_status expected,
                          const char *says) {
    ott_eval_result r;
    ott_status status = evaluate_with(f, run, o, NULL, &r);
    if (status != expected || !strstr(status_text(), says) || strchr(status_text(), '\n'))
        fail_msg("%s and \"%s\" instead of %s and \"%s\"", status_name(status), status_text(),
                 status_name(expected), says);
}

static void bad_rows_are_named(void **state) {
    const fixture *f = *state;
    static const char good[] =
        "{\"ctx\": \"a\", \"endings\": [\"a\", \"b\", \"c\", \"d\"], \"label\": 0}\n\n";
    static const char *const bad[][2] = {
        {"{\"ctx\": \"a\", ", "is not JSON"},
        {"[1]", "is not a JSON object"},
        {"{\"endings\": [], \"label\": 0}", "the row has neither ctx_a and ctx_b nor ctx"},
        {"{\"ctx_a\": \"a\", \"label\": 0}", "the row has no field \"ctx_b\""},
        {"{\"ctx\": 1, \"label\": 0}", "ctx is a whole number, not a text"},
        {"{\"ctx\": \"a\", \"label\": 0}", "the row has no field \"endings\""},
        {"{\"ctx\": \"a\", \"endings\": \"b\", \"label\": 0}", "endings is a text, not a list"},
        {"{\"ctx\": \"a\", \"endings\": [\"a\", \"b\", \"c\"], \"label\": 0}", "endings has 3 texts"},
        {"{\"ctx\": \"a\", \"endings\": [\"a\", \"b\", 3, \"d\"], \"label\": 0}",
         "endings[2] is a whole number, not a text"},
        {"{\"ctx\": \"a\", \"endings\": [\"a\", \"b\", \"c\", \"d\"]}", "the row has no field \"label\""},
        {"{\"ctx\": \"a\", \"endings\": [\"a\", \"b\", \"c\", \"d\"], \"label\": \"\"}", "label is empty"},
        {"{\"ctx\": \"a\", \"endings\": [\"a\", \"b\", \"c\", \"d\"], \"label\": 4}",
         "label is not 0, 1, 2 or 3"},
        {"{\"ctx\": \"a\", \"endings\": [\"a\", \"b\", \"c\", \"d\"], \"label\": \"1x\"}", "label is not 0"},
        {"{\"ctx\": \"a\", \"endings\": [\"a\", \"b\", \"c\", \"d\"], \"label\": 1.0}", "label is not 0"},
        {"{\"ctx\": \"a\", \"endings\": [\"a\", \" [x]\", \"c\", \"d\"], \"label\": 0}",
         "endings[1] has no text"},
        {"{\"ctx\": \"\", \"endings\": [\"a\", \"b\", \"c\", \"d\"], \"label\": 0}",
         "the context has no tokens"},
        {"{\"activity_label\": 1, \"ctx_a\": \"a\", \"ctx_b\": \"b\", \"endings\": [\"a\", \"b\", \"c\", "
         "\"d\"], "
         "\"label\": 0}",
         "activity_label is a whole number, not a text"},
        {"{\"ctx\": \"a\", \"endings\": [\"a\", \"b\", \"c\", "
         "\"12345678901234567890123456789012345678901234567890123"
         "456789012345\"], \"label\": 0}",
         "endings[3] has 66 tokens, more than the window of 64"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[600], says[200];
        snprintf(text, sizeof text, "%s%s", good, bad[i][0]);
        snprintf(says, sizeof says, "bad.jsonl:3: %s", bad[i][1]);
        write_file(f, "bad.jsonl", text);
        ott_eval_options o = options(f, OTT_EVAL_HELLASWAG, "bad.jsonl");
        check_refused(f, "bf16", &o, OTT_ERR_FORMAT, says);
        o.limit = 1; /* rows beyond the limit are not checked */
        assert_int_equal(evaluate(f, "bf16", &o).items, 1);
    }
    write_file(f, "bad.jsonl", "\n \n");
    ott_eval_options o = options(f, OTT_EVAL_HELLASWAG, "bad.jsonl");
    check_refused(f, "bf16", &o, OTT_ERR_FORMAT, "bad.jsonl: has no rows");
}

/* ---- perplexity ---- */

/* The loss equals the validation loss of a training run on the same text. */
static void the_loss_is_that_of_validation(void **state) {
    const fixture *f = *state;
    fixture_write_text(path_of(f, "held.txt"), 3 * 4 * WINDOW + 1, 9); /* 12 rows: 4 batches of 3 */
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        rig r;
        evaluation e;
        char data[200];
        const precision *p = &fixture_precisions[kinds[i]];
        snprintf(data, sizeof data, "--eval.dataset_path=%s", path_of(f, "held.txt"));
        const char *more[] = {"--train.seq_len=64", "--train.batch_size=3", "--model.max_seq_len=128", data,
                              NULL};
        rig_open(&r, f, &(rig_options){.precision = p, .more = more});
        char step[160];
        snprintf(step, sizeof step, "%s/%s/checkpoints/step-30", f->folder, p->name);
        FIXTURE_OK(trainer_load(r.t, step));
        FIXTURE_OK(trainer_evaluate(r.t, 100, &e));
        rig_close(&r);
        ott_eval_options o = options(f, OTT_EVAL_PERPLEXITY, "held.txt");
        ott_eval_result result = evaluate(f, p->name, &o);
        assert_int_equal(result.tokens, e.labels);
        assert_int_equal(result.items, 12);
        assert_int_equal(result.fp8_gemms, kinds[i] == BF16 ? 0 : result.gemms);
        if (fabs(result.loss - e.loss) > 1e-6 * e.loss)
            fail_msg("%s: %.9g and %.9g", p->name, result.loss, e.loss);
        assert_true(result.perplexity == exp(result.loss));
        assert_true(fabs(result.bits_per_byte - result.loss / log(2.0)) < 1e-12);
    }
}

/* Every byte except the first is predicted once, with windows of any length. */
static void every_token_counts_once(void **state) {
    const fixture *f = *state;
    static float logits[WINDOW][VOCAB];
    char text[200];
    oracle or ;
    fixture_write_text(path_of(f, "tail.txt"), 2 * WINDOW + 23, 11);
    ott_eval_options o = options(f, OTT_EVAL_PERPLEXITY, "tail.txt");
    ott_eval_result r = evaluate(f, "bf16", &o);
    assert_int_equal(r.items, 3);
    assert_int_equal(r.tokens, 2 * WINDOW + 22);
    FILE *file = fopen(path_of(f, "tail.txt"), "rb");
    assert_int_equal(fread(text, 1, sizeof text, file), 2 * WINDOW + 23);
    fclose(file);
    double loss = 0;
    oracle_open(& or, f, "bf16");
    for (int64_t begin = 0; begin < r.tokens; begin += WINDOW) {
        int64_t count = r.tokens - begin < WINDOW ? r.tokens - begin : WINDOW;
        oracle_logits(& or, (unsigned char *)text + begin, count, logits);
        for (int64_t i = 0; i < count; i++)
            loss += log_sum(logits[i]) - (double)logits[i][(unsigned char)text[begin + i + 1]];
    }
    oracle_close(& or);
    if (fabs(r.loss * (double)r.tokens - loss) > 1e-5 * loss)
        fail_msg("%g and %g", r.loss * (double)r.tokens, loss);
    write_file(f, "two.txt", "ab");
    o = options(f, OTT_EVAL_PERPLEXITY, "two.txt");
    assert_int_equal(evaluate(f, "bf16", &o).tokens, 1);
    write_file(f, "one.txt", "a");
    o = options(f, OTT_EVAL_PERPLEXITY, "one.txt");
    check_refused(f, "bf16", &o, OTT_ERR_FORMAT, "one.txt: has 1 tokens");
}

/* A text file, a token file with the same tokens, and a JSONL row with the same text give the same loss. */
static void a_text_is_its_tokens(void **state) {
    const fixture *f = *state;
    int64_t bytes;
    int32_t tokens[400];
    mem *account;
    fixture_write_text(path_of(f, "some.txt"), 301, 12);
    char *text = fixture_read(f, "some.txt", &bytes);
    for (int64_t i = 0; i < bytes; i++) tokens[i] = (unsigned char)text[i];
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(token_file_write(account, path_of(f, "some.bin"), tokens, bytes));
    str row = {.account = account};
    str_append(&row, "{\"text\": ");
    str_append_json(&row, text, bytes);
    str_append(&row, "}");
    write_file(f, "some.jsonl", row.text);
    str_free(&row);
    mem_close(account);
    free(text);
    ott_eval_options o = options(f, OTT_EVAL_PERPLEXITY, "some.txt"),
                     b = options(f, OTT_EVAL_PERPLEXITY, "some.bin"),
                     j = options(f, OTT_EVAL_PERPLEXITY, "some.jsonl");
    ott_eval_result r = evaluate(f, "tensorwise", &o), s = evaluate(f, "tensorwise", &b),
                    t = evaluate(f, "tensorwise", &j);
    assert_true(r.loss == s.loss && r.tokens == s.tokens && r.bits_per_byte == s.bits_per_byte);
    assert_true(r.loss == t.loss && r.tokens == t.tokens);
    o.limit = 2;
    assert_int_equal(evaluate(f, "tensorwise", &o).tokens, 2 * WINDOW);
    o.limit = 0;
    o.seq_len = 100; /* seq_len 100 gives fewer windows than the default */
    assert_int_equal(evaluate(f, "tensorwise", &o).items, 3);
    o.seq_len = 129;
    check_refused(f, "tensorwise", &o, OTT_ERR_ARGUMENT,
                  "129 tokens are more than the model's max_seq_len = 128");
}

/* ---- comparing ---- */

static ott_eval_result compare(const fixture *f, const char *run, const char *against,
                               const char *its_precision) {
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", f->folder, against);
    ott_eval_options o = options(f, OTT_EVAL_COMPARE, "tail.txt");
    o.against = path;
    o.against_precision = its_precision;
    return evaluate(f, run, &o);
}

static void a_model_is_itself(void **state) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const char *run = fixture_precisions[kinds[i]].name;
        ott_eval_result r = compare(*state, run, run, NULL);
        assert_true(r.kl_max == 0 && r.kl_mean == 0 && r.cosine == 1 && r.agreement == 1 && r.passed);
        assert_int_equal(r.tokens, 2 * WINDOW + 22);
        assert_true(isnan(r.loss) && isnan(r.acc));
    }
}

/* Compares KL(against || model), cosine and agreement with simple computations from both models' logits. */
static void the_distance_is_what_it_is(void **state) {
    const fixture *f = *state;
    static float p[WINDOW][VOCAB], q[WINDOW][VOCAB];
    oracle own, other;
    int64_t bytes;
    char *text = fixture_read(f, "tail.txt", &bytes);
    double most = 0, sum = 0, dot = 0, pp = 0, qq = 0, same = 0;
    oracle_open(&own, f, "rowwise");
    oracle_open(&other, f, "bf16");
    for (int64_t begin = 0; begin < bytes - 1; begin += WINDOW) {
        int64_t count = bytes - 1 - begin < WINDOW ? bytes - 1 - begin : WINDOW;
        oracle_logits(&own, (unsigned char *)text + begin, count, q);
        oracle_logits(&other, (unsigned char *)text + begin, count, p);
        for (int64_t t = 0; t < count; t++) {
            double divergence = 0, p_sum = log_sum(p[t]), q_sum = log_sum(q[t]);
            int p_best = 0, q_best = 0;
            for (int i = 0; i < VOCAB; i++) {
                double a = (double)p[t][i], b = (double)q[t][i];
                divergence += exp(a - p_sum) * ((a - p_sum) - (b - q_sum));
                dot += a * b, pp += a * a, qq += b * b;
                if (p[t][i] > p[t][p_best]) p_best = i;
                if (q[t][i] > q[t][q_best]) q_best = i;
            }
            most = fmax(most, divergence);
            sum += divergence;
            same += p_best == q_best;
        }
    }
    oracle_close(&own);
    oracle_close(&other);
    free(text);
    ott_eval_result r = compare(f, "rowwise", "bf16", NULL);
    assert_true(fabs(r.kl_max - most) < 1e-9 * most && most > 0);
    assert_true(fabs(r.kl_mean - sum / (double)(bytes - 1)) < 1e-9 * sum);
    assert_true(fabs(r.cosine - dot / sqrt(pp * qq)) < 1e-9);
    assert_true(r.agreement == same / (double)(bytes - 1));
}

/* Compares an FP8 run with the same weights in bf16: the result passes the limits on KL divergence. Compared
   with another training run, it fails them. */
static void the_verdict_can_be_either(void **state) {
    const fixture *f = *state;
    ott_eval_result near = compare(f, "rowwise", "rowwise", "bf16");
    assert_true(near.kl_max > 0 && near.cosine < 1 && near.passed);
    rig r;
    char step[160];
    const char *more[] = {"--train.seq_len=64", "--model.max_seq_len=128", "--train.seed=99", NULL};
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[BF16], .more = more});
    rig_save(&r, f, "stranger", step);
    rig_close(&r);
    ott_eval_result far = compare(f, "rowwise", "stranger/step-0", NULL);
    assert_false(far.passed);
    ott_eval_options o = options(f, OTT_EVAL_COMPARE, "tail.txt");
    o.against = path_of(f, "stranger/step-0");
    o.kl_max = o.kl_mean = 1e9;
    o.cosine = -1;
    ott_eval_result wide;
    FIXTURE_OK(evaluate_with(f, "rowwise", &o, NULL, &wide));
    assert_true(wide.passed && wide.kl_max == far.kl_max);
}

/* ---- precision ---- */

/* A run can be evaluated in another precision than its own. A filter keeps layers out of FP8. */
static void precision_on_request(void **state) {
    const fixture *f = *state;
    static const char *const filter[] = {"lm_head", "layers.0"};
    ott_eval_options o = options(f, OTT_EVAL_PERPLEXITY, "tail.txt");
    ott_eval_result own = evaluate(f, "bf16", &o);
    o.precision = "trained";
    assert_true(evaluate(f, "bf16", &o).loss == own.loss);
    o.precision = "tensorwise";
    ott_eval_result fp8 = evaluate(f, "bf16", &o);
    assert_true(fp8.loss != own.loss && fabs(fp8.loss - own.loss) < 0.05 && fp8.fp8_gemms == fp8.gemms);
    o.filter = filter;
    o.filter_count = 2;
    ott_eval_result part = evaluate(f, "bf16", &o);
    /* 15 layers: 7 in each of 2 blocks, and the head */
    assert_int_equal(part.fp8_gemms * 15, part.gemms * 7);
    o = options(f, OTT_EVAL_PERPLEXITY, "tail.txt");
    o.precision = "bf16";
    assert_int_equal(evaluate(f, "tensorwise", &o).fp8_gemms, 0);
    o.precision = "tensorwize";
    check_refused(f, "bf16", &o, OTT_ERR_ARGUMENT, "did you mean \"tensorwise\"?");
    o.precision = "delayed";
    check_refused(f, "bf16", &o, OTT_ERR_UNSUPPORTED, "takes its scales from earlier training steps");
    assert_true(evaluate(f, "delayed", &o).fp8_gemms > 0);
}

/* Keys of the configuration can replace --precision, or change settings of the named precision. */
static void keys_on_request(void **state) {
    const fixture *f = *state;
    static const char *const block_keys[] = {"--train.mixed_precision=fp8", "--float8.recipe_name=block"};
    static const char *const fp32_scales[] = {"--float8.round_scales_to_power_of_2=false"};
    static const char *const rate[] = {"--optimizer.lr=1"};
    ott_eval_options o = options(f, OTT_EVAL_PERPLEXITY, "tail.txt"), named = o;
    o.settings = block_keys;
    o.setting_count = 2;
    named.precision = "block";
    ott_eval_result by_key = evaluate(f, "tensorwise", &o), by_name = evaluate(f, "tensorwise", &named);
    assert_true(by_key.loss == by_name.loss && by_key.fp8_gemms == by_key.gemms);
    named.settings = fp32_scales;
    named.setting_count = 1;
    assert_true(evaluate(f, "tensorwise", &named).loss != by_name.loss);
    named.precision = "fp32";
    check_refused(f, "tensorwise", &named, OTT_ERR_CONFIG,
                  "has no effect, because the model computes in fp32");
    o.settings = rate;
    o.setting_count = 1;
    check_refused(f, "bf16", &o, OTT_ERR_CONFIG, "--optimizer.lr=1: eval takes only the keys float8.*, ");
    o = options(f, OTT_EVAL_PERPLEXITY, "tail.txt");
    o.precision = "fp32";
    ott_eval_result fp32 = evaluate(f, "tensorwise", &o);
    assert_true(fp32.fp8_gemms == 0 && fp32.loss != by_key.loss && fabs(fp32.loss - by_key.loss) < 0.05);
}

/* ---- logits ---- */

/* The logits that are written to a file give the loss that is reported. */
static void logits_are_those_of_the_loss(void **state) {
    const fixture *f = *state;
    mem *account;
    safetensors *file;
    const safetensors_entry *logits, *labels;
    static float row[VOCAB];
    ott_eval_options o = options(f, OTT_EVAL_PERPLEXITY, "tail.txt");
    char path[160];
    snprintf(path, sizeof path, "%s", path_of(f, "logits.safetensors"));
    o.logits = path;
    o.precision = "fp32";
    ott_eval_result r = evaluate(f, "bf16", &o);
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(safetensors_open(account, path, &file));
    assert_non_null(logits = safetensors_find(file, "logits"));
    assert_non_null(labels = safetensors_find(file, "labels"));
    assert_non_null(safetensors_find(file, "input_ids"));
    assert_true(logits->dtype == OTT_F32 && logits->shape[0] == r.tokens && logits->shape[1] == VOCAB);
    double sum = 0;
    for (int64_t t = 0; t < r.tokens; t++) {
        int32_t label;
        FIXTURE_OK(safetensors_read(file, logits, t * (int64_t)sizeof row, sizeof row, row));
        FIXTURE_OK(safetensors_read(file, labels, t * 4, 4, &label));
        sum += log_sum(row) - (double)row[label];
    }
    assert_true(fabs(sum / (double)r.tokens - r.loss) < 1e-6);
    safetensors_close(file);
    mem_close(account);
    assert_true(r.window == WINDOW && r.batch >= 1 && !r.bos);
}

/* ---- a Hugging Face folder ---- */

static void a_folder_is_a_model(void **state) {
    const fixture *f = *state;
    oracle o;
    oracle_open(&o, f, "bf16");
    hf_save_summary saved;
    FIXTURE_OK(hf_model_save(o.e.m, &(hf_save_options){.dtype = OTT_F32}, path_of(f, "hf"), &saved));
    oracle_close(&o);
    ott_eval_options bin = options(f, OTT_EVAL_PERPLEXITY, "some.bin"),
                     text = options(f, OTT_EVAL_PERPLEXITY, "some.txt");
    bin.seq_len = WINDOW;
    ott_eval_result folder = evaluate(f, "hf", &bin), run = evaluate(f, "bf16", &bin);
    assert_true(folder.loss == run.loss && isnan(folder.bits_per_byte) && !isnan(run.bits_per_byte));
    check_refused(f, "hf", &text, OTT_ERR_ARGUMENT,
                  "the Hugging Face folder of the model has no tokenizer.json or tokenizer.model: name one "
                  "with --tokenizer");
    bin.task = OTT_EVAL_COMPARE;
    bin.against = path_of(f, "bf16");
    ott_eval_result same;
    FIXTURE_OK(evaluate_with(f, "hf", &bin, NULL, &same));
    assert_true(same.kl_max == 0 && same.cosine == 1);
}

/* ---- threads, stopping, memory ---- */

static void assert_same_numbers(const ott_eval_result *a, const ott_eval_result *b) {
    ott_eval_result x = *a, y = *b;
    x.seconds = y.seconds = 0;
    assert_memory_equal(&x, &y, sizeof x);
}

static void threads_change_nothing(void **state) {
    const fixture *f = *state;
    static const char *const data[] = {[OTT_EVAL_HELLASWAG] = "rows.jsonl",
                                       [OTT_EVAL_PERPLEXITY] = "tail.txt",
                                       [OTT_EVAL_COMPARE] = "tail.txt"};
    for (int task = 0; task < 3; task++) {
        char other[160];
        snprintf(other, sizeof other, "%s", path_of(f, "bf16"));
        ott_eval_options o = options(f, (ott_eval_task)task, data[task]);
        if (task == OTT_EVAL_COMPARE) o.against = other;
        ott_eval_result one = evaluate(f, "tensorwise", &o);
        o.threads = 3;
        ott_eval_result three = evaluate(f, "tensorwise", &o);
        assert_same_numbers(&one, &three);
    }
}

typedef struct lookout {
    int64_t calls, total, stop_at;
} lookout;

static void see_work(void *user, const ott_work *work) {
    lookout *w = user;
    assert_int_equal(work->done, ++w->calls);
    assert_true(work->seconds_left >= 0);
    w->total = work->total;
}

static bool stop_here(void *user) {
    lookout *w = user;
    return w->calls >= w->stop_at;
}

static void what_was_done_counts(void **state) {
    const fixture *f = *state;
    for (int64_t stop_at = 1; stop_at <= 6; stop_at++) {
        lookout w = {.stop_at = stop_at};
        eval_hooks hooks = {.stop = stop_here, .user = &w};
        ott_eval_options o = options(f, OTT_EVAL_HELLASWAG, "rows.jsonl");
        ott_eval_result r, limited;
        o.progress = see_work;
        o.user = &w;
        FIXTURE_OK(evaluate_with(f, "bf16", &o, &hooks, &r));
        assert_int_equal(r.items, stop_at < 5 ? stop_at : 5);
        assert_int_equal(w.total, 5);
        o.progress = NULL;
        o.limit = r.items;
        limited = evaluate(f, "bf16", &o);
        assert_true(limited.acc == r.acc && limited.loss == r.loss && r.total == 5);
    }
}

static void every_failed_allocation_is_undone(void **state) {
    const fixture *f = *state;
    static const char *const data[] = {[OTT_EVAL_HELLASWAG] = "ties.jsonl",
                                       [OTT_EVAL_PERPLEXITY] = "two.txt",
                                       [OTT_EVAL_COMPARE] = "two.txt"};
    mem *account;
    FIXTURE_OK(mem_open(&account));
    for (int task = 0; task < 3; task++) {
        ott_eval_options o = options(f, (ott_eval_task)task, data[task]);
        char other[160];
        snprintf(other, sizeof other, "%s", path_of(f, "rowwise"));
        if (task == OTT_EVAL_COMPARE) o.against = other;
        ott_status status = OTT_ERR_MEMORY;
        /* n takes growing steps, because the later allocations are all alike */
        for (int n = 1; status != OTT_OK; n += 1 + n / 12) {
            ott_eval_result r;
            mem_fail_after(account, n);
            status = eval_run(account, NULL, path_of(f, "rowwise"), &o, NULL, &r);
            mem_fail_after(account, 0);
            assert_int_equal(mem_read(account).now, 0);
        }
    }
    mem_close(account);
}

static void bad_requests(void **state) {
    const fixture *f = *state;
    ott_eval_options o = options(f, OTT_EVAL_PERPLEXITY, "absent.txt");
    check_refused(f, "bf16", &o, OTT_ERR_NOT_FOUND, "absent.txt");
    check_refused(f, "nowhere", &o, OTT_ERR_NOT_FOUND, "nowhere");
    o = options(f, OTT_EVAL_COMPARE, "two.txt");
    o.against = path_of(f, "nowhere");
    check_refused(f, "bf16", &o, OTT_ERR_NOT_FOUND, "nowhere");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cleaning_is_lm_evals),
        cmocka_unit_test(capitalizing_is_pythons),
        cmocka_unit_test(rows_become_texts),
        cmocka_unit_test(hellaswag_is_lm_evals_and_llmcs),
        cmocka_unit_test(rows_are_counted),
        cmocka_unit_test(the_first_of_equals_is_chosen),
        cmocka_unit_test(contexts_lose_their_beginning),
        cmocka_unit_test(bad_rows_are_named),
        cmocka_unit_test(the_loss_is_that_of_validation),
        cmocka_unit_test(every_token_counts_once),
        cmocka_unit_test(a_text_is_its_tokens),
        cmocka_unit_test(a_model_is_itself),
        cmocka_unit_test(the_distance_is_what_it_is),
        cmocka_unit_test(the_verdict_can_be_either),
        cmocka_unit_test(precision_on_request),
        cmocka_unit_test(keys_on_request),
        cmocka_unit_test(logits_are_those_of_the_loss),
        cmocka_unit_test(a_folder_is_a_model),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(what_was_done_counts),
        cmocka_unit_test(every_failed_allocation_is_undone),
        cmocka_unit_test(bad_requests),
    };
    return cmocka_run_group_tests(tests, setup, fixture_teardown);
}
