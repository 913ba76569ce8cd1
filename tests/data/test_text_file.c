/* Data in gzip and Zstandard files: the same tokens as the plain file, and one error for a damaged file. */
#include "support/folder.h"
#include "base/text/str.h"
#include "data/data_files.h"
#include "data/text_file/text_file.h"
#include "data/rows.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <cmocka.h>

typedef struct blob {
    char *data;
    int64_t bytes;
} blob;

static blob compress_gzip(const char *text, int64_t bytes) {
    z_stream z = {0};
    blob out = {.bytes = (int64_t)compressBound((uLong)bytes) + 64};
    out.data = malloc((size_t)out.bytes);
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)text;
    z.avail_in = (uInt)bytes;
    z.next_out = (Bytef *)out.data;
    z.avail_out = (uInt)out.bytes;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out.bytes -= z.avail_out;
    deflateEnd(&z);
    return out;
}

static blob compress_zstd(const char *text, int64_t bytes) {
    blob out = {.bytes = (int64_t)ZSTD_compressBound((size_t)bytes)};
    out.data = malloc((size_t)out.bytes);
    ZSTD_CCtx *context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    size_t used = ZSTD_compress2(context, out.data, (size_t)out.bytes, text, (size_t)bytes);
    assert_false(ZSTD_isError(used));
    ZSTD_freeCCtx(context);
    out.bytes = (int64_t)used;
    return out;
}

typedef blob (*compress_fn)(const char *text, int64_t bytes);
static const struct {
    compress_fn compress;
    const char *suffix;
} compressions[] = {{compress_gzip, "gz"}, {compress_zstd, "zst"}};

/* Writes the text as two members or frames, divided after `first` bytes. */
static const char *write_compressed(folder *f, int compression, const char *name, const char *text,
                                    int64_t bytes, int64_t first) {
    char file[64];
    blob a = compressions[compression].compress(text, first),
         b = compressions[compression].compress(text + first, bytes - first);
    a.data = realloc(a.data, (size_t)(a.bytes + b.bytes));
    memcpy(a.data + a.bytes, b.data, (size_t)b.bytes);
    snprintf(file, sizeof file, "%s.%s", name, compressions[compression].suffix);
    const char *path = folder_write(f, file, a.data, a.bytes + b.bytes);
    free(a.data);
    free(b.data);
    return path;
}

/* Expects that the dataset's tokens are these bytes. */
static void assert_bytes(dataset *d, const char *text, int64_t bytes) {
    assert_int_equal(dataset_tokens(d), bytes);
    rows_split(d, bytes - 1, false);
    held_row h = rows_read(d, 0);
    for (int64_t i = 0; i + 1 < bytes; i++) assert_int_equal(h.row.token[i], (unsigned char)text[i]);
    free(h.memory);
    dataset_close(d);
}

static dataset *open_with(folder *f, const char *path, bool rows, double from, double to) {
    dataset_source s = rows_source(&path);
    dataset *d;
    s.from_share = from;
    s.to_share = to;
    ott_status status =
        rows ? dataset_open_rows(f->account, &s, ROWS_OTHER, &d) : dataset_open_bytes(f->account, &s, &d);
    if (status != OTT_OK) fail_msg("%s", status_text());
    return d;
}

static void rows_are_the_plain_file_s(void **state) {
    static const char *const texts[] = {
        "{\"text\": \"abc\"}\n\n{\"text\": \"de\"}\n{\"text\": \"fghi\"}",
        " [{\"text\": \"abc\"}, {\"text\": \"de\"},\n{\"text\": \"fghi\"}]\n"};
    folder *f = *state;
    for (int i = 0; i < 2; i++)
        for (int p = 0; p < 2; p++) {
            const char *path = write_compressed(f, p, "x.jsonl", texts[i], (int64_t)strlen(texts[i]), 9);
            assert_bytes(open_with(f, path, true, 0, 1), "abcdefghi", 9);
            assert_bytes(open_with(f, path, true, 0, 0.7), "abcde", 5);
        }
}

/* Rows that are longer than a part that is read, and that end at any place in it. */
static void long_rows(void **state) {
    enum { BYTES = 3 << 20 };
    folder *f = *state;
    str text = {.account = f->account}, expected = {.account = f->account};
    uint32_t random = 1;
    for (int row = 0; row < 6; row++) {
        str_append(&text, row ? ",\n{\"text\": \"" : "[{\"text\": \"");
        for (int i = 0; i < BYTES / 6 * row / 2; i++) {
            random = random * 1664525 + 1013904223;
            char c = (char)('a' + (random >> 24) % 26);
            str_append_bytes(&text, &c, 1);
            str_append_bytes(&expected, &c, 1);
        }
        str_append(&text, "x\"}");
        str_append(&expected, "x");
    }
    str_append(&text, "]");
    assert_int_equal(str_finish(&text), OTT_OK);
    assert_int_equal(str_finish(&expected), OTT_OK);
    for (int p = 0; p < 2; p++)
        assert_bytes(open_with(f, write_compressed(f, p, "x.json", text.text, text.length, text.length / 3),
                               true, 0, 1),
                     expected.text, expected.length);
    assert_bytes(open_with(f, folder_write(f, "x.json", text.text, text.length), true, 0, 1), expected.text,
                 expected.length);
    str_free(&text);
    str_free(&expected);
}

static void text_is_the_plain_file_s(void **state) {
    folder *f = *state;
    char text[200001];
    for (int i = 0; i < 200000; i++) text[i] = (char)('a' + i * 7 % 26);
    for (int p = 0; p < 2; p++) {
        const char *path = write_compressed(f, p, "x.txt", text, 200000, 150000);
        assert_bytes(open_with(f, path, false, 0, 1), text, 200000);
        assert_bytes(open_with(f, path, false, 0.25, 0.9), text + 50000, 130000);
    }
    assert_bytes(open_with(f, folder_write(f, "x.txt", text, 200000), false, 0.25, 0.9), text + 50000,
                 130000);
}

static void refuse(folder *f, const char *path, const char *message) {
    dataset_source s = rows_source(&path);
    dataset *d;
    assert_int_equal(dataset_open_rows(f->account, &s, ROWS_OTHER, &d), OTT_ERR_FORMAT);
    assert_error_names("x.jsonl");
    assert_error_names(message);
}

static void damaged_files(void **state) {
    static const char text[] = "{\"text\": \"abcabcabcabcabc\"}\n{\"text\": \"zyxw\"}\n";
    folder *f = *state;
    for (int p = 0; p < 2; p++) {
        blob b = compressions[p].compress(text, sizeof text - 1);
        char name[32], reason[64];
        snprintf(name, sizeof name, "x.jsonl.%s", compressions[p].suffix);
        snprintf(reason, sizeof reason, "data is damaged at byte %d: the file is incomplete",
                 (int)b.bytes - 3);
        refuse(f, folder_write(f, name, b.data, b.bytes - 3), reason);
        b.data[b.bytes / 2] ^= 0x55;
        refuse(f, folder_write(f, name, b.data, b.bytes), "");
        b.data[b.bytes / 2] ^= 0x55;
        b.data = realloc(b.data, (size_t)b.bytes + 5);
        memcpy(b.data + b.bytes, "after", 5);
        refuse(f, folder_write(f, name, b.data, b.bytes + 5), "data is damaged at byte");
        free(b.data);
        refuse(f, folder_write(f, name, text, sizeof text - 1),
               p ? "is not Zstandard data" : "is not gzip data");
        refuse(f, folder_write(f, name, "", 0), "is empty");
        refuse(f, write_compressed(f, p, "x.jsonl", "{\"text\": \"a\"}\n{\"te", 18, 3), ":2: is not JSON");
        refuse(f, write_compressed(f, p, "x.jsonl", "", 0, 0), "is empty");
    }
}

static void patterns_find_them(void **state) {
    folder *f = *state;
    file_list files;
    char pattern[128];
    for (int i = 0; i < 2; i++)
        write_compressed(f, 0, i ? "a.jsonl" : "b.jsonl", "{\"text\": \"a\"}", 13, 13);
    snprintf(pattern, sizeof pattern, "%s/*.jsonl.gz", f->path);
    for (int i = 0; i < 2; i++) { /* the pattern, and the folder's usual files */
        assert_int_equal(data_files_find(f->account, i ? f->path : pattern, "", &files), OTT_OK);
        assert_int_equal(files.count, 2);
        assert_non_null(strstr(files.names[0], "/a.jsonl.gz"));
        assert_non_null(strstr(files.names[1], "/b.jsonl.gz"));
        file_list_free(&files);
    }
    snprintf(pattern, sizeof pattern, "%s/*.jsonl.zst", f->path);
    assert_int_equal(data_files_find(f->account, pattern, "", &files), OTT_ERR_NOT_FOUND);
    assert_error_names("*.jsonl.zst");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {TEST(rows_are_the_plain_file_s), TEST(long_rows),
                                       TEST(text_is_the_plain_file_s), TEST(damaged_files),
                                       TEST(patterns_find_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
