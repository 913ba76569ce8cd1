/*
 * Models opened from options. Losses, weights and the recorded configuration must equal those of a model
 * opened from the configuration with the same keys. Bad options give one error that names the key.
 */
#include "api/module_case.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 2, LENGTH = 16, TOKENS = SEQUENCES * LENGTH, VOCAB = 96, ARGUMENTS = 20 };

/* A model by keys of a configuration, and by the same members of the options. */
typedef struct model_case {
    const char *recipe; /* NULL: no FP8 */
    const char *keys[ARGUMENTS];
    ott_model_options options;
} model_case;

static const int32_t first[] = {0}, last[] = {1};
static const float longer[] = {1, 1.5F, 2, 4};

static const model_case cases[] = {
    {NULL, {"--model.n_kv_heads=2", "--model.tie_embeddings=true"}, {.n_kv_heads = 2, .tie_embeddings = 1}},
    {
        "tensorwise",
        {"--model.family=qwen3", "--model.rope_scaling=yarn", "--model.rope_factor=4",
         "--model.rope_original_max_position=8", "--model.init_style=titan"},
        {.family = "qwen3",
         .rope_scaling = "yarn",
         .rope_factor = 4,
         .rope_original_max_position = 8,
         .init_style = "titan"},
    },
    {"delayed",
     {"--model.family=gemma2", "--model.sliding_window=4", "--model.attention_softcap=2",
      "--model.final_logit_softcap=3", "--model.head_dim=16", "--model.attention_multiplier=0.3"},
     {.family = "gemma2",
      .sliding_window = 4,
      .attention_softcap = 2,
      .final_logit_softcap = 3,
      .head_dim = 16,
      .attention_multiplier = 0.3}},
    {NULL,
     {"--model.family=gemma3_text", "--model.sliding_window=4", "--model.full_attention_layers=[1]",
      "--model.rope_local_theta=0", "--model.qk_norm=false"},
     {.family = "gemma3_text",
      .sliding_window = 4,
      .full_attention_layers = last,
      .full_attention_layer_count = 1,
      .rope_local_theta = -1,
      .qk_norm = -1}},
    {NULL,
     {"--model.family=starcoder2", "--model.mlp_bias=false", "--model.activation=relu",
      "--model.norm_eps=1e-3"},
     {.family = "starcoder2", .mlp_bias = -1, .activation = "relu", .norm_eps = 1e-3}},
    {NULL,
     {"--model.norm_type=layernorm", "--model.rope_scaling=longrope", "--model.rope_short_factor=1,1.5,2,4",
      "--model.rope_long_factor=1,1.5,2,4", "--model.rope_original_max_position=8",
      "--train.mixed_precision=fp32"},
     {.norm_type = "layernorm",
      .rope_scaling = "longrope",
      .rope_short_factor = longer,
      .rope_long_factor = longer,
      .rope_short_factor_count = 4,
      .rope_long_factor_count = 4,
      .rope_original_max_position = 8}},
    {NULL,
     {"--model.family=granite", "--model.embedding_multiplier=3", "--model.residual_multiplier=0.5",
      "--model.logits_scaling=2", "--model.scale_attention_by_layer=true", "--model.fused_gate_up=true"},
     {.family = "granite",
      .embedding_multiplier = 3,
      .residual_multiplier = 0.5,
      .logits_scaling = 2,
      .scale_attention_by_layer = 1,
      .fused_gate_up = 1}},
    {NULL,
     {"--model.family=mixtral", "--model.num_experts=4", "--model.moe_dense_layers=[0]",
      "--model.moe_capacity_factor=1.5", "--model.moe_router_z_loss_weight=0.1"},
     {.family = "mixtral",
      .num_experts = 4,
      .moe_dense_layers = first,
      .moe_dense_layer_count = 1,
      .moe_capacity_factor = 1.5,
      .moe_router_z_loss_weight = 0.1}},
    {NULL,
     {"--model.family=deepseek_v3", "--model.kv_lora_rank=16", "--model.q_lora_rank=16",
      "--model.qk_nope_head_dim=8", "--model.qk_rope_head_dim=8", "--model.v_head_dim=16",
      "--model.num_experts=4", "--model.moe_router=sigmoid_topk", "--model.moe_shared_experts=1",
      "--model.moe_first_dense_layers=1", "--model.moe_normalize_weights=false",
      "--model.moe_sequence_aux_loss_weight=0.1"},
     {.family = "deepseek_v3",
      .kv_lora_rank = 16,
      .q_lora_rank = 16,
      .qk_nope_head_dim = 8,
      .qk_rope_head_dim = 8,
      .v_head_dim = 16,
      .num_experts = 4,
      .moe_router = "sigmoid_topk",
      .moe_shared_experts = 1,
      .moe_first_dense_layers = 1,
      .moe_normalize_weights = -1,
      .moe_sequence_aux_loss_weight = 0.1}},
};

static ott_module *open_by_keys(ott_context *c, const model_case *k) {
    const char *arguments[ARGUMENTS] = {
        "--model.dim=32",         "--model.n_layers=2", "--model.n_heads=4", "--model.vocab_size=96",
        "--model.max_seq_len=16", "--train.seq_len=16", "--train.seed=7",    "--train.mixed_precision=bf16"};
    int count = 8;
    ott_config *cfg;
    ott_module *m;
    for (int i = 0; k->keys[i]; i++) arguments[count++] = k->keys[i];
    succeed(ott_config_open(c, count, arguments, &cfg));
    succeed(ott_model_open(c, cfg, &m));
    ott_config_close(cfg);
    return m;
}

static ott_model_options options_of(const model_case *k) {
    ott_model_options o = k->options;
    o.struct_size = sizeof o;
    o.dim = 32;
    o.n_layers = 2;
    o.n_heads = 4;
    o.vocab_size = VOCAB;
    o.max_seq_len = LENGTH;
    o.seed = 7;
    if (!o.rope_short_factor) o.dtype = OTT_BF16; /* the case with fp32 has these factors */
    return o;
}

static ott_module *open_by_options(ott_context *c, const model_case *k) {
    const ott_model_options o = options_of(k);
    ott_module *m;
    succeed(ott_model_open_options(c, &o, &m));
    return m;
}

static void convert(ott_context *c, ott_module *m, const char *recipe) {
    ott_convert_options o;
    if (!recipe) return;
    ott_convert_options_init(&o);
    o.recipe = open_recipe(c, recipe);
    succeed(ott_convert_to_float8_training(m, &o, NULL));
    ott_recipe_close(o.recipe);
}

static ott_tensor *open_ids(ott_context *c, uint32_t seed) {
    float values[TOKENS];
    ott_tensor *t = open_tensor(c, OTT_I32, SEQUENCES, LENGTH);
    for (uint32_t i = 0; i < TOKENS; i++) values[i] = (float)((seed + 7 * i * i) % VOCAB);
    succeed(ott_tensor_write(t, values, TOKENS));
    return t;
}

static double step(ott_module *m, ott_optimizer *o, ott_tensor *x, ott_tensor *target) {
    double loss;
    succeed(ott_optimizer_zero_grad(o));
    succeed(ott_model_loss(m, x, target, 0, &loss));
    succeed(ott_optimizer_step(o, NULL));
    return loss;
}

/* Saves the model and returns section [model] of its config.toml; free it with free. */
static char *saved_section(ott_module *m, ott_optimizer *o, const char *folder) {
    static char text[1 << 16];
    char path[300];
    succeed(ott_checkpoint_save(folder, m, o));
    snprintf(path, sizeof path, "%s/config.toml", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    char *section = strstr(text, "[model]");
    *strstr(section, "\n[") = '\0';
    return strdup(section);
}

static void check(const model_case *k, const char *parent) {
    ott_context *c = open_context();
    ott_module *m[] = {open_by_keys(c, k), open_by_options(c, k)};
    ott_optimizer *o[2];
    ott_tensor *x = open_ids(c, 1), *target = open_ids(c, 5);
    char folders[2][128], *sections[2];
    for (int i = 0; i < 2; i++) {
        convert(c, m[i], k->recipe);
        succeed(ott_adamw_open(c, m[i], NULL, &o[i]));
        snprintf(folders[i], sizeof folders[i], "%s/%d", parent, i);
    }
    assert_same_parameters(m[0], m[1]);
    for (int i = 0; i < 3; i++) {
        double by_keys = step(m[0], o[0], x, target), by_options = step(m[1], o[1], x, target);
        if (by_keys != by_options)
            fail_msg("%s, step %d: the loss is %.9g by keys and %.9g by options", k->keys[0], i, by_keys,
                     by_options);
    }
    assert_same_parameters(m[0], m[1]);
    for (int i = 0; i < 2; i++) sections[i] = saved_section(m[i], o[i], folders[i]);
    if (strcmp(sections[0], sections[1]) != 0)
        fail_msg("%s: by keys:\n%s\nby options:\n%s", k->keys[0], sections[0], sections[1]);
    succeed(ott_checkpoint_load(folders[1], m[0], o[0])); /* the models share checkpoints */
    assert_true(step(m[0], o[0], x, target) == step(m[1], o[1], x, target));
    for (int i = 0; i < 2; i++) {
        free(sections[i]);
        ott_optimizer_close(o[i]);
        ott_module_close(m[i]);
    }
    ott_context_close(c);
}

static void test_same_model(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char parent[64];
        make_folder(parent);
        check(&cases[i], parent);
        remove_folder(parent);
    }
}

/* Without a seed, each model that a context opens has other weights. */
static void test_seeds(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_tensor *x = open_ids(c, 1), *target = open_ids(c, 5);
    ott_model_options o = options_of(&cases[0]);
    double losses[2];
    o.seed = 0;
    for (int i = 0; i < 2; i++) {
        ott_module *m;
        succeed(ott_model_open_options(c, &o, &m));
        succeed(ott_model_loss(m, x, target, 0, &losses[i]));
        ott_module_close(m);
    }
    assert_true(losses[0] != losses[1]);
    ott_context_close(c);
}

static void refuse(ott_context *c, ott_model_options o, ott_status code, const char *part) {
    ott_module *m;
    assert_error(ott_model_open_options(c, &o, &m), code, part);
    assert_error(code, code, "ott_model_open_options: ");
    assert_null(m);
}

#define REFUSE(member, value, code, part)                                                                    \
    do {                                                                                                     \
        ott_model_options o = options_of(&cases[0]);                                                         \
        o.member = (value);                                                                                  \
        refuse(c, o, code, part);                                                                            \
    } while (0)

static void test_refused(void **state) {
    (void)state;
    ott_context *c = open_context();
    ott_module *m;
    REFUSE(dim, 0, OTT_ERR_ARGUMENT, "dim = 0");
    REFUSE(n_heads, -4, OTT_ERR_ARGUMENT, "n_heads = -4");
    REFUSE(dtype, OTT_F16, OTT_ERR_DTYPE, "dtype is fp16");
    REFUSE(seed, UINT64_MAX, OTT_ERR_ARGUMENT, "seed = 18446744073709551615");
    REFUSE(family, "lama", OTT_ERR_CONFIG, "did you mean \"llama\"?");
    REFUSE(activation, "swish", OTT_ERR_CONFIG, "model.activation = swish is not one of \"silu\"");
    REFUSE(n_kv_heads, 3, OTT_ERR_CONFIG, "model.n_heads (4) must be divisible by model.n_kv_heads (3)");
    REFUSE(dim, 34, OTT_ERR_CONFIG, "model.dim (34) must be divisible by model.n_heads (4)");
    REFUSE(n_kv_heads, -2, OTT_ERR_CONFIG, "model.n_kv_heads = -2 is out of range: must be in [0");
    REFUSE(norm_eps, -1, OTT_ERR_CONFIG, "model.norm_eps = -1 is out of range: must be greater than 0");
    REFUSE(rope_theta, 1e300 * 1e300, OTT_ERR_CONFIG, "model.rope_theta = inf must be a number");
    REFUSE(qk_norm, 2, OTT_ERR_CONFIG, "model.qk_norm = 2 is not a switch");
    REFUSE(kv_lora_rank, 16, OTT_ERR_CONFIG,
           "model.kv_lora_rank cannot be combined with model.family = llama");
    REFUSE(rope_scaling, "longrope", OTT_ERR_CONFIG, "model.rope_short_factor has 0 numbers");
    REFUSE(full_attention_layer_count, 1, OTT_ERR_ARGUMENT, "full_attention_layers is NULL");
    ott_model_options o = options_of(&cases[3]);
    o.full_attention_layers = (const int32_t[]){2};
    refuse(c, o, OTT_ERR_CONFIG, "model.full_attention_layers has 2: the model has blocks 0 to 1");
    assert_error(ott_model_open_options(c, NULL, &m), OTT_ERR_ARGUMENT, "options is NULL");
    ott_context_close(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_model), cmocka_unit_test(test_seeds),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
