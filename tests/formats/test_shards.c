/* Weights in several files (shards): the files that are written, reading them back in every format, and
   malicious indexes. */
#define _GNU_SOURCE
#include "support/folder.h"
#include "formats/safetensors/shards.h"
#include "base/file/file.h"
#include "base/rng.h"
#include "base/text/str.h"
#include "fp8/cast.h"
#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static const safetensors_tensor five[] = {
    {"model.embed_tokens.weight", OTT_BF16, 2, {8, 4}},        /* 64 bytes */
    {"model.layers.0.mlp.up_proj.weight", OTT_F32, 2, {4, 4}}, /* 64 bytes */
    {"model.layers.1.mlp.up_proj.weight", OTT_F16, 2, {4, 4}}, /* 32 bytes */
    {"model.norm.weight", OTT_F32, 1, {4}},                    /* 16 bytes */
    {"lm_head.weight", OTT_BF16, 2, {8, 4}},                   /* 64 bytes */
};
enum { FIVE = 5 };

static int64_t elements(const safetensors_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

/* Returns element i of tensor t. Every format represents it exactly. */
static float value(int64_t t, int64_t i) {
    return (float)((t * 37 + i * 11) % 31 - 15) / 8;
}

static ott_status open_writer(folder *f, const char *sub, const safetensors_tensor *tensors, int64_t count,
                              int64_t max_bytes, safetensors_writer **w) {
    const safetensors_pair metadata = {"made_by", "test"};
    return safetensors_writer_join_shards(f->account, folder_file(f, sub), tensors, count, max_bytes,
                                          &metadata, 1, 0, 1, w);
}

static void write_model(folder *f, const char *sub, const safetensors_tensor *tensors, int64_t count,
                        int64_t max_bytes) {
    safetensors_writer *w;
    assert_int_equal(open_writer(f, sub, tensors, count, max_bytes, &w), OTT_OK);
    for (int64_t t; (t = safetensors_writer_next(w)) >= 0;) {
        float values[64];
        for (int64_t i = 0; i < elements(&tensors[t]); i++) values[i] = value(t, i);
        int64_t half = elements(&tensors[t]) / 2;
        assert_int_equal(safetensors_writer_append_floats(w, values, half), OTT_OK);
        assert_int_equal(safetensors_writer_next(w), t);
        assert_int_equal(safetensors_writer_append_floats(w, values + half, elements(&tensors[t]) - half),
                         OTT_OK);
    }
    assert_int_equal(safetensors_writer_commit(w), OTT_OK);
}

static ott_status open_model(folder *f, const char *sub, shards **s) {
    return shards_open(f->account, folder_file(f, sub), s);
}

/* ---- writing and reading back ---- */

static void check_model(shards *s, const safetensors_tensor *tensors, int64_t count) {
    float values[64];
    assert_int_equal(shards_count(s), count);
    for (int64_t t = 0; t < count; t++) {
        const shard_tensor *found;
        int64_t n = elements(&tensors[t]);
        assert_int_equal(shards_expect(s, tensors[t].name, tensors[t].rank, tensors[t].shape, &found),
                         OTT_OK);
        assert_int_equal(found->entry->dtype, tensors[t].dtype);
        assert_true(shards_has_floats(found));
        assert_int_equal(shards_read_floats(s, found, 0, n, values), OTT_OK);
        for (int64_t i = 0; i < n; i++) assert_true(values[i] == value(t, i));
        for (int64_t i = 0; i < n; i += 3) {
            assert_int_equal(shards_read_floats(s, found, i, 1, values), OTT_OK);
            assert_true(values[0] == value(t, i));
        }
        assert_int_equal(shards_read_floats(s, found, n, 1, values), OTT_ERR_ARGUMENT);
        assert_int_equal(shards_read_floats(s, found, -1, 1, values), OTT_ERR_ARGUMENT);
    }
}

static void splits_like_transformers(void **state) {
    folder *f = *state;
    shards *s;
    const char index[] = "{\n  \"metadata\": {\n    \"total_size\": 240\n  },\n  \"weight_map\": {\n"
                         "    \"lm_head.weight\": \"model-00003-of-00003.safetensors\",\n"
                         "    \"model.embed_tokens.weight\": \"model-00001-of-00003.safetensors\",\n"
                         "    \"model.layers.0.mlp.up_proj.weight\": \"model-00002-of-00003.safetensors\",\n"
                         "    \"model.layers.1.mlp.up_proj.weight\": \"model-00002-of-00003.safetensors\",\n"
                         "    \"model.norm.weight\": \"model-00003-of-00003.safetensors\"\n  }\n}\n";
    write_model(f, "m", five, FIVE, 100); /* shards of at most 100 bytes: 64 | 64 + 32 | 16 + 64 */
    char *text = folder_read(f, "m/" SHARDS_INDEX_NAME, NULL);
    assert_string_equal(text, index);
    mem_free(f->account, text);
    assert_int_equal(open_model(f, "m", &s), OTT_OK);
    assert_int_equal(shards_file_count(s), 3);
    assert_string_equal(shards_file_name(s, 1), "model-00002-of-00003.safetensors");
    assert_string_equal(safetensors_metadata(shards_file(s, 2), "made_by"), "test");
    assert_string_equal(safetensors_metadata(shards_file(s, 2), "format"), "pt");
    assert_null(shards_file(s, 3));
    assert_null(shards_file_name(s, -1));
    assert_string_equal(shards_at(s, 0)->entry->name, "model.embed_tokens.weight");
    assert_int_equal(shards_at(s, 4)->file, 2);
    assert_null(shards_at(s, 5));
    check_model(s, five, FIVE);
    shards_close(s);
}

/* Writes elements r, r + 2, r + 4, ... of every tensor, and skips the others, as rank r of two ranks does. */
static void append_every_other(safetensors_writer *w, int r) {
    for (int64_t t; (t = safetensors_writer_next(w)) >= 0;)
        for (int64_t i = 0; i < elements(&five[t]); i++) {
            float x = value(t, i);
            assert_int_equal(i % 2 == r ? safetensors_writer_append_floats(w, &x, 1)
                                        : safetensors_writer_skip(w, dtype_bytes(five[t].dtype)),
                             OTT_OK);
        }
}

static void two_write_one_folder(void **state) {
    folder *f = *state;
    const safetensors_pair metadata = {"made_by", "test"};
    safetensors_writer *w[2];
    shards *s;
    for (int r = 0; r < 2; r++)
        assert_int_equal(safetensors_writer_join_shards(f->account, folder_file(f, "m"), five, FIVE, 100,
                                                        &metadata, 1, r, 2, &w[r]),
                         OTT_OK); /* shards of 64 | 64 + 32 | 16 + 64 bytes */
    for (int r = 1; r >= 0; r--) {
        append_every_other(w[r], r);
        assert_int_equal(safetensors_writer_commit(w[r]), OTT_OK);
    }
    assert_int_equal(open_model(f, "m", &s), OTT_OK);
    assert_int_equal(shards_file_count(s), 3);
    check_model(s, five, FIVE);
    shards_close(s);
}

/* A tensor above the limit is alone in a shard. The other tensors are in the same shards as without it. */
static void large_tensor_gets_a_shard(void **state) {
    folder *f = *state;
    const safetensors_tensor tensors[] = {
        {"a", OTT_F32, 1, {4}}, {"large", OTT_F32, 1, {40}}, {"b", OTT_F32, 1, {4}}, {"c", OTT_F32, 1, {8}}};
    shards *s;
    write_model(f, "m", tensors, 4, 48);
    assert_int_equal(open_model(f, "m", &s), OTT_OK);
    assert_int_equal(shards_file_count(s), 3);
    assert_int_equal(shards_find(s, "large")->file, 0);
    assert_int_equal(shards_find(s, "a")->file, 1);
    assert_int_equal(shards_find(s, "b")->file, 1);
    assert_int_equal(shards_find(s, "c")->file, 2);
    check_model(s, tensors, 4);
    shards_close(s);
}

static void one_file_needs_no_index(void **state) {
    folder *f = *state;
    shards *s;
    write_model(f, "m", five, FIVE, 0);
    assert_false(file_exists(folder_file(f, "m/" SHARDS_INDEX_NAME)));
    for (int way = 0; way < 3; way++) {
        static const char *const paths[] = {"m", "m/", "m/model.safetensors"};
        assert_int_equal(open_model(f, paths[way], &s), OTT_OK);
        assert_string_equal(shards_path(s), folder_file(f, paths[way]));
        assert_int_equal(shards_file_count(s), 1);
        check_model(s, five, FIVE);
        shards_close(s);
    }
}

/* Reads from many shards in random order. At most SHARDS_OPEN_MOST shards are open at a time. */
static void many_shards_few_open(void **state) {
    folder *f = *state;
    enum { COUNT = 11 };
    safetensors_tensor tensors[COUNT];
    char names[COUNT][16];
    shards *s;
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        tensors[i] = (safetensors_tensor){names[i], OTT_BF16, 1, {i + 1}};
    }
    write_model(f, "m", tensors, COUNT, 1);
    assert_int_equal(open_model(f, "m", &s), OTT_OK);
    assert_int_equal(shards_file_count(s), COUNT);
    for (uint64_t round = 0; round < 300; round++) {
        float values[COUNT];
        int64_t t = rng_u32(1, 2, round) % COUNT;
        assert_int_equal(shards_read_floats(s, shards_find(s, names[t]), 0, t + 1, values), OTT_OK);
        for (int64_t i = 0; i <= t; i++) assert_true(values[i] == value(t, i));
        int open_files = 0;
        DIR *descriptors = opendir("/proc/self/fd");
        for (struct dirent *d; descriptors && (d = readdir(descriptors));) {
            char link[64], target[256];
            snprintf(link, sizeof link, "/proc/self/fd/%.20s", d->d_name);
            ssize_t length = readlink(link, target, sizeof target - 1);
            if (length > 0) target[length] = '\0';
            open_files += length > 0 && str_ends_with(target, ".safetensors");
        }
        if (descriptors) closedir(descriptors);
        assert_true(open_files <= SHARDS_OPEN_MOST);
    }
    shards_close(s);
}

typedef struct sum {
    int64_t next, pieces;
    double total;
} sum;

static ott_status add(void *user, int64_t first, int64_t count, const float *values) {
    sum *s = user;
    assert_int_equal(first, s->next);
    s->next += count;
    s->pieces++;
    for (int64_t i = 0; i < count; i++) s->total += values[i];
    return s->pieces == 100 ? OTT_ERR_DIVERGED : OTT_OK;
}

static void streams_in_pieces(void **state) {
    folder *f = *state;
    shards *s;
    float buffer[5];
    sum total = {.next = 2};
    double expected = 0;
    write_model(f, "m", five, FIVE, 100);
    assert_int_equal(open_model(f, "m", &s), OTT_OK);
    for (int64_t i = 2; i < 32; i++) expected += value(4, i);
    const shard_tensor *head = shards_find(s, "lm_head.weight");
    assert_int_equal(shards_stream(s, head, 2, 30, buffer, 5, add, &total), OTT_OK);
    assert_int_equal(total.next, 32);
    assert_int_equal(total.pieces, 6);
    assert_true(total.total == expected);
    total = (sum){.pieces = 99};
    assert_int_equal(shards_stream(s, head, 0, 30, buffer, 5, add, &total), OTT_ERR_DIVERGED);
    assert_int_equal(total.next, 5);
    total = (sum){.next = 30};
    assert_int_equal(shards_stream(s, head, 30, 3, buffer, 5, add, &total), OTT_ERR_ARGUMENT);
    shards_close(s);
}

/* Converts every code of every format by one call, which needs the converter's buffer several times. */
static void widens_every_code(void **state) {
    folder *f = *state;
    static const ott_dtype formats[] = {OTT_BF16, OTT_F16, OTT_E4M3, OTT_E5M2, OTT_E8M0};
    enum { COUNT = 65536 };
    safetensors_tensor tensors[5];
    static const char *const names[] = {"bf16", "f16", "e4m3", "e5m2", "e8m0"};
    safetensors_writer *w;
    shards *s;
    for (int i = 0; i < 5; i++) tensors[i] = (safetensors_tensor){names[i], formats[i], 1, {COUNT}};
    uint16_t *codes = calloc(COUNT, 2);
    float *values = calloc(COUNT, 4);
    for (int i = 0; i < COUNT; i++) codes[i] = (uint16_t)i;
    assert_int_equal(open_writer(f, "m", tensors, 5, 0, &w), OTT_OK);
    for (int64_t t; (t = safetensors_writer_next(w)) >= 0;)
        assert_int_equal(safetensors_writer_append(w, codes, COUNT * dtype_bytes(formats[t])), OTT_OK);
    assert_int_equal(safetensors_writer_commit(w), OTT_OK);
    assert_int_equal(open_model(f, "m", &s), OTT_OK);
    for (int t = 0; t < 5; t++) {
        assert_int_equal(shards_read_floats(s, shards_find(s, names[t]), 0, COUNT, values), OTT_OK);
        for (int64_t i = 0; i < COUNT; i++) {
            float expected = cast_load(codes, formats[t], i);
            assert_int_equal(fmath_bits(values[i]), fmath_bits(expected));
        }
    }
    shards_close(s);
    free(codes);
    free(values);
}

static void fp8_with_scale_reads_raw(void **state) {
    folder *f = *state;
    const safetensors_tensor tensors[] = {
        {"x.weight", OTT_E4M3, 2, {2, 2}}, {"x.weight_scale", OTT_F32, 0, {0}}, {"steps", OTT_I64, 1, {1}}};
    const float scale = 0.5f;
    const int64_t steps = 7;
    const void *const data[] = {"\x38\xb8\x7e\x01", &scale, &steps};
    const int64_t bytes[] = {4, 4, 8};
    unsigned char codes[4];
    float values[4];
    const shard_tensor *t;
    safetensors_writer *w;
    shards *s;
    assert_int_equal(open_writer(f, "m", tensors, 3, 0, &w), OTT_OK);
    for (int64_t next; (next = safetensors_writer_next(w)) >= 0;) {
        if (next != 1) assert_int_equal(safetensors_writer_append_floats(w, values, 1), OTT_ERR_DTYPE);
        assert_int_equal(safetensors_writer_append(w, data[next], bytes[next]), OTT_OK);
    }
    assert_int_equal(safetensors_writer_commit(w), OTT_OK);
    assert_int_equal(open_model(f, "m", &s), OTT_OK);
    assert_int_equal(shards_expect(s, "x.weight", 2, (int64_t[]){2, 2}, &t), OTT_ERR_DTYPE);
    assert_error_names("'x.weight' is F8_E4M3; F32, BF16 or F16 is expected");
    assert_int_equal(shards_read(s, t, 0, 4, codes), OTT_OK);
    assert_memory_equal(codes, "\x38\xb8\x7e\x01", 4);
    assert_int_equal(shards_read_floats(s, t, 0, 4, values), OTT_OK);
    assert_true(values[0] == 1.0f && values[1] == -1.0f && values[2] == 448.0f);
    assert_int_equal(shards_read_floats(s, shards_find(s, "x.weight_scale"), 0, 1, values), OTT_OK);
    assert_true(values[0] == 0.5f);
    assert_false(shards_has_floats(shards_find(s, "steps")));
    assert_int_equal(shards_read_floats(s, shards_find(s, "steps"), 0, 1, values), OTT_ERR_DTYPE);
    shards_close(s);
}

static void expects(void **state) {
    folder *f = *state;
    const shard_tensor *t;
    shards *s;
    write_model(f, "m", five, FIVE, 100);
    assert_int_equal(open_model(f, "m", &s), OTT_OK);
    assert_int_equal(shards_expect(s, "model.layers.2.mlp.up_proj.weight", 2, (int64_t[]){4, 4}, &t),
                     OTT_ERR_NOT_FOUND);
    assert_null(t);
    assert_error_names("the nearest is 'model.layers.");
    assert_int_equal(shards_expect(s, "zzz", 1, (int64_t[]){4}, &t), OTT_ERR_NOT_FOUND);
    assert_null(strstr(status_text(), "nearest"));
    assert_int_equal(shards_expect(s, "model.norm.weight", 1, (int64_t[]){5}, &t), OTT_ERR_SHAPE);
    assert_error_names(
        "model-00003-of-00003.safetensors: tensor 'model.norm.weight' has shape [4]; [5] is expected");
    shards_close(s);
    shards_close(NULL);
}

/* ---- the writer's refusals ---- */

static int64_t count_files(folder *f, const char *sub) {
    file_list names;
    assert_int_equal(file_list_folder(f->account, folder_file(f, sub), &names), OTT_OK);
    int64_t count = names.count;
    file_list_free(&names);
    return count;
}

static void incomplete_is_absent(void **state) {
    folder *f = *state;
    safetensors_writer *w;
    float values[64] = {0};
    assert_int_equal(open_writer(f, "m", five, FIVE, 100, &w), OTT_OK);
    assert_int_equal(safetensors_writer_append_floats(w, values, 33), OTT_ERR_ARGUMENT);
    assert_int_equal(safetensors_writer_append_floats(w, values, 32), OTT_OK);
    assert_int_equal(count_files(f, "m"), 2); /* the first shard, and the second's temporary file */
    safetensors_writer_abandon(w);
    assert_int_equal(count_files(f, "m"), 0);
    assert_int_equal(open_writer(f, "m", five, FIVE, 100, &w), OTT_OK);
    assert_int_equal(safetensors_writer_append_floats(w, values, 32), OTT_OK);
    assert_int_equal(safetensors_writer_commit(w), OTT_ERR_ARGUMENT);
    assert_error_names("'model.layers.0.mlp.up_proj.weight' and later tensors lack data");
    assert_int_equal(count_files(f, "m"), 0);
    safetensors_writer_abandon(NULL);
}

/* Appending more elements than a tensor has fails, by one call or by several. The elements do not become part
   of the next tensor. */
static void floats_stay_in_their_tensor(void **state) {
    folder *f = *state;
    enum { COUNT = 2048 };
    const safetensors_tensor tensors[] = {{"a", OTT_BF16, 1, {COUNT}}, {"b", OTT_BF16, 1, {COUNT}}};
    float *values = calloc(COUNT + 1, sizeof *values);
    safetensors_writer *w;
    assert_int_equal(open_writer(f, "m", tensors, 2, 0, &w), OTT_OK);
    assert_int_equal(safetensors_writer_append_floats(w, values, COUNT + 1), OTT_ERR_ARGUMENT);
    assert_error_names("'a' has fewer elements than were passed");
    safetensors_writer_abandon(w);
    free(values);
}

static void two_models_do_not_mix(void **state) {
    folder *f = *state;
    safetensors_writer *w;
    write_model(f, "m", five, FIVE, 0);
    assert_int_equal(open_writer(f, "m", five, FIVE, 100, &w), OTT_ERR_ARGUMENT);
    assert_null(w);
    assert_error_names("already holds weights (model.safetensors)");
    assert_int_equal(count_files(f, "m"), 1);
}

static void refuse(folder *f, const safetensors_tensor *tensors, int64_t count, const char *message) {
    safetensors_writer *w;
    assert_int_equal(open_writer(f, "m", tensors, count, 16, &w), OTT_ERR_ARGUMENT);
    assert_null(w);
    assert_error_names(message);
}

static void writer_refuses(void **state) {
    folder *f = *state;
    safetensors_writer *w;
    const safetensors_tensor twice[] = {
        {"a", OTT_F32, 1, {4}}, {"b", OTT_F32, 1, {4}}, {"a", OTT_F32, 1, {4}}};
    const safetensors_tensor negative = {"a", OTT_F32, 1, {-1}}, rank = {"a", OTT_F32, 9, {0}};
    const safetensors_tensor large[] = {{"a", OTT_U8, 1, {INT64_MAX}}, {"b", OTT_U8, 1, {1}}};
    const safetensors_tensor format = {"a", OTT_DTYPE_COUNT, 0, {0}},
                             reserved = {"__metadata__", OTT_F32, 0, {0}};
    refuse(f, twice, 3, "two tensors are named 'a'"); /* although they would be in different files */
    refuse(f, &negative, 1, "'a'");
    refuse(f, &rank, 1, "'a'");
    refuse(f, large, 2, "'b'");
    refuse(f, &format, 1, "'a'");
    refuse(f, &reserved, 1, "__metadata__");
    assert_int_equal(open_writer(f, "m", five, FIVE, -1, &w), OTT_ERR_ARGUMENT);
    assert_false(file_exists(folder_file(f, "m")));
}

static void no_tensors(void **state) {
    folder *f = *state;
    const safetensors_tensor empty[] = {{"a", OTT_F32, 2, {0, 3}}, {"b", OTT_U8, 1, {0}}};
    shards *s;
    write_model(f, "none", NULL, 0, 0);
    assert_int_equal(open_model(f, "none", &s), OTT_OK);
    assert_int_equal(shards_count(s), 0);
    assert_null(shards_find(s, "a"));
    shards_close(s);
    write_model(f, "empty", empty, 2, 1);
    assert_int_equal(open_model(f, "empty", &s), OTT_OK);
    assert_int_equal(shards_count(s), 2);
    shards_close(s);
}

/* ---- folders and indexes made to mislead ---- */

/* Writes a file with a U8 tensor of one element for each letter of `names`. */
static void write_letters(folder *f, const char *file, const char *names) {
    safetensors_tensor tensors[8];
    char texts[8][2] = {{0}};
    safetensors_writer *w;
    int64_t count = (int64_t)strlen(names);
    for (int64_t i = 0; i < count; i++) {
        texts[i][0] = names[i];
        tensors[i] = (safetensors_tensor){texts[i], OTT_U8, 1, {1}};
    }
    assert_int_equal(safetensors_writer_open(f->account, folder_file(f, file), tensors, count, NULL, 0, &w),
                     OTT_OK);
    assert_int_equal(safetensors_writer_append(w, "x", count > 0), OTT_OK);
    for (int64_t i = 1; i < count; i++) assert_int_equal(safetensors_writer_append(w, "x", 1), OTT_OK);
    assert_int_equal(safetensors_writer_commit(w), OTT_OK);
}

#define MAP(map) "{\"weight_map\":{" map "}}"

static void hostile_indexes(void **state) {
    folder *f = *state;
    shards *s;
    static const struct {
        const char *index, *message; /* expected error message; NULL: the index is valid */
        ott_status status;
    } cases[] = {
        {MAP("\"a\":\"1.safetensors\",\"b\":\"1.safetensors\",\"c\":\"2.safetensors\""), NULL, OTT_OK},
        {"{\"metadata\":{},\"weight_map\":{\"c\":\"2.safetensors\"}}", NULL, OTT_OK},
        {"{\"metadata\":{\"total_size\":1},\"weight_map\":{\"c\":\"2.safetensors\"}}", NULL, OTT_OK},
        {"{\"metadata\":{\"total_size\":1.0},\"weight_map\":{\"c\":\"2.safetensors\"}}", NULL, OTT_OK},
        {MAP(""), NULL, OTT_OK},
        {"{\"metadata\":{\"total_size\":2},\"weight_map\":{\"c\":\"2.safetensors\"}}",
         "total_size is 2, the shards "
         "hold 1",
         OTT_ERR_FORMAT},
        {"{\"metadata\":{\"total_size\":\"1\"},\"weight_map\":{\"c\":\"2.safetensors\"}}",
         "total_size is \"1\"", OTT_ERR_FORMAT},
        {"{\"metadata\":[],\"weight_map\":{\"c\":\"2.safetensors\"}}", "metadata is not a JSON object",
         OTT_ERR_FORMAT},
        {"", "line 1", OTT_ERR_FORMAT},
        {"[]", "is not a JSON object", OTT_ERR_FORMAT},
        {"{}", "has no object weight_map", OTT_ERR_FORMAT},
        {"{\"weight_map\":[]}", "has no object weight_map", OTT_ERR_FORMAT},
        {MAP("\"c\":\"2.safetensors\"") "x", "end of file expected", OTT_ERR_FORMAT},
        {"{\"weight_map\":{\"\xff\":\"2.safetensors\"}}", "line 1", OTT_ERR_FORMAT},
        {MAP("\"c\":\"2.safetensors\",\"c\":\"2.safetensors\""), "duplicate", OTT_ERR_FORMAT},
        {MAP("\"c\":2"), "the file of tensor 'c' is not a string", OTT_ERR_FORMAT},
        {MAP("\"c\":\"../2.safetensors\""), "'c' is in '../2.safetensors', which is not a file name",
         OTT_ERR_FORMAT},
        {MAP("\"c\":\"/etc/passwd\""), "not a file name", OTT_ERR_FORMAT},
        {MAP("\"c\":\"sub/2.safetensors\""), "not a file name", OTT_ERR_FORMAT},
        {MAP("\"c\":\"2..safetensors\""), "not a file name", OTT_ERR_FORMAT},
        {MAP("\"c\":\"a\\\\2.safetensors\""), "not a file name", OTT_ERR_FORMAT},
        {MAP("\"c\":\".safetensors\""), "not a file name", OTT_ERR_FORMAT},
        {MAP("\"c\":\"\""), "not a file name", OTT_ERR_FORMAT},
        {MAP("\"c\":\"pytorch_model.bin\""), "not a file name", OTT_ERR_FORMAT},
        {MAP("\"c\":\"2\\u001b.safetensors\""), "not a file name", OTT_ERR_FORMAT},
        {MAP("\"c\":\"2\\u0000.safetensors\""), "line 1", OTT_ERR_FORMAT},
        {MAP("\"c\":\"9.safetensors\""), "9.safetensors: is missing, though", OTT_ERR_NOT_FOUND},
        {MAP("\"c\":\"2.safetensors\",\"d\":\"2.safetensors\""),
         "places tensor 'd' in 2.safetensors, which has no "
         "such tensor",
         OTT_ERR_FORMAT},
        {MAP("\"a\":\"1.safetensors\",\"c\":\"2.safetensors\""), "does not list tensor 'b' of 1.safetensors",
         OTT_ERR_FORMAT},
        {MAP("\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"c\":\"2.safetensors\""),
         "places tensor 'b' in "
         "2.safetensors, but it is in 1.safetensors",
         OTT_ERR_FORMAT},
        {MAP("\"c\":\"2.safetensors\",\"e\":\"3.safetensors\""),
         "'c' is in two shards, 2.safetensors and "
         "3.safetensors",
         OTT_ERR_FORMAT},
        {MAP("\"c\":\"broken.safetensors\""), "broken.safetensors: ", OTT_ERR_FORMAT},
        {MAP("\"c\":\"folder.safetensors\""), "is a folder", OTT_ERR_ARGUMENT},
        {MAP("\"c\":\"pipe.safetensors\""), "not a file", OTT_ERR_ARGUMENT},
    };
    write_letters(f, "1.safetensors", "ab");
    write_letters(f, "2.safetensors", "c");
    write_letters(f, "3.safetensors", "ce");
    folder_write_text(f, "broken.safetensors", "\x10");
    assert_int_equal(file_make_folder(folder_file(f, "folder.safetensors")), OTT_OK);
    assert_int_equal(mkfifo(folder_file(f, "pipe.safetensors"), 0600), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        folder_write_text(f, SHARDS_INDEX_NAME, cases[i].index);
        ott_status status = open_model(f, i % 2 ? "" : SHARDS_INDEX_NAME, &s);
        if (status != cases[i].status)
            fail_msg("%s gives %s: %s", cases[i].index, status_name(status), status_text());
        if (status == OTT_OK) shards_close(s);
        if (status == OTT_OK) continue;
        assert_null(s);
        assert_error_names(cases[i].message);
    }
}

static void what_a_folder_holds(void **state) {
    folder *f = *state;
    shards *s;
    assert_int_equal(open_model(f, "absent", &s), OTT_ERR_NOT_FOUND);
    assert_int_equal(open_model(f, "", &s), OTT_ERR_NOT_FOUND);
    assert_error_names("has no weights: neither model.safetensors nor model.safetensors.index.json");
    folder_write_text(f, "pytorch_model.bin", "x");
    assert_int_equal(open_model(f, "", &s), OTT_ERR_NOT_FOUND);
    assert_error_names("has its weights in pytorch_model.bin, which is not supported");
    write_letters(f, "consolidated.safetensors", "a");
    assert_int_equal(open_model(f, "", &s), OTT_ERR_NOT_FOUND);
    assert_error_names("to read consolidated.safetensors alone, give its path");
    write_letters(f, "model.safetensors", "a");
    assert_int_equal(open_model(f, "", &s), OTT_OK);
    shards_close(s);
    folder_write_text(f, SHARDS_INDEX_NAME, MAP("\"a\":\"model.safetensors\""));
    assert_int_equal(open_model(f, "", &s), OTT_ERR_FORMAT);
    assert_error_names("give the path of the file or of the index");
    assert_int_equal(open_model(f, SHARDS_INDEX_NAME, &s), OTT_OK);
    shards_close(s);
}

static void replaced_file_is_noticed(void **state) {
    folder *f = *state;
    shards *s;
    char byte;
    write_letters(f, "model.safetensors", "ab");
    assert_int_equal(open_model(f, "", &s), OTT_OK);
    /* the file has the size that the index requires, but contains the tensors in another order */
    write_letters(f, "model.safetensors", "ba");
    assert_int_equal(shards_read(s, shards_find(s, "a"), 0, 1, &byte), OTT_OK);
    shards_close(s);
    assert_int_equal(open_model(f, "", &s), OTT_OK);
    write_letters(f, "model.safetensors", "ac");
    assert_int_equal(shards_read(s, shards_find(s, "b"), 0, 1, &byte), OTT_ERR_IO);
    assert_error_names("was replaced while it was in use");
    shards_close(s);
}

/* Changes each byte of an index. The index must open as the same model, or be refused. */
static void damaged_index(void **state) {
    folder *f = *state;
    int64_t bytes;
    shards *s;
    write_model(f, "m", five, FIVE, 100);
    char *data = folder_read(f, "m/" SHARDS_INDEX_NAME, &bytes);
    for (uint64_t round = 0; round < 1500; round++) {
        static const char likely[] = "0123456789{},:\"\\ -e./";
        uint64_t at = rng_u32(5, 0, 2 * round) % (uint64_t)bytes, pick = rng_u32(5, 0, 2 * round + 1);
        char kept = data[at];
        data[at] = (char)(pick & 1 ? likely[pick / 2 % (sizeof likely - 1)] : (char)(pick >> 8));
        folder_write(f, "m/" SHARDS_INDEX_NAME, data, bytes);
        ott_status status = open_model(f, "m", &s);
        assert_true(status == OTT_OK || status == OTT_ERR_FORMAT || status == OTT_ERR_NOT_FOUND);
        if (status == OTT_OK) check_model(s, five, FIVE);
        shards_close(s);
        data[at] = kept;
    }
    mem_free(f->account, data);
}

static void memory_runs_out(void **state) {
    folder *f = *state;
    shards *s = NULL;
    safetensors_writer *w = NULL;
    int64_t n;
    write_model(f, "m", five, FIVE, 100);
    for (n = 1; !s; n++) {
        mem_fail_after(f->account, n);
        ott_status status = open_model(f, "m", &s);
        assert_true(status == (s ? OTT_OK : OTT_ERR_MEMORY));
    }
    assert_true(n > 10);
    mem_fail_after(f->account, 0);
    shards_close(s);
    for (n = 1; !w; n++) {
        mem_fail_after(f->account, n);
        ott_status status = open_writer(f, "y", five, FIVE, 100, &w);
        assert_true(status == (w ? OTT_OK : OTT_ERR_MEMORY));
    }
    assert_true(n > 4);
    mem_fail_after(f->account, 0);
    safetensors_writer_abandon(w);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, folder_setup, folder_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(splits_like_transformers),
        TEST(large_tensor_gets_a_shard),
        TEST(two_write_one_folder),
        TEST(one_file_needs_no_index),
        TEST(many_shards_few_open),
        TEST(streams_in_pieces),
        TEST(widens_every_code),
        TEST(fp8_with_scale_reads_raw),
        TEST(expects),
        TEST(incomplete_is_absent),
        TEST(two_models_do_not_mix),
        TEST(floats_stay_in_their_tensor),
        TEST(writer_refuses),
        TEST(no_tensors),
        TEST(hostile_indexes),
        TEST(what_a_folder_holds),
        TEST(replaced_file_is_noticed),
        TEST(damaged_index),
        TEST(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
