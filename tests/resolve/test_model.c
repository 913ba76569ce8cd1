/* Model options: families and parameter counts of presets (the counts are published), and options that are
   derived or refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "resolve/resolve.h"
#include "model/modules.h"

/* Returns the number of parameters of all modules. */
static int64_t count_parameters(mem *account, const model_options *o) {
    arena *memory;
    module_list list;
    int64_t count = 0;
    assert_int_equal(arena_open(account, MEM_OTHER, &memory), OTT_OK);
    assert_int_equal(modules_make(memory, o, &list), OTT_OK);
    for (int i = 0; i < list.count; i++)
        if (!list.items[i].tied)
            count += list.items[i].shape[0] * (list.items[i].rank == 2 ? list.items[i].shape[1] : 1);
    arena_close(memory);
    return count;
}

static void check(const char *preset, const char *family_name, int64_t parameters) {
    mem *account;
    config *cfg;
    model_options o;
    const char *arguments[] = {"--model.preset", preset};
    assert_int_equal(mem_open(&account), OTT_OK);
    assert_int_equal(config_parse(account, NULL, 2, arguments, &cfg), OTT_OK);
    assert_int_equal(model_options_resolve(cfg, &o), OTT_OK);
    assert_string_equal(o.family->name, family_name);
    assert_int_equal(count_parameters(account, &o), parameters);
    bool qwen = strcmp(family_name, "qwen3") == 0;
    assert_true(o.qk_norm == qwen && o.norm_epsilon == (qwen ? 1e-6F : 1e-5F));
    config_close(cfg);
    mem_close(account);
}

static void test_llama(void **state) {
    (void)state;
    check("1B", "llama", 1235814400);
    check("3B", "llama", 3212749824);
    check("8B", "llama", 8030261248);
    check("70B", "llama", 70553706496);
    check("405B", "llama", 405853388800);
}

/* If train.seq_len is not set, it is at most the model's maximum. A larger train.seq_len is an error. */
static void test_default_length(void **state) {
    (void)state;
    const char *arguments[] = {"--model.preset=42M", "--train.seq_len=2048"};
    for (int count = 1; count <= 2; count++) {
        mem *account;
        config *cfg;
        model_options o;
        assert_int_equal(mem_open(&account), OTT_OK);
        assert_int_equal(config_parse(account, NULL, count, arguments, &cfg), OTT_OK);
        assert_int_equal(model_options_resolve(cfg, &o), count == 1 ? OTT_OK : OTT_ERR_CONFIG);
        if (count == 1) assert_int_equal(cfg->train.seq_len, 1024);
        if (count == 2)
            assert_string_equal(status_text(),
                                "train.seq_len (2048) exceeds model.max_seq_len (1024): set "
                                "--train.seq_len=1024, or --model.max_seq_len=2048 (from model.preset)");
        config_close(cfg);
        mem_close(account);
    }
}

static void test_qwen3(void **state) {
    (void)state;
    check("qwen3-0.6B", "qwen3", 596049920);
    check("qwen3-1.7B", "qwen3", 1720574976);
    check("qwen3-4B", "qwen3", 4022468096);
    check("qwen3-8B", "qwen3", 8190735360);
    check("qwen3-14B", "qwen3", 14768307200);
    check("qwen3-32B", "qwen3", 32762123264);
}

/* These options of a mixture of experts are refused. */
static void test_mixtures_that_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *more[3], *message;
    } cases[] = {
        {{"--model.moe_top_k=9"}, "model.moe_top_k (9) must be <= model.num_experts (8)"},
        {{"--model.moe_frequency=1000"}, "model.num_experts = 8, and none of the"},
        {{"--model.n_layers=2", "--model.moe_dense_layers=0,1"}, "none of the 2 blocks is a mixture"},
        {{"--model.moe_groups=3"}, "model.num_experts (8) must be divisible by model.moe_groups (3)"},
        {{"--model.moe_groups=8", "--model.moe_top_groups=1"},
         "must have at least model.moe_top_k (2) experts"},
        {{"--distributed.cp=2", "--train.batch_size=3", "--model.moe_sequence_aux_loss_weight=0.1"},
         "a rank has 96 tokens of a micro-batch"},
        {{"--distributed.ep=3"}, "model.num_experts (8) must be divisible by distributed.ep (3)"},
        {{"--distributed.ep=2", "--model.num_experts=0"}, "ep > 1 requires an MoE model"},
        {{"--model.moe_expert_hidden_dim=2000000"}, "model.moe_expert_hidden_dim = 2000000"},
        {{"--model.ffn_dim_multiplier=1e-9", "--model.preset=none"}, "model.moe_expert_hidden_dim is 0"},
        {{"--model.moe_dense_layers=0,4"}, "model.moe_dense_layers has 4: the model has blocks 0 to 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mem *account;
        config *cfg;
        model_options o;
        const char *arguments[6] = {"--model.preset=debug", "--train.seq_len=64", "--model.num_experts=8"};
        int count = 3;
        for (int k = 0; k < 3 && cases[i].more[k]; k++) arguments[count++] = cases[i].more[k];
        assert_int_equal(mem_open(&account), OTT_OK);
        assert_int_equal(config_parse(account, NULL, count, arguments, &cfg), OTT_OK);
        assert_int_equal(model_options_resolve(cfg, &o), OTT_ERR_CONFIG);
        if (!strstr(status_text(), cases[i].message)) fail_msg("%s", status_text());
        config_close(cfg);
        mem_close(account);
    }
}

#define LATENT "--model.preset=debug", "--train.seq_len=64", "--model.family=deepseek_v3"

static ott_status resolve(const char *const *arguments, int count, model_options *o) {
    mem *account;
    config *cfg;
    assert_int_equal(mem_open(&account), OTT_OK);
    assert_int_equal(config_parse(account, NULL, count, arguments, &cfg), OTT_OK);
    ott_status status = model_options_resolve(cfg, o);
    config_close(cfg);
    mem_close(account);
    return status;
}

/* The router's biases are updated by DeepSeek-V3's rule, unless KempnerForge's rule is configured. */
static void test_bias_rule(void **state) {
    static const char *const arguments[] = {"--model.preset=debug", "--train.seq_len=64",
                                            "--model.num_experts=8", "--model.moe_router=sigmoid_topk",
                                            "--model.moe_bias_rule=load"};
    (void)state;
    for (int count = 4; count <= 5; count++) {
        model_options o;
        assert_int_equal(resolve(arguments, count, &o), OTT_OK);
        assert_int_equal(o.moe.bias_by_sign, count == 4);
    }
}

/* These options of latent attention are refused. */
static void test_latents_that_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *more[2], *message;
    } cases[] = {
        {{"--model.family=llama", "--model.kv_lora_rank=32"},
         "model.kv_lora_rank cannot be combined with model.family = llama"},
        {{"--model.kv_lora_rank=0"},
         "model.family = deepseek_v3 has latent attention: set model.kv_lora_rank"},
        {{"--model.head_dim=64"},
         "model.head_dim (64) must be model.qk_nope_head_dim + model.qk_rope_head_dim (192)"},
        {{"--model.v_head_dim=1000000"}, "model.n_heads * model.v_head_dim = 4000000 is more than"},
        {{"--model.n_kv_heads=2"}, "model.n_kv_heads (2) must be model.n_heads (4)"},
        {{"--model.qk_rope_head_dim=31"}, "model.qk_rope_head_dim = 31 give 31 rotated columns"},
        {{"--model.q_lora_rank=2000000"}, "model.q_lora_rank = 2000000"},
        {{"--model.qk_norm=true"}, "model.qk_norm = true cannot be combined with latent attention"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model_options o;
        const char *arguments[6] = {LATENT, "--model.kv_lora_rank=32"};
        int count = 4;
        for (int k = 0; k < 2 && cases[i].more[k]; k++) arguments[count++] = cases[i].more[k];
        assert_int_equal(resolve(arguments, count, &o), OTT_ERR_CONFIG);
        if (!strstr(status_text(), cases[i].message)) fail_msg("%s", status_text());
    }
}

/* KempnerForge's norm_type = layernorm gives blocks LayerNorm with a bias, except for QK norms. Its
   activation = relu gives a feed-forward of two matrices without biases. */
static void test_kempner_blocks(void **state) {
    (void)state;
    model_options o;
    const char *arguments[] = {
        "--model.dim=256",         "--model.n_heads=4",    "--model.norm_type=layernorm",
        "--model.activation=relu", "--model.qk_norm=true", "--train.seq_len=64"};
    assert_int_equal(resolve(arguments, 6, &o), OTT_OK);
    assert_int_equal(o.hidden, 768); /* KempnerForge's rule for the feed-forward's width */
    assert_int_equal(model_mlp(&o), FAMILY_MLP_RELU);
    assert_int_equal(modules_norm(&o, ROLE_MLP_NORM), FAMILY_NORM_LAYER_BIAS);
    assert_int_equal(modules_norm(&o, ROLE_Q_NORM), FAMILY_NORM_RMS);
    assert_true(modules_describe(&o, ROLE_FINAL_NORM, MODULES_OUTSIDE).has_bias);
    assert_false(modules_describe(&o, ROLE_Q_NORM, 0).has_bias || modules_describe(&o, ROLE_UP, 0).has_bias);
    assert_false(modules_has(&o, 0, ROLE_GATE));
    const char *plain[] = {"--model.dim=256", "--model.n_heads=4", "--train.seq_len=64"};
    assert_int_equal(resolve(plain, 3, &o), OTT_OK);
    assert_false(modules_describe(&o, ROLE_FINAL_NORM, MODULES_OUTSIDE).has_bias);
    assert_true(modules_has(&o, 0, ROLE_GATE));
}

/* With rope_scaling = dynamic, sequences may be up to rope_factor times the model's maximum length. */
static void test_longer_than_the_model(void **state) {
    (void)state;
    model_options o;
    const char *arguments[] = {"--model.preset=debug", "--train.seq_len=1024", "--model.rope_factor=2",
                               "--model.rope_scaling=dynamic"};
    assert_int_equal(resolve(arguments, 3, &o), OTT_ERR_CONFIG);
    assert_int_equal(resolve(arguments, 4, &o), OTT_OK);
    assert_int_equal(o.rope.original_max_position, 512);
    arguments[1] = "--train.seq_len=1025";
    assert_int_equal(resolve(arguments, 4, &o), OTT_ERR_CONFIG);
}

static void test_blocks_that_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *more[2], *message;
    } cases[] = {
        {{"--model.norm_type=layernorm", "--model.family=qwen3"},
         "model.norm_type = layernorm cannot be combined with model.family = qwen3"},
        {{"--model.activation=gelu", "--model.family=gemma2"},
         "model.activation = gelu, a feed-forward without a gate, cannot be combined with model.family = "
         "gemma2"},
        {{"--model.activation=geglu", "--model.family=gpt2"},
         "model.activation = geglu, a feed-forward with a gate, cannot be combined with model.family = gpt2"},
        {{"--model.full_attention_layers=4", "--model.sliding_window=8"},
         "model.full_attention_layers has 4: the model has blocks 0 to 3"},
        {{"--model.full_attention_layers=1", "--model.full_attention_every=2"},
         "both name the layers without a window"},
        {{"--model.activation=gelu", "--model.num_experts=8"},
         "model.activation = gelu cannot be combined with model.num_experts = 8"},
        {{"--model.activation=relu", "--model.fused_gate_up=true"},
         "model.fused_gate_up = true cannot be combined with model.activation = relu"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model_options o;
        const char *arguments[] = {"--model.preset=debug", "--train.seq_len=64", cases[i].more[0],
                                   cases[i].more[1]};
        assert_int_equal(resolve(arguments, 4, &o), OTT_ERR_CONFIG);
        if (!strstr(status_text(), cases[i].message)) fail_msg("%s", status_text());
    }
}

static void test_latents_are_reduced(void **state) {
    (void)state;
    model_options o;
    const char *arguments[] = {LATENT, "--model.kv_lora_rank=512", "--model.q_lora_rank=96",
                               "--model.reduce=2"};
    assert_int_equal(resolve(arguments, 6, &o), OTT_OK);
    assert_int_equal(o.latent.key_rank, 256);
    assert_int_equal(o.latent.query_rank, 48);
    assert_int_equal(o.head_dim, 192);
    assert_int_equal(model_value_width(&o), 128);
    assert_int_equal(modules_describe(&o, ROLE_KV_A, 0).shape[0], 256 + 64);
    assert_int_equal(modules_describe(&o, ROLE_KV_B, 0).shape[0], 2 * (128 + 128));
    assert_int_equal(modules_describe(&o, ROLE_O, 0).shape[1], 2 * 128);
    assert_true(modules_has(&o, 0, ROLE_Q_B));
    assert_false(modules_has(&o, 0, ROLE_Q));
}

/* model.reduce keeps experts: the small model has experts too, and all keys of experts apply to it. */
static void test_a_mixture_is_reduced(void **state) {
    (void)state;
    mem *account;
    config *cfg;
    model_options o;
    const char *arguments[] = {"--model.preset=8B",        "--model.num_experts=8",
                               "--model.moe_frequency=40", "--model.moe_shared_experts=2",
                               "--model.reduce=16",        "--model.moe_dense_layers=[0, 31]"};
    assert_int_equal(mem_open(&account), OTT_OK);
    assert_int_equal(config_parse(account, NULL, 6, arguments, &cfg), OTT_OK);
    assert_int_equal(model_options_resolve(cfg, &o), OTT_OK);
    assert_int_equal(o.layers, 2);
    assert_int_equal(o.moe_every, 2);
    assert_int_equal(o.moe.hidden, 14336 / 16);
    assert_int_equal(o.moe.shared_hidden, 2 * 14336 / 16);
    assert_true(modules_has(&o, 1, ROLE_EXPERT_DOWN));
    assert_false(modules_has(&o, 0, ROLE_ROUTER));
    assert_int_equal(o.dense_count, 1); /* block 31 does not exist, so it is not counted */
    config_close(cfg);
    mem_close(account);
}

/* Every second block has experts, except for the first three blocks and block 5. Without experts (num_experts
   = 0) no block has a router. */
static void test_which_blocks_are_mixtures(void **state) {
    (void)state;
    for (int experts = 0; experts <= 8; experts += 8) {
        mem *account;
        config *cfg;
        model_options o;
        char number[32];
        const char *arguments[] = {number, "--model.n_layers=9", "--model.moe_frequency=2",
                                   "--model.moe_first_dense_layers=3", "--model.moe_dense_layers=5"};
        snprintf(number, sizeof number, "--model.num_experts=%d", experts);
        assert_int_equal(mem_open(&account), OTT_OK);
        assert_int_equal(config_parse(account, NULL, 5, arguments, &cfg), OTT_OK);
        assert_int_equal(model_options_resolve(cfg, &o), OTT_OK);
        assert_int_equal(o.dense_count, experts > 0);
        for (int i = 0; i < 9; i++)
            assert_int_equal(modules_has(&o, i, ROLE_ROUTER), experts > 0 && (i == 3 || i == 7));
        config_close(cfg);
        mem_close(account);
    }
}

/* Resolves the options of KempnerForge's MoE configurations, with small sizes and expert parallelism over 4
   ranks. Needs KempnerForge's files; the test is skipped without them. */
static void test_published_mixtures(void **state) {
    (void)state;
    static const struct {
        const char *file, *message; /* NULL: the configuration runs */
    } files[] = {{"moe_24gpu", NULL}, {"vlm_debug_moe", "vision-language"}};
    const char *shared = getenv("OTTAVA_SHARED");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[1024];
        mem *account;
        config *cfg = NULL;
        model_options o;
        snprintf(path, sizeof path, "--config=%s/data/configs/kempner/configs/train/%s.toml",
                 shared ? shared : TEST_SOURCE_DIR "/../shared", files[i].file);
        FILE *f = fopen(strchr(path, '=') + 1, "r");
        if (!f) {
            print_message("SKIPPED: the file %s is missing\n", strchr(path, '=') + 1);
            skip();
        }
        fclose(f);
        const char *arguments[] = {path, "--model.reduce=16", "--distributed.ep=4"};
        assert_int_equal(mem_open(&account), OTT_OK);
        ott_status status = config_parse(account, NULL, 3, arguments, &cfg);
        if (status == OTT_OK) status = model_options_resolve(cfg, &o);
        if (files[i].message ? !strstr(status_text(), files[i].message) : status != OTT_OK)
            fail_msg("%s: %s", path, status_text());
        if (!files[i].message) assert_int_equal(o.moe.experts, 8);
        config_close(cfg);
        mem_close(account);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_qwen3),
        cmocka_unit_test(test_default_length),
        cmocka_unit_test(test_mixtures_that_are_refused),
        cmocka_unit_test(test_bias_rule),
        cmocka_unit_test(test_latents_that_are_refused),
        cmocka_unit_test(test_kempner_blocks),
        cmocka_unit_test(test_longer_than_the_model),
        cmocka_unit_test(test_blocks_that_are_refused),
        cmocka_unit_test(test_latents_are_reduced),
        cmocka_unit_test(test_a_mixture_is_reduced),
        cmocka_unit_test(test_which_blocks_are_mixtures),
        cmocka_unit_test(test_published_mixtures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
