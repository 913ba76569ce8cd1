/* Tests GGUF files: an independent reader finds the metadata and tensors that were written. Also tests blocks
   of Q8_0, and models that are refused. */
#include "formats/gguf/gguf_write.h"
#include "fp8/cast.h"
#include "support/folder.h"
#include "support/gguf_reader.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static ott_status write_file(folder *f, const gguf_metadata *m, const gguf_tensor *t, int64_t count,
                             const float *values) {
    gguf_writer *w;
    TRY(gguf_writer_open(f->account, folder_file(f, "x.gguf"), m, t, count, &w));
    for (int64_t next; (next = gguf_writer_next(w)) >= 0;) {
        int64_t elements = 1;
        for (int i = 0; i < t[next].rank; i++) elements *= t[next].shape[i];
        ott_status status = gguf_writer_append(w, values, elements);
        if (status != OTT_OK) {
            gguf_writer_abandon(w);
            return status;
        }
    }
    return gguf_writer_commit(w);
}

/* ---- metadata and tensors ---- */

static void test_metadata(void **state) {
    folder *f = *state;
    gguf_metadata m = {.bytes = {.account = f->account}};
    gguf_metadata_text(&m, "a.text", "x\0y", 3);
    gguf_metadata_count(&m, "a.count", UINT32_MAX);
    gguf_metadata_list(&m, "a.texts", GGUF_LIST_TEXTS, 2);
    gguf_metadata_add_text(&m, "", 0);
    gguf_metadata_add_text(&m, "the", 3);
    gguf_metadata_list(&m, "a.integers", GGUF_LIST_INTEGERS, 1);
    gguf_metadata_add_integer(&m, -7);
    gguf_metadata_list(&m, "a.reals", GGUF_LIST_REALS, 1);
    gguf_metadata_add_real(&m, -2.5f);
    gguf_metadata_list(&m, "a.nothing", GGUF_LIST_TEXTS, 0);
    gguf_metadata_real(&m, "a.real", 1e6);
    gguf_metadata_bool(&m, "a.bool", true);
    assert_int_equal(write_file(f, &m, NULL, 0, NULL), OTT_OK);
    gguf_metadata_free(&m);

    gguf_reader r = gguf_reader_open(folder_file(f, "x.gguf"));
    assert_int_equal(r.value_count, 8);
    assert_int_equal(gguf_reader_find(&r, "a.text")->bytes, 3);
    assert_memory_equal(gguf_reader_find(&r, "a.text")->text, "x\0y", 3);
    assert_true(gguf_reader_number(&r, "a.count") == UINT32_MAX);
    assert_true(gguf_reader_item_is(gguf_reader_find(&r, "a.texts"), 0, ""));
    assert_true(gguf_reader_item_is(gguf_reader_find(&r, "a.texts"), 1, "the"));
    assert_true(gguf_reader_item(gguf_reader_find(&r, "a.integers"), 0) == -7);
    assert_true(gguf_reader_item(gguf_reader_find(&r, "a.reals"), 0) == -2.5);
    assert_int_equal(gguf_reader_find(&r, "a.nothing")->count, 0);
    assert_true(gguf_reader_number(&r, "a.real") == 1e6);
    assert_true(gguf_reader_number(&r, "a.bool") == 1);
    gguf_reader_close(&r);
}

enum { ROWS = 3, COLUMNS = 64, ELEMENTS = ROWS * COLUMNS };

/* Fills rows with values of increasing size and both signs. One row is zeros. */
static void fill(float *values) {
    for (int i = 0; i < ELEMENTS; i++)
        values[i] = i / COLUMNS == 1 ? 0 : (float)(i % 2 ? -i : i) * 0.0371f + (float)(i % 7);
}

static float expected(gguf_type type, const float *values, int i) {
    float amax = 0;
    if (type == GGUF_F32) return values[i];
    if (type == GGUF_BF16) return cast_from_bf16(cast_to_bf16(values[i]));
    if (type == GGUF_F16) return cast_from_f16(cast_to_f16(values[i]));
    for (int j = i / 32 * 32; j < i / 32 * 32 + 32; j++) amax = fmaxf(amax, fabsf(values[j]));
    float scale = amax / 127;
    return scale == 0 ? 0 : cast_from_f16(cast_to_f16(scale)) * roundf(values[i] * (1 / scale));
}

static void test_tensors_of_every_type(void **state) {
    static const gguf_tensor t[] = {{"one", GGUF_F32, 1, {ROWS * COLUMNS}},
                                    {"two", GGUF_F16, 2, {ROWS, COLUMNS}},
                                    {"three", GGUF_BF16, 2, {ROWS, COLUMNS}},
                                    {"four", GGUF_Q8_0, 3, {1, ROWS, COLUMNS}}};
    folder *f = *state;
    gguf_metadata m = {.bytes = {.account = f->account}};
    float values[ELEMENTS];
    fill(values);
    assert_int_equal(write_file(f, &m, t, 4, values), OTT_OK);
    gguf_metadata_free(&m);
    gguf_reader r = gguf_reader_open(folder_file(f, "x.gguf"));
    for (int k = 0; k < 4; k++) {
        const gguf_entry *e = gguf_reader_tensor(&r, t[k].name);
        assert_int_equal(e->type, t[k].type);
        assert_int_equal(e->rank, t[k].rank);
        for (int i = 0; i < e->rank; i++) assert_int_equal(e->size[i], t[k].shape[e->rank - 1 - i]);
        for (int i = 0; i < ELEMENTS; i++)
            assert_true(gguf_reader_element(e, i) == expected(t[k].type, values, i));
    }
    gguf_reader_close(&r);
}

/* In Q8_0 a tie is rounded away from zero, as roundf does, and not to even. */
static void test_ties_of_q8_0(void **state) {
    static const gguf_tensor t = {"x", GGUF_Q8_0, 1, {32}};
    folder *f = *state;
    gguf_metadata m = {.bytes = {.account = f->account}};
    float values[32] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -2.5f};
    assert_int_equal(write_file(f, &m, &t, 1, values), OTT_OK);
    gguf_metadata_free(&m);
    gguf_reader r = gguf_reader_open(folder_file(f, "x.gguf"));
    static const float codes[] = {127, 1, 2, 3, -1, -3};
    for (int i = 0; i < 6; i++) assert_true(gguf_reader_element(gguf_reader_tensor(&r, "x"), i) == codes[i]);
    gguf_reader_close(&r);
}

/* ---- refused models ---- */

#define MANY ((INT64_C(1) << 60) - 32)

static void test_what_no_file_holds(void **state) {
    static const struct {
        gguf_tensor t[3];
        int count;
        const char *says;
    } cases[] = {
        {{{"x", GGUF_Q8_0, 2, {2, 48}}}, 1, "'x': rows of 48 elements are not whole blocks of 32"},
        {{{"x", GGUF_F32, 2, {4, 0}}}, 1, "dimension 1 is 0, which is not positive"},
        {{{"x", GGUF_F32, 2, {-4, 3}}}, 1, "dimension 0 is -4"},
        {{{"x", GGUF_F16, 3, {INT64_C(1) << 40, INT64_C(1) << 22, 8}}}, 1, "too large"},
        {{{"x", GGUF_F32, 1, {MANY}}, {"y", GGUF_F32, 1, {MANY}}, {"z", GGUF_F32, 1, {MANY}}},
         3,
         "2^63 bytes"},
    };
    folder *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_metadata m = {.bytes = {.account = f->account}};
        assert_int_equal(write_file(f, &m, cases[i].t, cases[i].count, NULL), OTT_ERR_ARGUMENT);
        assert_error_names(cases[i].says);
        gguf_metadata_free(&m);
    }
}

static void test_a_count_of_more_than_32_bits(void **state) {
    folder *f = *state;
    for (int i = 0; i < 2; i++) {
        gguf_metadata m = {.bytes = {.account = f->account}};
        gguf_metadata_count(&m, "llama.vocab_size", i ? -1 : INT64_C(1) << 32);
        assert_int_equal(write_file(f, &m, NULL, 0, NULL), OTT_ERR_ARGUMENT);
        assert_error_names(i ? "llama.vocab_size = -1" : "llama.vocab_size = 4294967296");
        gguf_metadata_free(&m);
    }
}

static void test_what_q8_0_cannot_hold(void **state) {
    static const gguf_tensor t = {"blk.0.ffn_up.weight", GGUF_Q8_0, 1, {32}};
    static const float bad[] = {NAN, INFINITY, -INFINITY, 1e8f};
    folder *f = *state;
    for (int i = 0; i < 4; i++) {
        gguf_metadata m = {.bytes = {.account = f->account}};
        float values[32] = {[5] = bad[i]};
        assert_int_equal(write_file(f, &m, &t, 1, values), OTT_ERR_FORMAT);
        assert_error_names("blk.0.ffn_up.weight");
        gguf_metadata_free(&m);
        FILE *left = fopen(folder_file(f, "x.gguf"), "rb");
        assert_null(left);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_setup, folder_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {TEST(test_metadata),
                                       TEST(test_tensors_of_every_type),
                                       TEST(test_ties_of_q8_0),
                                       TEST(test_what_no_file_holds),
                                       TEST(test_a_count_of_more_than_32_bits),
                                       TEST(test_what_q8_0_cannot_hold)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
