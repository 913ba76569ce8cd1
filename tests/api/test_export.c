/* Export and inspection through the public API: wrong arguments, and one call that works. */
#include "api/api_case.h"
#include "support/folder.h"
#include <string.h>

static void test_wrong_arguments(void **state) {
    (void)state;
    collected c = {0};
    ott_export_options e;
    ott_context *context = open_context();
    ott_export_options_init(NULL);
    ott_inspect_options_init(NULL);
    ott_export_options_init(&e);
    assert_error(ott_export(NULL, "r", "out", NULL, collect, &c), OTT_ERR_ARGUMENT, "context is NULL");
    assert_error(ott_export(context, NULL, "out", NULL, collect, &c), OTT_ERR_ARGUMENT, "run is NULL");
    assert_error(ott_export(context, "r", NULL, NULL, collect, &c), OTT_ERR_ARGUMENT, "folder is NULL");
    assert_error(ott_export(context, "r", "", NULL, collect, &c), OTT_ERR_ARGUMENT,
                 "the name of the export folder is empty");
    assert_error(ott_export(context, "r", "out", NULL, NULL, &c), OTT_ERR_ARGUMENT, "write is NULL");
    assert_error(ott_inspect(NULL, "r", NULL, collect, &c), OTT_ERR_ARGUMENT, "context is NULL");
    assert_error(ott_inspect(context, NULL, NULL, collect, &c), OTT_ERR_ARGUMENT, "path is NULL");
    assert_error(ott_inspect(context, "r", NULL, NULL, &c), OTT_ERR_ARGUMENT, "write is NULL");
    assert_error(ott_inspect(context, "", NULL, collect, &c), OTT_ERR_NOT_FOUND, "");
    assert_error(ott_export(context, "no-run", "out", NULL, collect, &c), OTT_ERR_NOT_FOUND, "no-run");
    e.struct_size = 0;
    assert_error(ott_export(context, "r", "out", &e, collect, &c), OTT_ERR_ARGUMENT,
                 "ott_export_options_init");
    assert_string_equal(c.text, "");
    ott_context_close(context);
}

static void refuses(ott_context *context, ott_export_options o, const char *part) {
    collected c = {0};
    assert_error(ott_export(context, "r", "out", &o, collect, &c), OTT_ERR_ARGUMENT, part);
}

static void test_options_that_do_not_fit(void **state) {
    (void)state;
    ott_context *context = open_context();
    ott_export_options o, wrong;
    ott_export_options_init(&o);
    wrong = o, wrong.format = (ott_export_format)5;
    refuses(context, wrong, "format = 5");
    wrong = o, wrong.dtype = OTT_E4M3;
    refuses(context, wrong, "OTT_BF16, OTT_F32 or OTT_F16");
    wrong = o, wrong.dtype = (ott_dtype)-1;
    refuses(context, wrong, "dtype = -1");
    o.format = OTT_EXPORT_HF_FP8;
    wrong = o, wrong.method = (ott_export_method)7;
    refuses(context, wrong, "method = 7");
    wrong = o, wrong.granularity = (ott_export_granularity)4;
    refuses(context, wrong, "granularity = 4");
    /* the default granularity is channel scales, which OTT_EXPORT_FP8 does not allow */
    wrong = o, wrong.method = OTT_EXPORT_FP8;
    refuses(context, wrong, "compressed-tensors");
    wrong = o, wrong.dtype = OTT_F32;
    refuses(context, wrong, "dtype = fp32");
    ott_context_close(context);
}

/* Inspects a file with one tensor: the scalar 2.5. */
static void test_inspect_a_file(void **state) {
    static const char header[] = "{\"x\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}} ";
    const uint64_t length = sizeof header - 1;
    const float value = 2.5f;
    char bytes[8 + sizeof header - 1 + 4];
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    memcpy(bytes + 8 + length, &value, 4);
    const char *name = folder_write(*state, "model.safetensors", bytes, sizeof bytes);
    collected table = {0}, json = {0};
    ott_inspect_options o;
    ott_context *context = open_context();
    succeed(ott_inspect(context, name, NULL, collect, &table));
    assert_non_null(strstr(table.text, "1 tensor"));
    ott_inspect_options_init(&o);
    o.statistics = o.json = 1;
    succeed(ott_inspect(context, name, &o, collect, &json));
    assert_non_null(strstr(json.text, "\"max\": 2.5"));
    ott_context_close(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_arguments), cmocka_unit_test(test_options_that_do_not_fit),
        cmocka_unit_test_setup_teardown(test_inspect_a_file, folder_setup, folder_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
