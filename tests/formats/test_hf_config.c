/*
 * Tests config.json: five families, the spellings of transformers 4 and 5, refused files and their messages,
 * and changes of values that keep all other text.
 */
#define _GNU_SOURCE
#include "support/folder.h"
#include "formats/hf/config.h"
#include "formats/hf/config_keys.h"
#include "formats/json_edit.h"
#include "formats/safetensors/shards.h"
#include "base/file/file.h"
#include <inttypes.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- the families, as published ---- */

static const char llama[] =
    "{\n"
    "  \"architectures\": [\n    \"LlamaForCausalLM\"\n  ],\n"
    "  \"attention_bias\": false,\n  \"attention_dropout\": 0.0,\n"
    "  \"bos_token_id\": 128000,\n  \"eos_token_id\": [\n    128001,\n    128008,\n    128009\n  ],\n"
    "  \"hidden_act\": \"silu\",\n  \"hidden_size\": 4096,\n  \"initializer_range\": 0.02,\n"
    "  \"intermediate_size\": 14336,\n  \"max_position_embeddings\": 131072,\n"
    "  \"mlp_bias\": false,\n  \"model_type\": \"llama\",\n  \"num_attention_heads\": 32,\n"
    "  \"num_hidden_layers\": 32,\n  \"num_key_value_heads\": 8,\n  \"pretraining_tp\": 1,\n"
    "  \"rms_norm_eps\": 1e-05,\n"
    "  \"rope_scaling\": {\n    \"factor\": 8.0,\n    \"low_freq_factor\": 1.0,\n"
    "    \"high_freq_factor\": 4.0,\n    \"original_max_position_embeddings\": 8192,\n"
    "    \"rope_type\": \"llama3\"\n  },\n"
    "  \"rope_theta\": 500000.0,\n  \"tie_word_embeddings\": false,\n"
    "  \"torch_dtype\": \"bfloat16\",\n  \"transformers_version\": \"4.42.3\",\n"
    "  \"use_cache\": true,\n  \"vocab_size\": 128256\n}\n";

/* The same model as in `llama`, but in the spelling of config.json that transformers 5 writes. */
static const char llama5[] =
    "{\n"
    "  \"architectures\": [\"LlamaForCausalLM\"],\n"
    "  \"bos_token_id\": 128000,\n  \"dtype\": \"bfloat16\",\n"
    "  \"eos_token_id\": [128001, 128008, 128009],\n  \"head_dim\": 128,\n"
    "  \"hidden_size\": 4096,\n  \"intermediate_size\": 14336,\n"
    "  \"max_position_embeddings\": 131072,\n  \"model_type\": \"llama\",\n"
    "  \"num_attention_heads\": 32,\n  \"num_hidden_layers\": 32,\n"
    "  \"num_key_value_heads\": 8,\n  \"rms_norm_eps\": 1e-05,\n"
    "  \"rope_parameters\": {\"factor\": 8.0, \"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0,\n"
    "    \"original_max_position_embeddings\": 8192, \"rope_theta\": 500000.0,\n"
    "    \"rope_type\": \"llama3\"},\n"
    "  \"unknown\": 1.50, \"vocab_size\": 128256\n}\n";

static const char qwen3_moe[] =
    "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"decoder_sparse_step\":1,\"head_dim\":128,\"hidden_act\":"
    "\"silu\",\"hidden_size\":2048,\"intermediate_size\":6144,\"max_position_embeddings\":40960,"
    "\"mlp_only_layers\":[0, "
    "3],\"model_type\":\"qwen3_moe\",\"moe_intermediate_size\":768,\"norm_topk_prob\":"
    "true,\"num_attention_heads\":32,\"num_experts\":128,\"num_experts_per_tok\":8,\"num_hidden_layers\":4,"
    "\"num_key_value_heads\":4,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,\"torch_dtype\":\"bfloat16\","
    "\"vocab_size\":151936}";

static const char deepseek[] =
    "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"attention_bias\":false,\"bos_token_id\":0,\"eos_token_"
    "id\":"
    "1,\"first_k_dense_replace\":3,\"hidden_act\":\"silu\",\"hidden_size\":7168,\"intermediate_size\":18432,"
    "\"kv_lora_rank\":512,\"max_position_embeddings\":163840,\"model_type\":\"deepseek_v3\","
    "\"moe_intermediate_size\":2048,\"moe_layer_freq\":1,\"n_group\":8,\"n_routed_experts\":256,"
    "\"n_shared_experts\":1,\"norm_topk_prob\":true,\"num_attention_heads\":128,\"num_experts_per_tok\":8,"
    "\"num_hidden_layers\":61,\"num_key_value_heads\":128,\"num_nextn_predict_layers\":1,\"q_lora_rank\":"
    "1536,"
    "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"quantization_config\":{\"activation_scheme\":"
    "\"dynamic\",\"fmt\":\"e4m3\",\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]},\"rms_norm_eps\":"
    "1e-06,\"rope_scaling\":{\"beta_fast\":32,\"beta_slow\":1,\"factor\":40,\"mscale\":1.0,\"mscale_all_"
    "dim\":"
    "1.0,\"original_max_position_embeddings\":4096,\"type\":\"yarn\"},\"rope_theta\":10000,"
    "\"routed_scaling_factor\":2.5,\"scoring_func\":\"sigmoid\",\"tie_word_embeddings\":false,\"topk_group\":"
    "4,"
    "\"topk_method\":\"noaux_tc\",\"torch_dtype\":\"bfloat16\",\"v_head_dim\":128,\"vocab_size\":129280}";

static const char nemo[] =
    "{\"architectures\":[\"MistralForCausalLM\"],\"bos_token_id\":1,\"eos_token_id\":2,\"head_dim\":128,"
    "\"hidden_act\":\"silu\",\"hidden_size\":5120,\"intermediate_size\":14336,\"max_position_embeddings\":"
    "131072,"
    "\"model_type\":\"mistral\",\"num_attention_heads\":32,\"num_hidden_layers\":40,\"num_key_value_heads\":"
    "8,"
    "\"rms_norm_eps\":1e-05,\"rope_theta\":1000000.0,\"sliding_window\":null,\"tie_word_embeddings\":false,"
    "\"torch_dtype\":\"bfloat16\",\"vocab_size\":131072}";

static const char qwen2[] =
    "{\"architectures\":[\"Qwen2ForCausalLM\"],\"bos_token_id\":151643,\"eos_token_id\":151643,"
    "\"hidden_act\":\"silu\",\"hidden_size\":3584,\"intermediate_size\":18944,\"max_position_embeddings\":"
    "131072,"
    "\"max_window_layers\":28,\"model_type\":\"qwen2\",\"num_attention_heads\":28,\"num_hidden_layers\":28,"
    "\"num_key_value_heads\":4,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,\"sliding_window\":131072,"
    "\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\",\"use_mrope\":false,\"use_sliding_window\":"
    "false,"
    "\"vocab_size\":152064}";

static const char phi4[] =
    "{\"architectures\":[\"Phi3ForCausalLM\"],\"attention_bias\":false,\"bos_token_id\":100257,"
    "\"embd_pdrop\":0.0,\"eos_token_id\":100265,\"hidden_act\":\"silu\",\"hidden_size\":5120,"
    "\"intermediate_size\":17920,\"max_position_embeddings\":16384,\"model_type\":\"phi3\","
    "\"num_attention_heads\":40,\"num_hidden_layers\":40,\"num_key_value_heads\":10,"
    "\"original_max_position_embeddings\":16384,\"pad_token_id\":100349,\"partial_rotary_factor\":1.0,"
    "\"rms_norm_eps\":1e-05,\"rope_scaling\":null,\"rope_theta\":250000,\"sliding_window\":null,"
    "\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\",\"vocab_size\":100352}";

static const char qwen3[] =
    "{\"architectures\":[\"Qwen3ForCausalLM\"],\"attention_bias\":false,\"bos_token_id\":151643,"
    "\"eos_token_id\":151645,\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":1024,"
    "\"intermediate_size\":3072,\"max_position_embeddings\":40960,\"max_window_layers\":28,"
    "\"model_type\":\"qwen3\",\"num_attention_heads\":16,\"num_hidden_layers\":28,\"num_key_value_heads\":8,"
    "\"rms_norm_eps\":1e-06,\"rope_scaling\":null,\"rope_theta\":1000000,\"sliding_window\":null,"
    "\"tie_word_embeddings\":true,\"torch_dtype\":\"bfloat16\",\"use_sliding_window\":false,"
    "\"vocab_size\":151936}";

static const char baichuan_7b[] =
    "{\"architectures\":[\"BaiChuanForCausalLM\"],\"bos_token_id\":1,\"eos_token_id\":2,\"hidden_act\":"
    "\"silu\","
    "\"hidden_size\":4096,\"intermediate_size\":11008,\"max_position_embeddings\":4096,\"model_type\":"
    "\"baichuan\","
    "\"num_attention_heads\":32,\"num_hidden_layers\":32,\"pad_token_id\":0,\"rms_norm_eps\":1e-06,"
    "\"tie_word_embeddings\":false,\"torch_dtype\":\"float32\",\"vocab_size\":64000}";

static ott_status parse(const char *text, hf_config *c) {
    return hf_config_parse("config.json", text, (int64_t)strlen(text), c);
}

static hf_config must_parse(const char *text) {
    hf_config c;
    if (parse(text, &c) != OTT_OK) fail_msg("%s: %s", text, status_text());
    return c;
}

static void check_dims(const hf_config *c, const int64_t dims[8]) {
    assert_int_equal(c->hidden_size, dims[0]);
    assert_int_equal(c->intermediate_size, dims[1]);
    assert_int_equal(c->layers, dims[2]);
    assert_int_equal(c->heads, dims[3]);
    assert_int_equal(c->kv_heads, dims[4]);
    assert_int_equal(c->head_dim, dims[5]);
    assert_int_equal(c->vocab_size, dims[6]);
    assert_int_equal(c->max_position_embeddings, dims[7]);
    assert_int_equal(c->dtype, OTT_BF16);
    assert_string_equal(c->quantization, "");
    assert_false(c->attention_bias);
}

static void check_llama(const hf_config *c) {
    check_dims(c, (int64_t[]){4096, 14336, 32, 32, 8, 128, 128256, 131072});
    assert_string_equal(c->family->architecture, "LlamaForCausalLM");
    assert_true(c->norm_eps == 1e-5 && c->rope_theta == 5e5);
    assert_int_equal(c->rope, HF_ROPE_LLAMA3);
    assert_true(c->rope_factor == 8 && c->rope_low_freq_factor == 1 && c->rope_high_freq_factor == 4);
    assert_int_equal(c->rope_original_max_position, 8192);
    assert_int_equal(c->sliding_window, 0);
    assert_int_equal(c->bos, 128000);
    assert_int_equal(c->eos_count, 3);
    assert_int_equal(c->eos[2], 128009);
    assert_int_equal(c->pad, -1);
}

static void reads_the_families(void **state) {
    (void)state;
    hf_config c = must_parse(llama);
    check_llama(&c);
    c = must_parse(llama5);
    check_llama(&c);

    c = must_parse(nemo);
    check_dims(&c, (int64_t[]){5120, 14336, 40, 32, 8, 128, 131072, 131072});
    assert_int_equal(c.sliding_window, 0);
    assert_int_equal(c.rope, HF_ROPE_PLAIN);
    assert_int_equal(c.eos_count, 1);

    c = must_parse(qwen2);
    check_dims(&c, (int64_t[]){3584, 18944, 28, 28, 4, 128, 152064, 131072});
    assert_true(c.family == family_find("qwen2") && c.norm_eps == 1e-6);
    assert_int_equal(c.sliding_window, 0); /* not 131072: use_sliding_window is false */

    c = must_parse(phi4);
    check_dims(&c, (int64_t[]){5120, 17920, 40, 40, 10, 128, 100352, 16384});
    assert_true(c.family == family_find("phi3") && c.rope_theta == 250000);
    assert_int_equal(c.pad, 100349);

    c = must_parse(baichuan_7b);
    assert_true(c.family == family_find("baichuan") && c.kv_heads == 32 && c.head_dim == 128);

    c = must_parse(qwen3);
    check_dims(&c, (int64_t[]){1024, 3072, 28, 16, 8, 128, 151936, 40960});
    assert_true(c.family == family_find("qwen3") && c.tie_word_embeddings);
}

/* ---- one key of a good file changed ---- */

/* Returns `text` with `key` = `value`; value NULL: without the key. */
static char *changed(folder *f, const char *text, const char *key, const char *value) {
    str s = {.account = f->account};
    str_append(&s, text);
    assert_int_equal(value ? json_edit_put(&s, key, value) : json_edit_remove(&s, key), OTT_OK);
    return s.text;
}

static hf_config parse_change(folder *f, const char *base, const char *key, const char *value) {
    char *text = changed(f, base, key, value);
    hf_config c = must_parse(text);
    mem_free(f->account, text);
    return c;
}

static void absent_keys(void **state) {
    folder *f = *state;
    assert_int_equal(parse_change(f, llama, "num_key_value_heads", NULL).kv_heads, 32);
    assert_int_equal(parse_change(f, llama, "num_key_value_heads", "null").kv_heads, 32);
    assert_int_equal(parse_change(f, nemo, "head_dim", NULL).head_dim, 160); /* hidden_size / heads */
    assert_int_equal(parse_change(f, nemo, "head_dim", "null").head_dim, 160);
    /* the default head_dim of Qwen 3; hidden_size / heads would be 1024 / 16 */
    assert_int_equal(parse_change(f, qwen3, "head_dim", NULL).head_dim, 128);
    assert_true(parse_change(f, llama, "rope_theta", NULL).rope_theta == 10000);
    assert_int_equal(parse_change(f, llama, "rope_scaling", NULL).rope, HF_ROPE_PLAIN);
    assert_int_equal(parse_change(f, llama, "rope_scaling", "{\"type\": \"default\"}").rope, HF_ROPE_PLAIN);
    assert_int_equal(parse_change(f, llama, "torch_dtype", NULL).dtype, OTT_DTYPE_COUNT);
    assert_int_equal(parse_change(f, llama, "torch_dtype", "\"torch.float16\"").dtype, OTT_F16);
    assert_int_equal(parse_change(f, llama, "architectures", NULL).layers, 32);
    assert_int_equal(parse_change(f, llama, "eos_token_id", "null").eos_count, 0);
    assert_int_equal(parse_change(f, llama, "eos_token_id", "[]").eos_count, 0);
    assert_int_equal(parse_change(f, llama, "bos_token_id", NULL).bos, -1);
    assert_int_equal(parse_change(f, llama, "pad_token_id", "-1").pad, -1);
    assert_int_equal(parse_change(f, llama, "pad_token_id", "128256").pad, -1);
    assert_int_equal(parse_change(f, llama, "pad_token_id", "128004").pad, 128004);
    assert_false(parse_change(f, llama, "tie_word_embeddings", NULL).tie_word_embeddings);
    assert_true(parse_change(f, llama, "attention_bias", "true").attention_bias);
    assert_false(
        parse_change(f, phi4, "attention_bias", "true").attention_bias); /* transformers ignores this key */
    assert_string_equal(
        parse_change(f, llama, "quantization_config", "{\"quant_method\": \"fp8\"}").quantization, "fp8");
}

static void reads_latent_attention(void **state) {
    folder *f = *state;
    hf_config c = must_parse(deepseek);
    assert_true(c.family == family_find("deepseek_v3"));
    assert_int_equal(c.q_lora_rank, 1536);
    assert_int_equal(c.kv_lora_rank, 512);
    assert_int_equal(c.head_dim, 128 + 64);
    assert_int_equal(c.v_head_dim, 128);
    assert_int_equal(c.first_dense, 3);
    assert_int_equal(c.expert_groups, 8);
    assert_true(c.rope_mscale == 1 && c.rope_mscale_all_dim == 1 && c.rope_factor == 40);
    assert_int_equal(c.quantization_block[1], 128);
    /* in this family's files head_dim means qk_rope_head_dim: it does not change c.head_dim */
    assert_int_equal(parse_change(f, deepseek, "head_dim", "64").head_dim, 192);
    assert_int_equal(parse_change(f, deepseek, "q_lora_rank", "null").q_lora_rank, 0);
    assert_true(parse_change(f, deepseek, "n_group", NULL).expert_groups == 8);
    assert_true(parse_change(f, deepseek, "model_type", "\"kimi_k2\"").family == family_find("deepseek_v3"));
}

static void reads_groups_by_method(void **state) {
    static const char *const changes[][2] = {{"architectures", "null"},
                                             {"model_type", "\"deepseek_v2\""},
                                             {"scoring_func", "\"softmax\""},
                                             {"norm_topk_prob", "false"}};
    folder *f = *state;
    hf_config c;
    char *text = changed(f, deepseek, "topk_method", NULL);
    for (int i = 0; i < 4; i++) {
        char *next = changed(f, text, changes[i][0], changes[i][1]);
        mem_free(f->account, text);
        text = next;
    }
    assert_int_equal(must_parse(text).expert_groups, 1);
    assert_int_equal(parse_change(f, text, "topk_method", "\"greedy\"").top_groups, 1);
    c = parse_change(f, text, "topk_method", "\"group_limited_greedy\"");
    assert_int_equal(c.expert_groups, 8);
    assert_int_equal(c.top_groups, 4);
    char *other = changed(f, text, "topk_method", "\"noaux_tc\"");
    assert_int_equal(hf_config_parse("config.json", other, (int64_t)strlen(other), &c), OTT_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(status_text(), "\"greedy\" and \"group_limited_greedy\" are supported for deepseek_v2"));
    mem_free(f->account, other);
    mem_free(f->account, text);
}

static void sliding_windows(void **state) {
    folder *f = *state;
    assert_int_equal(parse_change(f, llama, "sliding_window", "4096").sliding_window, 0);
    assert_int_equal(parse_change(f, nemo, "sliding_window", "4096").sliding_window, 4096);
    assert_int_equal(parse_change(f, nemo, "sliding_window", NULL).sliding_window, 4096);
    assert_int_equal(parse_change(f, phi4, "sliding_window", "2047").sliding_window, 2047);
    assert_int_equal(parse_change(f, phi4, "sliding_window", NULL).sliding_window, 0);
    assert_int_equal(parse_change(f, qwen2, "use_sliding_window", "true").sliding_window,
                     0); /* the window begins at layer 28, which does not exist */
    char *used = changed(f, qwen2, "use_sliding_window", "true");
    assert_int_equal(parse_change(f, used, "max_window_layers", "0").sliding_window, 131072);
    assert_int_equal(parse_change(f, used, "max_window_layers", "30").sliding_window, 0);
    assert_int_equal(parse_change(f, used, "sliding_window", "null").sliding_window, 0);
    mem_free(f->account, used);
}

static void refuses(void **state) {
    folder *f = *state;
    static const struct {
        const char *base, *key, *value, *message;
        ott_status status;
    } cases[] = {
        {llama, "hidden_size", NULL, "has no key 'hidden_size': llama requires it", OTT_ERR_FORMAT},
        {llama, "hidden_size", "null", "has no key 'hidden_size'", OTT_ERR_FORMAT},
        {llama, "hidden_size", "\"4096\"",
         "key 'hidden_size' = \"4096\": must be an integer from 1 to 1048576", OTT_ERR_FORMAT},
        {llama, "hidden_size", "4096.0", "must be an integer", OTT_ERR_FORMAT},
        {llama, "hidden_size", "0", "must be an integer", OTT_ERR_FORMAT},
        {llama, "hidden_size", "1048577", "must be an integer", OTT_ERR_FORMAT},
        {llama, "hidden_size", "4100", "has no key 'head_dim'", OTT_ERR_FORMAT},
        {llama, "num_hidden_layers", "10001", "from 1 to 10000", OTT_ERR_FORMAT},
        {llama, "num_key_value_heads", "5", "must be divisible by num_key_value_heads (5)", OTT_ERR_FORMAT},
        {llama, "num_key_value_heads", "0", "from 1 to", OTT_ERR_FORMAT},
        {nemo, "num_key_value_heads", NULL, "has no key 'num_key_value_heads'", OTT_ERR_FORMAT},
        {llama, "head_dim", "127", "head_dim (127) must be even", OTT_ERR_FORMAT},
        {llama, "head_dim", "65536", "num_attention_heads x head_dim", OTT_ERR_FORMAT},
        {llama, "vocab_size", "-1", "from 1 to 16777216", OTT_ERR_FORMAT},
        {llama, "max_position_embeddings", NULL, "max_position_embeddings", OTT_ERR_FORMAT},
        {llama, "rms_norm_eps", "0", "must be a number above 0", OTT_ERR_FORMAT},
        {llama, "rms_norm_eps", "\"1e-5\"", "must be a number above 0", OTT_ERR_FORMAT},
        {llama, "tie_word_embeddings", "0", "must be true or false", OTT_ERR_FORMAT},
        {llama, "attention_bias", "\"no\"", "must be true or false", OTT_ERR_FORMAT},
        {llama, "mlp_bias", "1", "must be true or false", OTT_ERR_FORMAT},
        {deepseek, "mlp_bias", "true", "only false is supported", OTT_ERR_UNSUPPORTED},
        {llama, "hidden_act", "\"quick_gelu\"",
         "supported for llama: \"silu\" (SwiGLU), \"gelu_pytorch_tanh\"", OTT_ERR_UNSUPPORTED},
        {qwen3_moe, "hidden_act", "\"gelu\"", "supported for qwen3_moe: \"silu\" (SwiGLU)",
         OTT_ERR_UNSUPPORTED},
        {llama, "model_type", NULL,
         "has no key 'model_type': llama, mistral, qwen2, qwen3, phi3, baichuan, granite, glm, glm4, "
         "mixtral, "
         "qwen3_moe, dots1, deepseek_v3, deepseek_v2, olmo2, gemma2, gemma3_text, cohere, cohere2, "
         "starcoder2 "
         "and gpt2 can be loaded",
         OTT_ERR_UNSUPPORTED},
        {baichuan_7b, "max_position_embeddings", NULL,
         "has no key 'max_position_embeddings': so the model has ALiBi", OTT_ERR_UNSUPPORTED},
        {baichuan_7b, "architectures", "[\"BaiChuanForCausalLM\", \"Other\"]",
         "a baichuan language model needs [\"BaichuanForCausalLM\"]", OTT_ERR_UNSUPPORTED},
        {llama, "model_type", "\"gpt_neox\"", "key 'model_type' = \"gpt_neox\": llama, mistral",
         OTT_ERR_UNSUPPORTED},
        {llama, "model_type", "\"gemma3\"",
         "only the text part of models with image input is supported, from a separate folder: gemma3_text",
         OTT_ERR_UNSUPPORTED},
        {llama, "model_type", "\"deepseek_v32\"",
         "sparse attention (DeepSeek-V3.2 and later) is not supported", OTT_ERR_UNSUPPORTED},
        {llama, "model_type", "\"gpt_oss\"", "mixtures of experts are not supported yet",
         OTT_ERR_UNSUPPORTED},
        {llama, "model_type", "\"qwen3_moe\"", "a qwen3_moe language model", OTT_ERR_UNSUPPORTED},
        {llama, "architectures", "[\"LlamaForSequenceClassification\"]", "needs [\"LlamaForCausalLM\"]",
         OTT_ERR_UNSUPPORTED},
        {llama, "architectures", "\"LlamaForCausalLM\"", "needs [\"LlamaForCausalLM\"]", OTT_ERR_UNSUPPORTED},
        {llama, "num_local_experts", "8", "experts are not supported", OTT_ERR_UNSUPPORTED},
        {qwen3_moe, "mlp_only_layers", "[0, 4]", "only a list of at most 64 layers", OTT_ERR_UNSUPPORTED},
        {qwen3_moe, "mlp_only_layers", "[-1]", "only a list of at most 64", OTT_ERR_UNSUPPORTED},
        {qwen3_moe, "mlp_only_layers", "[0.5]", "only a list of at most 64", OTT_ERR_UNSUPPORTED},
        {qwen3_moe, "mlp_only_layers", "true", "only a list of at most 64", OTT_ERR_UNSUPPORTED},
        {llama, "rope_theta", "\"1e4\"", "must be a number from 1", OTT_ERR_FORMAT},
        {llama, "rope_theta", "0", "must be a number from 1", OTT_ERR_FORMAT},
        {llama, "rope_scaling", "[]", "must be an object", OTT_ERR_FORMAT},
        {llama, "rope_scaling", "{\"type\": \"linear\"}", "linear needs 'factor'", OTT_ERR_FORMAT},
        {llama, "rope_scaling", "{\"rope_type\": \"proportional\"}",
         "default, linear, dynamic, llama3, yarn and longrope are supported; proportional is not",
         OTT_ERR_UNSUPPORTED},
        {llama, "rope_scaling", "{\"rope_type\": \"dynamic\"}", "dynamic needs 'factor'", OTT_ERR_FORMAT},
        {llama, "rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4.0, \"truncate\": false}",
         "yarn with truncate = false", OTT_ERR_UNSUPPORTED},
        {llama, "rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4.0, \"mscale\": -1.0}",
         "yarn needs 'mscale', a number of at least 0", OTT_ERR_FORMAT},
        {deepseek, "qk_rope_head_dim", "63", "qk_rope_head_dim (63) must be even", OTT_ERR_FORMAT},
        {deepseek, "v_head_dim", "65536", "num_attention_heads x v_head_dim", OTT_ERR_FORMAT},
        {deepseek, "num_key_value_heads", "8", "num_key_value_heads (8) must be", OTT_ERR_UNSUPPORTED},
        {deepseek, "kv_lora_rank", NULL, "deepseek_v3 requires it", OTT_ERR_FORMAT},
        {deepseek, "q_lora_rank", NULL, "deepseek_v3 requires it", OTT_ERR_FORMAT},
        {deepseek, "scoring_func", "\"softmax\"", "only \"sigmoid\" is supported for deepseek_v3",
         OTT_ERR_UNSUPPORTED},
        {deepseek, "topk_method", "\"greedy\"", "only \"noaux_tc\" is supported for deepseek_v3",
         OTT_ERR_UNSUPPORTED},
        {deepseek, "rope_interleave", "0", "must be true or false", OTT_ERR_FORMAT},
        {llama, "rope_scaling", "{\"rope_type\": \"yarn\", \"factor\": 4.0, \"beta_fast\": 0}",
         "yarn needs 'beta_fast', a number of at least 1e-06", OTT_ERR_FORMAT},
        {phi4, "rope_scaling", "{\"type\": \"longrope\", \"long_factor\": [1.0]}",
         "longrope needs 'short_factor', a list of 64 numbers", OTT_ERR_FORMAT},
        {llama, "rope_scaling", "{\"rope_type\": 3}", "; this is not", OTT_ERR_UNSUPPORTED},
        {llama, "rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8.0}",
         "llama3 needs 'high_freq_factor'", OTT_ERR_FORMAT},
        {llama, "rope_scaling",
         "{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":4.0,\"high_freq_factor\":4.0,"
         "\"original_max_position_embeddings\":8192}",
         "high_freq_factor must be above", OTT_ERR_FORMAT},
        {llama5, "rope_theta", "10000.0", "rope_parameters has another rope_theta", OTT_ERR_FORMAT},
        {llama5, "rope_parameters", "{\"full_attention\": {\"rope_type\": \"default\"}}",
         "different rope types", OTT_ERR_UNSUPPORTED},
        {llama5, "rope_parameters", "{\"rope_type\": \"default\", \"partial_rotary_factor\": 0.5}",
         "partial_rotary_factor", OTT_ERR_UNSUPPORTED},
        {llama5, "torch_dtype", "\"float32\"", "differs from torch_dtype", OTT_ERR_FORMAT},
        {llama, "partial_rotary_factor", "0.75", "key 'partial_rotary_factor' = 0.75", OTT_ERR_UNSUPPORTED},
        {phi4, "partial_rotary_factor", "0.508", "an even number of head_dim = 128 columns", OTT_ERR_FORMAT},
        {phi4, "partial_rotary_factor", "1.5", "at most 1", OTT_ERR_FORMAT},
        {llama, "torch_dtype", "\"float64\"", "bfloat16, float16 and float32 are supported",
         OTT_ERR_UNSUPPORTED},
        {nemo, "sliding_window", "0", "must be null or an integer", OTT_ERR_FORMAT},
        {nemo, "sliding_window", "-1", "must be null or an integer", OTT_ERR_FORMAT},
        {qwen2, "use_sliding_window", "1", "must be true or false", OTT_ERR_FORMAT},
        {llama, "bos_token_id", "128256", "below vocab_size (128256)", OTT_ERR_FORMAT},
        {llama, "bos_token_id", "\"<s>\"", "token id", OTT_ERR_FORMAT},
        {llama, "eos_token_id", "[1, -2]", "token id", OTT_ERR_FORMAT},
        {llama, "eos_token_id", "[1,2,3,4,5,6,7,8,9]", "at most 8", OTT_ERR_UNSUPPORTED},
        {llama, "pad_token_id", "1.5", "token id", OTT_ERR_FORMAT},
        {llama, "quantization_config", "{}", "must be an object with a quant_method", OTT_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_config c;
        char *text = changed(f, cases[i].base, cases[i].key, cases[i].value);
        ott_status status = parse(text, &c);
        if (status != cases[i].status)
            fail_msg("%s = %s gives %s: %s", cases[i].key, cases[i].value, status_name(status),
                     status_text());
        assert_error_names("config.json: ");
        assert_error_names(cases[i].message);
        mem_free(f->account, text);
    }
}

static void reads_mixed_windows(void **state) {
    folder *f = *state;
    hf_config c;
    char *used = changed(f, qwen2, "use_sliding_window", "true");
    char *mixed = changed(f, used, "max_window_layers", "21");
    assert_int_equal(parse(mixed, &c), OTT_OK);
    assert_int_equal(c.full_count, 21);
    assert_true(hf_has_full_attention(&c, 20) && !hf_has_full_attention(&c, 21));
    char *endless = changed(f, mixed, "num_hidden_layers", "500"), *all;
    all = changed(f, endless, "max_window_layers", "499");
    assert_int_equal(parse(all, &c), OTT_ERR_UNSUPPORTED);
    assert_error_names("more than 256 of the 500 layers have no window");
    mem_free(f->account, endless);
    mem_free(f->account, all);
    char *layers = changed(f, used, "layer_types", "[\"full_attention\", \"sliding_attention\"]");
    assert_int_equal(parse(layers, &c), OTT_ERR_FORMAT);
    assert_error_names("list of num_hidden_layers words");
    mem_free(f->account, used);
    mem_free(f->account, mixed);
    mem_free(f->account, layers);
}

static void refuses_no_json(void **state) {
    (void)state;
    static const char *const texts[] = {
        "", "{", "[]", "null", "{\"a\":1,\"a\":2}", "\xff", "{\"rms_norm_eps\":NaN}", "{}x", "\"llama\""};
    hf_config c;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(parse(texts[i], &c), OTT_ERR_FORMAT);
        assert_error_names("config.json:");
    }
}

/* Parses every truncation of the text, and texts with many damaged bytes. Each must give an error or a valid
   model. */
static void damaged_anywhere(void **state) {
    (void)state;
    hf_config c;
    int64_t length = (int64_t)sizeof llama - 1;
    for (int64_t n = 0; n < length - 2; n++)
        assert_int_equal(hf_config_parse("config.json", llama, n, &c), OTT_ERR_FORMAT);
    char *text = strdup(llama);
    for (int64_t at = 0; at < length; at++)
        for (const char *with = "0\"}-,{e"; *with; with++) {
            char kept = text[at];
            text[at] = *with;
            if (parse(text, &c) == OTT_OK) {
                assert_true(c.heads % c.kv_heads == 0 && c.head_dim % 2 == 0 && c.hidden_size > 0);
                assert_true(c.rope_theta >= 1 && c.norm_eps > 0 && c.layers > 0);
            }
            text[at] = kept;
        }
    free(text);
}

/* ---- writing ---- */

static char *rewrite(folder *f, const hf_config *c, const char *original, const char *quantization) {
    str out = {.account = f->account};
    if (hf_config_text(f->account, c, original, quantization, &out) != OTT_OK) fail_msg("%s", status_text());
    return out.text;
}

static void check_rewrite(folder *f, const hf_config *c, const char *original, const char *quantization,
                          const char *expected) {
    char *text = rewrite(f, c, original, quantization);
    assert_string_equal(text, expected);
    mem_free(f->account, text);
}

static void unchanged_is_untouched(void **state) {
    folder *f = *state;
    const char *const old[] = {llama, nemo, qwen2, phi4, qwen3};
    for (int i = 0; i < 5; i++) {
        hf_config c = must_parse(old[i]);
        check_rewrite(f, &c, old[i], NULL, old[i]);
        c.norm_eps = (float)c.norm_eps; /* a model stores norm_eps in fp32 */
        c.dtype = OTT_DTYPE_COUNT;
        check_rewrite(f, &c, old[i], NULL, old[i]);
    }
}

static void writes_old_spellings(void **state) {
    folder *f = *state;
    hf_config c = must_parse(llama5), again;
    char *text = rewrite(f, &c, llama5, NULL);
    assert_null(strstr(text, "rope_parameters"));
    assert_null(strstr(text, "\"dtype\""));
    assert_non_null(strstr(text, "\"rope_theta\": 500000.0"));
    assert_non_null(
        strstr(text, "  \"torch_dtype\": \"bfloat16\",\n  \"eos_token_id\": [128001, 128008, 128009],\n"));
    assert_non_null(strstr(text, "\"rms_norm_eps\": 1e-05,\n  \"rope_scaling\": {\n    \"factor\": 8.0,\n"));
    assert_non_null(
        strstr(text, "  \"unknown\": 1.50, \"vocab_size\": 128256,\n  \"rope_theta\": 500000.0\n}\n"));
    again = must_parse(text);
    assert_true(hf_config_equal(&c, &again));
    mem_free(f->account, text);
}

static void changes_only_what_differs(void **state) {
    folder *f = *state;
    static const char before[] =
        "{ \"x\" : [1, {\"hidden_size\": 7}, \"}\\\"\"],\n \"z\": 12345678901234567890e3,\n"
        "\t\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\" : 16 ,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"vocab_size\":32,\n"
        "\"max_position_embeddings\":64,\"rms_norm_eps\":0.000010,\"y\":{\"a\":0.10}}\n\n";
    static const char after[] =
        "{ \"x\" : [1, {\"hidden_size\": 7}, \"}\\\"\"],\n \"z\": 12345678901234567890e3,\n"
        "\t\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\" : 24 ,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"vocab_size\":32,\n"
        "\"max_position_embeddings\":64,\"rms_norm_eps\":0.000010,\"y\":{\"a\":0.10}, "
        "\"head_dim\": 8, \"tie_word_embeddings\": true, \"rope_theta\": 500000.0, "
        "\"eos_token_id\": 3, \"torch_dtype\": \"float16\"}\n\n";
    hf_config c = must_parse(before);
    c.intermediate_size = 24;
    c.head_dim = 8;
    c.tie_word_embeddings = true;
    c.rope_theta = 5e5;
    c.eos_count = 1;
    c.eos[0] = 3;
    c.dtype = OTT_F16;
    check_rewrite(f, &c, before, NULL, after);
}

/* If the file lacks a key, the model has the key's default value. If the model's value is changed to another
   one, the file must get the key. */
static void derived_values(void **state) {
    folder *f = *state;
    hf_config c = must_parse(llama);
    c.hidden_size = 5120; /* head_dim stays 128, but hidden_size / heads is no longer 128 */
    char *text = rewrite(f, &c, llama, NULL);
    assert_non_null(strstr(text, "\"head_dim\": 128"));
    hf_config again = must_parse(text);
    assert_true(hf_config_equal(&c, &again));
    mem_free(f->account, text);
    c = must_parse(nemo);
    c.vocab_size = 64; /* bos 1 and eos 2 are still valid ids */
    text = rewrite(f, &c, nemo, NULL);
    mem_free(f->account, text);
    c = must_parse(llama);
    c.vocab_size = 256;
    c.bos = -1;
    c.eos_count = 0;
    text = rewrite(f, &c, llama, NULL);
    assert_non_null(strstr(text, "\"bos_token_id\": null,\n  \"eos_token_id\": null,"));
    mem_free(f->account, text);
}

static void changes_family(void **state) {
    folder *f = *state;
    hf_config c = must_parse(llama);
    str out = {.account = f->account};
    c.sliding_window = 512;
    assert_int_equal(hf_config_text(f->account, &c, llama, NULL, &out), OTT_ERR_UNSUPPORTED);
    assert_error_names("write it as a mistral model");
    c.family = family_find("mistral");
    char *text = rewrite(f, &c, llama, NULL);
    assert_non_null(strstr(text, "\"model_type\": \"mistral\""));
    assert_non_null(strstr(text, "\"MistralForCausalLM\""));
    assert_non_null(strstr(text, "\"sliding_window\": 512"));
    mem_free(f->account, text);
    c.attention_bias = true;
    assert_int_equal(hf_config_text(f->account, &c, llama, NULL, &out), OTT_ERR_UNSUPPORTED);
    assert_error_names("attention_bias: a mistral model cannot have it");
    c = must_parse(qwen2);
    c.sliding_window = 256;
    text = rewrite(f, &c, qwen2, NULL);
    assert_non_null(strstr(text, "\"max_window_layers\":0"));
    assert_non_null(strstr(text, "\"use_sliding_window\":true"));
    mem_free(f->account, text);
    str_free(&out);
}

/* Changes the number of layers of models without windows. The written file must give windows to none. */
static void layers_change_with_windows(void **state) {
    folder *f = *state;
    hf_config again;
    char *used = changed(f, qwen2, "use_sliding_window", "true");
    char *some = changed(f, used, "layer_types", "[\"full_attention\", \"full_attention\"]");
    char *two = changed(f, some, "num_hidden_layers", "2");
    hf_config c = must_parse(used); /* no layer has a window, because windows begin at layer 28 */
    c.layers = 40;
    char *text = rewrite(f, &c, used, NULL);
    again = must_parse(text);
    assert_true(hf_config_equal(&c, &again));
    mem_free(f->account, text);
    c = must_parse(two);
    c.layers = 3;
    text = rewrite(f, &c, two, NULL);
    again = must_parse(text);
    assert_true(hf_config_equal(&c, &again));
    assert_null(strstr(text, "layer_types"));
    mem_free(f->account, text);
    c.sliding_window = 64; /* the size of the window changes */
    text = rewrite(f, &c, two, NULL);
    assert_int_equal(must_parse(text).sliding_window, 64);
    mem_free(f->account, text);
    mem_free(f->account, used);
    mem_free(f->account, some);
    mem_free(f->account, two);
}

/* Writes models in which only some layers have a sliding window. If only the first layers have none, the file
   has their number. Otherwise the file lists the kind of every layer, also for a family that has a default
   pattern of kinds. */
static void writes_mixed_windows(void **state) {
    folder *f = *state;
    static const struct {
        const char *family;
        int32_t full[3];
        const char *logged;
    } cases[] = {
        {"qwen2", {0, 1, 2}, "\"max_window_layers\": 3"},
        {"qwen2", {0, 2, 3}, "\"full_attention\",\n    \"sliding_attention\",\n    \"full_attention\""},
        {"cohere2", {0, 2, 3}, "\"full_attention\",\n    \"sliding_attention\",\n    \"full_attention\""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hf_config c = must_parse(qwen2);
        c.family = family_find(cases[i].family);
        c.sliding_window = 256;
        c.full_count = 3;
        memcpy(c.full, cases[i].full, sizeof cases[i].full);
        char *text = rewrite(f, &c, NULL, NULL);
        if (!strstr(text, cases[i].logged)) fail_msg("%s", text);
        assert_int_equal(strstr(text, "layer_types") != NULL, i > 0);
        hf_config again = must_parse(text);
        assert_true(hf_config_equal(&c, &again));
        c.full_count = 0; /* now all layers have windows */
        char *other = rewrite(f, &c, text, NULL);
        again = must_parse(other);
        assert_true(hf_config_equal(&c, &again));
        mem_free(f->account, other);
        mem_free(f->account, text);
    }
}

static void quantization(void **state) {
    folder *f = *state;
    static const char fp8[] =
        "{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128],\"ignored_layers\":[\"lm_head\"]}";
    hf_config c = must_parse(llama);
    str out = {.account = f->account};
    char *text = rewrite(f, &c, llama, fp8);
    assert_non_null(strstr(text, ",\n  \"quantization_config\": {\n    \"quant_method\": \"fp8\",\n"
                                 "    \"weight_block_size\": [\n      128,\n      128\n    ],\n"));
    assert_string_equal(must_parse(text).quantization, "fp8");
    check_rewrite(f, &c, text, "", llama);
    check_rewrite(f, &c, text, NULL, text);
    mem_free(f->account, text);
    assert_int_equal(hf_config_text(f->account, &c, llama, "[1]", &out), OTT_ERR_ARGUMENT);
    assert_int_equal(hf_config_text(f->account, &c, "{}", NULL, &out), OTT_ERR_UNSUPPORTED);
    assert_int_equal(hf_config_text(f->account, &c, "{", NULL, &out), OTT_ERR_FORMAT);
    c.layers = 0;
    assert_int_equal(hf_config_text(f->account, &c, llama, NULL, &out), OTT_ERR_FORMAT);
    assert_error_names("to be written: key 'num_hidden_layers' = 0");
    assert_int_equal(out.length, 0);
    str_free(&out);
}

static void new_files(void **state) {
    folder *f = *state;
    const char *const texts[] = {llama, llama5, nemo, qwen2, phi4, qwen3};
    for (int i = 0; i < 6; i++) {
        hf_config c = must_parse(texts[i]), again;
        c.quantization[0] = '\0';
        char *kept = NULL;
        assert_int_equal(hf_config_write(f->account, &c, NULL, NULL, folder_file(f, HF_CONFIG_NAME)), OTT_OK);
        assert_int_equal(hf_config_read(f->account, f->path, &again, &kept), OTT_OK);
        assert_true(hf_config_equal(&c, &again));
        check_rewrite(f, &again, kept, NULL, kept);
        mem_free(f->account, kept);
        c.sliding_window = i < 2 ? 0 : 99;
        c.tie_word_embeddings = true;
        c.dtype = OTT_DTYPE_COUNT;
        c.eos_count = c.bos = 0;
        char *text = rewrite(f, &c, NULL, "{\"quant_method\": \"compressed-tensors\"}");
        again = must_parse(text);
        assert_string_equal(again.quantization, "compressed-tensors");
        again.quantization[0] = '\0';
        assert_true(hf_config_equal(&c, &again));
        mem_free(f->account, text);
    }
    static const char expected[] =
        "{\n  \"architectures\": [\n    \"LlamaForCausalLM\"\n  ],\n  \"attention_bias\": false,\n"
        "  \"bos_token_id\": null,\n  \"eos_token_id\": [\n    1,\n    2\n  ],\n  \"head_dim\": 4,\n"
        "  \"hidden_act\": \"silu\",\n  \"hidden_size\": 8,\n  \"intermediate_size\": 16,\n"
        "  \"max_position_embeddings\": 64,\n  \"mlp_bias\": false,\n  \"model_type\": \"llama\",\n  "
        "\"num_attention_heads\": 2,\n"
        "  \"num_hidden_layers\": 2,\n  \"num_key_value_heads\": 1,\n  \"pad_token_id\": null,\n"
        "  \"rms_norm_eps\": 1e-05,\n  \"rope_scaling\": null,\n  \"rope_theta\": 10000.0,\n"
        "  \"tie_word_embeddings\": false,\n  \"torch_dtype\": \"bfloat16\",\n  \"vocab_size\": 32\n}\n";
    hf_config small = {.family = family_find("llama"),
                       .hidden_size = 8,
                       .intermediate_size = 16,
                       .layers = 2,
                       .heads = 2,
                       .kv_heads = 1,
                       .head_dim = 4,
                       .vocab_size = 32,
                       .max_position_embeddings = 64,
                       .norm_eps = 1e-5f,
                       .rope_theta = 1e4,
                       .partial_rotary_factor = 1,
                       .embedding_multiplier = 1,
                       .residual_multiplier = 1,
                       .logits_scaling = 1,
                       .logit_scale = 1,
                       .bos = -1,
                       .pad = -1,
                       .eos_count = 2,
                       .eos = {1, 2},
                       .dtype = OTT_BF16};
    check_rewrite(f, &small, NULL, NULL, expected);
}

static void files(void **state) {
    folder *f = *state;
    hf_config c;
    assert_int_equal(hf_config_read(f->account, f->path, &c, NULL), OTT_ERR_NOT_FOUND);
    assert_error_names("/config.json: ");
    folder_write_text(f, HF_CONFIG_NAME, "{\"model_type\": 1}");
    assert_int_equal(hf_config_read(f->account, f->path, &c, NULL), OTT_ERR_UNSUPPORTED);
    assert_error_names("/config.json: key 'model_type' = 1");
    assert_int_equal(hf_config_read(f->account, folder_file(f, HF_CONFIG_NAME), &c, NULL),
                     OTT_ERR_UNSUPPORTED);
}

static void memory_runs_out(void **state) {
    folder *f = *state;
    hf_config c = must_parse(llama5);
    str out = {.account = f->account};
    ott_status status = OTT_ERR_MEMORY;
    c.hidden_size = 5120;
    c.quantization[0] = '\0';
    for (int64_t n = 1; status == OTT_ERR_MEMORY; n++) {
        mem_fail_after(f->account, n);
        str_free(&out);
        status = hf_config_text(f->account, &c, llama5, NULL, &out);
    }
    mem_fail_after(f->account, 0);
    assert_int_equal(status, OTT_OK);
    str_free(&out);
}

/* ---- a published model's real files ---- */

/* Returns the folder of a real model. If it is not on this machine, prints a message and returns NULL. */
static const char *real_model(char out[512]) {
    const char *shared = getenv("OTTAVA_SHARED");
    snprintf(out, 512, "%s/data/tokenizers/mistral-7b-v0.1", shared ? shared : TEST_SOURCE_DIR "/../shared");
    if (file_is_folder(out)) return out;
    print_message("SKIPPED: %s is missing (set OTTAVA_SHARED)\n", out);
    return NULL;
}

static int64_t rows_of(const hf_config *c, const char *name) {
    if (strstr(name, "embed_tokens") || strstr(name, "lm_head")) return c->vocab_size;
    if (strstr(name, "k_proj") || strstr(name, "v_proj")) return c->kv_heads * c->head_dim;
    return strstr(name, "gate_proj") || strstr(name, "up_proj") ? c->intermediate_size : c->hidden_size;
}

/* Appends a tensor's entry to a safetensors header. Returns the tensor's end, in bytes. */
static int64_t describe(const hf_config *c, const char *name, int64_t begin, str *header) {
    bool is_norm = strstr(name, "norm") != NULL;
    int64_t columns = strstr(name, "down_proj") ? c->intermediate_size : c->hidden_size;
    int64_t end = begin + 2 * (is_norm ? c->hidden_size : rows_of(c, name) * columns);
    str_printf(header, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[", header->length > 1 ? "," : "", name);
    if (is_norm)
        str_printf(header, "%" PRId64, c->hidden_size);
    else
        str_printf(header, "%" PRId64 ",%" PRId64, rows_of(c, name), columns);
    str_printf(header, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", begin, end);
    return end;
}

/* Makes a shard that the index names: a correct header, and data of the right size as a sparse file. */
static bool make_shard(folder *f, const hf_config *c, json_t *weight_map, const char *file) {
    str header = {.account = f->account};
    const char *name;
    json_t *value;
    int64_t end = 0;
    unsigned char length[8];
    str_append(&header, "{");
    json_object_foreach(weight_map, name, value) {
        if (strcmp(json_string_value(value), file) == 0) end = describe(c, name, end, &header);
    }
    str_append(&header, "}");
    FILE *out = fopen(folder_file(f, file), "wb");
    assert_non_null(out);
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)header.length >> 8 * i);
    fwrite(length, 1, 8, out);
    fwrite(header.text, 1, (size_t)header.length, out);
    fflush(out);
    bool good = ftruncate(fileno(out), 8 + header.length + end) == 0;
    fclose(out);
    str_free(&header);
    return good;
}

static void real_files(void **state) {
    folder *f = *state;
    char path[512], index[600];
    hf_config c;
    char *text, *index_text;
    int64_t bytes;
    shards *s;
    const shard_tensor *t;
    float row[4096];
    if (!real_model(path)) skip();
    assert_int_equal(hf_config_read(f->account, path, &c, &text), OTT_OK);
    check_dims(&c, (int64_t[]){4096, 14336, 32, 32, 8, 128, 32000, 32768});
    assert_int_equal(c.sliding_window, 4096);
    check_rewrite(f, &c, text, NULL, text);
    mem_free(f->account, text);

    snprintf(index, sizeof index, "%s/" SHARDS_INDEX_NAME, path);
    assert_int_equal(file_read(f->account, index, 1 << 20, &index_text, &bytes), OTT_OK);
    folder_write(f, SHARDS_INDEX_NAME, index_text, bytes);
    json_t *root = json_loads(index_text, 0, NULL), *map = json_object_get(root, "weight_map");
    mem_free(f->account, index_text);
    bool good = make_shard(f, &c, map, "model-00001-of-00002.safetensors") &&
                make_shard(f, &c, map, "model-00002-of-00002.safetensors");
    json_decref(root);
    if (!good) {
        print_message("SKIPPED: %s cannot hold a sparse file of 10 GB\n", f->path);
        skip();
    }
    if (shards_open(f->account, f->path, &s) != OTT_OK) fail_msg("%s", status_text());
    assert_int_equal(shards_count(s), 291);
    assert_int_equal(
        shards_expect(s, "model.layers.31.self_attn.k_proj.weight", 2, (int64_t[]){1024, 4096}, &t), OTT_OK);
    assert_int_equal(shards_read_floats(s, t, 1023 * 4096, 4096, row), OTT_OK);
    assert_true(row[0] == 0 && row[4095] == 0);
    shards_close(s);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, folder_setup, folder_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(reads_the_families),
        TEST(absent_keys),
        TEST(reads_latent_attention),
        TEST(reads_groups_by_method),
        TEST(sliding_windows),
        TEST(refuses),
        TEST(reads_mixed_windows),
        TEST(refuses_no_json),
        TEST(damaged_anywhere),
        TEST(unchanged_is_untouched),
        TEST(writes_old_spellings),
        TEST(changes_only_what_differs),
        TEST(derived_values),
        TEST(changes_family),
        TEST(layers_change_with_windows),
        TEST(writes_mixed_windows),
        TEST(quantization),
        TEST(new_files),
        TEST(files),

        TEST(memory_runs_out),
        TEST(real_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
