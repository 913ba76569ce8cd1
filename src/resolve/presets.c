/* resolve/presets: the table of model.preset. */
#include "resolve/options.h"
#include <stddef.h>

/* A row of the table of presets (model.preset). */
typedef struct preset {
    config_preset id;
    int64_t dim, layers, heads, kv_heads, head_dim, hidden, vocab, max_positions;
    bool tied;
    double theta;
    double rope_factor; /* factor of llama3 scaling; 0: no scaling */
    config_model_family family;
    double norm_eps;
} preset;

#define LLAMA MODEL_FAMILY_LLAMA, 1e-5
#define QWEN3 MODEL_FAMILY_QWEN3, 1e-6
static const preset presets[] = {
    /*            dim  layers heads kv head_dim hidden   vocab  positions tied   theta  llama3 factor */
    {PRESET_DEBUG, 256, 4, 4, 4, 64, 768, 256, 512, false, 1e4, 0, LLAMA},
    {PRESET_DEMO, 192, 3, 3, 3, 64, 512, 256, 256, false, 1e4, 0, LLAMA},
    {PRESET_10M, 256, 10, 4, 4, 64, 768, 4096, 1024, false, 1e4, 0, LLAMA},
    {PRESET_42M, 512, 8, 8, 8, 64, 1376, 32000, 1024, true, 1e4, 0, LLAMA},
    {PRESET_124M, 768, 12, 12, 12, 64, 2048, 50304, 1024, true, 1e4, 0, LLAMA},
    {PRESET_1B, 2048, 16, 32, 8, 64, 8192, 128256, 131072, true, 5e5, 32, LLAMA},   /* Llama 3.2 1B */
    {PRESET_3B, 3072, 28, 24, 8, 128, 8192, 128256, 131072, true, 5e5, 32, LLAMA},  /* Llama 3.2 3B */
    {PRESET_8B, 4096, 32, 32, 8, 128, 14336, 128256, 131072, false, 5e5, 8, LLAMA}, /* Llama 3.1 */
    {PRESET_70B, 8192, 80, 64, 8, 128, 28672, 128256, 131072, false, 5e5, 8, LLAMA},
    {PRESET_405B, 16384, 126, 128, 8, 128, 53248, 128256, 131072, false, 5e5, 8, LLAMA},
    /* values of Qwen3's config.json; the debug size is torchtitan's */
    {PRESET_QWEN3_DEBUG, 256, 8, 16, 8, 128, 3072, 2048, 4096, true, 1e6, 0, QWEN3},
    {PRESET_QWEN3_0_6B, 1024, 28, 16, 8, 128, 3072, 151936, 40960, true, 1e6, 0, QWEN3},
    {PRESET_QWEN3_1_7B, 2048, 28, 16, 8, 128, 6144, 151936, 40960, true, 1e6, 0, QWEN3},
    {PRESET_QWEN3_4B, 2560, 36, 32, 8, 128, 9728, 151936, 40960, true, 1e6, 0, QWEN3},
    {PRESET_QWEN3_8B, 4096, 36, 32, 8, 128, 12288, 151936, 40960, false, 1e6, 0, QWEN3},
    {PRESET_QWEN3_14B, 5120, 40, 40, 8, 128, 17408, 151936, 40960, false, 1e6, 0, QWEN3},
    {PRESET_QWEN3_32B, 5120, 64, 64, 8, 128, 25600, 151936, 40960, false, 1e6, 0, QWEN3},
};

static const preset *preset_find(config_preset id) {
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (presets[i].id == id) return &presets[i];
    return NULL;
}

#define DEFAULT(key, value)                                                                                  \
    if (!config_was_set(cfg, "model." #key)) cfg->model.key = (value)

void presets_apply(config *cfg) {
    const preset *p = preset_find(cfg->model.preset);
    if (!p) return;
    DEFAULT(family, p->family);
    DEFAULT(norm_eps, p->norm_eps);
    DEFAULT(dim, p->dim);
    DEFAULT(n_layers, p->layers);
    DEFAULT(n_heads, p->heads);
    DEFAULT(vocab_size, p->vocab);
    DEFAULT(max_seq_len, p->max_positions);
    bool same_width = !config_was_set(cfg, "model.dim");
    if (same_width && !config_was_set(cfg, "model.n_heads") && cfg->model.kv_lora_rank == 0) {
        DEFAULT(n_kv_heads, p->kv_heads); /* otherwise model_options_resolve derives both */
        DEFAULT(head_dim, p->head_dim);
    }
    if (same_width && !config_was_set(cfg, "model.ffn_dim_multiplier")) DEFAULT(ffn_hidden_dim, p->hidden);
    DEFAULT(tie_embeddings, p->tied);
    DEFAULT(rope_theta, p->theta);
    if (p->rope_factor == 0 || config_was_set(cfg, "model.rope_scaling")) return;
    cfg->model.rope_scaling = ROPE_LLAMA3;
    DEFAULT(rope_factor, p->rope_factor);
}
