/*
 * For every configuration in configs/, cuDNN builds the attention plans for a Hopper GPU. A file describes
 * this GPU in cuDNN's JSON, so no GPU is needed. The stand-in of libcuda.c must be loaded as libcuda.so.1.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "cuda/attention/attention_cudnn.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* The shape of an attention problem. The sequences are packed documents, or the rows of a micro-batch. */
typedef struct shape {
    const char *configs; /* the configuration files with this attention shape */
    int64_t rows, documents, heads, kv_heads, head_dim, window;
    bool fused; /* q, k, v and their gradients are columns of one matrix */
} shape;

static const shape shapes[] = {
    {"debug.toml debug_moe.toml", 1024, 8, 4, 4, 64, 0, false},
    {"demo.toml", 1024, 16, 3, 3, 64, 0, false},
    {"llama_10m.toml", 4096, 16, 4, 4, 64, 0, false},
    {"llama_42m.toml", 4096, 8, 8, 8, 64, 0, false},
    {"llama_124m.toml", 8192, 8, 12, 12, 64, 0, false},
    {"llama3_2_1b.toml", 2048, 1, 32, 8, 64, 0, false},
    {"llama3_1_8b.toml titan_llama3_8b.toml", 8192, 1, 32, 8, 128, 0, false},
    {"llama3_1_8b_lora_fp8.yaml", 1024, 8, 32, 8, 128, 0, false},
    {"llama3_1_8b.toml titan_llama3_8b.toml", 8192, 1, 32, 8, 128, 0, true},
    {"llama_7b_16gpu_fp8.toml", 32768, 8, 32, 8, 128, 0, false},
    {"llama3_1_8b_hellaswag_fp8.yaml mistral_nemo_2407_hellaswag_fp8.yaml", 8192, 64, 32, 8, 128, 0, false},
    {"mistral_7b_hellaswag_fp8.yaml", 8192, 64, 32, 8, 128, 4096, true},
    {"phi_4_hellaswag_fp8.yaml", 4096, 64, 40, 10, 128, 0, false},
    {"qwen2_5_7b_hellaswag_fp8.yaml", 8192, 64, 28, 4, 128, 0, true},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static attention_library library;

static void succeed(ott_status status) {
    if (status != OTT_OK) fail_msg("%s", status_text());
}

static int open_library(void **state) {
    (void)state;
    static char json[8192];
    FILE *f = fopen(TEST_SOURCE_DIR "/tests/cuda/h200_deviceprop.json", "r");
    assert_non_null(f);
    json[fread(json, 1, sizeof json - 1, f)] = '\0';
    fclose(f);
    succeed(attention_library_describe(&library, json));
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
                          .packed = s->documents > 1,
                          .documents = s->documents,
                          .heads = s->heads,
                          .kv_heads = s->kv_heads,
                          .length = s->rows,
                          .head_dim = s->head_dim,
                          .window = s->window,
                          .stride = {[ATTENTION_LSE] = s->rows}};
    c.stride[ATTENTION_O] = c.stride[ATTENTION_GRAD_O] = q;
    c.stride[ATTENTION_Q] = c.stride[ATTENTION_GRAD_Q] = s->fused ? all : q;
    c.stride[ATTENTION_K] = c.stride[ATTENTION_V] = s->fused ? all : k;
    c.stride[ATTENTION_GRAD_K] = c.stride[ATTENTION_GRAD_V] = c.stride[ATTENTION_K];
    return c;
}

/* Expects that the plan's workspace grows linearly with the length. */
static void expect_plan(const attention_config *c, bool backward) {
    static graph g;
    static attention_plan p;
    if (backward)
        attention_graph_backward(&g, c);
    else
        attention_graph_forward(&g, c);
    succeed(attention_plan_build(&p, &library, &g));
    int64_t bytes = backward ? 4 * c->length * c->heads * c->head_dim + (4 << 20) : 64 << 10;
    if (p.workspace > bytes) fail_msg("a workspace of %lld bytes", (long long)p.workspace);
    attention_plan_close(&p, &library);
}

static void test_plans_are_built(void **state) {
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        attention_config c = config_of(&shapes[i]);
        expect_plan(&c, false);
        expect_plan(&c, true);
    }
    attention_config half = config_of(&shapes[0]);
    half.type = GRAPH_F16;
    expect_plan(&half, false);
    expect_plan(&half, true);
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
    succeed(attention_plan_build(&p, &library, &g));
    assert_int_equal(attention_plan_run(&p, &library, data, memory), OTT_ERR_DEVICE);
    assert_non_null(strstr(status_text(), "run:"));
    attention_plan_close(&p, &library);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_are_built),
        cmocka_unit_test(test_each_configuration_has_a_shape),
        cmocka_unit_test(test_an_empty_description_is_refused),
        cmocka_unit_test(test_a_run_needs_a_gpu),
    };
    return cmocka_run_group_tests(tests, open_library, close_library);
}
