/* Downloads a dataset's rows. The file is complete or unchanged. */
#include "base/file/file.h"
#include "hub_fixture.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void check_file(hub_fixture *x) {
    int64_t bytes, expected_bytes;
    char *text = folder_read(x->f, "out.jsonl", &bytes),
         *expected = folder_read(x->f, "rows.jsonl", &expected_bytes);
    assert_int_equal(bytes, expected_bytes);
    assert_memory_equal(text, expected, (size_t)bytes);
    mem_free(x->f->account, text);
    mem_free(x->f->account, expected);
}

static ott_status pull(hub_fixture *x, const char *config, const char *split) {
    char out[128];
    strcpy(out, folder_file(x->f, "out.jsonl"));
    return hub_pull_rows(&x->caller, "org/rows", config, split, out);
}

static void test_rows(void **state) {
    hub_fixture *x = *state;
    setenv("HF_TOKEN", "hf_secret", 1);
    assert_int_equal(pull(x, NULL, "train"), OTT_OK);
    check_file(x);
    assert_int_equal(hub_server_count(x->server,
                                      "/rows?dataset=org%2Frows&config=default&split=train&offset=200",
                                      "Bearer hf_secret"),
                     1);
    assert_int_equal(pull(x, "small", "train"), OTT_OK);
    assert_int_equal(hub_server_count(x->server, "&config=small&", ""), 3);
}

static void test_choices(void **state) {
    hub_fixture *x = *state;
    assert_int_equal(pull(x, "large", "train"), OTT_ERR_NOT_FOUND);
    assert_error_names("org/rows: give one of its splits; --config default --split train; --config default "
                       "--split validation; "
                       "--config small --split train");
    assert_int_equal(pull(x, NULL, "test"), OTT_ERR_NOT_FOUND);
    assert_error_names("give one of its splits; --config default");
    assert_int_equal(pull(x, "small", "validation"), OTT_ERR_NOT_FOUND);
    assert_error_names("give one of its splits");
}

static void test_temporary_faults(void **state) {
    hub_fixture *x = *state;
    static const hub_fault faults[] = {HUB_BREAK, HUB_BUSY, HUB_TOO_MANY};
    for (int i = 0; i < 3; i++) {
        hub_server_fail(x->server, faults[i], 1, "offset=100");
        assert_int_equal(pull(x, NULL, "train"), OTT_OK);
        check_file(x);
    }
}

static void test_lasting_faults(void **state) {
    hub_fixture *x = *state;
    static const struct {
        hub_fault fault;
        ott_status status;
        const char *part, *message;
    } cases[] = {{HUB_LONG_TOTAL, OTT_ERR_IO, "offset=100", "the dataset changed during the download"},
                 {HUB_TRUNCATED_CELL, OTT_ERR_UNSUPPORTED, "offset=200", "row 200 is too large"},
                 {HUB_BUSY, OTT_ERR_IO, "offset=100", "HTTP 503"},
                 {HUB_NOT_JSON, OTT_ERR_FORMAT, "offset=100", "is not JSON"},
                 {HUB_GATED, OTT_ERR_ARGUMENT, "/splits", "/datasets/org/rows, then set HF_TOKEN"},
                 {HUB_MISSING, OTT_ERR_NOT_FOUND, "/splits", "has no such dataset"}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        size_t k = i / 2;
        char *text;
        folder_write_text(x->f, "out.jsonl", "old\n");
        if (i % 2) file_remove_tree(folder_file(x->f, "out.jsonl"));
        hub_server_fail(x->server, cases[k].fault, 1000, cases[k].part);
        assert_int_equal(pull(x, NULL, "train"), cases[k].status);
        assert_error_names(cases[k].message);
        assert_int_equal(file_exists(folder_file(x->f, "out.jsonl")), i % 2 == 0);
        if (i % 2) continue;
        text = folder_read(x->f, "out.jsonl", NULL);
        assert_string_equal(text, "old\n");
        mem_free(x->f->account, text);
    }
    file_list names = {0};
    assert_int_equal(file_list_folder(x->f->account, x->f->path, &names), OTT_OK);
    assert_int_equal(names.count, 2); /* repo and rows.jsonl: no temporary file */
    file_list_free(&names);
}

static void test_offline(void **state) {
    hub_fixture *x = *state;
    setenv("HF_HUB_OFFLINE", "1", 1);
    assert_int_equal(pull(x, NULL, "train"), OTT_ERR_NOT_FOUND);
    assert_error_names("HF_HUB_OFFLINE");
    assert_int_equal(hub_server_count(x->server, "", ""), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {HUB_TEST(test_rows), HUB_TEST(test_choices),
                                       HUB_TEST(test_temporary_faults), HUB_TEST(test_lasting_faults),
                                       HUB_TEST(test_offline)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
