/* Safetensors: the exact bytes that the writer makes, files that are written and read back, and malicious
   files. */
#include "support/folder.h"
#include "formats/safetensors/safetensors.h"
#include "base/file/file.h"
#include "base/rng.h"
#include "base/text/str.h"
#include "fp8/dtype.h"
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* ---- writing ---- */

static void write_two(folder *f, const char *name) {
    const safetensors_tensor tensors[] = {{"b", OTT_E4M3, 1, {3}}, {"a", OTT_F32, 2, {1, 2}}};
    const safetensors_pair metadata[] = {{"step", "7"}};
    const float a[2] = {1.0f, -2.0f};
    safetensors_writer *w;
    assert_int_equal(safetensors_writer_open(f->account, folder_file(f, name), tensors, 2, metadata, 1, &w),
                     OTT_OK);
    assert_int_equal(safetensors_writer_next(w), 1);
    assert_int_equal(safetensors_writer_append(w, a, 4), OTT_OK);
    assert_int_equal(safetensors_writer_next(w), 1);
    assert_int_equal(safetensors_writer_append(w, a + 1, 4), OTT_OK);
    assert_int_equal(safetensors_writer_next(w), 0);
    assert_int_equal(safetensors_writer_append(w, "\x38\xb8\x7f", 3), OTT_OK);
    assert_int_equal(safetensors_writer_next(w), -1);
    assert_false(file_exists(folder_file(f, name)));
    assert_int_equal(safetensors_writer_commit(w), OTT_OK);
}

static void writes_exact_bytes(void **state) {
    folder *f = *state;
    const char header[] = "{\"__metadata__\":{\"format\":\"pt\",\"step\":\"7\"},"
                          "\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
                          "\"b\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[8,11]}}";
    int64_t bytes, padded = ((int64_t)sizeof header - 1 + 7) / 8 * 8;
    write_two(f, "x");
    char *data = folder_read(f, "x", &bytes);
    assert_int_equal(bytes, 8 + padded + 11);
    assert_int_equal((unsigned char)data[0], padded);
    assert_memory_equal(data + 1, "\0\0\0\0\0\0\0", 7);
    assert_memory_equal(data + 8, header, sizeof header - 1);
    for (int64_t i = (int64_t)sizeof header - 1; i < padded; i++) assert_int_equal(data[8 + i], ' ');
    assert_memory_equal(data + 8 + padded, "\0\0\x80\x3f\0\0\0\xc0\x38\xb8\x7f", 11);
    mem_free(f->account, data);
}

/* Returns byte i of tensor t, for files that are written and read back. */
static unsigned char pattern(int64_t t, int64_t i) {
    return (unsigned char)rng_u32(1, (uint64_t)t, (uint64_t)i);
}

/* Writes the same file as write_two, as rank r of three ranks: every third byte, from byte r on. */
static void write_third(folder *f, const char *name, int r) {
    const safetensors_tensor tensors[] = {{"b", OTT_E4M3, 1, {3}}, {"a", OTT_F32, 2, {1, 2}}};
    const safetensors_pair metadata[] = {{"step", "7"}};
    const char data[] = "\0\0\x80\x3f\0\0\0\xc0\x38\xb8\x7f";
    safetensors_writer *w;
    assert_int_equal(
        safetensors_writer_join(f->account, folder_file(f, name), tensors, 2, metadata, 1, r, 3, &w), OTT_OK);
    for (int i = 0; i < 11; i++)
        assert_int_equal(
            i % 3 == r ? safetensors_writer_append(w, data + i, 1) : safetensors_writer_skip(w, 1), OTT_OK);
    assert_int_equal(safetensors_writer_next(w), -1);
    assert_int_equal(safetensors_writer_skip(w, 1), OTT_ERR_ARGUMENT);
    assert_int_equal(safetensors_writer_commit(w), OTT_OK);
}

/* Three ranks write one file, in any order of the ranks. */
static void three_write_one_file(void **state) {
    folder *f = *state;
    int64_t bytes, expected_bytes;
    write_two(f, "one");
    for (int r = 2; r >= 0; r--) write_third(f, "three", r);
    char *expected = folder_read(f, "one", &expected_bytes), *data = folder_read(f, "three", &bytes);
    assert_int_equal(bytes, expected_bytes);
    assert_memory_equal(data, expected, (size_t)bytes);
    mem_free(f->account, data);
    mem_free(f->account, expected);
}

static int64_t size_of(const safetensors_tensor *t) {
    int64_t bytes = dtype_bytes(t->dtype);
    for (int i = 0; i < t->rank; i++) bytes *= t->shape[i];
    return bytes;
}

static void write_all(folder *f, const char *name, const safetensors_tensor *tensors, int64_t count) {
    safetensors_writer *w;
    int64_t t, written = 0, last = -1;
    assert_int_equal(safetensors_writer_open(f->account, folder_file(f, name), tensors, count, NULL, 0, &w),
                     OTT_OK);
    while ((t = safetensors_writer_next(w)) >= 0) {
        if (t != last) written = 0;
        last = t;
        unsigned char piece[5];
        int64_t left = size_of(&tensors[t]) - written, n = left < 5 ? left : 5;
        for (int64_t i = 0; i < n; i++) piece[i] = pattern(t, written + i);
        assert_int_equal(safetensors_writer_append(w, piece, n), OTT_OK);
        written += n;
    }
    assert_int_equal(safetensors_writer_commit(w), OTT_OK);
}

static void check_tensor(const safetensors *s, const safetensors_tensor *t, int64_t index) {
    unsigned char data[512];
    const safetensors_entry *e;
    assert_int_equal(safetensors_expect(s, t->name, t->dtype, t->rank, t->shape, &e), OTT_OK);
    assert_int_equal(e->bytes, size_of(t));
    assert_string_equal(e->format, dtype_safetensors_name(t->dtype));
    assert_int_equal(safetensors_read(s, e, 0, e->bytes, data), OTT_OK);
    for (int64_t i = 0; i < e->bytes; i++) assert_int_equal(data[i], pattern(index, i));
    for (int64_t i = 0; i < e->bytes; i += 3) {
        assert_int_equal(safetensors_read(s, e, i, 1, data), OTT_OK);
        assert_int_equal(data[0], pattern(index, i));
    }
    assert_int_equal(safetensors_read(s, e, e->bytes, 1, data), OTT_ERR_ARGUMENT);
    assert_int_equal(safetensors_read(s, e, -1, 1, data), OTT_ERR_ARGUMENT);
    assert_int_equal(safetensors_read(s, e, 1, INT64_MAX, data), OTT_ERR_ARGUMENT);
}

static void round_trip(void **state) {
    folder *f = *state;
    const safetensors_tensor tensors[] = {
        {"model.layers.0.self_attn.q_proj.weight", OTT_BF16, 2, {3, 5}},
        {"scalar", OTT_F32, 0, {0}},
        {"empty", OTT_F32, 2, {0, 7}},
        {"empty fp8", OTT_E4M3, 1, {0}},
        {"rank 8", OTT_I64, 8, {1, 2, 1, 3, 1, 1, 2, 1}},
        {"quote \" backslash \\ newline \n \xc3\xa9", OTT_U8, 1, {9}},
        {"", OTT_E8M0, 1, {1}},
        {"f16", OTT_F16, 1, {7}},
        {"e5m2", OTT_E5M2, 1, {11}},
        {"i32", OTT_I32, 3, {2, 2, 2}},
    };
    const int64_t count = sizeof tensors / sizeof *tensors;
    safetensors *s;
    write_all(f, "x", tensors, count);
    assert_int_equal(safetensors_open(f->account, folder_file(f, "x"), &s), OTT_OK);
    assert_string_equal(safetensors_path(s), folder_file(f, "x"));
    assert_int_equal(safetensors_count(s), count);
    assert_string_equal(safetensors_metadata(s, "format"), "pt");
    assert_null(safetensors_metadata(s, "step"));
    for (int64_t i = 0; i < count; i++) check_tensor(s, &tensors[i], i);
    /* tensors of wide elements are first: then no tensor needs padding before it */
    assert_string_equal(safetensors_at(s, 0)->name, "rank 8");
    assert_null(safetensors_at(s, count));
    assert_null(safetensors_at(s, -1));
    assert_null(safetensors_find(s, "absent"));
    safetensors_close(s);
}

static void no_tensors(void **state) {
    folder *f = *state;
    safetensors *s;
    write_all(f, "x", NULL, 0);
    assert_int_equal(safetensors_open(f->account, folder_file(f, "x"), &s), OTT_OK);
    assert_int_equal(safetensors_count(s), 0);
    assert_null(safetensors_find(s, "a"));
    safetensors_close(s);
}

static void refuse_declaration(folder *f, const safetensors_tensor *tensors, int64_t count,
                               const safetensors_pair *metadata, int64_t metadata_count,
                               const char *message) {
    safetensors_writer *w;
    assert_int_equal(safetensors_writer_open(f->account, folder_file(f, "x"), tensors, count, metadata,
                                             metadata_count, &w),
                     OTT_ERR_ARGUMENT);
    assert_null(w);
    assert_error_names(message);
    assert_error_names("/x: ");
    assert_false(file_exists(folder_file(f, "x")));
}

static void writer_refuses(void **state) {
    folder *f = *state;
    const safetensors_tensor twice[] = {{"a", OTT_F32, 0, {0}}, {"b", OTT_U8, 0, {0}}, {"a", OTT_U8, 0, {0}}};
    const safetensors_tensor reserved = {"__metadata__", OTT_F32, 0, {0}};
    const safetensors_tensor negative = {"a", OTT_F32, 1, {-1}};
    const safetensors_tensor large = {"a", OTT_F32, 2, {INT64_C(1) << 40, INT64_C(1) << 40}};
    const safetensors_tensor rank = {"a", OTT_F32, 9, {0}};
    const safetensors_tensor name = {"\xff", OTT_F32, 0, {0}};
    const safetensors_tensor format = {"a", OTT_DTYPE_COUNT, 0, {0}};
    const safetensors_pair own = {"format", "tf"}, pairs[] = {{"k", "1"}, {"k", "2"}};
    refuse_declaration(f, twice, 3, NULL, 0, "two tensors are named 'a'");
    refuse_declaration(f, &reserved, 1, NULL, 0, "__metadata__");
    refuse_declaration(f, &negative, 1, NULL, 0, "negative");
    refuse_declaration(f, &large, 1, NULL, 0, "too large");
    refuse_declaration(f, &rank, 1, NULL, 0, "9 dimensions");
    refuse_declaration(f, &name, 1, NULL, 0, "not UTF-8");
    refuse_declaration(f, &format, 1, NULL, 0, "format");
    refuse_declaration(f, NULL, 0, &own, 1, "'format' is reserved");
    refuse_declaration(f, NULL, 0, pairs, 2, "'k' is given twice");
}

static void incomplete_is_absent(void **state) {
    folder *f = *state;
    const safetensors_tensor t = {"a", OTT_U8, 1, {4}};
    safetensors_writer *w;
    file_list left;
    const char *path = folder_file(f, "x");
    assert_int_equal(safetensors_writer_open(f->account, path, &t, 1, NULL, 0, &w), OTT_OK);
    assert_int_equal(safetensors_writer_append(w, "12345", 5), OTT_ERR_ARGUMENT);
    assert_error_names("'a' lacks 4");
    assert_int_equal(safetensors_writer_append(w, "123", 3), OTT_OK);
    assert_int_equal(safetensors_writer_commit(w), OTT_ERR_ARGUMENT);
    assert_error_names("'a' lacks 1 bytes");
    assert_int_equal(safetensors_writer_open(f->account, path, &t, 1, NULL, 0, &w), OTT_OK);
    safetensors_writer_abandon(w);
    safetensors_writer_abandon(NULL);
    assert_int_equal(file_list_folder(f->account, f->path, &left), OTT_OK);
    assert_int_equal(left.count, 0);
    file_list_free(&left);
}

/* ---- files made to break a reader ---- */

/* Writes and opens a file of a length field, the header, and `data` zero bytes as the tensors' data. */
static ott_status open_made(folder *f, const char *header, int64_t length, int64_t data, safetensors **out) {
    str file = {.account = f->account};
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)((uint64_t)length >> 8 * i);
    str_append_bytes(&file, prefix, 8);
    str_append_bytes(&file, header, length);
    for (int64_t i = 0; i < data; i++) str_append_bytes(&file, "", 1);
    folder_write(f, "hostile", file.text, file.length);
    str_free(&file);
    return safetensors_open(f->account, folder_file(f, "hostile"), out);
}

#define T(name, dtype, shape, offsets)                                                                       \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define NEST8(x) "[[[[[[[[" x "]]]]]]]]"

static void hostile_headers(void **state) {
    folder *f = *state;
    static const struct {
        const char *header;
        int64_t data;
        const char *message; /* expected error message; NULL: the file is valid */
    } cases[] = {
        {"{}", 0, NULL},
        {"{}   \n ", 0, NULL},
        {"  {}", 0, NULL},
        {"{\"__metadata__\":{}}", 0, NULL},
        {"{\"__metadata__\":{\"k\":\"v\"}," T("a", "F32", "[2]", "[0,8]") "}", 8, NULL},
        {"{" T("a", "F32", "[]", "[0,4]") "}", 4, NULL},
        {"{" T("a", "F64", "[1]", "[0,8]") "}", 8, NULL},
        {"{" T("a", "F4", "[2]", "[0,1]") "}", 1, NULL},
        {"{" T("a", "F6_E2M3", "[4]", "[0,3]") "}", 3, NULL},
        {"{" T("a", "F32", "[0]", "[0,0]") "," T("b", "U8", "[3]", "[0,3]") "," T("c", "U8", "[0]",
                                                                                  "[3,3]") "}",
         3, NULL},
        {"{" T("b", "U8", "[1]", "[1,2]") "," T("a", "U8", "[1]", "[0,1]") "}", 2, NULL},
        {"{" T("a", "U8", "[0,9223372036854775807]", "[0,0]") "}", 0, NULL},

        {"", 0, "not valid JSON"},
        {"{", 0, "not valid JSON"},
        {"[]", 0, "not a JSON object"},
        {"null", 0, "not valid JSON"},
        {"{} x", 0, "not valid JSON"},
        {"{}{}", 0, "not valid JSON"},
        {"{'a':1}", 0, "not valid JSON"},
        {"{\"\xff\":1}", 0, "not UTF-8 at byte 10"},
        {"{\"a\\u0000b\":{}}", 0, "not valid JSON"},
        {"{\"__metadata__\":1}", 0, "__metadata__ is not a JSON object"},
        {"{\"__metadata__\":{\"k\":1}}", 0, "'k' is not a string"},
        {"{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, "duplicate"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "duplicate"},
        {"{" T("a", "U8", "[1]", "[0,1]") "," T("a", "U8", "[1]", "[1,2]") "}", 2, "duplicate"},
        {"{\"a\":1}", 0, "'a': its description is not a JSON object"},
        {"{\"a\":" NEST8("1") "}", 0, "'a': its description is not a JSON object"},
        {"{\"a\":{}}", 0, "'a': dtype is missing"},
        {"{\"a\":{\"dtype\":7}}", 0, "'a': dtype is missing or not a string"},
        {"{" T("a", "f32", "[1]", "[0,4]") "}", 4, "'a': unknown dtype 'f32'"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "'a': shape is missing"},
        {"{" T("a", "U8", "{}", "[0,1]") "}", 1, "'a': shape is missing or not an array"},
        {"{" T("a", "U8", "[1.0]", "[0,1]") "}", 1, "dimension 0 of shape"},
        {"{" T("a", "U8", "[1,1e0]", "[0,1]") "}", 1, "dimension 1 of shape"},
        {"{" T("a", "U8", "[-1]", "[0,1]") "}", 1, "dimension 0 of shape"},
        {"{" T("a", "U8", "[\"1\"]", "[0,1]") "}", 1, "dimension 0 of shape"},
        {"{" T("a", "U8", NEST8("1"), "[0,1]") "}", 1, "dimension 0 of shape"},
        {"{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, "'a': 9 dimensions"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "'a': data_offsets is not a pair"},
        {"{" T("a", "U8", "[1]", "[0]") "}", 1, "data_offsets is not a pair"},
        {"{" T("a", "U8", "[1]", "[0,1,2]") "}", 1, "data_offsets is not a pair"},
        {"{" T("a", "U8", "[1]", "[0,1.0]") "}", 1, "data_offsets is not a pair"},
        {"{" T("a", "U8", "[1]", "[-1,0]") "}", 1, "data_offsets is not a pair"},
        {"{" T("a", "U8", "[1]", "[1,0]") "}", 1, "'a': data_offsets end at 0, before they begin at 1"},
        {"{" T("a", "U8", "[1]", "[0,18446744073709551616]") "}", 1, "too big integer"},
        {"{" T("a", "U8", "[9223372036854775808]", "[0,1]") "}", 1, "too big integer"},
        {"{" T("a", "U8", "[4294967296,4294967296]", "[0,0]") "}", 0, "not a whole number of bytes"},
        {"{" T("a", "I64", "[2305843009213693952]", "[0,0]") "}", 0, "not a whole number of bytes"},
        {"{" T("a", "F4", "[3]", "[0,2]") "}", 2, "not a whole number of bytes"},
        {"{" T("a", "F32", "[2]", "[0,4]") "}", 4, "'a': its shape takes 8 bytes, its data_offsets span 4"},
        {"{" T("a", "U8", "[1]", "[1,2]") "}", 2, "there is a gap"},
        {"{" T("a", "U8", "[1]", "[0,1]") "," T("b", "U8", "[1]", "[2,3]") "}", 3, "'b': begins at byte 2"},
        {"{" T("a", "U8", "[2]", "[0,2]") "," T("b", "U8", "[2]", "[1,3]") "}", 3, "tensors overlap"},
        {"{" T("a", "U8", "[1]", "[0,1]") "," T("b", "U8", "[1]", "[0,1]") "}", 1, "tensors overlap"},
        {"{" T("a", "U8", "[9223372036854775807]", "[0,9223372036854775807]") "}", 1,
         "not a whole number of bytes"},
        {"{" T("a", "U8", "[0]", "[9223372036854775807,9223372036854775807]") "}", 0, "there is a gap"},
        {"{" T("a", "U8", "[4]", "[0,4]") "}", 3, "truncated?"},
        {"{" T("a", "U8", "[4]", "[0,4]") "}", 5, "trailing bytes"},
        {"{}", 1, "trailing bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        safetensors *s;
        ott_status status =
            open_made(f, cases[i].header, (int64_t)strlen(cases[i].header), cases[i].data, &s);
        if (!cases[i].message) {
            if (status != OTT_OK) fail_msg("%s is refused: %s", cases[i].header, status_text());
            safetensors_close(s);
            continue;
        }
        if (status != OTT_ERR_FORMAT) fail_msg("%s gives %s", cases[i].header, status_name(status));
        assert_null(s);
        assert_error_names("/hostile: ");
        assert_error_names(cases[i].message);
    }
}

static void refuse_file(folder *f, const void *data, int64_t bytes, const char *message) {
    safetensors *s;
    assert_int_equal(safetensors_open(f->account, folder_write(f, "x", data, bytes), &s), OTT_ERR_FORMAT);
    assert_error_names(message);
}

static void hostile_lengths(void **state) {
    folder *f = *state;
    safetensors *s;
    refuse_file(f, "", 0, "0 bytes are too few");
    refuse_file(f, "\2\0\0\0\0\0\0", 7, "7 bytes are too few");
    refuse_file(f, "\2\0\0\0\0\0\0\0", 8, "does not fit");
    refuse_file(f, "\3\0\0\0\0\0\0\0{}", 10, "does not fit");
    refuse_file(f, "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "header of 18446744073709551615 bytes");
    refuse_file(f, "\1\xe1\xf5\5\0\0\0\0{}", 10, "header of 100000001 bytes");
    refuse_file(f, "\0\xe1\xf5\5\0\0\0\0{}", 10, "does not fit");
    refuse_file(f, "\0\0\0\0\0\0\0\0{}", 10, "not valid JSON");
    refuse_file(f, "PK\3\4 a zip archive, perhaps", 26, "not a safetensors file?");
    assert_int_equal(safetensors_open(f->account, folder_file(f, "absent"), &s), OTT_ERR_NOT_FOUND);
    assert_int_equal(safetensors_open(f->account, f->path, &s), OTT_ERR_ARGUMENT);
    assert_error_names("is a folder");
    assert_null(s);
}

/* Two hostile headers. One lists very many tensors with the same byte range, a known denial of service
   against the reference implementation. The other nests so deep that a parser's stack would overflow. */
static void hostile_bulk(void **state) {
    folder *f = *state;
    safetensors *s;
    str header = {.account = f->account};
    for (int i = 0; i < 10; i++)
        str_printf(&header, "%s\"t%d\":{\"dtype\":\"F32\",\"shape\":[500,500],\"data_offsets\":[0,1000000]}",
                   i ? "," : "{", i);
    str_append(&header, "}");
    assert_int_equal(open_made(f, header.text, header.length, 1000000, &s), OTT_ERR_FORMAT);
    assert_error_names("tensors overlap");
    str_free(&header);
    str_append(&header, "{\"a\":");
    for (int i = 0; i < 200000; i++) str_append(&header, "[");
    assert_int_equal(open_made(f, header.text, header.length, 0, &s), OTT_ERR_FORMAT);
    assert_error_names("depth");
    str_free(&header);
    str_append(&header, "{\"\\u001b[31m");
    for (int i = 0; i < 5000; i++) str_append(&header, "n");
    str_append(&header, "\":1}");
    assert_int_equal(open_made(f, header.text, header.length, 0, &s), OTT_ERR_FORMAT);
    /* the message replaces control codes in the name, and shortens the name */
    assert_error_names("?[31mnnn");
    assert_null(strchr(status_text(), '\x1b'));
    assert_true(strlen(status_text()) < 600);
    str_free(&header);
}

/* Every truncation of a valid file is refused. */
static void truncated_anywhere(void **state) {
    folder *f = *state;
    int64_t bytes;
    safetensors *s;
    write_two(f, "good");
    char *data = folder_read(f, "good", &bytes);
    for (int64_t n = 0; n < bytes; n++)
        assert_int_equal(safetensors_open(f->account, folder_write(f, "x", data, n), &s), OTT_ERR_FORMAT);
    mem_free(f->account, data);
}

/* If a damaged file opens, every tensor that it names must be readable. */
static void damaged_anywhere(void **state) {
    folder *f = *state;
    int64_t bytes;
    unsigned char tensor[64];
    write_two(f, "good");
    char *data = folder_read(f, "good", &bytes);
    for (uint64_t round = 0; round < 4000; round++) {
        uint64_t at = rng_u32(3, 0, 2 * round) % (uint64_t)(bytes - 11), value = rng_u32(3, 0, 2 * round + 1);
        static const char likely[] = "0123456789[]{},:\"\\ -e.";
        char kept = data[at];
        data[at] = (char)(value & 1 ? likely[value / 2 % (sizeof likely - 1)] : (char)(value >> 8));
        safetensors *s;
        ott_status status = safetensors_open(f->account, folder_write(f, "x", data, bytes), &s);
        assert_true(status == OTT_OK || status == OTT_ERR_FORMAT);
        for (int64_t i = 0; status == OTT_OK && i < safetensors_count(s); i++) {
            const safetensors_entry *e = safetensors_at(s, i);
            assert_true(e->bytes <= 11);
            assert_int_equal(safetensors_read(s, e, 0, e->bytes, tensor), OTT_OK);
        }
        safetensors_close(s);
        data[at] = kept;
    }
    mem_free(f->account, data);
}

/* ---- looking up, running out of memory ---- */

static void expects(void **state) {
    folder *f = *state;
    safetensors *s;
    const safetensors_entry *e;
    write_two(f, "x");
    assert_int_equal(safetensors_open(f->account, folder_file(f, "x"), &s), OTT_OK);
    assert_int_equal(safetensors_expect(s, "model.norm.weight", OTT_F32, 1, (int64_t[]){1}, &e),
                     OTT_ERR_NOT_FOUND);
    assert_null(e);
    assert_error_names("has no tensor 'model.norm.weight'");
    assert_int_equal(safetensors_expect(s, "a", OTT_BF16, 2, (int64_t[]){1, 2}, &e), OTT_ERR_DTYPE);
    assert_error_names("tensor 'a' is F32; BF16 is expected");
    assert_int_equal(safetensors_expect(s, "a", OTT_F32, 2, (int64_t[]){2, 1}, &e), OTT_ERR_SHAPE);
    assert_error_names("tensor 'a' has shape [1, 2]; [2, 1] is expected");
    assert_int_equal(safetensors_expect(s, "a", OTT_F32, 1, (int64_t[]){2}, &e), OTT_ERR_SHAPE);
    assert_int_equal(safetensors_expect(s, "a", OTT_F32, 0, NULL, &e), OTT_ERR_SHAPE);
    assert_error_names("[] is expected");
    safetensors_close(s);
    safetensors_close(NULL);
}

static void names_the_nearest(void **state) {
    folder *f = *state;
    const safetensors_tensor tensors[] = {{"lm_head.weight", OTT_U8, 0, {0}},
                                          {"norm.weight", OTT_U8, 0, {0}}};
    safetensors *s;
    const safetensors_entry *e;
    write_all(f, "x", tensors, 2);
    assert_int_equal(safetensors_open(f->account, folder_file(f, "x"), &s), OTT_OK);
    assert_int_equal(safetensors_expect(s, "lm_head.weights", OTT_U8, 0, NULL, &e), OTT_ERR_NOT_FOUND);
    assert_error_names("the nearest is 'lm_head.weight'");
    safetensors_close(s);
}

static void foreign_formats_open(void **state) {
    folder *f = *state;
    const char header[] = "{" T("a", "F64", "[1]", "[0,8]") "}";
    safetensors *s;
    const safetensors_entry *e;
    assert_int_equal(open_made(f, header, sizeof header - 1, 8, &s), OTT_OK);
    assert_int_equal(safetensors_at(s, 0)->dtype, OTT_DTYPE_COUNT);
    assert_string_equal(safetensors_at(s, 0)->format, "F64");
    assert_int_equal(safetensors_expect(s, "a", OTT_F32, 1, (int64_t[]){1}, &e), OTT_ERR_DTYPE);
    assert_error_names("is F64; F32 is expected");
    safetensors_close(s);
}

static void memory_runs_out(void **state) {
    folder *f = *state;
    const safetensors_tensor t = {"a", OTT_U8, 1, {4}};
    safetensors *s = NULL;
    safetensors_writer *w = NULL;
    int64_t n;
    write_two(f, "x");
    for (n = 1; !s; n++) {
        mem_fail_after(f->account, n);
        ott_status status = safetensors_open(f->account, folder_file(f, "x"), &s);
        assert_true(status == (s ? OTT_OK : OTT_ERR_MEMORY));
    }
    assert_true(n > 4);
    mem_fail_after(f->account, 0);
    safetensors_close(s);
    for (n = 1; !w; n++) {
        mem_fail_after(f->account, n);
        ott_status status = safetensors_writer_open(f->account, folder_file(f, "y"), &t, 1, NULL, 0, &w);
        assert_true(status == (w ? OTT_OK : OTT_ERR_MEMORY));
    }
    assert_true(n > 4);
    mem_fail_after(f->account, 0);
    safetensors_writer_abandon(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(writes_exact_bytes, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(three_write_one_file, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(round_trip, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(no_tensors, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(writer_refuses, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(incomplete_is_absent, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(hostile_headers, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(hostile_lengths, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(hostile_bulk, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(truncated_anywhere, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(damaged_anywhere, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(expects, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(names_the_nearest, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(foreign_formats_open, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(memory_runs_out, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
