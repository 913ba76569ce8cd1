/*
 * config/family: the model families: one row for each says what tells its models from others, here and in
 * transformers' config.json. Readers of configurations and of Hugging Face folders, presets and models take
 * what they need from the row, so that a family is added by adding one.
 */
#ifndef CONFIG_FAMILY_H
#define CONFIG_FAMILY_H

#include <stdbool.h>
#include <stdint.h>

/* How config.json says that attention has a sliding window. */
typedef enum family_window {
    FAMILY_WINDOW_NONE,   /* it does not: transformers' models of the family have none */
    FAMILY_WINDOW_KEY,    /* sliding_window */
    FAMILY_WINDOW_LAYERS, /* use_sliding_window, and which layers have one */
    FAMILY_WINDOW_PATTERN /* sliding_window, in all layers but every so many-th */
} family_window;

/* Where a block has norms. */
typedef enum family_norms {
    FAMILY_NORMS_BEFORE, /* attention and the feed-forward */
    FAMILY_NORMS_AROUND, /* each of them, before and after */
    FAMILY_NORMS_AFTER,  /* each of them, and before none */
    FAMILY_NORMS_SHARED  /* one before both, which run side by side */
} family_norms;

/* What routes tokens to the experts of a family's models. */
typedef enum family_experts {
    FAMILY_EXPERTS_NONE,    /* they have none */
    FAMILY_EXPERTS_SOFTMAX, /* the softmax of the router's logits */
    FAMILY_EXPERTS_SIGMOID  /* their sigmoids and a bias, with shared experts and groups */
} family_experts;

typedef enum family_norm {
    FAMILY_NORM_RMS,
    FAMILY_NORM_RMS_ONE_PLUS, /* its weight is what it adds to 1 */
    FAMILY_NORM_LAYER,        /* layer normalization */
    FAMILY_NORM_LAYER_BIAS    /* with a bias */
} family_norm;

typedef enum family_mlp {
    FAMILY_MLP_SWIGLU,
    FAMILY_MLP_GEGLU,     /* gated, with GELU by tanh */
    FAMILY_MLP_GEGLU_ERF, /* gated, with GELU by erf */
    FAMILY_MLP_GELU,      /* that, and no gate: two matrices */
    FAMILY_MLP_GELU_ERF,  /* two matrices, GELU by erf */
    FAMILY_MLP_RELU       /* two matrices */
} family_mlp;

static inline bool family_mlp_is_gated(family_mlp m) {
    return m == FAMILY_MLP_SWIGLU || m == FAMILY_MLP_GEGLU || m == FAMILY_MLP_GEGLU_ERF;
}

typedef struct family {
    const char *name;          /* config.json's model_type, "llama" */
    const char *architecture;  /* "LlamaForCausalLM" */
    const char *block_prefix;  /* what the names of blocks begin with in files; NULL: "model.layers" */
    bool qkv_bias;             /* biases of q, k and v */
    bool qk_norm;              /* RMSNorm of each head of q and k */
    bool fused_qkv;            /* in files, q, k, v are one tensor, */
    bool fused_gate_up;        /* and so are gate and up */
    bool qk_norm_all_heads;    /* of all heads of q together, and of k */
    bool qk_norm_head_weights; /* each head has weights of its own in them */
    bool biases;               /* of every linear layer of a block */
    family_norms norms;
    family_norm norm;
    family_mlp mlp;
    bool scale_embeddings;  /* the embedding's output times the root of its width */
    bool rope_in_windows;   /* no rotary embedding in layers that see all */
    bool rope_interleaved;  /* rotary embedding turns neighbours */
    bool learned_positions; /* a table of vectors instead of rotary embedding, added to those of the tokens */
    bool transposed;        /* in files, the matrices of blocks are [in, out] */
    /* config.json */
    bool bias_key;       /* attention_bias is a key, for biases of q, k, v and o */
    bool qkv_bias_key;   /* it is one for biases of q, k and v alone; left out: qkv_bias */
    bool biases_key;     /* use_bias is a key, for `biases` */
    bool mlp_bias_key;   /* mlp_bias is a key, for biases of the feed-forward */
    bool qk_norm_key;    /* use_qk_norm is a key, for norms of q and k */
    bool interleave_key; /* rope_interleave is a key, for rope_interleaved */
    double rotary_share; /* where partial_rotary_factor is left out; 0: it is no key, and whole heads turn */
    bool kv_heads_optional; /* num_key_value_heads left out: as many as heads */
    int head_dim;           /* where head_dim is left out; 0: hidden_size / num_attention_heads */
    family_window window;
    const char *activation_key; /* NULL: hidden_act */
    const char *activation;     /* what it says; NULL: "silu", or "gelu_pytorch_tanh" by mlp */
    int full_every;             /* FAMILY_WINDOW_PATTERN: of so many layers the last sees all */
    bool tied;                  /* where tie_word_embeddings is left out */
    double theta;               /* where rope_theta is left out; 0: 1e4 */
    double local_theta;         /* of layers with a window; 0: the same */
    int window_size;            /* where sliding_window is left out; 0: none */
    family_experts experts;
    bool group_score_max; /* a group of experts is as good as its best one, not as its two best */
    bool latent;          /* latent attention */
} family;

/* X(argument, constant, name, what transformers' classes begin with, what the language model's ends with, other members): in this order they are
   tried for a model that its own family's config.json cannot describe. */
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
      .kv_heads_optional = true, .rotary_share = 1, .window = FAMILY_WINDOW_KEY)                             \
    X(argument, BAICHUAN, "baichuan", "Baichuan", "ForCausalLM", .fused_qkv = true,                          \
      .kv_heads_optional = true)                                                                             \
    X(argument, GRANITE, "granite", "Granite", "ForCausalLM", .bias_key = true, .mlp_bias_key = true,        \
      .kv_heads_optional = true)                                                                             \
    X(argument, GLM, "glm", "Glm", "ForCausalLM", .qkv_bias = true, .qkv_bias_key = true,                    \
      .fused_gate_up = true, .rope_interleaved = true, .head_dim = 128, .rotary_share = 0.5)                 \
    X(argument, GLM4, "glm4", "Glm4", "ForCausalLM", .qkv_bias = true, .qkv_bias_key = true,                 \
      .fused_gate_up = true, .norms = FAMILY_NORMS_AROUND, .rope_interleaved = true, .head_dim = 128,        \
      .rotary_share = 0.5)                                                                                   \
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
      .window = FAMILY_WINDOW_PATTERN, .full_every = 2, .window_size = 4096)                                 \
    X(argument, GEMMA3, "gemma3_text", "Gemma3", "ForCausalLM", .activation_key = "hidden_activation",       \
      .qk_norm = true, .norms = FAMILY_NORMS_AROUND, .norm = FAMILY_NORM_RMS_ONE_PLUS,                       \
      .mlp = FAMILY_MLP_GEGLU, .scale_embeddings = true, .bias_key = true, .head_dim = 256, .tied = true,    \
      .theta = 1e6, .local_theta = 1e4, .window = FAMILY_WINDOW_PATTERN, .full_every = 6,                    \
      .window_size = 4096)                                                                                   \
    X(argument, COHERE, "cohere", "Cohere", "ForCausalLM", .norms = FAMILY_NORMS_SHARED,                     \
      .qk_norm_head_weights = true, .qk_norm_key = true, .norm = FAMILY_NORM_LAYER,                          \
      .rope_interleaved = true, .bias_key = true, .kv_heads_optional = true, .tied = true, .theta = 5e5)     \
    X(argument, COHERE2, "cohere2", "Cohere2", "ForCausalLM", .norms = FAMILY_NORMS_SHARED,                  \
      .norm = FAMILY_NORM_LAYER, .rope_interleaved = true, .rope_in_windows = true, .bias_key = true,        \
      .kv_heads_optional = true, .tied = true, .window = FAMILY_WINDOW_PATTERN, .full_every = 4,             \
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
const family *family_find(const char *name); /* NULL when there is none */
static inline bool family_is(const family *f, family_index index) {
    return f == &family_table[index];
}

#endif
