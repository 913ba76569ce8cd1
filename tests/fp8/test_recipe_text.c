/* fp8/recipe_text: writes and reads back every cast of the recipe table, and tests the meaning of each word
   and wrong texts. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/rng.h"
#include "fp8/recipe_text.h"
#include <float.h>
#include <string.h>

static bool same(const cast_spec *a, const cast_spec *b) {
    quant_spec x = {*a, *a}, y = {*b, *b};
    return quant_spec_equal(&x, &y);
}

static cast_spec good(const char *text) {
    cast_spec s;
    if (recipe_cast_parse(text, OTT_BF16, &s) != OTT_OK) fail_msg("%s: %s", text, status_text());
    return s;
}

/* Writes s as text, and reads the text back. The text must give the same cast. */
static void there_and_back(const cast_spec *s, ott_dtype activation, const char *name) {
    char text[RECIPE_CAST_TEXT], again[RECIPE_CAST_TEXT];
    cast_spec back;
    recipe_cast_write(s, text);
    if (recipe_cast_parse(text, activation, &back) != OTT_OK)
        fail_msg("%s: %s: %s", name, text, status_text());
    if (!same(s, &back)) fail_msg("%s: parsing \"%s\" gives different settings", name, text);
    recipe_cast_write(&back, again);
    assert_string_equal(text, again);
}

static void every_row_there_and_back(void **state) {
    (void)state;
    int count;
    const recipe *table = recipe_table(&count);
    for (int i = 0; i < count; i++) {
        const quant_spec *tensors[] = {&table[i].input, &table[i].weight, &table[i].grad_output};
        for (int t = 0; t < TENSOR_COUNT; t++) {
            there_and_back(&tensors[t]->rowwise, table[i].activation, table[i].name);
            there_and_back(&tensors[t]->columnwise, table[i].activation, table[i].name);
        }
    }
}

/* Compares the texts of the table's casts with expected texts. */
static void rows_as_texts(void **state) {
    (void)state;
    const struct {
        const char *recipe, *input, *weight, *grad_output; /* expected texts of the rowwise casts */
    } rows[] = {
        {"bf16", "high", "high", "high"},
        {"tensorwise", "e4m3", "e4m3", "e5m2"},
        {"rowwise", "e4m3 row pow2", "e4m3 row pow2", "e4m3 row pow2"},
        {"delayed", "e4m3 delayed", "e4m3 delayed", "e5m2 delayed"},
        {"current", "e4m3 te", "e4m3 te", "e5m2 te"},
        {"block", "e4m3 1x128 te pow2", "e4m3 128x128 te pow2", "e4m3 1x128 te pow2"},
        {"mxfp8", "e4m3 1x32", "e4m3 1x32", "e4m3 1x32"},
    };
    char text[RECIPE_CAST_TEXT];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const recipe *r = recipe_find(rows[i].recipe);
        assert_non_null(r);
        recipe_cast_write(&r->input.rowwise, text);
        assert_string_equal(text, rows[i].input);
        recipe_cast_write(&r->weight.rowwise, text);
        assert_string_equal(text, rows[i].weight);
        recipe_cast_write(&r->grad_output.rowwise, text);
        assert_string_equal(text, rows[i].grad_output);
    }
}

static void words_mean(void **state) {
    (void)state;
    cast_spec s = good("e4m3");
    assert_true(s.format == OTT_E4M3 && s.grain == GRANULARITY_TENSOR && s.scale.rule == SCALE_TORCHAO);
    assert_true(s.mode == CAST_SATURATE && s.rounding == ROUND_NEAREST && s.policy == AMAX_CURRENT);
    s = good("  e5m2   overflow pow2 row ");
    assert_true(s.format == OTT_E5M2 && s.mode == CAST_OVERFLOW && s.scale.power_of_two);
    assert_int_equal(s.grain, GRANULARITY_ROW);
    s = good("e4m3 tensor unit");
    assert_int_equal(s.scale.rule, SCALE_NONE);
    s = good("e4m3 te eps=1e-4 margin=-2");
    assert_true(s.scale.rule == SCALE_TE && s.scale.epsilon == 1e-4f && s.scale.margin == -2);
    assert_true(s.scale.infinite == FLT_MAX);
    s = good("e4m3 128x128 te");
    assert_true(s.grain == GRANULARITY_128X128 && s.scale.infinite == 0x1.fep127f && !s.scale.power_of_two);
    s = good("e4m3 1x32 e8m0_floor");
    assert_int_equal(s.scale.rule, SCALE_E8M0_FLOOR);
    s = good("e5m2 delayed history=16 margin=1 algo=most_recent no_reduce");
    assert_true(s.policy == AMAX_DELAYED && s.scale.rule == SCALE_TE && s.history == 16);
    assert_true(s.algorithm == AMAX_MOST_RECENT && !s.reduce && s.scale.margin == 1);
    s = good("e4m3 delayed te tensor algo=max");
    assert_true(s.history == 1024 && s.reduce && s.algorithm == AMAX_MAX);
    assert_int_equal(recipe_cast_parse("high", OTT_F16, &s), OTT_OK);
    assert_int_equal(s.format, OTT_F16);
}

/* The text is the shortest one: it has no defaults and no superfluous digits. The longest text fits into the
   buffer. */
static void shortest(void **state) {
    (void)state;
    const char *const texts[][2] = {
        {"e4m3 tensor torchao", "e4m3"},
        {"e4m3 eps=1e-04 te", "e4m3 te eps=1e-4"},
        {"e4m3 te eps=0.25 margin=0", "e4m3 te eps=0.25"},
        {"e4m3 te eps=1e20", "e4m3 te eps=1e20"},
        {"e4m3 te eps=0", "e4m3 te"},
        {"e4m3 te eps=1.17549435e-38", "e4m3 te eps=1.1754944e-38"},
        {"e4m3 1x32 e8m0", "e4m3 1x32"},
        {"e4m3 overflow 1x32", "e4m3 1x32 overflow"},
        {"e4m3 te delayed tensor", "e4m3 delayed"},
        {"e5m2 no_reduce delayed overflow margin=-16 history=1048576 algo=most_recent",
         "e5m2 delayed margin=-16 history=1048576 algo=most_recent no_reduce overflow"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[RECIPE_CAST_TEXT];
        cast_spec s = good(texts[i][0]);
        recipe_cast_write(&s, text);
        assert_string_equal(text, texts[i][1]);
        there_and_back(&s, OTT_BF16, texts[i][0]);
    }
}

static void bad(const char *text, const char *wanted) {
    cast_spec s;
    assert_int_equal(recipe_cast_parse(text, OTT_BF16, &s), OTT_ERR_CONFIG);
    if (!strstr(status_text(), wanted) || strchr(status_text(), '\n'))
        fail_msg("\"%s\": \"%s\" is not in: %s", text, wanted, status_text());
}

static void wrong_texts(void **state) {
    (void)state;
    bad("", "\"\" is not a format, which comes first: e4m3, e5m2, high");
    bad("   ", "is not a format");
    bad("e4m2", "\"e4m2\" is not a format, which comes first: e4m3, e5m2, high; did you mean \"e4m3\"?");
    bad("row e4m3", "\"row\" is not a format");
    bad("E4M3", "did you mean \"e4m3\"?");
    bad("e4m3 rows", "\"rows\" is not a word that may follow the format: tensor, row, 1x128, 128x128, 1x32");
    bad("e4m3 rows", "did you mean \"row\"?");
    bad("e4m3 row row", "\"row\" is given twice");
    bad("e4m3 pow2 pow2", "\"pow2\" is given twice");
    bad("e4m3 row tensor", "\"row\" and \"tensor\" contradict each other");
    bad("e4m3 e5m2", "\"e4m3\" and \"e5m2\" contradict each other");
    bad("e4m3 te unit", "\"te\" and \"unit\" contradict each other");
    bad("e4m3 delayed algo=max algo=most_recent", "contradict each other");
    bad("high row", "\"row\" cannot be combined with \"high\"");
    bad("high pow2", "\"pow2\" cannot be combined with \"high\"");
    bad("e4m3 unit pow2", "\"pow2\" cannot be combined with the scale rule \"unit\"");
    bad("e4m3 1x32 pow2", "\"pow2\" cannot be combined with the scale rule \"e8m0\"");
    bad("e4m3 eps=1e-4", "\"eps=\" cannot be combined with the scale rule \"torchao\"");
    bad("e4m3 margin=1", "cannot be combined with the scale rule \"torchao\"");
    bad("e4m3 history=4", "\"history=\" can be combined only with \"delayed\"");
    bad("e4m3 no_reduce", "only with \"delayed\"");
    bad("e4m3 row delayed", "\"row\" cannot be combined with \"delayed\"");
    bad("e4m3 torchao delayed", "\"torchao\" cannot be combined with \"delayed\"");
    bad("e4m3 delayed pow2", "\"pow2\" cannot be combined with \"delayed\"");
    bad("e4m3 delayed eps=1", "\"eps=\" cannot be combined with \"delayed\"");
    bad("e4m3 1x32 te", "\"1x32\" and \"te\" contradict each other");
    bad("e4m3 e8m0", "\"tensor\" and \"e8m0\" contradict each other");
    bad("e4m3 delayed 1x32", "\"1x32\" cannot be combined with \"delayed\"");
}

static void wrong_numbers(void **state) {
    (void)state;
    static const char *const cases[] = {"",
                                        "x",
                                        "-1",
                                        "inf",
                                        "nan",
                                        "0x1",
                                        "1e",
                                        "1e99",
                                        "1 2",
                                        "--",
                                        "1.2.3",
                                        "1,5",
                                        "99999999999999999999999999999999"};
    char text[80];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        strcpy(text, "e4m3 te eps=");
        bad(strcat(text, cases[i]), "");
    }
    bad("e4m3 te eps=-1", "\"eps=-1\": eps must be a finite number that is not negative");
    bad("e4m3 delayed history=0", "\"history=0\": history must be an integer from 1 to 1048576");
    bad("e4m3 delayed history=1048577", "must be an integer");
    bad("e4m3 delayed history=4294967297", "must be an integer");
    bad("e4m3 delayed history=16x", "must be an integer");
    bad("e4m3 delayed history", "did you mean \"history=\"?");
    bad("e4m3 te margin=17", "\"margin=17\": margin must be an integer from -16 to 16");
    bad("e4m3 te margin=-17", "must be an integer");
    bad("e4m3 te margin=1.5", "must be an integer");
    bad("e4m3 te margin=-", "must be an integer");
}

/* Reads texts of random bytes. Each must give a cast that can be written and read back, or a one-line
   error. */
static void hostile_texts(void **state) {
    (void)state;
    static const char *const bases[] = {"e4m3 row pow2 overflow", "e5m2 delayed history=16 no_reduce",
                                        "e4m3 128x128 te eps=1e-4", "high"};
    char text[80], long_text[5000];
    memset(long_text, 'e', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    bad(long_text, "eee\" is not a format");
    bad("e4m3\nrow", "\"e4m3?row\" is not");
    bad("e4m3 \x7f", "\"?\" is not");
    bad("e4m3 caf\xe9", "is not");
    bad("e4m3\trow", "is not");
    for (uint64_t i = 0; i < 20000; i++) {
        cast_spec s;
        strcpy(text, bases[i % 4]);
        for (uint64_t k = 0; k <= i % 3; k++)
            text[rng_u32(5, i, 2 * k) % strlen(bases[i % 4])] = (char)(1 + rng_u32(5, i, 2 * k + 1) % 255);
        if (recipe_cast_parse(text, OTT_BF16, &s) == OTT_OK)
            there_and_back(&s, OTT_BF16, text);
        else
            assert_true(status_text()[0] && !strchr(status_text(), '\n'));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_there_and_back),
        cmocka_unit_test(rows_as_texts),
        cmocka_unit_test(words_mean),
        cmocka_unit_test(shortest),
        cmocka_unit_test(wrong_texts),
        cmocka_unit_test(wrong_numbers),
        cmocka_unit_test(hostile_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
