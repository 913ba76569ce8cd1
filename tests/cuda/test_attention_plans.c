/*
 * For every configuration in configs/, cuDNN builds the attention plans for a Hopper GPU, and for some of
 * them the plans of other GPUs. A file describes the Hopper GPU in cuDNN's JSON, so no GPU is needed. The
 * stand-in of libcuda.c must be loaded as libcuda.so.1.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "cuda/attention/attention_order.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* The shape of an attention problem. documents: packed documents, or sequences of equal length. */
typedef struct shape {
    const char *configs; /* the configuration files with this attention shape */
    int64_t rows, documents, heads, kv_heads, head_dim, window;
    bool packed, fused; /* fused: q, k, v and their gradients are columns of one matrix */
} shape;

static const shape shapes[] = {
    {"debug.toml debug_moe.toml", 1024, 8, 4, 4, 64, 0, false, false},
    {"demo.toml", 1024, 16, 3, 3, 64, 0, false, false},
    {"llama_10m.toml", 4096, 16, 4, 4, 64, 0, false, false},
    {"llama_42m.toml", 4096, 8, 8, 8, 64, 0, false, false},
    {"llama_124m.toml", 8192, 8, 12, 12, 64, 0, false, false},
    {"llama3_2_1b.toml", 2048, 1, 32, 8, 64, 0, false, false},
    {"llama3_1_8b.toml titan_llama3_8b.toml", 8192, 1, 32, 8, 128, 0, false, false},
    {"llama3_1_8b_lora_fp8.yaml", 1024, 8, 32, 8, 128, 0, true, false},
    {"llama3_1_8b.toml titan_llama3_8b.toml", 8192, 1, 32, 8, 128, 0, false, true},
    {"llama_7b_16gpu_fp8.toml", 32768, 8, 32, 8, 128, 0, false, false},
    {"llama3_1_8b_hellaswag_fp8.yaml mistral_nemo_2407_hellaswag_fp8.yaml", 8192, 64, 32, 8, 128, 0, true,
     false},
    {"mistral_7b_hellaswag_fp8.yaml", 8192, 64, 32, 8, 128, 4096, true, true},
    {"phi_4_hellaswag_fp8.yaml", 4096, 64, 40, 10, 128, 0, true, false},
    {"qwen2_5_7b_hellaswag_fp8.yaml", 8192, 64, 28, 4, 128, 0, true, true},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static attention_library library;
static int capability = 90; /* of the GPU of `library` */

static void succeed(ott_status status) {
    if (status != OTT_OK) fail_msg("%s", status_text());
}

/* Opens cuDNN for a GPU like the H200, but of another compute capability (times ten), and with other shared
   memory of a block, in bytes (six digits). */
static void open_gpu(int number, const char *shared) {
    static char json[4096], changed[4096];
    FILE *f = fopen(TEST_SOURCE_DIR "/tests/cuda/h200_deviceprop.json", "r");
    assert_non_null(f);
    json[fread(json, 1, sizeof json - 1, f)] = '\0';
    fclose(f);
    char *version = strstr(json, "900");
    memcpy(strstr(json, "232448"), shared, 6);
    snprintf(changed, sizeof changed, "%.*s%d%s", (int)(version - json), json, 10 * number, version + 3);
    succeed(attention_library_describe(&library, changed));
    capability = number;
}

static int open_library(void **state) {
    (void)state;
    open_gpu(90, "232448");
    return 0;
}

static int close_library(void **state) {
    (void)state;
    attention_library_close(&library);
    return 0;
}

static attention_config config_of(const shape *s) {
    int64_t q = s->heads * s->head_dim, k = s->kv_heads * s->head_dim, all = q + 2 * k;
    attention_config c = {.type = GRAPH_BF16,
                          .packed = s->packed,
                          .documents = s->documents,
                          .heads = s->heads,
                          .kv_heads = s->kv_heads,
                          .length = s->packed ? s->rows : s->rows / s->documents,
                          .head_dim = s->head_dim,
                          .window = s->window,
                          .rows = s->rows,
                          .stride = {[ATTENTION_LSE] = s->rows}};
    c.stride[ATTENTION_O] = c.stride[ATTENTION_GRAD_O] = q;
    c.stride[ATTENTION_Q] = c.stride[ATTENTION_GRAD_Q] = s->fused ? all : q;
    c.stride[ATTENTION_K] = c.stride[ATTENTION_V] = s->fused ? all : k;
    c.stride[ATTENTION_GRAD_K] = c.stride[ATTENTION_GRAD_V] = c.stride[ATTENTION_K];
    return c;
}

/* Builds a plan, way NULL: of forward. Returns false if cuDNN has none. Expects at most `bytes` of workspace.
   */
static bool has_plan(const attention_config *c, const attention_way *way, int64_t bytes) {
    static graph g;
    static attention_plan p;
    if (way)
        attention_graph_backward(&g, c);
    else
        attention_graph_forward(&g, c);
    bool built = attention_plan_build(&p, &library, &g, way ? way->engine : NULL) == OTT_OK;
    if (p.workspace > bytes) fail_msg("a workspace of %lld bytes", (long long)p.workspace);
    attention_plan_close(&p, &library);
    return built;
}

/* Expects that cuDNN builds a backward in a fixed order. Its workspace grows linearly with the length, or is
   limited. */
static void expect_ordered(const attention_config *c) {
    const attention_way *ways[ATTENTION_WAYS_MOST];
    int count = attention_order_backward(capability, library.version, c, false, false, ways), built = 0;
    for (int i = 0; i < count; i++) {
        attention_config run = *c;
        run.direct = ways[i]->direct;
        if (ways[i]->split) run.kv_heads = attention_order_key_heads(c);
        run.heads = c->heads / c->kv_heads * run.kv_heads;
        built += has_plan(&run, ways[i], 4 * c->rows * c->heads * c->head_dim + ((int64_t)600 << 20));
    }
    if (built == 0) fail_msg("no ordered plan of %d is built: %s", count, status_text());
}

static bool orders_all(void) {
    return library.version >= ATTENTION_CUDNN_EMPTY_DOCUMENTS;
}

static void expect_plans(const attention_config *c) {
    if (!has_plan(c, NULL, 64 << 10)) fail_msg("forward: %s", status_text());
    if (orders_all()) expect_ordered(c);
}

static void test_plans_are_built(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        attention_config c = config_of(&shapes[i]);
        expect_plans(&c);
    }
    attention_config half = config_of(&shapes[0]);
    half.type = GRAPH_F16;
    expect_plans(&half);
}

/* The plans that sum in a changing order: train.deterministic=false. */
static void test_unordered_plans_are_built(void **state) {
    (void)state;
    static const int some[] = {6, 10, 11};
    for (int i = 0; i < 3; i++) {
        const attention_way *ways[ATTENTION_WAYS_MOST];
        attention_config c = config_of(&shapes[some[i]]);
        attention_order_backward(capability, library.version, &c, true, false, ways);
        assert_false(ways[0]->ordered);
        assert_true(has_plan(&c, ways[0], 4 * c.rows * c.heads * c.head_dim + (4 << 20)));
    }
}

/* Blackwell has ordered plans for all documents, other GPUs for sequences of equal length. */
static void test_other_gpus_have_ordered_plans(void **state) {
    (void)state;
    static const shape wide = {"", 2048, 1, 16, 8, 256, 0, false, false};
    static const struct {
        int gpu;
        const char *shared;
    } gpus[] = {{80, "166912"}, {89, "101376"}, {100, "232448"}, {120, "101376"}};
    attention_library hopper = library;
    for (int i = 0; i < 4; i++) {
        open_gpu(gpus[i].gpu, gpus[i].shared);
        attention_config sequences = config_of(&shapes[6]), packed = config_of(&shapes[11]),
                         large = config_of(&wide);
        expect_ordered(&sequences);
        if (gpus[i].gpu == 100 && orders_all()) expect_ordered(&packed), expect_ordered(&large);
        attention_library_close(&library);
    }
    library = hopper;
    capability = 90;
}

static void test_each_configuration_has_a_shape(void **state) {
    (void)state;
    DIR *folder = opendir(TEST_SOURCE_DIR "/configs");
    assert_non_null(folder);
    for (struct dirent *e; (e = readdir(folder));) {
        bool found = !strstr(e->d_name, ".toml") && !strstr(e->d_name, ".yaml");
        for (int i = 0; i < SHAPES; i++) found = found || strstr(shapes[i].configs, e->d_name);
        if (!found) fail_msg("give the shape of attention in configs/%s", e->d_name);
    }
    closedir(folder);
}

static void test_an_empty_description_is_refused(void **state) {
    (void)state;
    attention_library wrong;
    assert_int_equal(attention_library_describe(&wrong, "{}"), OTT_ERR_DEVICE);
    assert_string_not_equal(wrong.error, "");
    attention_library_close(&wrong);
}

/* Without a GPU a plan cannot run. The run fails only after its arguments were accepted. */
static void test_a_run_needs_a_gpu(void **state) {
    (void)state;
    static graph g;
    static attention_plan p;
    static char memory[16];
    void *data[ATTENTION_NAMED];
    attention_config c = config_of(&shapes[0]);
    for (int uid = 0; uid < ATTENTION_NAMED; uid++) data[uid] = memory;
    attention_graph_forward(&g, &c);
    succeed(attention_plan_build(&p, &library, &g, NULL));
    assert_int_equal(attention_plan_run(&p, &library, data, memory), OTT_ERR_DEVICE);
    assert_non_null(strstr(status_text(), "run:"));
    attention_plan_close(&p, &library);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_are_built),
        cmocka_unit_test(test_unordered_plans_are_built),
        cmocka_unit_test(test_other_gpus_have_ordered_plans),
        cmocka_unit_test(test_each_configuration_has_a_shape),
        cmocka_unit_test(test_an_empty_description_is_refused),
        cmocka_unit_test(test_a_run_needs_a_gpu),
    };
    return cmocka_run_group_tests(tests, open_library, close_library);
}
