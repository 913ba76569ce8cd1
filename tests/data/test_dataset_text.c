/*
 * Text as ids of a tokenizer, JSONL documents, document boundaries in running text, and mixtures of datasets:
 * shares, order, determinism.
 */
#include "support/folder.h"
#include "base/text/str.h"
#include "data/rows.h"
#include "support/token_file.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- a tokenizer ---- */

/* A tokenizer of the letters a to h, "ab", "cd", <s> and </s>, with ids 0 to 11. */
static const char tokenizer_json[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
    "\"added_tokens\":[{\"id\":10,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":"
    "false,"
    "\"normalized\":false,\"special\":true},{\"id\":11,\"content\":\"</"
    "s>\",\"single_word\":false,\"lstrip\":false,"
    "\"rstrip\":false,\"normalized\":false,\"special\":true}],"
    "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
    "\"trim_offsets\":true,\"use_regex\":false},\"post_processor\":null,"
    "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":"
    "false},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
    "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{\"a\":0,\"b\":1,\"c\":"
    "2,"
    "\"d\":3,\"e\":4,\"f\":5,\"g\":6,\"h\":7,\"ab\":8,\"cd\":9},\"merges\":[\"a b\",\"c d\"]}}";
static const char tokenizer_config[] = "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}";
enum { AB = 8, CD = 9, BOS = 10, EOS = 11 };

static tokenizer *open_tokenizer(folder *f) {
    tokenizer *t;
    folder_write_text(f, "tokenizer_config.json", tokenizer_config);
    if (tokenizer_open(f->account, folder_write_text(f, "tokenizer.json", tokenizer_json), &t) != OTT_OK)
        fail_msg("%s", status_text());
    return t;
}

/* Expects all tokens of a dataset: reads them as a row of all tokens but the last, which is a target. */
static void check_ids(dataset *d, const int32_t *expected, int64_t count) {
    assert_int_equal(dataset_tokens(d), count);
    rows_split(d, count - 1, false);
    held_row h = rows_read(d, 0);
    assert_memory_equal(h.row.token, expected, (size_t)(count - 1) * 4);
    assert_int_equal(h.row.target[count - 2], expected[count - 1]);
    free(h.memory);
}

#define CHECK_IDS(d, ...)                                                                                    \
    check_ids(d, (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* ---- text ---- */

static void text_becomes_documents(void **state) {
    folder *f = *state;
    tokenizer *t = open_tokenizer(f);
    dataset *d;
    const char *path = folder_write_text(f, "t.txt", "abe|cd||ab");
    dataset_source s = rows_source(&path);
    s.tokenizer = t;
    s.separator = "|";
    assert_int_equal(dataset_open_text(f->account, &s, &d), OTT_OK);
    assert_int_equal(dataset_vocab(d), 12);
    assert_string_equal(dataset_name(d), path);
    CHECK_IDS(d, BOS, AB, 4, EOS, BOS, CD, EOS, BOS, AB, EOS);
    dataset_close(d);
    s.add_bos = s.add_eos = false;
    assert_int_equal(dataset_open_text(f->account, &s, &d), OTT_OK);
    CHECK_IDS(d, AB, 4, CD, AB);
    dataset_close(d);
    s.limit = 2;
    assert_int_equal(dataset_open_text(f->account, &s, &d), OTT_OK);
    CHECK_IDS(d, AB, 4, CD);
    dataset_close(d);
    s.separator = "";
    /* the tokenizer has no token for '|' */
    assert_int_equal(dataset_open_text(f->account, &s, &d), OTT_ERR_FORMAT);
    assert_error_names("/t.txt: ");
    tokenizer_close(t);
}

static void files_are_documents(void **state) {
    folder *f = *state;
    tokenizer *t = open_tokenizer(f);
    dataset *d;
    char paths[2][128];
    const char *list[] = {paths[0], paths[1]};
    strcpy(paths[0], folder_write_text(f, "a.txt", "abcd"));
    strcpy(paths[1], folder_write_text(f, "b.txt", "ab"));
    dataset_source s = rows_source(list);
    s.count = 2;
    s.tokenizer = t;
    assert_int_equal(dataset_open_text(f->account, &s, &d), OTT_OK);
    CHECK_IDS(d, BOS, AB, CD, EOS, BOS, AB, EOS);
    dataset_close(d);
    s.from_share = 0.5; /* the share is bytes 3 to 5: d, a, b */
    assert_int_equal(dataset_open_text(f->account, &s, &d), OTT_OK);
    CHECK_IDS(d, BOS, 3, EOS, BOS, AB, EOS);
    dataset_close(d);
    tokenizer_close(t);
}

static void rows_of_text(void **state) {
    folder *f = *state;
    tokenizer *t = open_tokenizer(f);
    dataset *d;
    const char *path = folder_write_text(
        f, "t.jsonl", "{\"text\": \"ab\", \"n\": 1}\n{\"text\": \"\"}\n{\"text\": \"cde\"}\n");
    dataset_source s = rows_source(&path);
    s.tokenizer = t;
    assert_int_equal(dataset_open_rows(f->account, &s, ROWS_OTHER, &d), OTT_OK);
    assert_false(dataset_has_samples(d));
    CHECK_IDS(d, BOS, AB, EOS, BOS, CD, 4, EOS);
    rows_split(d, 6, true);
    held_row h = rows_read(d, 0);
    assert_memory_equal(h.row.target, ((int32_t[]){AB, EOS, -100, CD, 4, EOS}), 24);
    assert_memory_equal(h.row.position, ((int32_t[]){0, 1, 2, 0, 1, 2}), 24);
    assert_true(h.row.documents == 2 && h.row.start[1] == 3 && h.row.labels == 5);
    free(h.memory);
    rows_split(d, 3, true); /* one document ends where a row ends */
    h = rows_read(d, 0);
    assert_memory_equal(h.row.target, ((int32_t[]){AB, EOS, -100}), 12);
    assert_true(h.row.documents == 1 && h.row.labels == 2);
    free(h.memory);
    dataset_close(d);
    s.text_field = "body";
    assert_int_equal(dataset_open_rows(f->account, &s, ROWS_OTHER, &d), OTT_ERR_FORMAT);
    assert_error_names("/t.jsonl:1: the row has no field \"body\"; it has text, n");
    tokenizer_close(t);
}

/* Token files do not store document boundaries. But a document ends after each EOS of their tokenizer. */
static void eos_ends_documents(void **state) {
    folder *f = *state;
    tokenizer *t = open_tokenizer(f);
    dataset *d;
    const int32_t tokens[] = {1, 2, EOS, 3, EOS, 4, 5};
    assert_int_equal(token_file_write(f->account, folder_file(f, "t.bin"), tokens, 7), OTT_OK);
    const char *path = f->file;
    dataset_source s = rows_source(&path);
    s.vocab = 12;
    assert_int_equal(dataset_open_tokens(f->account, &s, &d), OTT_OK);
    assert_int_equal(dataset_make_rows(d, &(dataset_row_options){.length = 6, .pack = true}), OTT_ERR_CONFIG);
    assert_error_names("does not contain them");
    assert_error_names("data.tokenizer_path");
    dataset_close(d);
    s.tokenizer = t;
    assert_int_equal(dataset_open_tokens(f->account, &s, &d), OTT_OK);
    rows_split(d, 6, true);
    held_row h = rows_read(d, 0);
    assert_memory_equal(h.row.target, ((int32_t[]){2, EOS, -100, EOS, -100, 5}), 24);
    assert_memory_equal(h.row.position, ((int32_t[]){0, 1, 2, 0, 1, 0}), 24);
    assert_true(h.row.documents == 3 && h.row.start[1] == 3 && h.row.start[2] == 5 && h.row.labels == 4);
    free(h.memory);
    dataset_close(d);
    tokenizer_close(t);
}

/* ---- mixtures ---- */

enum { PARTS = 3 };

/* Opens a mixture. Part i has rows[i] rows of one token; all tokens of the part are the letter 'a' + i. */
static dataset *open_mixture(folder *f, const double *weights, double temperature, const int *rows,
                             bool shuffle) {
    dataset *parts[PARTS], *d;
    char text[1000], name[] = "0.txt";
    for (int i = 0; i < PARTS; i++) {
        memset(text, 'a' + i, sizeof text);
        text[rows[i] + 1] = 0;
        name[0] = (char)('0' + i);
        const char *path = folder_write_text(f, name, text);
        dataset_source s = rows_source(&path);
        assert_int_equal(dataset_open_bytes(f->account, &s, &parts[i]), OTT_OK);
    }
    if (dataset_open_mixture(f->account, parts, weights, PARTS, temperature, &d) != OTT_OK)
        fail_msg("%s", status_text());
    assert_int_equal(dataset_make_rows(d, &(dataset_row_options){.length = 1, .shuffle = shuffle}), OTT_OK);
    return d;
}

static int part_of_row(const dataset *d, uint64_t seed, int64_t number) {
    int32_t token, target, position, start[1];
    dataset_row row = {.token = &token, .target = &target, .position = &position, .start = start};
    assert_int_equal(dataset_load_row(d, seed, number, &row), OTT_OK);
    assert_int_equal(row.labels, 1);
    return token - 'a';
}

static void check_shares(folder *f, const double *weights, double temperature, const double *shares) {
    const int rows[PARTS] = {50, 7, 300};
    dataset *d = open_mixture(f, weights, temperature, rows, true);
    int64_t counts[PARTS] = {0};
    for (int64_t i = 0; i < 140000; i++) { /* more rows than the table of the mixture has slots */
        counts[part_of_row(d, 1, i)]++;
        for (int k = 0; k < PARTS && i % 997 == 0; k++)
            if (fabs((double)counts[k] - shares[k] * (double)(i + 1)) >
                2.5) /* shares are rounded to 1/65536 */
                fail_msg("after %d rows, part %d has %d rows, not %g", (int)i + 1, k, (int)counts[k],
                         shares[k] * (double)(i + 1));
    }
    dataset_close(d);
}

static void mixtures_keep_their_shares(void **state) {
    check_shares(*state, (double[]){1, 1, 2}, 1, (double[]){0.25, 0.25, 0.5});
    check_shares(*state, (double[]){7000, 2000, 1000}, 1, (double[]){0.7, 0.2, 0.1});
    check_shares(*state, (double[]){1, 4, 16}, 2, (double[]){1 / 7.0, 2 / 7.0, 4 / 7.0});
    check_shares(*state, (double[]){1, 4, 16}, 1e6, (double[]){1 / 3.0, 1 / 3.0, 1 / 3.0});
}

/* Every part of a mixture has its own epochs: each row of a part occurs once before any of its rows
   repeats. */
static void parts_have_their_own_epochs(void **state) {
    folder *f = *state;
    dataset *parts[2], *d;
    char letters[27] = "abcdefghijklmnopqrstuvwxyz";
    const char *path = folder_write_text(f, "l.txt", letters);
    dataset_source s = rows_source(&path);
    assert_int_equal(dataset_open_bytes(f->account, &s, &parts[0]), OTT_OK);
    path = folder_write_text(f, "d.txt", "0123456789");
    assert_int_equal(dataset_open_bytes(f->account, &s, &parts[1]), OTT_OK);
    assert_int_equal(dataset_open_mixture(f->account, parts, (double[]){3, 1}, 2, 1, &d), OTT_OK);
    assert_int_equal(dataset_make_rows(d, &(dataset_row_options){.length = 1, .shuffle = true}), OTT_OK);
    assert_int_equal(dataset_rows(d), 25 + 9);
    int seen[256] = {0}, drawn[2] = {0};
    for (int64_t i = 0; i < 1000; i++) {
        int byte = part_of_row(d, 3, i) + 'a', part = byte < 'a';
        assert_int_equal(seen[byte]++, drawn[part] / (part ? 9 : 25));
        drawn[part]++;
    }
    assert_true(drawn[0] == 750 && drawn[1] == 250);
    dataset_close(d);
}

/* From given rows on, a mixture has other shares. The parts continue their epochs. No rows are read from a
   part of weight 0. */
static void phases_change_the_shares(void **state) {
    static const struct {
        int end;
        double weights[2];
        int digits; /* expected number of rows drawn from the second part */
    } phases[] = {{301, {3, 1}, 75}, {651, {1, 1}, 175}, {1000, {0, 1}, 349}, {70000, {1, 1}, 34500}};
    folder *f = *state;
    dataset *parts[2], *d;
    int seen[256] = {0}, drawn[2] = {0}, i = 0;
    const char *path = folder_write_text(f, "l.txt", "abcdefghijklmnopqrstuvwxyz");
    dataset_source s = rows_source(&path);
    assert_int_equal(dataset_open_bytes(f->account, &s, &parts[0]), OTT_OK);
    path = folder_write_text(f, "d.txt", "0123456789");
    assert_int_equal(dataset_open_bytes(f->account, &s, &parts[1]), OTT_OK);
    assert_int_equal(dataset_open_mixture(f->account, parts, phases[0].weights, 2, 1, &d), OTT_OK);
    for (int k = 1; k < 4; k++)
        assert_int_equal(dataset_mixture_phase(d, phases[k - 1].end, phases[k].weights, 1), OTT_OK);
    assert_int_equal(dataset_mixture_phase(d, 70000, (double[]){0, 0}, 1), OTT_ERR_CONFIG);
    assert_error_names("no dataset has a weight above 0 from row 70000 on");
    assert_int_equal(dataset_make_rows(d, &(dataset_row_options){.length = 1, .shuffle = true}), OTT_OK);
    for (int k = 0; k < 4; k++) {
        int before = drawn[1];
        for (; i < phases[k].end; i++) {
            int byte = part_of_row(d, 3, i) + 'a', part = byte < 'a';
            assert_int_equal(seen[byte]++, drawn[part] / (part ? 9 : 25));
            drawn[part]++;
        }
        assert_true(abs(drawn[1] - before - phases[k].digits) <= 1);
    }
    dataset_close(d);
}

static void order_is_a_function_of_the_number(void **state) {
    folder *f = *state;
    const int rows[PARTS] = {20, 30, 40};
    const double weights[] = {0.2, 0.3, 0.5};
    dataset *a = open_mixture(f, weights, 1, rows, true), *b = open_mixture(f, weights, 1, rows, true);
    for (int64_t i = 0; i < 500; i++) assert_int_equal(part_of_row(a, 5, i), part_of_row(b, 5, i));
    for (int64_t i = 499; i >= 0; i -= 7) assert_int_equal(part_of_row(a, 5, i), part_of_row(b, 5, i));
    dataset_close(a);
    dataset_close(b);
}

static void unshuffled_is_file_order(void **state) {
    folder *f = *state;
    dataset *d;
    int32_t m[4];
    const char *path = folder_write_text(f, "t.txt", "abcdef");
    dataset_source s = rows_source(&path);
    assert_int_equal(dataset_open_bytes(f->account, &s, &d), OTT_OK);
    rows_split(d, 1, false);
    for (int64_t i = 0; i < 12; i++) {
        dataset_row row = {.token = m, .target = m + 1, .position = m + 2, .start = m + 3};
        assert_int_equal(dataset_load_row(d, 9, i, &row), OTT_OK);
        assert_int_equal(m[0], "abcde"[i % 5]);
    }
    dataset_close(d);
}

static void bad_weights_are_refused(void **state) {
    folder *f = *state;
    const char *path = folder_write_text(f, "t.txt", "some text");
    dataset_source s = rows_source(&path);
    const double bad[] = {0, -1, NAN, INFINITY};
    for (int i = 0; i < 5; i++) {
        dataset *parts[2], *d;
        for (int k = 0; k < 2; k++) assert_int_equal(dataset_open_bytes(f->account, &s, &parts[k]), OTT_OK);
        double weights[] = {1, i < 4 ? bad[i] : 1};
        assert_int_equal(dataset_open_mixture(f->account, parts, weights, 2, i < 4 ? 1 : 0, &d),
                         OTT_ERR_CONFIG);
        assert_error_names(i < 4 ? "is not above 0" : "data.mix_temperature = 0");
        assert_null(d);
    }
    mem_stats before = mem_read(f->account);
    for (int64_t n = 1; n < 4; n++) {
        dataset *parts[1], *d;
        assert_int_equal(dataset_open_bytes(f->account, &s, &parts[0]), OTT_OK);
        mem_fail_after(f->account, n);
        assert_int_equal(dataset_open_mixture(f->account, parts, (double[]){1}, 1, 1, &d), OTT_ERR_MEMORY);
        mem_fail_after(f->account, 0);
    }
    assert_int_equal(mem_read(f->account).now, before.now);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(text_becomes_documents),
        TEST(files_are_documents),
        TEST(rows_of_text),
        TEST(eos_ends_documents),
        TEST(mixtures_keep_their_shares),
        TEST(phases_change_the_shares),
        TEST(parts_have_their_own_epochs),
        TEST(order_is_a_function_of_the_number),
        TEST(unshuffled_is_file_order),
        TEST(bad_weights_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
