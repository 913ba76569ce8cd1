/* Inspecting weights: the table, the JSON text, and statistics compared with a separate computation. */
#include "support/folder.h"
#include "report/inspect.h"
#include "formats/safetensors/shards.h"
#include "base/rng.h"
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { LARGE = 150001 }; /* more elements than several buffers of the reader hold */

static float large_value(int64_t i) {
    if (i % 1000 == 7) return i % 2000 == 7 ? NAN : i % 4000 == 1007 ? INFINITY : -INFINITY;
    if (i % 50 == 3) return i % 100 == 3 ? 0.0f : -0.0f;
    return 1000.0f + (float)rng_normal(9, 1, (uint64_t)i);
}

static void write_model(folder *f, const char *sub, int64_t max_bytes) {
    static const safetensors_tensor tensors[] = {
        {"layers.10.w", OTT_BF16, 2, {2, 3}}, {"layers.9.w", OTT_F32, 1, {2}}, {"codes", OTT_E4M3, 1, {4}},
        {"steps", OTT_I64, 1, {1}},           {"large", OTT_F32, 1, {LARGE}},  {"none", OTT_F32, 1, {0}},
        {"a\x1b[31m\n", OTT_F16, 0, {0}}};
    static const float w10[] = {1, -2, 3, 0, 0.5f, -0.0f}, w9[] = {0.1f, NAN};
    const safetensors_pair metadata = {"note", "hi\n\"there\""};
    safetensors_writer *w;
    float *large = malloc(LARGE * sizeof *large);
    const int64_t steps = 5;
    for (int64_t i = 0; i < LARGE; i++) large[i] = large_value(i);
    assert_int_equal(safetensors_writer_join_shards(f->account, folder_file(f, sub), tensors, 7, max_bytes,
                                                    &metadata, 1, 0, 1, &w),
                     OTT_OK);
    for (int64_t t; (t = safetensors_writer_next(w)) >= 0;) {
        switch (t) {
        case 0: assert_int_equal(safetensors_writer_append_floats(w, w10, 6), OTT_OK); break;
        case 1: assert_int_equal(safetensors_writer_append_floats(w, w9, 2), OTT_OK); break;
        case 2: assert_int_equal(safetensors_writer_append(w, "\x38\xb8\x7e\x7f", 4), OTT_OK); break;
        case 3: assert_int_equal(safetensors_writer_append(w, &steps, 8), OTT_OK); break;
        case 4: assert_int_equal(safetensors_writer_append_floats(w, large, LARGE), OTT_OK); break;
        default: assert_int_equal(safetensors_writer_append_floats(w, w10, 1), OTT_OK); break;
        }
    }
    assert_int_equal(safetensors_writer_commit(w), OTT_OK);
    free(large);
}

static ott_status append_piece(void *user, const char *text, int64_t length) {
    str_append_bytes(user, text, length);
    return str_finish(user);
}

static char *inspect(folder *f, const char *sub, bool statistics, bool json) {
    const inspect_options options = {statistics, json};
    str out = {.account = f->account};
    if (inspect_print(f->account, folder_file(f, sub), &options, append_piece, &out) != OTT_OK)
        fail_msg("%s", status_text());
    return out.text;
}

static void table(void **state) {
    folder *f = *state;
    static const char expected[] = "format = pt\n"
                                   "note = hi?\"there\"\n"
                                   "\n"
                                   "tensor       dtype    shape               bytes\n"
                                   "a?[31m?      F16      []                      2\n"
                                   "codes        F8_E4M3  [4]                     4\n"
                                   "large        F32      [150001]          600,004\n"
                                   "layers.9.w   F32      [2]                     8\n"
                                   "layers.10.w  BF16     [2, 3]                 12\n"
                                   "none         F32      [0]                     0\n"
                                   "steps        I64      [1]                     8\n"
                                   "\n"
                                   "F8_E4M3  1 tensor, 4 elements, 4 bytes\n"
                                   "F16      1 tensor, 1 element, 2 bytes\n"
                                   "BF16     1 tensor, 6 elements, 12 bytes\n"
                                   "F32      3 tensors, 150,003 elements, 600,012 bytes\n"
                                   "I64      1 tensor, 1 element, 8 bytes\n"
                                   "total    7 tensors, 150,015 elements, 600,038 bytes\n";
    write_model(f, "m", 0);
    char *text = inspect(f, "m", false, false);
    assert_string_equal(text, expected);
    mem_free(f->account, text);
}

/* Copies the line of the text that begins with `name`. */
static void line_of(const char *text, const char *name, char out[256]) {
    const char *line = strstr(text, name);
    assert_non_null(line);
    size_t length = strcspn(line, "\n");
    assert_true(length < 256);
    memcpy(out, line, length);
    out[length] = '\0';
}

static void table_with_statistics(void **state) {
    folder *f = *state;
    char line[256];
    write_model(f, "m", 20);
    char *text = inspect(f, "m", true, false);
    line_of(text, "layers.10.w", line);
    assert_non_null(strstr(line, " -2 "));
    assert_non_null(strstr(line, " 0.4167 ")); /* the mean: 2.5 / 6 */
    assert_non_null(strstr(line, "model-0000"));
    line_of(text, "steps", line);
    assert_non_null(strstr(line, " -           -           -           -           -       -       - "));
    line_of(text, "codes", line);
    assert_non_null(strstr(line, " 448 "));
    line_of(text, "tensor ", line);
    assert_non_null(
        strstr(line, "min         max        mean         std       zeros     nan     inf  file"));
    mem_free(f->account, text);
}

static double number(json_t *object, const char *key) {
    json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static json_t *tensor_of(json_t *root, const char *name) {
    size_t i;
    json_t *tensor;
    json_array_foreach(json_object_get(root, "tensors"), i, tensor) {
        if (strcmp(json_string_value(json_object_get(tensor, "name")), name) == 0) return tensor;
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

static void check_large(json_t *statistics) {
    int64_t zeros = 0, nans = 0, infinities = 0, finite = 0;
    long double sum = 0, squares = 0;
    double least = INFINITY, most = -INFINITY;
    for (int64_t i = 0; i < LARGE; i++) {
        float x = large_value(i);
        zeros += x == 0;
        nans += isnan(x) != 0;
        infinities += isinf(x) != 0;
        if (!isfinite(x)) continue;
        finite++;
        sum += x;
        least = fmin(least, x);
        most = fmax(most, x);
    }
    long double mean = sum / finite;
    for (int64_t i = 0; i < LARGE; i++)
        if (isfinite(large_value(i))) squares += (large_value(i) - mean) * (large_value(i) - mean);
    assert_true(number(statistics, "min") == least && number(statistics, "max") == most);
    assert_true(fabs(number(statistics, "mean") - (double)mean) < 1e-9);
    assert_true(fabs(number(statistics, "std") - sqrt((double)(squares / finite))) < 1e-9);
    assert_int_equal(number(statistics, "zeros"), zeros);
    assert_int_equal(number(statistics, "nan"), nans);
    assert_int_equal(number(statistics, "inf"), infinities);
    assert_true(zeros > 100 && nans > 50 && infinities > 50);
}

static void json_with_statistics(void **state) {
    folder *f = *state;
    json_error_t error;
    write_model(f, "m", 20);
    char *text = inspect(f, "m", true, true);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!root) fail_msg("line %d: %s", error.line, error.text);
    assert_string_equal(json_string_value(json_object_get(root, "path")), folder_file(f, "m"));
    json_t *files = json_object_get(root, "files"), *total = json_object_get(root, "total");
    assert_true(json_array_size(files) > 2);
    json_t *metadata = json_object_get(json_array_get(files, 1), "metadata");
    assert_string_equal(json_string_value(json_object_get(metadata, "note")), "hi\n\"there\"");
    assert_int_equal(number(total, "bytes"), 600038);
    assert_int_equal(number(total, "elements"), 150015);
    assert_int_equal(number(json_object_get(json_object_get(root, "dtypes"), "F32"), "tensors"), 3);
    double bytes = 0;
    for (size_t i = 0; i < json_array_size(files); i++) bytes += number(json_array_get(files, i), "bytes");
    assert_int_equal(bytes, 600038);
    check_large(json_object_get(tensor_of(root, "large"), "statistics"));
    json_t *codes = json_object_get(tensor_of(root, "codes"), "statistics");
    assert_true(number(codes, "max") == 448 && number(codes, "min") == -1 && number(codes, "nan") == 1);
    json_t *none = json_object_get(tensor_of(root, "none"), "statistics");
    assert_true(json_is_null(json_object_get(none, "mean")) && number(none, "zeros") == 0);
    assert_true(json_is_null(json_object_get(tensor_of(root, "steps"), "statistics")));
    assert_non_null(tensor_of(root, "a\x1b[31m\n"));
    json_decref(root);
    mem_free(f->account, text);
    text = inspect(f, "m", false, true);
    root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    assert_null(json_object_get(tensor_of(root, "large"), "statistics"));
    json_decref(root);
    mem_free(f->account, text);
}

static void empty_model(void **state) {
    folder *f = *state;
    safetensors_writer *w;
    assert_int_equal(
        safetensors_writer_join_shards(f->account, folder_file(f, "m"), NULL, 0, 0, NULL, 0, 0, 1, &w),
        OTT_OK);
    assert_int_equal(safetensors_writer_commit(w), OTT_OK);
    char *text = inspect(f, "m", true, true);
    json_t *root = json_loads(text, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(root, "tensors")), 0);
    json_decref(root);
    mem_free(f->account, text);
    text = inspect(f, "m", true, false);
    assert_non_null(strstr(text, "total    0 tensors, 0 elements, 0 bytes"));
    mem_free(f->account, text);
}

static ott_status stop(void *user, const char *text, int64_t length) {
    int *left = user;
    (void)text;
    assert_true(length > 0);
    return --*left > 0 ? OTT_OK : OTT_ERR_IO;
}

static void errors(void **state) {
    folder *f = *state;
    const inspect_options options = {true, false};
    int pieces = 3, untouched = 1;
    write_model(f, "m", 20);
    assert_int_equal(inspect_print(f->account, folder_file(f, "m"), &options, stop, &pieces), OTT_ERR_IO);
    assert_int_equal(pieces, 0);
    folder_write_text(f, "bad.safetensors", "no such thing");
    assert_int_equal(inspect_print(f->account, folder_file(f, "bad.safetensors"), &options, stop, &untouched),
                     OTT_ERR_FORMAT);
    assert_int_equal(inspect_print(f->account, folder_file(f, "absent"), &options, stop, &untouched),
                     OTT_ERR_NOT_FOUND);
    assert_int_equal(untouched, 1);
}

static void memory_runs_out(void **state) {
    folder *f = *state;
    const inspect_options options = {true, true};
    ott_status status = OTT_ERR_MEMORY;
    write_model(f, "m", 20);
    for (int64_t n = 1; status == OTT_ERR_MEMORY; n++) {
        str out = {.account = f->account};
        mem_fail_after(f->account, n);
        status = inspect_print(f->account, folder_file(f, "m"), &options, append_piece, &out);
        str_free(&out);
    }
    mem_fail_after(f->account, 0);
    assert_int_equal(status, OTT_OK);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, folder_setup, folder_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(table),  TEST(table_with_statistics), TEST(json_with_statistics), TEST(empty_model),
        TEST(errors), TEST(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
