/* Tests the reader of GGUF files. Values of all element formats equal gguf-python's values, which are in
   tests/golden/gguf_blocks.gguf. Each damaged file gives one clear error. */
#include "formats/gguf/gguf_config.h"
#include "formats/gguf/gguf_read.h"
#include "formats/safetensors/shards.h"
#include "base/text/str.h"
#include "support/folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* ---- values ---- */

static void decodes_like_gguf_python(void **state) {
    folder *f = *state;
    shards *s;
    enum { MOST = 512 };
    float own[MOST], reference[MOST];
    char name[64];
    int compared = 0;
    assert_int_equal(shards_open(f->account, TEST_SOURCE_DIR "/tests/golden/gguf_blocks.gguf", &s), OTT_OK);
    assert_true(shards_are_gguf(s));
    for (int64_t i = 0; i < shards_count(s); i++) {
        const shard_tensor *t = shards_at(s, i);
        if (strstr(t->entry->name, ".values")) continue;
        snprintf(name, sizeof name, "%s.values", t->entry->name);
        int64_t count = safetensors_elements(t->entry);
        assert_true(count <= MOST);
        assert_int_equal(shards_read_floats(s, t, 0, count, own), OTT_OK);
        assert_int_equal(shards_read_floats(s, shards_find(s, name), 0, count, reference), OTT_OK);
        if (memcmp(own, reference, (size_t)count * sizeof *own) != 0) fail_msg("%s differs", t->entry->name);
        /* parts that begin and end inside of blocks */
        for (int64_t first = 0; first < count; first += 37) {
            int64_t part = count - first < 61 ? count - first : 61;
            assert_int_equal(shards_read_floats(s, t, first, part, own), OTT_OK);
            assert_memory_equal(own, reference + first, (size_t)part * sizeof *own);
        }
        compared++;
    }
    assert_int_equal(compared, GGUF_FORMAT_COUNT - 1); /* all but F32 */
    shards_close(s);
}

/* ---- damaged files ---- */

static void put(str *s, uint64_t value, int bytes) {
    str_append_little(s, value, bytes);
}

static void put_text(str *s, const char *text) {
    put(s, strlen(text), 8);
    str_append(s, text);
}

/* Damaged fields of a file. A zero leaves the field valid. */
typedef struct damage {
    uint64_t version, tensors, pairs, key_bytes, value_type, list_type, list_count, rank, size, type, offset;
    int64_t missing; /* bytes missing at the end */
    bool twice;      /* second tensor with the first one's name */
    bool overlaps;
    const char *key;
    const char *reason; /* expected part of the message */
} damage;

static void put_tensor(str *s, const damage *d, const char *name, uint64_t offset) {
    put_text(s, name);
    put(s, d->rank ? d->rank : 1, 4);
    put(s, d->size ? d->size : 8, 8);
    put(s, d->type, 4);
    put(s, d->offset ? d->offset : offset, 8);
}

static const char *write_damaged(folder *f, const damage *d) {
    str s = {.account = f->account};
    str_append(&s, "GGUF");
    put(&s, d->version ? d->version : 3, 4);
    put(&s, d->tensors ? d->tensors : 2, 8);
    put(&s, d->pairs ? d->pairs : 2, 8);
    put(&s, d->key_bytes ? d->key_bytes : 1, 8);
    str_append(&s, "a");
    put(&s, d->value_type ? d->value_type : 4, 4);
    put(&s, 7, 4);
    put_text(&s, d->key ? d->key : "b");
    put(&s, 9, 4);
    put(&s, d->list_type ? d->list_type : 5, 4);
    put(&s, d->list_count ? d->list_count : 1, 8);
    put(&s, 1, 4);
    put_tensor(&s, d, "x", 0);
    put_tensor(&s, d, d->twice ? "x" : "y", d->overlaps ? 0 : 32);
    while (s.length % 32 != 0) put(&s, 0, 1);
    for (int i = 0; i < 64; i++) put(&s, 0, 1);
    const char *path = folder_write(f, "x.gguf", s.text, s.length - d->missing);
    str_free(&s);
    return path;
}

static void refuses_damaged_files(void **state) {
    static const damage all[] = {
        {.version = 1, .reason = "GGUF version 1 is not supported"},
        {.version = 3u << 24, .reason = "big-endian"},
        {.tensors = UINT64_MAX, .reason = "tensors do not fit"},
        {.tensors = 1000, .reason = "tensors do not fit"},
        {.pairs = 1u << 30, .reason = "metadata keys: 1073741824 do not fit"},
        {.key_bytes = UINT64_MAX, .reason = "a metadata key: 18446744073709551615 do not fit"},
        {.value_type = 13, .reason = "a: unknown value type 13"},
        {.list_type = 9, .reason = "b: a list of values of type 9 is not supported"},
        {.list_count = 1u << 20, .reason = "b: 1048576 do not fit"},
        {.key = "a", .reason = "has the key a twice"},
        {.rank = 5, .reason = "tensor 'x': 5 dimensions; 1 to 4 are supported"},
        {.size = UINT64_MAX, .reason = "tensor 'x': a dimension of 18446744073709551615 is out of range"},
        {.size = 1000, .reason = "do not fit into the file"},
        {.type = 10,
         .reason = "tensor 'x' has ggml's element type 10, which is not supported: use a file with"},
        {.type = 99, .reason = "tensor 'x' has ggml's element type 99"},
        {.type = 12, .reason = "its rows of 8 elements are no multiple of 256, as Q4_K requires"},
        {.offset = 33, .reason = "its offset 33 is no multiple of 32"},
        {.offset = 1u << 20, .reason = "do not fit into the file"},
        {.twice = true, .reason = "tensor 'x': is listed twice"},
        {.overlaps = true, .reason = "tensor 'y': overlaps tensor 'x'"},
        {.missing = 1, .reason = "truncated?"},
        {.missing = 128, .reason = "truncated?"},
    };
    folder *f = *state;
    gguf_file g;
    assert_int_equal(gguf_open(f->account, write_damaged(f, &(damage){0}), &g), OTT_OK);
    assert_int_equal(g.count, 2);
    assert_int_equal(json_integer_value(json_object_get(g.metadata, "a")), 7);
    gguf_close(&g);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *path = write_damaged(f, &all[i]);
        ott_status status = gguf_open(f->account, path, &g);
        if (status != OTT_ERR_FORMAT && status != OTT_ERR_UNSUPPORTED)
            fail_msg("%s: no error", all[i].reason);
        assert_error_names("x.gguf");
        assert_error_names(all[i].reason);
        gguf_close(&g);
    }
}

/* A file of the first n bytes is refused, for every n. */
static void refuses_every_beginning(void **state) {
    folder *f = *state;
    gguf_file g;
    int64_t bytes;
    write_damaged(f, &(damage){0});
    char *text = folder_read(f, "x.gguf", &bytes);
    for (int64_t n = 0; n < bytes; n++) {
        assert_int_not_equal(gguf_open(f->account, folder_write(f, "y.gguf", text, n), &g), OTT_OK);
        gguf_close(&g);
    }
    mem_free(f->account, text);
}

static void names_what_is_not_a_model(void **state) {
    folder *f = *state;
    char *text;
    assert_int_equal(gguf_config_text(f->account, write_damaged(f, &(damage){0}), &text),
                     OTT_ERR_UNSUPPORTED);
    assert_error_names("general.architecture = (missing) is not supported: llama, qwen2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(decodes_like_gguf_python, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(refuses_damaged_files, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(refuses_every_beginning, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(names_what_is_not_a_model, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
