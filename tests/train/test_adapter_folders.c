/*
 * Adapters in files: PEFT folders are read and written, unsupported folders are refused, and export merges
 * adapters into the weights.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/file/file.h"
#include "folders/gguf_save.h"
#include "folders/hf/save.h"
#include "folders/peft.h"
#include "formats/safetensors/shards.h"
#include "fp8/cast.h"
#include "model/tiny_model.h"
#include "nn/golden.h"
#include "support/gguf_reader.h"
#include "train/mesh_run.h"

#define LORA "--peft.dim=4", "--peft.alpha=6"

/* ---- PEFT folders ---- */

static void read_folder(const fixture *f, const char *folder, const char *name, bool decomposed) {
    char option[PATH_MAX];
    const char *const more[] = {option, NULL};
    mem *account;
    snprintf(option, sizeof option, "--peft.path=%s", folder);
    FIXTURE_OK(mem_open(&account));
    config *cfg = fixture_config(f, account, "peft", NULL, more);
    FIXTURE_OK(peft_configure(account, cfg));
    assert_true(cfg->peft.enabled && cfg->peft.dim == 4 && cfg->peft.alpha == 6);
    assert_int_equal(cfg->peft.target_modules.count, 7);
    assert_int_equal(cfg->peft.dropout_position, DROPOUT_PRE);
    assert_int_equal(cfg->peft.use_dora, decomposed);
    tiny t;
    golden g;
    model_options o = tiny_options();
    o.adapter = (adapter_options){.rank = 4,
                                  .alpha = 6,
                                  .scale = 1.5f,
                                  .decomposed = decomposed,
                                  .targets = &cfg->peft.target_modules,
                                  .ranks = &cfg->peft.rank_pattern,
                                  .alphas = &cfg->peft.alpha_pattern,
                                  .layers = &cfg->peft.layers_to_transform,
                                  .layer_lists = &cfg->peft.layers_pattern,
                                  .saved = &cfg->peft.modules_to_save};
    tiny_open(&t, &o, 1, NULL);
    config_close(cfg);
    mem_close(account);
    FIXTURE_OK(peft_load(t.m, folder));
    golden_open(&g, t.h.account, "adapters");
    for (int i = 0; i < t.m->parameter_count; i++) {
        const parameter *p = &t.m->parameters[i];
        if (p->frozen) continue;
        golden_tensor w = golden_read(&g, "%s/weight/%s", name, p->name);
        float *ours = malloc((size_t)w.count * sizeof *ours);
        harness_get(&t.h, &p->value, ours);
        assert_memory_equal(ours, w.values, (size_t)w.count * sizeof *ours);
        free(ours);
        golden_free(&g, &w);
    }
    golden_close(&g);
    tiny_close(&t);
}

static void reads_pefts_folder(void **state) {
    read_folder(*state, TEST_SOURCE_DIR "/tests/golden/adapter", "llama", false);
    read_folder(*state, TEST_SOURCE_DIR "/tests/golden/adapter_dora", "dora", true);
    read_folder(*state, TEST_SOURCE_DIR "/tests/golden/adapter_patterns", "patterns", false);
}

static void foreign_folders_are_refused(void **state) {
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"{\"peft_type\": \"IA3\", \"r\": 4}", "'peft_type' is not LORA"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"trainable_token_indices\": [1]}",
         "'trainable_token_indices' is not supported"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"modules_to_save\": [1]}", "'modules_to_save' is not a list"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"rank_pattern\": {\"(q|k)\": 2}}",
         "'rank_pattern' has a regular expression"},
        /* q, then any number of dots */
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"rank_pattern\": {\"q\\\\.*\": 2}}",
         "'rank_pattern' has a regular expression"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"alpha_pattern\": {\"q\": \"2\"}}",
         "'alpha_pattern' is not an object of names and numbers"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"layers_to_transform\": [\"1\"]}",
         "'layers_to_transform' is not a list of numbers"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"bias\": \"all\"}", "'bias' is not \"none\""},
        {"{\"peft_type\": \"LORA\", \"r\": 0}", "r"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"target_modules\": \".*\"}", "regular expression"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"target_modules\": 1}", "'target_modules' is not a list"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_bias\": true}", "'lora_bias' is not supported"},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"init_lora_weights\": \"pissa_niter_16\"}",
         "'init_lora_weights' is pissa_niter_16, which changes the base weights"},
        {"[1]", ""}};
    const fixture *f = *state;
    char folder[120], path[160], option[160];
    snprintf(folder, sizeof folder, "%s/foreign", f->folder);
    snprintf(path, sizeof path, "%s/" PEFT_CONFIG_NAME, folder);
    snprintf(option, sizeof option, "--peft.path=%s", folder);
    FIXTURE_OK(file_make_folder(folder));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *more[] = {option, NULL};
        mem *account;
        FIXTURE_OK(mem_open(&account));
        config *cfg = fixture_config(f, account, "foreign_run", NULL, more);
        FIXTURE_OK(file_write_atomic(path, rows[i].text, (int64_t)strlen(rows[i].text)));
        assert_int_not_equal(peft_configure(account, cfg), OTT_OK);
        if (!strstr(status_text(), rows[i].part)) fail_msg("%s", status_text());
        config_close(cfg);
        mem_close(account);
    }
}

/* Reads a module's weight or scales from an exported folder. The caller frees the result. */
static float *read_exported(rig *r, const char *folder, const model_module *e, const char *what,
                            int64_t count) {
    char name[160];
    shards *file;
    float *out = malloc((size_t)count * sizeof *out);
    snprintf(name, sizeof name, "%s.%s", e->name, what);
    FIXTURE_OK(shards_open(r->account, folder, &file));
    FIXTURE_OK(shards_read_floats(file, shards_find(file, name), 0, count, out));
    shards_close(file);
    return out;
}

/* Exports the model in fp32 to FOLDER/`goal` and returns the weight of a module. The caller frees it. */
static float *merged_weight(const fixture *f, rig *r, const model_module *e, const char *goal) {
    char folder[160];
    hf_save_summary sum;
    const hf_save_options o = {.dtype = OTT_F32};
    snprintf(folder, sizeof folder, "%s/%s", f->folder, goal);
    FIXTURE_OK(hf_model_save(r->t->m, &o, folder, &sum));
    return read_exported(r, folder, e, "weight", parameter_count(e->weight));
}

/* Checks that each FP8 code is the nearest to the exact value. Distances are compared in units of the row's
   scale. */
static void expect_rounded(const fixture *f, rig *r, const model_module *e, const float *exact) {
    char folder[160];
    hf_save_summary sum;
    const hf_save_options o = {
        .dtype = OTT_BF16, .fp8 = true, .method = HF_METHOD_COMPRESSED, .granularity = HF_SCALE_AS_TRAINED};
    snprintf(folder, sizeof folder, "%s/rounded %d", f->folder, e->lora_m != NULL);
    FIXTURE_OK(hf_model_save(r->t->m, &o, folder, &sum));
    int64_t rows = e->weight->rows, columns = e->weight->columns;
    float *codes = read_exported(r, folder, e, "weight", rows * columns);
    float *scales = read_exported(r, folder, e, "weight_scale", rows);
    for (int64_t i = 0; i < rows * columns; i++)
        assert_true(fabsf(codes[i] * scales[i / columns] - exact[i]) <= 16.0f * scales[i / columns]);
    free(codes), free(scales);
}

/* Returns the factor by which DoRA multiplies a row of the sum of weight and adapter. */
static double row_factor(rig *r, const model_module *e, const float *sum, int64_t row) {
    double squares = 0;
    int64_t in = e->weight->columns;
    for (int64_t i = 0; i < in; i++) squares += (double)sum[row * in + i] * (double)sum[row * in + i];
    return e->lora_m ? (double)rig_peek(r, &e->lora_m->value, row) / sqrt(squares) : 1;
}

/* Compares a q_proj weight with its tensor in a GGUF file. In llama.cpp's order of rows, the two rows of a
   rotary pair are neighbors. */
static void expect_in_gguf(const fixture *f, rig *r, const model_module *e, const float *merged) {
    char path[160];
    gguf_save_summary sum;
    gguf_metadata m = {.bytes = {.account = r->account}};
    int64_t columns = e->weight->columns, size = r->t->m->options.head_dim;
    snprintf(path, sizeof path, "%s/merged.gguf", f->folder);
    FIXTURE_OK(gguf_model_save(r->t->m, &(gguf_save_options){.type = GGUF_F32}, &m, path, &sum));
    gguf_metadata_free(&m);
    gguf_reader g = gguf_reader_open(path);
    const gguf_entry *q = gguf_reader_tensor(&g, "blk.0.attn_q.weight");
    assert_int_equal(e->role, ROLE_Q);
    assert_int_equal(q->count, parameter_count(e->weight));
    for (int64_t i = 0; i < q->count; i++) {
        int64_t row = i / columns, own = row / size * size + row % size / 2 + row % 2 * size / 2;
        assert_true(gguf_reader_element(q, i) == merged[own * columns + i % columns]);
    }
    gguf_reader_close(&g);
}

/* Export adds adapters to the masters or to decoded FP8 weights. Export quantizes the FP8 weights again. */
static void check_merged(const fixture *f, const char *frozen, const char *dora) {
    const char *const more[] = {LORA, frozen, dora, NULL};
    char before_name[96], after_name[96];
    rig r;
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[ROWWISE], .more = more});
    const model_module *e = &r.t->m->modules.items[2];
    assert_non_null(e->lora_a);
    assert_int_equal(e->weight->codes != NULL, strstr(frozen, "fp8") != NULL);
    snprintf(before_name, sizeof before_name, "before %s %s", frozen, dora);
    snprintf(after_name, sizeof after_name, "after %s %s", frozen, dora);
    float *before = merged_weight(f, &r, e, before_name); /* B is zero, so the adapter adds nothing */
    for (int i = 0; i < 3; i++) rig_step(&r);
    int64_t in = e->weight->columns, count = parameter_count(e->weight);
    float *a = rig_copy(&r, e->lora_a->value.data, parameter_count(e->lora_a));
    float *b = rig_copy(&r, e->lora_b->value.data, parameter_count(e->lora_b));
    float *after = merged_weight(f, &r, e, after_name);
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < 4; k++) before[i] += 1.5f * b[i / in * 4 + k] * a[k * in + i % in];
    for (int64_t i = 0; i < count; i++)
        assert_true(fabs((double)before[i] * row_factor(&r, e, before, i / in) - (double)after[i]) < 1e-6);
    assert_true(rig_peek(&r, &e->lora_b->value, 0) != 0);
    expect_in_gguf(f, &r, e, after);
    if (e->weight->codes) expect_rounded(f, &r, e, after);
    free(a), free(b), free(before), free(after);
    rig_close(&r);
}

static void weights_take_them_in(void **state) {
    static const char *const dora[] = {"--peft.use_dora=false", "--peft.use_dora=true"};
    for (int i = 0; i < 2; i++) {
        check_merged(*state, "--train.frozen_dtype=fp32", dora[i]);
        check_merged(*state, "--train.frozen_dtype=fp8", dora[i]);
    }
}

/* The log counts a DoRA adapter with its three parameters as one adapter. Layers may have different ranks and
   alphas. */
static void adapters_are_logged(void **state) {
    static captured_log logged;
    static const char *const way[] = {"--peft.use_dora=false", "--peft.use_dora=true",
                                      "--peft.rank_pattern=q_proj=8"};
    static const char *const names[] = {"announced-lora", "announced-dora", "announced-ranks"};
    static const char *const lines[] = {"Adapters: LoRA of rank 4, scale 1.5, on 14 linear layers",
                                        "Adapters: DoRA of rank 4, scale 1.5, on 14 linear layers",
                                        "LoRA of ranks from 4 to 8, a scale for each layer, on 14"};
    for (int i = 0; i < 3; i++) {
        const char *const more[] = {LORA, way[i], "--train.max_steps=1", NULL};
        FIXTURE_OK(fixture_run(*state, &(run_options){.name = names[i],
                                                      .precision = &fixture_precisions[BF16],
                                                      .more = more,
                                                      .logged = &logged}));
        assert_true(captured_log_has(&logged, lines[i]));
    }
}

/* Saves adapters after three steps and reads them into a second model with the same options. */
static void check_saved(const fixture *f, const char *dora) {
    const char *const more[] = {LORA, dora, NULL};
    char folder[120];
    rig r, again;
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[FP32], .more = more});
    rig_open(&again, f, &(rig_options){.precision = &fixture_precisions[FP32], .more = more});
    for (int i = 0; i < 3; i++) rig_step(&r);
    snprintf(folder, sizeof folder, "%s/saved%s", f->folder, dora);
    FIXTURE_OK(file_make_folder(folder));
    FIXTURE_OK(peft_save(r.t->m, r.cfg, NULL, folder));
    FIXTURE_OK(peft_load(again.t->m, folder));
    assert_true(rig_validate(&again) == rig_validate(&r));
    rig_close(&r);
    rig_close(&again);
}

/* Reads a member of a folder's configuration as text. The caller frees it. */
static char *read_member(const char *folder, const char *member) {
    char path[160];
    snprintf(path, sizeof path, "%s/" PEFT_CONFIG_NAME, folder);
    json_t *root = json_load_file(path, 0, NULL);
    char *text = json_dumps(json_object_get(root, member), JSON_ENCODE_ANY | JSON_COMPACT);
    json_decref(root);
    return text;
}

/* Saves layers with different ranks and alphas, adapters in one block only, and fully trained modules. */
static void saved_by_patterns(void **state) {
    static const char *const more[] = {LORA,
                                       "--peft.rank_pattern=q_proj=2,model.layers.1.mlp.down_proj=6",
                                       "--peft.alpha_pattern=v_proj=12",
                                       "--peft.layers_to_transform=1",
                                       "--peft.modules_to_save=lm_head,model.norm",
                                       NULL};
    static const char *const expected[][2] = {
        {"rank_pattern", "{\"q_proj\":2,\"down_proj\":6}"},
        {"alpha_pattern", "{\"v_proj\":12.0}"},
        {"layers_to_transform", "[1]"},
        {"modules_to_save", "[\"model.norm\",\"lm_head\"]"},
        {"target_modules",
         "[\"q_proj\",\"k_proj\",\"v_proj\",\"o_proj\",\"gate_proj\",\"up_proj\",\"down_proj\"]"}};
    const fixture *f = *state;
    char folder[120];
    rig r, again;
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[FP32], .more = more});
    rig_open(&again, f, &(rig_options){.precision = &fixture_precisions[FP32], .more = more});
    for (int i = 0; i < 3; i++) rig_step(&r);
    snprintf(folder, sizeof folder, "%s/patterns", f->folder);
    FIXTURE_OK(file_make_folder(folder));
    FIXTURE_OK(peft_save(r.t->m, r.cfg, NULL, folder));
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        char *text = read_member(folder, expected[i][0]);
        assert_string_equal(text, expected[i][1]);
        free(text);
    }
    FIXTURE_OK(peft_load(again.t->m, folder));
    assert_true(rig_validate(&again) == rig_validate(&r));
    rig_close(&r);
    rig_close(&again);
}

/* The saved adapter configuration must list full layer names if a layer without an adapter has a name with
   the same ending as the name of an adapted layer. */
static void some_of_those_that_end_alike(void **state) {
    static const char *const more[] = {LORA,
                                       "--peft.target_modules=*.mlp.up_proj",
                                       "--model.num_experts=4",
                                       "--model.moe_router=sigmoid_topk",
                                       "--model.moe_shared_experts=1",
                                       "--model.moe_first_dense_layers=1",
                                       NULL};
    const fixture *f = *state;
    char folder[120], option[160];
    const char *read[] = {option, NULL};
    rig r;
    mem *account;
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[FP32], .more = more});
    snprintf(folder, sizeof folder, "%s/ends alike", f->folder);
    snprintf(option, sizeof option, "--peft.path=%s", folder);
    FIXTURE_OK(file_make_folder(folder));
    FIXTURE_OK(peft_save(r.t->m, r.cfg, NULL, folder));
    rig_close(&r);
    FIXTURE_OK(mem_open(&account));
    config *cfg = fixture_config(f, account, "ends_alike_run", NULL, read);
    FIXTURE_OK(peft_configure(account, cfg));
    assert_int_equal(cfg->peft.target_modules.count, 1);
    assert_string_equal(cfg->peft.target_modules.items[0], "model.layers.0.mlp.up_proj");
    config_close(cfg);
    mem_close(account);
}

/* Rewrites a folder's adapter as fp16, as many libraries save adapters. */
static void write_as_fp16(const char *from, const char *to) {
    mem *account;
    safetensors *file;
    safetensors_writer *w;
    safetensors_tensor tensors[64];
    FIXTURE_OK(mem_open(&account));
    FIXTURE_OK(safetensors_open(account, from, &file));
    int64_t count = safetensors_count(file);
    assert_in_range(count, 1, 64);
    for (int64_t i = 0; i < count; i++) {
        const safetensors_entry *e = safetensors_at(file, i);
        tensors[i] = (safetensors_tensor){.name = e->name, .dtype = OTT_F16, .rank = e->rank};
        memcpy(tensors[i].shape, e->shape, sizeof tensors[i].shape);
    }
    FIXTURE_OK(safetensors_writer_open(account, to, tensors, count, NULL, 0, &w));
    for (int64_t i; (i = safetensors_writer_next(w)) >= 0;) {
        const safetensors_entry *e = safetensors_find(file, tensors[i].name);
        int64_t elements = safetensors_elements(e);
        void *values = malloc((size_t)e->bytes);
        FIXTURE_OK(safetensors_read(file, e, 0, e->bytes, values));
        cast_in_place(values, e->dtype, OTT_F16, elements);
        FIXTURE_OK(safetensors_writer_append(w, values, elements * dtype_bytes(OTT_F16)));
        free(values);
    }
    FIXTURE_OK(safetensors_writer_commit(w));
    safetensors_close(file);
    mem_close(account);
}

static void in_fp16(void **state) {
    static const char *const more[] = {LORA, NULL};
    const fixture *f = *state;
    char folder[120], from[160], to[160];
    rig r, again;
    rig_open(&r, f, &(rig_options){.precision = &fixture_precisions[FP32], .more = more});
    rig_open(&again, f, &(rig_options){.precision = &fixture_precisions[FP32], .more = more});
    rig_step(&r);
    snprintf(folder, sizeof folder, "%s/half", f->folder);
    snprintf(from, sizeof from, "%s/adapter_model.safetensors", folder);
    snprintf(to, sizeof to, "%s/other.safetensors", folder);
    FIXTURE_OK(file_make_folder(folder));
    FIXTURE_OK(peft_save(r.t->m, r.cfg, NULL, folder));
    write_as_fp16(from, to);
    FIXTURE_OK(file_rename(to, from));
    FIXTURE_OK(peft_load(again.t->m, folder));
    const parameter *a = r.t->m->modules.items[2].lora_a, *b = again.t->m->modules.items[2].lora_a;
    for (int64_t i = 0; i < parameter_count(a); i++)
        assert_true(rig_peek(&again, &b->value, i) == cast_from_f16(cast_to_f16(rig_peek(&r, &a->value, i))));
    rig_close(&r);
    rig_close(&again);
}

static void saved(void **state) {
    check_saved(*state, "--peft.use_dora=false");
    check_saved(*state, "--peft.use_dora=true");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_pefts_folder),
        cmocka_unit_test(foreign_folders_are_refused),
        cmocka_unit_test(saved),
        cmocka_unit_test(saved_by_patterns),
        cmocka_unit_test(some_of_those_that_end_alike),
        cmocka_unit_test(in_fp16),
        cmocka_unit_test(weights_take_them_in),
        cmocka_unit_test(adapters_are_logged),
    };
    return cmocka_run_group_tests_name("train.adapter_folders", tests, fixture_setup, fixture_teardown);
}
