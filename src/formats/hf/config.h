/* formats/hf/config: reads and writes config.json of a Hugging Face model folder. The reader accepts the
   spellings of transformers 4 and 5, and refuses features that Ottava does not compute. The writer preserves
   unknown keys. A missing key has transformers' default, or is an error. */
#ifndef FORMATS_HF_CONFIG_H
#define FORMATS_HF_CONFIG_H

#include "base/text/str.h"
#include "kinds/family.h"

#define HF_CONFIG_NAME "config.json"

enum { HF_CONFIG_MOST_EOS = 8 };

typedef enum hf_rope {
    HF_ROPE_PLAIN,
    HF_ROPE_LLAMA3,
    HF_ROPE_LINEAR,
    HF_ROPE_YARN,
    HF_ROPE_LONGROPE,
    HF_ROPE_DYNAMIC,
    HF_ROPE_COUNT
} hf_rope;

enum { HF_CONFIG_MOST_FACTORS = 256, HF_CONFIG_MOST_DENSE = 64, HF_CONFIG_MOST_FULL = 256 };

typedef struct hf_config {
    const family *family;
    int64_t hidden_size, intermediate_size, layers, heads, kv_heads, head_dim, vocab_size;
    int64_t max_position_embeddings;
    /* Dimensions of latent attention (MLA); 0 without it. head_dim = qk_nope_head_dim + qk_rope_head_dim.
       q_lora_rank is 0 if q is not compressed. */
    int64_t q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    double norm_eps, rope_theta;
    double partial_rotary_factor; /* share of a head's columns that are rotated, the first ones */
    /* multipliers of embedding, residual branch, q k^T (0: 1 / sqrt(head_dim)); divisor of logits */
    double embedding_multiplier, residual_multiplier, attention_multiplier, logits_scaling;
    double logit_scale; /* multiplier of the logits */
    /* q k^T is divided by the square root of this number; 0 if the family does not have this key */
    int64_t query_pre_attn_scalar;
    double attention_softcap, logit_softcap; /* soft caps of attention scores and logits; 0: none */
    double rope_local_theta;                 /* rotary base of layers with a window; 0: rope_theta */
    hf_rope rope;
    /* numbers of the rope scaling rule; 0 if the rule does not use the number */
    double rope_factor, rope_low_freq_factor, rope_high_freq_factor;
    double rope_beta_fast, rope_beta_slow, rope_attention_factor, rope_mscale, rope_mscale_all_dim;
    int64_t rope_original_max_position;
    int rope_factors; /* longrope: number of factors, one per pair of columns */
    float rope_short_factor[HF_CONFIG_MOST_FACTORS], rope_long_factor[HF_CONFIG_MOST_FACTORS];
    /* Mixture of experts; experts 0: none, and the members below are unused. */
    int64_t experts, experts_per_token, expert_size; /* expert_size 0: intermediate_size */
    /* every sparse_step-th layer has experts, except the first first_dense layers */
    int64_t sparse_step, first_dense;
    int dense_count; /* number of layers in `dense`: they have no experts either */
    int32_t dense[HF_CONFIG_MOST_DENSE];
    int64_t shared_experts, expert_groups, top_groups;
    bool normalizes_weights;
    double route_scale;
    double router_aux_loss_coef; /* weight of the router's auxiliary loss; -1: not given */
    int64_t sliding_window;      /* positions that a query sees; 0: all */
    /* interval of the layers without a window; 0: `full` lists these layers */
    int64_t full_attention_every;
    int full_count; /* number of layers in `full`, in ascending order */
    int32_t full[HF_CONFIG_MOST_FULL];
    family_mlp mlp;           /* the family's MLP, with the activation function that the file names */
    bool attention_bias;      /* value of attention_bias, or of use_bias (starcoder2) */
    bool mlp_bias, qk_norm;   /* mlp_bias and use_qk_norm; false if missing */
    bool rope_interleave;     /* value of rope_interleave; false if there is no such key */
    bool scales_by_layer;     /* scale_attn_by_inverse_layer_idx: layer i divides q k^T by i + 1 */
    bool tie_word_embeddings; /* lm_head shares its weight with embed_tokens */
    int64_t bos, pad;         /* token ids; -1 if there is none, or for pad if it is not in the vocabulary */
    /* embedding row of the padding token, which is not trained; -1: none */
    int64_t padding_row;
    char dropout[128]; /* non-zero dropouts, "attention_dropout = 0.1, resid_pdrop = 0.1"; "" if none */
    int eos_count;
    int64_t eos[HF_CONFIG_MOST_EOS];
    ott_dtype dtype;       /* format of the weights: F32, BF16 or F16; OTT_DTYPE_COUNT if not given */
    char quantization[32]; /* quantization_config.quant_method: "fp8", "compressed-tensors"; "" if none */
    char quantization_format[32];  /* quantization_config.format: "float-quantized"; "" if not given */
    bool quantization_by_row;      /* one scale per row (strategy "channel") */
    int64_t quantization_block[2]; /* rows and columns that share a scale; 0 if not given */
} hf_config;

/* Reads `path`, which is config.json, its folder, or a GGUF file (formats/gguf/gguf_config.h makes the text).
   `text` may be NULL; it receives the file's text, for hf_config_write. The caller frees it with mem_free.
   OTT_ERR_FORMAT (malformed, or a key is missing or out of range) and OTT_ERR_UNSUPPORTED name the file, the
   key and its value. */
ott_status hf_config_read(mem *account, const char *path, hf_config *out, char **text);
/* Like hf_config_read, but parses `text`, which was read from the file `name`. */
ott_status hf_config_parse(const char *name, const char *text, int64_t length, hf_config *out);
bool hf_config_equal(const hf_config *a, const hf_config *b);

/* Appends config.json to `out`. `original` is a text that hf_config_parse accepts, or NULL for a new file. A
   key is changed only if its value is not what c requires; all other bytes are preserved. Changed keys have
   the old spellings (torch_dtype, rope_theta, rope_scaling), which all versions of transformers read.
   quantization: NULL keeps quantization_config, "" removes it, any other text is its new JSON value.
   c.quantization is ignored. OTT_ERR_UNSUPPORTED if the family has no keys that can describe c. */
ott_status hf_config_text(mem *account, const hf_config *c, const char *original, const char *quantization,
                          str *out);
/* Writes the text of hf_config_text to the file `path`, atomically. */
ott_status hf_config_write(mem *account, const hf_config *c, const char *original, const char *quantization,
                           const char *path);

#endif
