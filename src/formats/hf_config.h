/*
 * formats/hf_config: config.json of a Hugging Face model folder. Reading takes the old spellings and those of
 * transformers 5, and refuses what Ottava's block does not compute; writing keeps everything it does not
 * know, as it was written. A key that is absent means what it means in transformers, or is an error.
 */
#ifndef FORMATS_HF_CONFIG_H
#define FORMATS_HF_CONFIG_H

#include "base/str.h"
#include "config/family.h"

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
    /* Latent attention; of a family without it 0. A head of q and k, head_dim, is qk_nope_head_dim + qk_rope_head_dim. */
    int64_t q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim,
        v_head_dim; /* q_lora_rank 0: none */
    double norm_eps, rope_theta;
    double rotary_share; /* of a head, the first columns: what rotary embedding turns */
    /* Of what the embedding puts out, of what attention and the feed-forward add, of q k^T (0: 1 / sqrt(head_dim)); what
       the logits are divided by. */
    double embedding_multiplier, residual_multiplier, attention_multiplier, logits_scaling;
    double logit_scale;                      /* what they are multiplied by */
    int64_t query_pre_attn_scalar;           /* q k^T is divided by its root; 0: it is no key */
    double attention_softcap, logit_softcap; /* 0: none */
    double rope_local_theta;                 /* of layers with a window; 0: the same */
    hf_rope rope;
    /* Of the rule; 0 where it has none. */
    double rope_factor, rope_low_freq_factor, rope_high_freq_factor;
    double rope_beta_fast, rope_beta_slow, rope_attention_factor, rope_mscale, rope_mscale_all_dim;
    int64_t rope_original_max_position;
    int rope_factors; /* of longrope, one for each pair */
    float rope_short_factor[HF_CONFIG_MOST_FACTORS], rope_long_factor[HF_CONFIG_MOST_FACTORS];
    /* A mixture; experts 0: none, and then the others say nothing. */
    int64_t experts, experts_per_token, expert_size; /* width; 0: intermediate_size */
    int64_t sparse_step, first_dense; /* every how many layers is one, but not the first so many, */
    int dense_count;                  /* nor these */
    int32_t dense[HF_CONFIG_MOST_DENSE];
    int64_t shared_experts, expert_groups, top_groups;
    bool normalizes_weights;
    double route_scale;
    double router_aux_loss_coef; /* -1: the file has none */
    int64_t sliding_window;      /* positions a query sees; 0: all */
    int64_t full_every; /* period: the last layer of each so many has no window; 0: `full` lists the */
    int full_count;     /* layers without a window, ascending */
    int32_t full[HF_CONFIG_MOST_FULL];
    family_mlp mlp;           /* the family's, or without a gate another function of it */
    bool attention_bias;      /* the file's key: biases on q, k and v, and, but for glm, on o; use_bias */
    bool mlp_bias, qk_norm;   /* keys of some families; of the others false */
    bool rope_interleave;     /* the same */
    bool scales_by_layer;     /* scale_attn_by_inverse_layer_idx */
    bool tie_word_embeddings; /* lm_head is embed_tokens */
    int64_t bos, pad;         /* token ids; -1: none. A pad the embedding has no row for is none */
    int64_t padding_row;      /* of the embedding, which transformers does not train: pad, and a negative
                                 pad_token_id      counts from the end; -1: none */
    char dropout[128]; /* "attention_dropout = 0.1, resid_pdrop = 0.1": those that are not 0; "": none */
    int eos_count;
    int64_t eos[HF_CONFIG_MOST_EOS];
    ott_dtype dtype; /* F32, BF16 or F16, as the file says of its weights; OTT_DTYPE_COUNT: it does not */
    char quantization[32]; /* quantization_config.quant_method ("fp8", "compressed-tensors"); "": none */
    char quantization_format[32];  /* its format ("float-quantized"); "": it does not say */
    bool quantization_by_row;      /* a row has a scale of its own: compressed-tensors' strategy "channel" */
    int64_t quantization_block[2]; /* rows and columns that share a scale, where it says so; else 0 */
} hf_config;

/*
 * Reads `path`, config.json or the folder it lies in. `text` (may be NULL) gets the file's text, for
 * hf_config_write; owned by the caller (mem_free). OTT_ERR_FORMAT (malformed, a key missing or out of range)
 * and OTT_ERR_UNSUPPORTED name the file, the key and its value.
 */
ott_status hf_config_read(mem *account, const char *path, hf_config *out, char **text);
/* The same from text; `name` stands for the file in messages. */
ott_status hf_config_parse(const char *name, const char *text, int64_t length, hf_config *out);
bool hf_config_equal(const hf_config *a, const hf_config *b);

/*
 * Appends config.json to `out`: `original` (a text hf_config_parse accepts) with the values changed that mean
 * something else than c, in the old spellings (torch_dtype, rope_theta, rope_scaling), which every version of
 * transformers reads; all else stays as it is, byte by byte. original = NULL: a new file.
 * `quantization`: NULL keeps quantization_config, "" removes it, else the JSON object it becomes; what
 * c.quantization says is not looked at. OTT_ERR_UNSUPPORTED when the family cannot say what c means.
 */
ott_status hf_config_text(mem *account, const hf_config *c, const char *original, const char *quantization,
                          str *out);
/* The same into a file, written atomically. */
ott_status hf_config_write(mem *account, const hf_config *c, const char *original, const char *quantization,
                           const char *path);

#endif
