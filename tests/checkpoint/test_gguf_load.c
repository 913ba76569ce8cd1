/* Loads GGUF files that folders/gguf_save wrote from the families in tests/golden/families: configuration,
   weights and losses must equal the original folder's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "checkpoint/run_folder.h"
#include "folders/gguf_save.h"
#include "folders/hf/base.h"
#include "folders/hf/model.h"
#include "model/tiny_model.h"

/* The families, and changes that make the golden models acceptable to llama.cpp's architectures. */
static const struct {
    const char *name;
    bool square, tied, no_gqa, llama3, gemma2, qwen3_moe, no_window;
} families[] = {{.name = "linear"},
                {.name = "linear", .llama3 = true},
                {.name = "yarn"},
                {.name = "longrope"},
                {.name = "granite"},
                {.name = "glm", .square = true},
                {.name = "glm4"},
                {.name = "mixtral"},
                {.name = "qwen3_moe", .qwen3_moe = true},
                {.name = "dots1", .no_gqa = true},
                {.name = "gpt2"},
                {.name = "gemma2", .gemma2 = true},
                {.name = "gemma3"},
                {.name = "olmo2", .square = true},
                {.name = "cohere", .square = true, .tied = true},
                {.name = "cohere2", .square = true, .tied = true},
                {.name = "qwen2_windows", .square = true, .no_window = true},
                {.name = "starcoder2", .square = true, .no_window = true}};
enum { COUNT = sizeof families / sizeof *families };

static model_options options_of(mem *account, int i) {
    char folder[256];
    snprintf(folder, sizeof folder, "%s/tests/golden/families/%s", TEST_SOURCE_DIR, families[i].name);
    model_options o = folder_model_options(account, folder);
    if (families[i].square) o.dim = o.heads * o.head_dim;
    if (families[i].tied) o.tied = true;
    if (families[i].no_gqa) o.kv_heads = o.heads;
    if (families[i].no_window) o.window = 0; /* a file of this architecture cannot have a window */
    if (families[i].gemma2) o.attention_multiplier = (float)(1 / sqrt((double)o.head_dim));
    if (families[i].qwen3_moe) {
        o.moe.rule.normalized = true;
        o.moe_every = 1;
        o.dense_count = 0;
    }
    if (!families[i].llama3) return o;
    o.rope.kind = ROPE_LLAMA3;
    o.rope.theta = 5e5;
    o.rope.factor = 8;
    o.rope.low_frequency_factor = 1;
    o.rope.high_frequency_factor = 4;
    o.rope.original_max_position = 8192;
    return o;
}

static int find(const char *name) {
    int i = 0;
    while (strcmp(families[i].name, name) != 0) i++;
    return i;
}

static ott_status save(model *m, gguf_type type, const char *path) {
    const gguf_save_options o = {.type = type, .fallback_type = GGUF_F16};
    gguf_metadata metadata = {.bytes = {.account = m->device->account}};
    gguf_save_summary sum;
    ott_status status = gguf_model_save(m, &o, &metadata, path, &sum);
    gguf_metadata_free(&metadata);
    return status;
}

/* Compares all parameters. A file has 1 + w for the norms of Gemma, which rounds w. */
static void compare_models(const char *name, const model *a, const model *b) {
    assert_int_equal(a->all_parameter_count, b->all_parameter_count);
    for (int i = 0; i < a->all_parameter_count; i++) {
        const parameter *p = a->all_parameters[i], *q = b->all_parameters[i];
        assert_string_equal(p->name, q->name);
        float *x = parameter_values(a, p), *y = parameter_values(b, q);
        float most = a->options.family->norm == FAMILY_NORM_RMS_ONE_PLUS && p->rank == 1 ? 0x1p-22f : 0;
        for (int64_t k = 0; k < tensor_count(p->shard.value); k++)
            if (!(fabsf(x[k] - y[k]) <= most))
                fail_msg("%s: %s[%lld] is %a, not %a", name, p->name, (long long)k, (double)y[k],
                         (double)x[k]);
        free(x);
        free(y);
    }
}

static float *losses_of(tiny *t) {
    tiny_convert(t, recipe_high_precision(OTT_F32), NULL, NULL);
    tiny_random_batch(t, 2, 24);
    tiny_run(t);
    return tiny_losses(t);
}

static void compare_losses(const char *name, tiny *a, tiny *b) {
    float *x = losses_of(a), *y = losses_of(b);
    for (int i = 0; i < 48; i++)
        if (!(fabsf(x[i] - y[i]) <= 1e-5f * fabsf(x[i])))
            fail_msg("%s: loss %d is %.9g, not %.9g", name, i, (double)y[i], (double)x[i]);
    free(x);
    free(y);
}

static void loads_what_was_saved(void **state) {
    run_folder *r = *state;
    for (int i = 0; i < COUNT; i++) {
        tiny first, second;
        const char *name = families[i].name;
        model_options o = options_of(r->account, i);
        tiny_open(&first, &o, 1, NULL);
        tiny_randomize(&first);
        ott_status status = save(first.m, GGUF_F32, at(r, "x.gguf"));
        if (status != OTT_OK) fail_msg("%s: %s", name, status_text());
        model_options again = folder_model_options(r->account, at(r, "x.gguf"));
        if (families[i].llama3) {
            assert_int_equal(again.rope.kind, ROPE_LLAMA3);
            assert_true(again.rope.factor == 8 && again.rope.low_frequency_factor == 1);
            assert_true(again.rope.high_frequency_factor == 4 && again.rope.original_max_position == 8192);
        }
        tiny_open(&second, &again, 1, NULL);
        HARNESS_OK(hf_model_load(second.m, at(r, "x.gguf")));
        compare_models(name, first.m, second.m);
        compare_losses(name, &first, &second);
        tiny_close(&first);
        tiny_close(&second);
    }
}

/* A checkpoint of adapters finds its base by the file's fingerprint. */
static void fingerprints_a_base(void **state) {
    run_folder *r = *state;
    tiny t;
    bool fits;
    model_options o = options_of(r->account, find("linear"));
    tiny_open(&t, &o, 1, NULL);
    tiny_randomize(&t);
    HARNESS_OK(save(t.m, GGUF_Q8_0, at(r, "x.gguf")));
    HARNESS_OK(hf_base_mark(t.m, at(r, "x.gguf")));
    const model_base base = t.m->base;
    HARNESS_OK(hf_base_fits(r->account, at(r, "x.gguf"), &base, &fits));
    assert_true(fits);
    HARNESS_OK(hf_base_load(t.m, NULL, "step-1", &base));
    HARNESS_OK(save(t.m, GGUF_F32, at(r, "x.gguf")));
    HARNESS_OK(hf_base_fits(r->account, at(r, "x.gguf"), &base, &fits));
    assert_false(fits);
    tiny_close(&t);
}

/* A file of another architecture is refused before any parameter changes. */
static void refuses_another_architecture(void **state) {
    run_folder *r = *state;
    tiny t;
    model_options o = options_of(r->account, find("gpt2")), other = options_of(r->account, find("linear"));
    tiny_open(&t, &o, 1, NULL);
    HARNESS_OK(save(t.m, GGUF_F32, at(r, "x.gguf")));
    tiny_close(&t);
    tiny_open(&t, &other, 1, NULL);
    assert_error(hf_model_load(t.m, at(r, "x.gguf")), OTT_ERR_UNSUPPORTED, "x.gguf", "architecture gpt2",
                 "llama model", NULL);
    tiny_close(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(loads_what_was_saved, run_folder_setup, run_folder_teardown),
        cmocka_unit_test_setup_teardown(fingerprints_a_base, run_folder_setup, run_folder_teardown),
        cmocka_unit_test_setup_teardown(refuses_another_architecture, run_folder_setup, run_folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
