/*
 * kinds/family: the table of model families. A row describes how a family differs from Llama, in the model
 * and in transformers' config.json. All code that depends on the family reads this table, so a new family is
 * only a new row.
 */
#ifndef KINDS_FAMILY_H
#define KINDS_FAMILY_H

#include <stdbool.h>
#include <stdint.h>

/* How config.json describes the sliding window of attention. */
typedef enum family_window {
    FAMILY_WINDOW_NONE, /* the family has no window */
    FAMILY_WINDOW_KEY,  /* sliding_window, which holds for all layers */
    /* config.json has use_sliding_window, and keys that name the layers with a window */
    FAMILY_WINDOW_LAYERS,
    FAMILY_WINDOW_PATTERN /* sliding_window, except in every full_attention_every-th layer */
} family_window;

/* Where a block applies its norms. */
typedef enum family_norms {
    FAMILY_NORMS_BEFORE, /* before attention and before the feed-forward (pre-norm) */
    FAMILY_NORMS_AROUND, /* before and after attention, before and after the feed-forward */
    FAMILY_NORMS_AFTER,  /* after attention and after the feed-forward (post-norm) */
    FAMILY_NORMS_SHARED  /* one norm before attention and feed-forward, which run in parallel */
} family_norms;

/* How a family computes the scores that choose a token's experts. */
typedef enum family_experts {
    FAMILY_EXPERTS_NONE,    /* a dense model: no experts */
    FAMILY_EXPERTS_SOFTMAX, /* softmax of the router's logits */
    /* sigmoid of the logits, and a bias to balance experts; may have shared experts and groups */
    FAMILY_EXPERTS_SIGMOID
} family_experts;

typedef enum family_norm {
    FAMILY_NORM_RMS,
    FAMILY_NORM_RMS_ONE_PLUS, /* RMSNorm with the factor 1 + weight */
    FAMILY_NORM_LAYER,        /* LayerNorm without bias */
    FAMILY_NORM_LAYER_BIAS    /* LayerNorm with bias */
} family_norm;

typedef enum family_mlp {
    FAMILY_MLP_SWIGLU,
    FAMILY_MLP_GEGLU,     /* gated MLP with tanh GELU */
    FAMILY_MLP_GEGLU_ERF, /* gated MLP with exact GELU */
    FAMILY_MLP_GELU,      /* two matrices without a gate, tanh GELU */
    FAMILY_MLP_GELU_ERF,  /* two matrices without a gate, exact GELU */
    FAMILY_MLP_RELU       /* two matrices without a gate, ReLU */
} family_mlp;

static inline bool family_mlp_is_gated(family_mlp m) {
    return m == FAMILY_MLP_SWIGLU || m == FAMILY_MLP_GEGLU || m == FAMILY_MLP_GEGLU_ERF;
}

typedef struct family {
    const char *name;          /* model_type in config.json, "llama" */
    const char *architecture;  /* transformers' class, "LlamaForCausalLM" */
    const char *block_prefix;  /* prefix of the blocks' tensor names in files; NULL: "model.layers" */
    bool qkv_bias;             /* q, k and v have biases */
    bool qk_norm;              /* RMSNorm over each head of q and k */
    bool fused_qkv;            /* files hold q, k and v as one tensor */
    bool fused_gate_up;        /* files hold gate and up as one tensor */
    bool qk_norm_all_heads;    /* qk_norm computes one norm over all heads together */
    bool qk_norm_head_weights; /* qk_norm has separate weights for each head */
    bool biases;               /* every linear layer of a block has a bias */
    family_norms norms;
    family_norm norm;
    family_mlp mlp;
    bool scale_embeddings;  /* the embedding's output is multiplied by sqrt(width) */
    bool rope_in_windows;   /* layers without a window have no rotary embedding */
    bool rope_interleaved;  /* rotary embedding rotates adjacent columns */
    bool learned_positions; /* learned position embeddings instead of rotary ones */
    bool transposed;        /* files hold the blocks' matrices as [in, out] */
    /* true: the family's config.json may have the key */
    bool bias_key;                /* config.json has attention_bias (biases of q, k, v, o) */
    bool qkv_bias_key;            /* config.json has attention_bias (of q, k, v); default: qkv_bias */
    bool biases_key;              /* config.json has use_bias (biases of all linear layers) */
    bool mlp_bias_key;            /* config.json has mlp_bias (biases of the feed-forward) */
    bool qk_norm_key;             /* config.json has use_qk_norm, which overrides qk_norm */
    bool interleave_key;          /* config.json has rope_interleave, which overrides rope_interleaved */
    double partial_rotary_factor; /* default of partial_rotary_factor; 0: no such key, factor 1 */
    bool kv_heads_optional;       /* num_key_value_heads may be missing; default: num_attention_heads */
    int head_dim;                 /* default of head_dim; 0: hidden_size / num_attention_heads */
    family_window window;
    const char *activation_key; /* key of the activation function; NULL: hidden_act */
    const char *activation;     /* value of activation_key; NULL: the usual one for `mlp` */
    int full_attention_every;   /* FAMILY_WINDOW_PATTERN: interval of the layers without a window */
    bool tied;                  /* default of tie_word_embeddings */
    double theta;               /* default of rope_theta; 0: 1e4 */
    double local_theta;         /* rotary base of layers with a window; 0: rope_theta */
    int window_size;            /* default of sliding_window; 0: no window */
    family_experts experts;
    bool group_score_max; /* an expert group's score is its best expert's, not the sum of its top two */
    bool latent;          /* multi-head latent attention (MLA) */
} family;

/* Calls X for each family with: argument, enum constant, name, prefix of transformers' class names, suffix of
   the class with the output head, other members. hf_save_family tries the families in this order. */
#define FAMILIES(X, argument)                                                                                \
    X(argument, LLAMA, "llama", "Llama", "ForCausalLM", .bias_key = true, .mlp_bias_key = true,              \
      .kv_heads_optional = true)                                                                             \
    X(argument, MISTRAL, "mistral", "Mistral", "ForCausalLM", .window = FAMILY_WINDOW_KEY,                   \
      .window_size = 4096)                                                                                   \
    X(argument, QWEN2, "qwen2", "Qwen2", "ForCausalLM", .qkv_bias = true, .window = FAMILY_WINDOW_LAYERS,    \
      .window_size = 4096)                                                                                   \
    X(argument, QWEN3, "qwen3", "Qwen3", "ForCausalLM", .qk_norm = true, .bias_key = true, .head_dim = 128,  \
      .window = FAMILY_WINDOW_LAYERS, .window_size = 4096)                                                   \
    X(argument, PHI3, "phi3", "Phi3", "ForCausalLM", .fused_qkv = true, .fused_gate_up = true,               \
      .kv_heads_optional = true, .partial_rotary_factor = 1, .window = FAMILY_WINDOW_KEY)                    \
    X(argument, BAICHUAN, "baichuan", "Baichuan", "ForCausalLM", .fused_qkv = true,                          \
      .kv_heads_optional = true)                                                                             \
    X(argument, GRANITE, "granite", "Granite", "ForCausalLM", .bias_key = true, .mlp_bias_key = true,        \
      .kv_heads_optional = true)                                                                             \
    X(argument, GLM, "glm", "Glm", "ForCausalLM", .qkv_bias = true, .qkv_bias_key = true,                    \
      .fused_gate_up = true, .rope_interleaved = true, .head_dim = 128, .partial_rotary_factor = 0.5)        \
    X(argument, GLM4, "glm4", "Glm4", "ForCausalLM", .qkv_bias = true, .qkv_bias_key = true,                 \
      .fused_gate_up = true, .norms = FAMILY_NORMS_AROUND, .rope_interleaved = true, .head_dim = 128,        \
      .partial_rotary_factor = 0.5)                                                                          \
    X(argument, MIXTRAL, "mixtral", "Mixtral", "ForCausalLM", .window = FAMILY_WINDOW_KEY,                   \
      .experts = FAMILY_EXPERTS_SOFTMAX)                                                                     \
    X(argument, QWEN3_MOE, "qwen3_moe", "Qwen3Moe", "ForCausalLM", .qk_norm = true, .bias_key = true,        \
      .window = FAMILY_WINDOW_LAYERS, .window_size = 4096, .experts = FAMILY_EXPERTS_SOFTMAX)                \
    X(argument, DOTS1, "dots1", "Dots1", "ForCausalLM", .qk_norm = true, .bias_key = true,                   \
      .experts = FAMILY_EXPERTS_SIGMOID)                                                                     \
    X(argument, DEEPSEEK_V3, "deepseek_v3", "DeepseekV3", "ForCausalLM", .latent = true,                     \
      .rope_interleaved = true, .interleave_key = true, .bias_key = true, .kv_heads_optional = true,         \
      .experts = FAMILY_EXPERTS_SIGMOID)                                                                     \
    X(argument, DEEPSEEK_V2, "deepseek_v2", "DeepseekV2", "ForCausalLM", .latent = true,                     \
      .rope_interleaved = true, .bias_key = true, .kv_heads_optional = true,                                 \
      .experts = FAMILY_EXPERTS_SOFTMAX, .group_score_max = true)                                            \
    X(argument, OLMO2, "olmo2", "Olmo2", "ForCausalLM", .qk_norm = true, .qk_norm_all_heads = true,          \
      .norms = FAMILY_NORMS_AFTER, .bias_key = true, .kv_heads_optional = true)                              \
    X(argument, GEMMA2, "gemma2", "Gemma2", "ForCausalLM", .activation_key = "hidden_activation",            \
      .norms = FAMILY_NORMS_AROUND, .norm = FAMILY_NORM_RMS_ONE_PLUS, .mlp = FAMILY_MLP_GEGLU,               \
      .scale_embeddings = true, .bias_key = true, .head_dim = 256, .tied = true,                             \
      .window = FAMILY_WINDOW_PATTERN, .full_attention_every = 2, .window_size = 4096)                       \
    X(argument, GEMMA3, "gemma3_text", "Gemma3", "ForCausalLM", .activation_key = "hidden_activation",       \
      .qk_norm = true, .norms = FAMILY_NORMS_AROUND, .norm = FAMILY_NORM_RMS_ONE_PLUS,                       \
      .mlp = FAMILY_MLP_GEGLU, .scale_embeddings = true, .bias_key = true, .head_dim = 256, .tied = true,    \
      .theta = 1e6, .local_theta = 1e4, .window = FAMILY_WINDOW_PATTERN, .full_attention_every = 6,          \
      .window_size = 4096)                                                                                   \
    X(argument, COHERE, "cohere", "Cohere", "ForCausalLM", .norms = FAMILY_NORMS_SHARED,                     \
      .qk_norm_head_weights = true, .qk_norm_key = true, .norm = FAMILY_NORM_LAYER,                          \
      .rope_interleaved = true, .bias_key = true, .kv_heads_optional = true, .tied = true, .theta = 5e5)     \
    X(argument, COHERE2, "cohere2", "Cohere2", "ForCausalLM", .norms = FAMILY_NORMS_SHARED,                  \
      .norm = FAMILY_NORM_LAYER, .rope_interleaved = true, .rope_in_windows = true, .bias_key = true,        \
      .kv_heads_optional = true, .tied = true, .window = FAMILY_WINDOW_PATTERN, .full_attention_every = 4,   \
      .window_size = 4096)                                                                                   \
    X(argument, STARCODER2, "starcoder2", "Starcoder2", "ForCausalLM", .qkv_bias = true, .biases = true,     \
      .biases_key = true, .norm = FAMILY_NORM_LAYER_BIAS, .mlp = FAMILY_MLP_GELU, .tied = true,              \
      .window = FAMILY_WINDOW_KEY)                                                                           \
    X(argument, GPT2, "gpt2", "GPT2", "LMHeadModel", .block_prefix = "transformer.h", .qkv_bias = true,      \
      .biases = true, .fused_qkv = true, .norm = FAMILY_NORM_LAYER_BIAS, .mlp = FAMILY_MLP_GELU,             \
      .learned_positions = true, .transposed = true, .kv_heads_optional = true,                              \
      .activation_key = "activation_function", .activation = "gelu_new", .tied = true)

typedef enum family_index {
#define FAMILY_INDEX(argument, constant, ...) FAMILY_##constant,
    FAMILIES(FAMILY_INDEX, ) FAMILY_COUNT
#undef FAMILY_INDEX
} family_index;

extern const family family_table[FAMILY_COUNT];
const family *family_find(const char *name); /* `name`: config.json's model_type; NULL if unknown */
static inline bool family_is(const family *f, family_index index) {
    return f == &family_table[index];
}

#endif
