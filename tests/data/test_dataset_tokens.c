/*
 * Token files: every format is read, invalid headers are refused. Also tests documents, several files, and
 * ids out of range.
 */
#include "support/folder.h"
#include "base/file/file.h"
#include "data/rows.h"
#include "support/token_file.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- files ---- */

enum { TOKENS = 50 };

/* Returns token i of the test files: ids up to 50256, so both bytes of a 2-byte token are used. */
static int32_t token(int64_t i) {
    return (int32_t)(i * 1237 % 50257);
}

typedef struct bytes {
    unsigned char at[1 << 16];
    int64_t count;
} bytes;

static void put(bytes *b, int64_t value, int width) {
    for (int i = 0; i < width; i++) b->at[b->count++] = (unsigned char)((uint64_t)value >> 8 * i);
}

static void put_text(bytes *b, const char *text, int64_t count) {
    memcpy(b->at + b->count, text, (size_t)count);
    b->count += count;
}

static void put_tokens(bytes *b, int64_t first, int64_t count, int width) {
    for (int64_t i = first; i < first + count; i++) put(b, token(i), width);
}

static void put_header(bytes *b, int64_t magic, int64_t version, int64_t count, int64_t width) {
    const int64_t words[] = {magic, version, count, width};
    for (int i = 0; i < 256; i++) put(b, i < 4 ? words[i] : 0, 4);
}

static void put_npy(bytes *b, const char *dict) {
    put_text(b, "\x93NUMPY\x01\x00", 8);
    put(b, (int64_t)strlen(dict), 2);
    put_text(b, dict, (int64_t)strlen(dict));
}

static void write_bytes(folder *f, const char *name, const bytes *b) {
    folder_write(f, name, b->at, b->count);
}

static ott_status open_files(folder *f, const char *const *names, int64_t count, int64_t vocab, dataset **d) {
    char paths[8][128];
    const char *list[8];
    for (int64_t i = 0; i < count; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", f->path, names[i]);
        list[i] = paths[i];
    }
    dataset_source s = rows_source(list);
    s.count = count;
    s.vocab = vocab;
    return dataset_open_tokens(f->account, &s, d);
}

static dataset *open_one(folder *f, const char *name) {
    dataset *d;
    if (open_files(f, &name, 1, 50257, &d) != OTT_OK) fail_msg("%s", status_text());
    return d;
}

/* Reads all rows, which have 7 tokens. They must be the file's tokens in order, from token `first` on. */
static void check_tokens(const dataset *d, int64_t first) {
    for (int64_t r = 0; r < dataset_rows(d); r++) {
        held_row h = rows_read(d, r);
        for (int64_t i = 0; i < 7; i++) {
            assert_int_equal(h.row.token[i], token(first + 7 * r + i));
            assert_int_equal(h.row.target[i], token(first + 7 * r + i + 1));
        }
        free(h.memory);
    }
}

static void check_file(folder *f, const char *name, const bytes *b) {
    write_bytes(f, name, b);
    dataset *d = open_one(f, name);
    assert_int_equal(dataset_tokens(d), TOKENS);
    assert_int_equal(dataset_vocab(d), 50257);
    assert_false(dataset_has_samples(d));
    rows_split(d, 7, false);
    assert_int_equal(dataset_rows(d), 7);
    check_tokens(d, 0);
    dataset_close(d);
}

static void formats_read_back(void **state) {
    folder *f = *state;
    bytes b = {.count = 0};
    put_header(&b, 20240520, 1, TOKENS, 0);
    put_tokens(&b, 0, TOKENS, 2);
    check_file(f, "llmc.bin", &b);
    b.count = 0;
    put_header(&b, 20240801, 7, TOKENS, 0);
    put_tokens(&b, 0, TOKENS, 4);
    check_file(f, "llmc7.bin", &b);
    b.count = 0;
    put_header(&b, 278895051, 1, TOKENS, 2);
    put_tokens(&b, 0, TOKENS, 2);
    check_file(f, "nano.bin", &b);
    b.count = 0;
    put_tokens(&b, 0, TOKENS, 4);
    check_file(f, "bare.bin", &b);
}

static void numpy_reads_back(void **state) {
    folder *f = *state;
    static const struct {
        const char *dict;
        int width;
    } cases[] = {
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (50,), }          \n", 2},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (50,), }\n", 4},
        {"{'shape': (50,), 'descr': '<u4'}\n", 4},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (50,), }\n", 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bytes b = {.count = 0};
        put_npy(&b, cases[i].dict);
        put_tokens(&b, 0, TOKENS, cases[i].width);
        check_file(f, "t.npy", &b);
    }
}

/* An odd number of 2-byte tokens: the file's size is not a multiple of 4. */
static void bare_file_of_two_bytes(void **state) {
    folder *f = *state;
    bytes b = {.count = 0};
    put_tokens(&b, 0, 29, 2);
    write_bytes(f, "t.bin", &b);
    dataset *d = open_one(f, "t.bin");
    assert_int_equal(dataset_tokens(d), 29);
    rows_split(d, 7, false);
    check_tokens(d, 0);
    dataset_close(d);
}

static void what_we_write_reads_back(void **state) {
    folder *f = *state;
    int32_t tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++) tokens[i] = token(i);
    assert_int_equal(token_file_write(f->account, folder_file(f, "ours.bin"), tokens, TOKENS), OTT_OK);
    int64_t size;
    assert_int_equal(file_size(f->file, &size), OTT_OK);
    assert_int_equal(size, 1024 + 4 * TOKENS);
    dataset *d = open_one(f, "ours.bin");
    rows_split(d, 7, false);
    assert_int_equal(dataset_rows(d), 7);
    check_tokens(d, 0);
    dataset_close(d);
    tokens[3] = -1;
    assert_int_equal(token_file_write(f->account, folder_file(f, "bad.bin"), tokens, TOKENS),
                     OTT_ERR_ARGUMENT);
    assert_false(file_exists(folder_file(f, "bad.bin")));
}

/* ---- several files, and parts ---- */

static void shards_are_one_sequence(void **state) {
    folder *f = *state;
    static const char *const names[] = {"a.bin", "b.bin", "c.npy"};
    static const int64_t counts[] = {13, 1, 36};
    dataset *d;
    bytes b = {.count = 0};
    put_header(&b, 20240520, 1, counts[0], 0);
    put_tokens(&b, 0, counts[0], 2);
    write_bytes(f, names[0], &b);
    b.count = 0;
    put_tokens(&b, counts[0], counts[1], 4);
    write_bytes(f, names[1], &b);
    b.count = 0;
    put_npy(&b, "{'descr': '<u2', 'fortran_order': False, 'shape': (36,), }\n");
    put_tokens(&b, 14, counts[2], 2);
    write_bytes(f, names[2], &b);
    assert_int_equal(open_files(f, names, 3, 50257, &d), OTT_OK);
    assert_int_equal(dataset_tokens(d), TOKENS);
    assert_non_null(strstr(dataset_name(d), "3 files, "));
    rows_split(d, 7, false);
    assert_int_equal(dataset_rows(d), 7);
    check_tokens(d, 0);
    dataset_close(d);
}

/* Opens more files than the process may have open at a time. */
static void many_shards(void **state) {
    folder *f = *state;
    enum { FILES = 150 };
    static char paths[FILES][128];
    const char *list[FILES];
    dataset *d;
    for (int i = 0; i < FILES; i++) {
        char name[16];
        bytes b = {.count = 0};
        put_tokens(&b, 3 * i, 3, 4);
        snprintf(name, sizeof name, "%03d.bin", i);
        write_bytes(f, name, &b);
        strcpy(paths[i], f->file);
        list[i] = paths[i];
    }
    dataset_source s = rows_source(list);
    s.count = FILES;
    s.vocab = 50257;
    assert_int_equal(dataset_open_tokens(f->account, &s, &d), OTT_OK);
    assert_int_equal(dataset_tokens(d), 3 * FILES);
    rows_split(d, 7, false);
    check_tokens(d, 0);
    dataset_close(d);
}

static void parts_tile_the_file(void **state) {
    folder *f = *state;
    bytes b = {.count = 0};
    put_tokens(&b, 0, TOKENS, 4);
    write_bytes(f, "t.bin", &b);
    const char *path = folder_file(f, "t.bin");
    dataset_source s = rows_source(&path);
    s.vocab = 50257;
    for (int percent = 10; percent < 100; percent += 7) {
        dataset *head, *tail;
        s.from_share = 0;
        s.to_share = percent / 100.0;
        assert_int_equal(dataset_open_tokens(f->account, &s, &head), OTT_OK);
        s.from_share = s.to_share;
        s.to_share = 1;
        assert_int_equal(dataset_open_tokens(f->account, &s, &tail), OTT_OK);
        assert_int_equal(dataset_tokens(head) + dataset_tokens(tail), TOKENS);
        if (dataset_tokens(tail) > 7) {
            rows_split(tail, 7, false);
            check_tokens(tail, dataset_tokens(head));
        }
        dataset_close(head);
        dataset_close(tail);
    }
}

static void ids_out_of_range_are_found(void **state) {
    folder *f = *state;
    dataset *d;
    const char *name = "t.bin";
    bytes b = {.count = 0};
    put_tokens(&b, 0, TOKENS, 4);
    write_bytes(f, name, &b);
    /* the check fails before any data are read */
    assert_int_equal(open_files(f, &name, 1, 40000, &d), OTT_ERR_FORMAT);
    assert_error_names(" or more");
    assert_error_names("set model.vocab_size to the vocabulary of the tokenizer that made the file, ");
    assert_error_names("/t.bin: token 33 is 40821, and model.vocab_size is 40000");
    assert_error_names("tokens of 4 bytes, no header");
    assert_int_equal(open_files(f, &name, 1, 0, &d), OTT_ERR_ARGUMENT);
}

/* ---- Megatron ---- */

/* The index of a Megatron file: the lengths of the sequences, and the first sequence of each document. */
typedef struct megatron {
    int type, width;
    int64_t sequences, marks;
    int64_t length[8], mark[8];
} megatron;

static const megatron usual = {
    .type = 8, .width = 2, .sequences = 5, .marks = 4, .length = {10, 5, 20, 8, 7}, .mark = {0, 2, 3, 5}};

static void write_megatron(folder *f, const megatron *m) {
    bytes index = {.count = 0}, tokens = {.count = 0};
    int64_t at = 0;
    put_text(&index, "MMIDIDX\0\0", 9);
    put(&index, 1, 8);
    put(&index, m->type, 1);
    put(&index, m->sequences, 8);
    put(&index, m->marks, 8);
    for (int64_t i = 0; i < m->sequences; i++) put(&index, m->length[i], 4);
    for (int64_t i = 0; i < m->sequences; at += m->length[i++]) put(&index, at * m->width, 8);
    for (int64_t i = 0; i < m->marks; i++) put(&index, m->mark[i], 8);
    put_tokens(&tokens, 0, TOKENS, m->width);
    write_bytes(f, "m.idx", &index);
    write_bytes(f, "m.bin", &tokens);
}

static void megatron_reads_back(void **state) {
    folder *f = *state;
    write_megatron(f, &usual);
    dataset *d = open_one(f, "m.bin");
    assert_int_equal(dataset_tokens(d), TOKENS);
    rows_split(d, 7, false);
    check_tokens(d, 0);
    dataset_close(d);
}

/* The documents are tokens [0, 15), [15, 35) and [35, 50). No token has a target in another document, and
   positions restart. */
static void documents_stay_apart(void **state) {
    folder *f = *state;
    write_megatron(f, &usual);
    dataset *d = open_one(f, "m.bin");
    rows_split(d, 7, true);
    int64_t labels = 0;
    for (int64_t r = 0; r < 7; r++) {
        held_row h = rows_read(d, r);
        for (int64_t i = 0; i < 7; i++) {
            int64_t at = 7 * r + i, begin = at < 15 ? 0 : at < 35 ? 15 : 35;
            bool last = at == 14 || at == 34 || at == 49;
            assert_int_equal(h.row.token[i], token(at));
            assert_int_equal(h.row.target[i], last ? DATASET_NO_LABEL : token(at + 1));
            assert_int_equal(h.row.position[i], at - (begin > 7 * r ? begin : 7 * r));
        }
        assert_int_equal(h.row.documents, r == 2 ? 2 : 1);
        if (r == 2) assert_int_equal(h.row.start[1], 1); /* the second document begins at token 15 */
        labels += h.row.labels;
        free(h.memory);
    }
    assert_int_equal(labels, 49 - 2); /* tokens 14 and 34 have no target, and token 49 is no input */
    dataset_close(d);
}

static void refuse_megatron(folder *f, const megatron *m, ott_status expected, const char *message) {
    dataset *d;
    const char *name = "m.bin";
    write_megatron(f, m);
    ott_status status = open_files(f, &name, 1, 50257, &d);
    if (status != expected) fail_msg("%s: status %d, %s", message, status, status_text());
    assert_error_names(message);
}

static void hostile_indices(void **state) {
    folder *f = *state;
    megatron m = usual;
    m.type = 6;
    refuse_megatron(f, &m, OTT_ERR_UNSUPPORTED, "/m.idx: type 6 cannot hold token ids");
    m = usual;
    m.length[4] = 8;
    refuse_megatron(f, &m, OTT_ERR_FORMAT, "/m.bin: has 100 bytes, but ");
    m = usual;
    m.length[1] = -5;
    refuse_megatron(f, &m, OTT_ERR_FORMAT, "sequence 1 has -5 tokens");
    m = usual;
    m.mark[1] = 6;
    refuse_megatron(f, &m, OTT_ERR_FORMAT, "document 1 begins with sequence 6 of 5");
    m = usual;
    m.mark[1] = 4;
    refuse_megatron(f, &m, OTT_ERR_FORMAT, "document 2 begins with sequence 3");
    m = usual;
    m.mark[3] = 4;
    refuse_megatron(f, &m, OTT_ERR_FORMAT, "do not contain all of its sequences");
    m = usual;
    m.mark[0] = 1;
    refuse_megatron(f, &m, OTT_ERR_FORMAT, "do not contain all of its sequences");
}

/* Indexes with counts that overflow when they are multiplied, and indexes that end too early. */
static void hostile_index_counts(void **state) {
    folder *f = *state;
    dataset *d;
    const char *name = "m.bin";
    static const struct {
        uint64_t sequences, marks;
    } cases[] = {{UINT64_MAX, 1},
                 {1, UINT64_MAX},
                 {UINT64_C(1) << 61, 4},
                 {5, UINT64_C(1) << 61},
                 {UINT64_C(0x1555555555555556), 4}, /* 12 times this number is 8 modulo 2^64 */
                 {6, 4},
                 {5, 5},
                 {5, 0}};
    write_megatron(f, &usual);
    int64_t size;
    char *index = folder_read(f, "m.idx", &size);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(index + 18, &cases[i].sequences, 8);
        memcpy(index + 26, &cases[i].marks, 8);
        folder_write(f, "m.idx", index, size);
        assert_int_equal(open_files(f, &name, 1, 50257, &d), OTT_ERR_FORMAT);
        assert_error_names("/m.idx: ");
    }
    for (int64_t bytes_left = 0; bytes_left < 34; bytes_left++) {
        folder_write(f, "m.idx", index, bytes_left);
        assert_int_equal(open_files(f, &name, 1, 50257, &d), OTT_ERR_FORMAT);
    }
    mem_free(f->account, index);
}

/* ---- hostile headers ---- */

static void refuse(folder *f, const char *name, const bytes *b, ott_status expected, const char *message) {
    dataset *d;
    write_bytes(f, name, b);
    ott_status status = open_files(f, &name, 1, 50257, &d);
    if (status != expected) fail_msg("%s: status %d, %s", message, status, status_text());
    assert_error_names(name);
    assert_error_names(message);
}

static void refuse_header(folder *f, int64_t magic, int64_t version, int64_t count, int64_t width,
                          ott_status expected, const char *message) {
    bytes b = {.count = 0};
    put_header(&b, magic, version, count, width);
    put_tokens(&b, 0, TOKENS, 2);
    refuse(f, "t.bin", &b, expected, message);
}

static void hostile_headers(void **state) {
    folder *f = *state;
    bytes b = {.count = 0};
    refuse(f, "t.bin", &b, OTT_ERR_FORMAT, "is empty");
    put_text(&b, "abc", 3);
    refuse(f, "t.bin", &b, OTT_ERR_FORMAT, "not a number of 2- or 4-byte tokens");
    refuse_header(f, 20240520, 2, TOKENS, 0, OTT_ERR_UNSUPPORTED, "in version 2; version 1 is supported");
    refuse_header(f, 20240520, 1, TOKENS + 1, 0, OTT_ERR_FORMAT, "51 tokens of 2 bytes");
    refuse_header(f, 20240520, 1, -1, 0, OTT_ERR_FORMAT, "truncated or malformed");
    refuse_header(f, 20240520, 1, INT32_MAX, 0, OTT_ERR_FORMAT, "truncated or malformed");
    refuse_header(f, 20240801, 7, TOKENS, 0, OTT_ERR_FORMAT, "50 tokens of 4 bytes");
    refuse_header(f, 278895051, 1, TOKENS, 3, OTT_ERR_FORMAT, "its header specifies 3 bytes per token");
    refuse_header(f, 278895051, 1, TOKENS, 0, OTT_ERR_FORMAT, "its header specifies 0 bytes per token");
    refuse_header(f, 20240522, 1, TOKENS, 0, OTT_ERR_UNSUPPORTED, "file of an evaluation");
    b.count = 0;
    put(&b, 20240520, 4);
    refuse(f, "t.bin", &b, OTT_ERR_FORMAT, "truncated or malformed");
}

static void refuse_npy(folder *f, const char *dict, ott_status expected, const char *message) {
    bytes b = {.count = 0};
    put_npy(&b, dict);
    put_tokens(&b, 0, TOKENS, 2);
    refuse(f, "t.npy", &b, expected, message);
}

static void hostile_numpy(void **state) {
    folder *f = *state;
    bytes b = {.count = 0};
    put_text(&b, "PK\x03\x04 a zip file", 15);
    refuse(f, "t.npy", &b, OTT_ERR_FORMAT, "is not a NumPy file");
    refuse_npy(f, "{'descr': '>u2', 'shape': (50,)}", OTT_ERR_UNSUPPORTED, "type is >u2");
    refuse_npy(f, "{'descr': '<f2', 'shape': (50,)}", OTT_ERR_UNSUPPORTED, "type is <f2");
    refuse_npy(f, "{'descr': '<u3', 'shape': (50,)}", OTT_ERR_UNSUPPORTED, "type is <u3");
    refuse_npy(f, "{'descr': [('a', '<u2')], 'shape': (50,)}", OTT_ERR_UNSUPPORTED, "cannot hold token ids");
    refuse_npy(f, "{'shape': (50,)}", OTT_ERR_UNSUPPORTED, "cannot hold token ids");
    refuse_npy(f, "{'descr': '<u2', 'shape': (5, 10)}", OTT_ERR_UNSUPPORTED, "one dimension");
    refuse_npy(f, "{'descr': '<u2', 'shape': ()}", OTT_ERR_UNSUPPORTED, "one dimension");
    refuse_npy(f, "{'descr': '<u2'}", OTT_ERR_UNSUPPORTED, "one dimension");
    refuse_npy(f, "{'descr': '<u2', 'shape': (51,)}", OTT_ERR_FORMAT, "51 tokens of 2 bytes");
    refuse_npy(f, "{'descr': '<u2', 'shape': (-50,)}", OTT_ERR_FORMAT, "truncated or malformed");
    refuse_npy(f, "{'descr': '<u2', 'shape': (9223372036854775807,)}", OTT_ERR_FORMAT,
               "truncated or malformed");
    b.count = 0;
    put_text(&b, "\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12);
    refuse(f, "t.npy", &b, OTT_ERR_FORMAT, "its NumPy header of 2147483647 bytes");
    b.at[6] = 9;
    refuse(f, "t.npy", &b, OTT_ERR_UNSUPPORTED, "NumPy format 9");
    for (b.count = 1; b.count < 12; b.count++) {
        b.at[6] = 2;
        refuse(f, "t.npy", &b, OTT_ERR_FORMAT, "truncated");
    }
}

static void memory_runs_out(void **state) {
    folder *f = *state;
    dataset *d = NULL;
    const char *name = "m.bin";
    write_megatron(f, &usual);
    for (int64_t n = 1; !d; n++) {
        mem_fail_after(f->account, n);
        ott_status status = open_files(f, &name, 1, 50257, &d);
        assert_true(status == (d ? OTT_OK : OTT_ERR_MEMORY));
    }
    mem_fail_after(f->account, 0);
    dataset_close(d);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(formats_read_back),       TEST(numpy_reads_back),
        TEST(bare_file_of_two_bytes),  TEST(what_we_write_reads_back),
        TEST(shards_are_one_sequence), TEST(many_shards),
        TEST(parts_tile_the_file),     TEST(ids_out_of_range_are_found),
        TEST(megatron_reads_back),     TEST(documents_stay_apart),
        TEST(hostile_indices),         TEST(hostile_index_counts),
        TEST(hostile_headers),         TEST(hostile_numpy),
        TEST(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
