/*
 * Tokenizing a corpus gives a token file with the ids that training would compute from the text, with any
 * number of threads, and also if the corpus is read in several rounds. The file is complete or absent.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "data/dataset.h"
#include "data/tokenize.h"
#include "train/train_fixture.h"
#include "base/file/file.h"

/* Writes a tokenizer of bytes in GPT-2's format, with "<s>" 256, "</s>" 257 and a few merges. */
static void write_tokenizer(const char *folder) {
    char path[160], name[16];
    static const char *const merges[] = {"t h", "th e", "a n", "i n", "e r"};
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs("{\"added_tokens\": [", file);
    for (int i = 0; i < 2; i++)
        fprintf(
            file,
            "{\"id\": %d, \"content\": \"%s\", \"special\": true, \"single_word\": false, \"lstrip\": false, "
            "\"rstrip\": false, \"normalized\": false}%s",
            256 + i, i ? "</s>" : "<s>", i ? "]," : ",");
    fputs("\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true},"
          "\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {",
          file);
    for (int byte = 0, next = 256; byte < 256; byte++) {
        bool plain = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
        snprintf(name, sizeof name, "\\u%04x", plain ? byte : next++);
        fprintf(file, "\"%s\": %d, ", name, byte);
    }
    fputs("\"<s>\": 256, \"</s>\": 257", file);
    for (int i = 0; i < 5; i++) {
        char joined[8] = "";
        sscanf(merges[i], "%7s", joined);
        strcat(joined, strchr(merges[i], ' ') + 1);
        fprintf(file, ", \"%s\": %d", joined, 258 + i);
    }
    fputs("}, \"merges\": [", file);
    for (int i = 0; i < 5; i++) fprintf(file, "\"%s\"%s", merges[i], i < 4 ? ", " : "]}}");
    assert_int_equal(fclose(file), 0);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    file = fopen(path, "wb");
    fputs("{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"add_bos_token\": true}", file);
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state) {
    if (fixture_setup(state)) return -1;
    write_tokenizer(((fixture *)*state)->folder);
    return 0;
}

/* ---- calling ---- */

static const char *path_of(const fixture *f, const char *name) {
    static char paths[4][160];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", f->folder, name);
    return path;
}

static ott_tokenize_options options(int threads, const char *separator) {
    return (ott_tokenize_options){.threads = threads, .separator = separator, .text_field = "text"};
}

static ott_tokenize_result tokenize(const fixture *f, const char *in, const char *out,
                                    const ott_tokenize_options *o) {
    ott_tokenize_result result;
    mem *account;
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(tokenize_file(account, NULL, f->folder, path_of(f, in), path_of(f, out), o, &result));
    assert_int_equal(mem_read(account).now, 0);
    mem_close(account);
    return result;
}

/* ---- comparison with training data ---- */

/* Returns the tokens of an open dataset. The caller frees them. */
static int32_t *tokens_of(dataset *d) {
    int64_t count = dataset_tokens(d);
    int32_t *tokens = malloc((size_t)count * sizeof *tokens),
            *rest = malloc(4 * (size_t)count * sizeof *rest);
    FIXTURE_OK(dataset_make_rows(d, &(dataset_row_options){.length = count - 1}));
    dataset_row row = {.token = tokens, .target = rest, .position = rest + count, .start = rest + 2 * count};
    FIXTURE_OK(dataset_read_row(d, 0, &row));
    tokens[count - 1] = row.target[count - 2];
    free(rest);
    return tokens;
}

static void check_tokens(const fixture *f, const char *text, const char *bin, bool rows,
                         const char *separator) {
    mem *account;
    tokenizer *t;
    dataset *wanted, *made;
    const char *paths[] = {path_of(f, text)}, *files[] = {path_of(f, bin)};
    dataset_source s = {.paths = paths,
                        .count = 1,
                        .to_share = 1,
                        .add_eos = true,
                        .separator = separator,
                        .text_field = "text",
                        .prompt_field = "",
                        .vocab = 263};
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(tokenizer_open(account, f->folder, &t));
    s.tokenizer = t;
    s.add_bos = tokenizer_adds_bos(t);
    FIXTURE_OK(rows ? dataset_open_rows(account, &s, ROWS_OTHER, &wanted)
                    : dataset_open_text(account, &s, &wanted));
    s.paths = files;
    FIXTURE_OK(dataset_open_tokens(account, &s, &made));
    assert_int_equal(dataset_tokens(made), dataset_tokens(wanted));
    int32_t *a = tokens_of(made), *b = tokens_of(wanted);
    assert_memory_equal(a, b, (size_t)dataset_tokens(made) * sizeof *a);
    free(a);
    free(b);
    dataset_close(made);
    dataset_close(wanted);
    tokenizer_close(t);
    mem_close(account);
}

static void text_is_what_training_reads(void **state) {
    const fixture *f = *state;
    for (int threads = 1; threads <= 3; threads++) {
        ott_tokenize_options o = options(threads, "\n");
        ott_tokenize_result r = tokenize(f, "text.txt", "text.bin", &o);
        assert_int_equal(r.bytes, 60000);
        assert_true(r.complete && r.documents > 100 && r.tokens > 2 * r.documents);
        check_tokens(f, "text.txt", "text.bin", false, "\n");
    }
    ott_tokenize_options one = options(2, "");
    assert_int_equal(tokenize(f, "text.txt", "one.bin", &one).documents, 1);
    check_tokens(f, "text.txt", "one.bin", false, "");
}

/* A line with an empty text is not a document. The name of a special token in a text is read as ordinary
   characters. */
static void rows_are_what_training_reads(void **state) {
    const fixture *f = *state;
    FILE *file = fopen(path_of(f, "rows.jsonl"), "wb");
    for (int i = 0; i < 500; i++)
        fprintf(file,
                i % 7 == 3   ? "\n"
                : i % 7 == 5 ? "{\"text\": \"\"}\n"
                             : "{\"n\": %d, \"text\": \"the </s> %d\\n\"}\n",
                i, i * i);
    assert_int_equal(fclose(file), 0);
    for (int threads = 1; threads <= 3; threads++) {
        ott_tokenize_options o = options(threads, "not for rows");
        assert_int_equal(tokenize(f, "rows.jsonl", "rows.bin", &o).documents, 500 - 71 - 71);
        check_tokens(f, "rows.jsonl", "rows.bin", true, "");
    }
}

/* Tokenizes a JSON array of rows that is larger than the text that is read in one round. */
static void an_array_is_what_training_reads(void **state) {
    const fixture *f = *state;
    FILE *file = fopen(path_of(f, "rows.json"), "wb");
    for (int i = 0; i < 50000; i++)
        fprintf(file,
                "%s\n  {\"n\": [%d, 18446744073709551616],\n   \"text\": \"the ]}, \\\" %d, in an array of "
                "rows\"}",
                i ? "," : " [", i, i % 1000 * i);
    fputs("]\n \n", file);
    assert_int_equal(fclose(file), 0);
    for (int threads = 1; threads <= 2; threads++) {
        ott_tokenize_options o = options(threads, "not for rows");
        assert_int_equal(tokenize(f, "rows.json", "rows.bin", &o).documents, 50000);
    }
    check_tokens(f, "rows.json", "rows.bin", true, "");
}

static bool stop_third(void *user) {
    int64_t *asked = user;
    return ++*asked >= 3;
}

/* A stop request ends tokenizing even within a file that is one document. */
static void stops_within_a_document(void **state) {
    const fixture *f = *state;
    fixture_write_text(path_of(f, "one.txt"), 1 << 20, 3);
    int64_t asked = 0;
    const cancellation counted = {.stop = stop_third, .user = &asked};
    ott_tokenize_options o = options(1, "");
    ott_tokenize_result result;
    mem *account;
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(tokenize_file(account, &counted, f->folder, path_of(f, "one.txt"), path_of(f, "halted.bin"),
                             &o, &result));
    assert_int_equal(result.complete, 0);
    assert_int_equal(asked, 3);
    assert_false(file_exists(path_of(f, "halted.bin")));
    mem_close(account);
}

/* A round reads 4 MiB per thread. This file is larger than a round, and one of its documents is too. */
static void many_rounds_are_one_file(void **state) {
    const fixture *f = *state;
    fixture_write_text(path_of(f, "part.txt"), 1 << 20, 3);
    int64_t bytes;
    char *part = fixture_read(f, "part.txt", &bytes);
    FILE *file = fopen(path_of(f, "large.txt"), "wb");
    for (int i = 0; i < 12; i++) {
        if (i < 2 || i > 7) /* one document of 6 MiB between small ones */
            for (char *c = part; *c; c++) *c = *c == '\r' ? '\n' : *c;
        else
            for (char *c = part; *c; c++) *c = *c == '\n' ? '\r' : *c;
        fwrite(part, 1, (size_t)bytes, file);
    }
    assert_int_equal(fclose(file), 0);
    free(part);
    ott_tokenize_options one = options(1, "\n"), two = options(2, "\n");
    ott_tokenize_result r = tokenize(f, "large.txt", "large.bin", &one);
    assert_int_equal(r.bytes, 12 << 20);
    assert_int_equal(tokenize(f, "large.txt", "large-2.bin", &two).tokens, r.tokens);
    check_tokens(f, "large.txt", "large.bin", false, "\n");
    check_tokens(f, "large.txt", "large-2.bin", false, "\n");
}

/* ---- complete or absent ---- */

typedef struct lookout {
    int calls, stop_at;
    int64_t last, total;
} lookout;

static void see_work(void *user, const ott_work *work) {
    lookout *w = user;
    assert_true(work->done >= w->last && work->done <= work->total);
    w->last = work->done;
    w->total = work->total;
    w->calls++;
}

static bool stop_here(void *user) {
    lookout *w = user;
    return w->calls == w->stop_at;
}

static void stopping_leaves_nothing(void **state) {
    const fixture *f = *state;
    lookout w = {.stop_at = 1};
    const cancellation asked = {.stop = stop_here, .user = &w};
    ott_tokenize_options o = options(1, "\n");
    ott_tokenize_result result;
    mem *account;
    o.progress = see_work;
    o.user = &w;
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(tokenize_file(account, &asked, f->folder, path_of(f, "large.txt"), path_of(f, "stopped.bin"),
                             &o, &result));
    assert_int_equal(result.complete, 0);
    assert_int_equal(w.total, 12 << 20);
    assert_false(file_exists(path_of(f, "stopped.bin")));
    w = (lookout){.stop_at = -1};
    FIXTURE_OK(tokenize_file(account, &asked, f->folder, path_of(f, "large.txt"), path_of(f, "whole.bin"), &o,
                             &result));
    assert_int_equal(w.last, w.total);
    assert_true(result.complete && w.calls >= 2 && file_exists(path_of(f, "whole.bin")));
    mem_close(account);
}

static void count_aside(const fixture *f) {
    file_list list;
    mem *account;
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(file_list_folder(account, f->folder, &list));
    for (int64_t i = 0; i < list.count; i++)
        if (strstr(list.names[i], ".part") || strstr(list.names[i], ".tmp"))
            fail_msg("%s is left", list.names[i]);
    file_list_free(&list);
    mem_close(account);
}

static void every_failed_allocation_is_undone(void **state) {
    const fixture *f = *state;
    ott_tokenize_options o = options(2, "\n");
    ott_tokenize_result result;
    ott_status status = OTT_ERR_MEMORY;
    mem *account;
    FIXTURE_OK(mem_open(&account));
    for (int64_t n = 1; status != OTT_OK; n += n < 40 ? 1 : 37) {
        mem_fail_after(account, n);
        status = tokenize_file(account, NULL, f->folder, path_of(f, "text.txt"), path_of(f, "scarce.bin"), &o,
                               &result);
        mem_fail_after(account, 0);
        if (status != OTT_OK) assert_int_equal(status, OTT_ERR_MEMORY);
        assert_int_equal(file_exists(path_of(f, "scarce.bin")), status == OTT_OK);
        assert_int_equal(mem_read(account).now, 0);
    }
    mem_close(account);
    count_aside(f);
}

/* The error names the first bad document of the file, even if another thread finds a later one earlier. */
static void the_first_failure_is_reported(void **state) {
    const fixture *f = *state;
    FILE *file = fopen(path_of(f, "bad.jsonl"), "wb");
    for (int i = 1; i <= 400; i++)
        fputs(i == 150 || i == 390 ? "{\"text\": 1}\n" : "{\"text\": \"a text\"}\n", file);
    assert_int_equal(fclose(file), 0);
    for (int threads = 1; threads <= 4; threads++) {
        ott_tokenize_options o = options(threads, "");
        ott_tokenize_result result;
        mem *account;
        FIXTURE_OK(mem_open(&account));
        assert_int_equal(tokenize_file(account, NULL, f->folder, path_of(f, "bad.jsonl"),
                                       path_of(f, "bad.bin"), &o, &result),
                         OTT_ERR_FORMAT);
        if (!strstr(status_text(), "bad.jsonl:150: text is a whole number, not a text"))
            fail_msg("%s", status_text());
        assert_false(file_exists(path_of(f, "bad.bin")));
        mem_close(account);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_what_training_reads),       cmocka_unit_test(rows_are_what_training_reads),
        cmocka_unit_test(an_array_is_what_training_reads),   cmocka_unit_test(stops_within_a_document),
        cmocka_unit_test(many_rounds_are_one_file),          cmocka_unit_test(stopping_leaves_nothing),
        cmocka_unit_test(every_failed_allocation_is_undone), cmocka_unit_test(the_first_failure_is_reported),
    };
    return cmocka_run_group_tests(tests, setup, fixture_teardown);
}
