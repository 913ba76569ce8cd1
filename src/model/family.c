/* model/family: the table of families, and of the names their modules go by. */
#include "model/family.h"
#include <stdio.h>
#include <string.h>

static const family families[] = {
    {.name = "llama"},
    {.name = "mistral"},
    {.name = "qwen2", .qkv_bias = true},
    {.name = "phi3", .fused = true},
    {.name = "qwen3", .qk_norm = true},
};

const family *family_find(const char *name) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].name, name) == 0) return &families[i];
    return NULL;
}

static const char *const module_names[FAMILY_MODULE_COUNT][NAMING_COUNT] = {
    [FAMILY_embedding] = {"model.embed_tokens", "token_embedding.embedding", "tok_embeddings"},
    [FAMILY_attention_norm] = {"model.layers.%d.input_layernorm", "layers.%d.attention_norm",
                               "layers.%d.attention_norm"},
    [FAMILY_q] = {"model.layers.%d.self_attn.q_proj", "layers.%d.attention.q_proj", "layers.%d.attention.wq"},
    [FAMILY_k] = {"model.layers.%d.self_attn.k_proj", "layers.%d.attention.k_proj", "layers.%d.attention.wk"},
    [FAMILY_v] = {"model.layers.%d.self_attn.v_proj", "layers.%d.attention.v_proj", "layers.%d.attention.wv"},
    [FAMILY_qkv] = {"model.layers.%d.self_attn.qkv_proj", "layers.%d.attention.qkv_proj",
                    "layers.%d.attention.wqkv"},
    [FAMILY_o] = {"model.layers.%d.self_attn.o_proj", "layers.%d.attention.o_proj", "layers.%d.attention.wo"},
    [FAMILY_q_norm] = {"model.layers.%d.self_attn.q_norm", "layers.%d.attention.q_norm",
                       "layers.%d.attention.q_norm"},
    [FAMILY_k_norm] = {"model.layers.%d.self_attn.k_norm", "layers.%d.attention.k_norm",
                       "layers.%d.attention.k_norm"},
    [FAMILY_mlp_norm] = {"model.layers.%d.post_attention_layernorm", "layers.%d.mlp_norm",
                         "layers.%d.ffn_norm"},
    [FAMILY_gate] = {"model.layers.%d.mlp.gate_proj", "layers.%d.mlp.gate_proj", "layers.%d.feed_forward.w1"},
    [FAMILY_up] = {"model.layers.%d.mlp.up_proj", "layers.%d.mlp.up_proj", "layers.%d.feed_forward.w3"},
    [FAMILY_gate_up] = {"model.layers.%d.mlp.gate_up_proj", "layers.%d.mlp.gate_up_proj",
                        "layers.%d.feed_forward.w13"},
    [FAMILY_down] = {"model.layers.%d.mlp.down_proj", "layers.%d.mlp.down_proj", "layers.%d.feed_forward.w2"},
    [FAMILY_final_norm] = {"model.norm", "norm", "norm"},
    [FAMILY_head] = {"lm_head", "output_head.proj", "output"},
};

const char *family_module_name(enum family_module module, naming style, int layer, char out[128]) {
    const char *pattern = module_names[module][style];
    const char *place = strstr(pattern, "%d");
    if (!place)
        snprintf(out, 128, "%s", pattern);
    else
        snprintf(out, 128, "%.*s%d%s", (int)(place - pattern), pattern, layer, place + 2);
    return out;
}
