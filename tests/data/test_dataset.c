/* Tests text as bytes, synthetic tokens, and the order of rows: shares of a text, UTF-8, windows, epochs. */
#include "support/folder.h"
#include "data/dataset.h"
#include "base/text/str.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static ott_status open_share(folder *f, const char *path, double from, double to, dataset **d) {
    return dataset_open_bytes(
        f->account, &(dataset_source){.paths = &path, .count = 1, .from_share = from, .to_share = to}, d);
}

static dataset *open_text(folder *f, const char *text, double from, double to) {
    dataset *d;
    ott_status status = open_share(f, folder_write_text(f, "t.txt", text), from, to, &d);
    if (status != OTT_OK) fail_msg("%s", status_text());
    return d;
}

static ott_status split(dataset *d, int64_t length) {
    return dataset_make_rows(d, &(dataset_row_options){.length = length, .shuffle = true});
}

static int64_t windows(dataset *d, int64_t length) {
    return split(d, length) == OTT_OK ? dataset_rows(d) : 0;
}

#define LONGEST 1000

static dataset_row row_of(int32_t *tokens, int32_t *targets) {
    static int32_t position[LONGEST], start[LONGEST];
    return (dataset_row){.token = tokens, .target = targets, .position = position, .start = start};
}

/* Splits the dataset into rows of `length` tokens and reads row `index`. */
static ott_status read_window(dataset *d, int64_t length, int64_t index, int32_t *tokens, int32_t *targets) {
    dataset_row row = row_of(tokens, targets);
    TRY(split(d, length));
    TRY(dataset_read_row(d, index, &row));
    assert_true(row.documents == 1 && row.start[0] == 0 && row.labels == length);
    for (int64_t i = 0; i < length; i++) assert_int_equal(row.position[i], i);
    return OTT_OK;
}

/* Reads row `number` of a run with rows of one token. */
static ott_status read_sample(dataset *d, uint64_t seed, int64_t number, int32_t *tokens, int32_t *targets) {
    dataset_row row = row_of(tokens, targets);
    TRY(split(d, 1));
    return dataset_load_row(d, seed, number, &row);
}

static void bytes_are_tokens(void **state) {
    folder *f = *state;
    int32_t tokens[4], targets[4];
    dataset *d = open_text(f,
                           "0123\xc3\xa9"
                           "6789",
                           0, 1);
    assert_int_equal(dataset_vocab(d), 256);
    assert_int_equal(dataset_tokens(d), 10);
    assert_string_equal(dataset_name(d), folder_file(f, "t.txt"));
    assert_int_equal(windows(d, 4), 2); /* tokens 0 to 4 and 4 to 8; token 9 is in no row */
    assert_int_equal(read_window(d, 4, 0, tokens, targets), OTT_OK);
    assert_memory_equal(tokens, ((int32_t[]){'0', '1', '2', '3'}), sizeof tokens);
    assert_memory_equal(targets, ((int32_t[]){'1', '2', '3', 0xc3}), sizeof targets);
    assert_int_equal(read_window(d, 4, 1, tokens, targets), OTT_OK);
    assert_memory_equal(tokens, ((int32_t[]){0xc3, 0xa9, '6', '7'}), sizeof tokens);
    assert_memory_equal(targets, ((int32_t[]){0xa9, '6', '7', '8'}), sizeof targets);
    assert_int_equal(read_window(d, 4, 2, tokens, targets), OTT_ERR_ARGUMENT);
    assert_int_equal(read_window(d, 4, -1, tokens, targets), OTT_ERR_ARGUMENT);
    assert_int_equal(read_window(d, 1, 8, tokens, targets), OTT_OK);
    assert_int_equal(tokens[0], '8');
    assert_int_equal(targets[0], '9');
    dataset_close(d);
    dataset_close(NULL);
}

static void counts_windows(void **state) {
    folder *f = *state;
    dataset *d = open_text(f, "0123456789", 0, 1);
    static const struct {
        int64_t seq_len, windows;
    } cases[] = {{1, 9}, {2, 4}, {3, 3}, {4, 2}, {8, 1}, {9, 1}, {10, 0}, {0, 0}, {-1, 0}, {INT64_MAX, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(windows(d, cases[i].seq_len), cases[i].windows);
    dataset_close(d);
}

/* A text is divided into two shares at any byte, also inside a character. Each byte is in one share. */
static void shares_tile_the_file(void **state) {
    folder *f = *state;
    const char *text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\xf0\x9f\x98\x80\xe2\x82\xac\xc3\xa9";
    const int64_t size = (int64_t)strlen(text);
    for (int percent = 5; percent < 100; percent++) {
        double split = percent / 100.0;
        dataset *head = open_text(f, text, 0, split), *tail = open_text(f, text, split, 1);
        assert_int_equal(dataset_tokens(head), (int64_t)floor(split * (double)size));
        assert_int_equal(dataset_tokens(head) + dataset_tokens(tail), size);
        int32_t token, target;
        for (int64_t i = 0; i < windows(tail, 1); i++) {
            assert_int_equal(read_window(tail, 1, i, &token, &target), OTT_OK);
            assert_int_equal(token, (unsigned char)text[dataset_tokens(head) + i]);
        }
        assert_non_null(strstr(dataset_name(tail), "t.txt (bytes "));
        dataset_close(head);
        dataset_close(tail);
    }
}

static void refuse_text(folder *f, const void *data, int64_t bytes, double from, double to,
                        ott_status expected, const char *message) {
    dataset *d;
    assert_int_equal(open_share(f, folder_write(f, "bad.txt", data, bytes), from, to, &d), expected);
    assert_null(d);
    assert_error_names("/bad.txt: ");
    assert_error_names(message);
}

static void refuses_what_is_no_text(void **state) {
    folder *f = *state;
    dataset *d;
    refuse_text(f, "", 0, 0, 1, OTT_ERR_FORMAT, "is empty");
    refuse_text(f, "abc\xff", 4, 0, 1, OTT_ERR_FORMAT, "not UTF-8 text: byte 3 (0xff)");
    refuse_text(f, "abc\xc3", 4, 0, 1, OTT_ERR_FORMAT, "byte 3 (0xc3)");
    refuse_text(f,
                "\x80"
                "abc",
                4, 0, 1, OTT_ERR_FORMAT, "byte 0 (0x80)");
    refuse_text(f,
                "abcdefgh\xff"
                "ijklmnopqrst",
                21, 0.4, 1, OTT_ERR_FORMAT, "byte 8 (0xff)");
    refuse_text(f,
                "abcd\x80\x80\x80\x80\x80"
                "ijklmnopqrs",
                20, 0.35, 1, OTT_ERR_FORMAT, "byte 7 (0x80)");
    refuse_text(f, "abcdefgh", 8, 0.5, 0.5, OTT_ERR_ARGUMENT, "0 <= from < to <= 1");
    refuse_text(f, "abcdefgh", 8, -0.1, 0.5, OTT_ERR_ARGUMENT, "0 <= from < to <= 1");
    refuse_text(f, "abcdefgh", 8, 0, 1.5, OTT_ERR_ARGUMENT, "0 <= from < to <= 1");
    refuse_text(f, "abcdefgh", 8, NAN, 1, OTT_ERR_ARGUMENT, "0 <= from < to <= 1");
    assert_int_equal(open_share(f, folder_file(f, "absent"), 0, 1, &d), OTT_ERR_NOT_FOUND);
    assert_int_equal(open_share(f, f->path, 0, 1, &d), OTT_ERR_ARGUMENT);
    assert_error_names("is a folder");
    assert_int_equal(open_share(f, "/dev/zero", 0, 1, &d), OTT_ERR_ARGUMENT);
    assert_null(d);
}

/* A byte that is not UTF-8 is an error only in the share that contains it. The other share opens. */
static void bad_byte_of_another_part(void **state) {
    folder *f = *state;
    dataset *d;
    const char *path = folder_write_text(f, "t.txt", "abcdefghij\xffklmnopqrs");
    assert_int_equal(open_share(f, path, 0, 0.5, &d), OTT_OK);
    dataset_close(d);
    assert_int_equal(open_share(f, path, 0.5, 1, &d), OTT_ERR_FORMAT);
    assert_error_names("byte 10 (0xff)");
}

static void too_short(void **state) {
    folder *f = *state;
    int32_t tokens[8], targets[8];
    dataset *d = open_text(f, "01234567", 0, 1);
    assert_int_equal(split(d, 7), OTT_OK);
    assert_int_equal(split(d, 8), OTT_ERR_CONFIG);
    assert_error_names("train.seq_len = 8 exceeds the 8 tokens of ");
    assert_error_names("t.txt; ");
    assert_error_names("set train.seq_len to 7 or less");
    assert_int_equal(split(d, 0), OTT_ERR_CONFIG);
    assert_int_equal(read_window(d, 8, 0, tokens, targets), OTT_ERR_CONFIG);
    assert_int_equal(dataset_load_row(d, 1, 0, &(dataset_row){.token = tokens, .target = targets}),
                     OTT_ERR_ARGUMENT);
    assert_int_equal(dataset_epoch(d, 5), 0);
    dataset_close(d);
    d = open_text(f, "01234567", 0, 0.1);
    assert_int_equal(dataset_tokens(d), 0);
    assert_int_equal(split(d, 4), OTT_ERR_CONFIG);
    assert_error_names("exceeds the 0 tokens of ");
    assert_error_names("(bytes 0 to 0)");
    dataset_close(d);
}

static void synthetic_tokens(void **state) {
    folder *f = *state;
    enum { SEQ = 1000, VOCAB = 10 };
    int32_t tokens[SEQ], targets[SEQ], again[SEQ], counts[VOCAB] = {0};
    dataset *d, *other;
    assert_int_equal(dataset_open_synthetic(f->account, VOCAB, 1, 10 * SEQ + 1, &d), OTT_OK);
    assert_int_equal(dataset_open_synthetic(f->account, VOCAB, 2, 10 * SEQ + 1, &other), OTT_OK);
    assert_int_equal(windows(d, SEQ), 10);
    assert_int_equal(dataset_vocab(d), VOCAB);
    for (int64_t w = 0; w < 10; w++) {
        assert_int_equal(read_window(d, SEQ, w, tokens, targets), OTT_OK);
        assert_memory_equal(tokens + 1, targets, (SEQ - 1) * sizeof *tokens);
        for (int i = 0; i < SEQ; i++) assert_in_range(tokens[i], 0, VOCAB - 1);
        for (int i = 0; i < SEQ; i++) counts[tokens[i]]++;
    }
    /* each count is 1000 on average, with standard deviation 30 */
    for (int i = 0; i < VOCAB; i++) assert_in_range(counts[i], 850, 1150);
    assert_int_equal(read_window(other, SEQ, 9, again, targets), OTT_OK);
    assert_memory_not_equal(tokens, again, sizeof tokens);
    dataset_close(d);
    dataset_close(other);
    assert_int_equal(dataset_open_synthetic(f->account, 0, 1, 5, &d), OTT_ERR_ARGUMENT);
    assert_int_equal(dataset_open_synthetic(f->account, INT64_C(1) << 31, 1, 5, &d), OTT_ERR_ARGUMENT);
    assert_int_equal(dataset_open_synthetic(f->account, 5, 1, -1, &d), OTT_ERR_ARGUMENT);
}

/* Each epoch has every row once, in another order. A sample's number and the seed alone select its row. */
static void epochs_permute_windows(void **state) {
    folder *f = *state;
    enum { WINDOWS = 100, EPOCHS = 3 };
    char text[WINDOWS + 2];
    int order[EPOCHS][WINDOWS];
    int32_t token, target;
    for (int i = 0; i <= WINDOWS; i++) text[i] = (char)(i + 1);
    text[WINDOWS + 1] = '\0';
    dataset *d = open_text(f, text, 0, 1);
    assert_int_equal(windows(d, 1), WINDOWS);
    for (int e = 0; e < EPOCHS; e++) {
        bool seen[WINDOWS] = {false};
        for (int i = 0; i < WINDOWS; i++) {
            assert_int_equal(read_sample(d, 42, e * WINDOWS + i, &token, &target), OTT_OK);
            assert_int_equal(dataset_epoch(d, e * WINDOWS + i), e);
            assert_int_equal(target, token + 1);
            order[e][i] = token - 1;
            assert_false(seen[token - 1]);
            seen[token - 1] = true;
        }
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    assert_memory_not_equal(order[1], order[2], sizeof order[0]);
    int same = 0, in_place = 0;
    for (int i = 0; i < WINDOWS; i++) {
        assert_int_equal(read_sample(d, 43, i, &token, &target), OTT_OK);
        same += token - 1 == order[0][i];
        in_place += order[0][i] == i;
    }
    assert_true(same < 20 && in_place < 20);
    assert_int_equal(read_sample(d, 42, WINDOWS + 7, &token, &target), OTT_OK);
    assert_int_equal(token - 1, order[1][7]);
    assert_int_equal(read_sample(d, 42, -1, &token, &target), OTT_ERR_ARGUMENT);
    dataset_close(d);
}

static void memory_runs_out(void **state) {
    folder *f = *state;
    const char *path = folder_write_text(f, "t.txt", "some text");
    dataset *d = NULL;
    for (int64_t n = 1; !d; n++) {
        mem_fail_after(f->account, n);
        ott_status status = open_share(f, path, 0, 0.5, &d);
        assert_true(status == (d ? OTT_OK : OTT_ERR_MEMORY));
    }
    dataset_close(d);
    d = NULL;
    for (int64_t n = 1; !d; n++) {
        mem_fail_after(f->account, n);
        ott_status status = dataset_open_synthetic(f->account, 4, 1, 9, &d);
        assert_true(status == (d ? OTT_OK : OTT_ERR_MEMORY));
    }
    mem_fail_after(f->account, 0);
    dataset_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_are_tokens, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(counts_windows, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(shares_tile_the_file, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(refuses_what_is_no_text, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(bad_byte_of_another_part, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(too_short, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(synthetic_tokens, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(epochs_permute_windows, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(memory_runs_out, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
