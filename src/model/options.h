/* model/options: a model's dimensions and formats: presets, explicit keys and derived values combined. */
#ifndef MODEL_OPTIONS_H
#define MODEL_OPTIONS_H

#include "config/config.h"
#include "config/family.h"
#include "nn/latent.h"
#include "nn/moe.h"
#include "nn/optimizer.h"
#include "nn/rope.h"
#include "parallel/pipeline.h"

typedef struct ffn_kind ffn_kind; /* model/ffn.h */

/* Adapters of linear layers (model/adapters.h). */
typedef struct adapter_options {
    int64_t rank;         /* 0: no adapters */
    float scale, dropout; /* scale: alpha / rank, or alpha / sqrt(rank) with by_root */
    double alpha;
    bool by_root;           /* rsLoRA's scale */
    bool decomposed;        /* DoRA (nn/dora.h) */
    bool drops_output;      /* dropout applies to the adapter's output; false: to its input */
    uint64_t seed;          /* of dropout */
    config_lora_init start; /* initial values of A */
    bool all;               /* every linear layer of the blocks gets an adapter, whatever `targets` says */
    /* Patterns of layers with and without adapters, and of modules that train in full. These lists and the
       lists below are borrowed from the configuration and read by model_open. */
    const config_list *targets, *excluded, *saved;
    const config_list *ranks, *alphas; /* "q_proj=16": rank and alpha of layers that match the pattern */
    const config_list *layers;         /* indices of blocks with adapters; NULL or empty: all blocks */
    const config_list *layer_lists;    /* PEFT's layers_pattern: names of the list of blocks */
} adapter_options;

enum { MODEL_MAX_DENSE = 64 }; /* entries of model.moe_dense_layers */
enum { MODEL_MAX_FULL = 256 }; /* entries of model.full_attention_layers */

typedef struct model_options {
    const family *family;
    int64_t dim, layers, heads, kv_heads, head_dim, hidden, vocab;
    /* of latent attention, where head_dim is of q and k; key_rank 0: plain attention */
    latent_shape latent;
    int64_t max_positions, window; /* window: tokens that sliding-window attention sees; 0: all */
    rope_options rope;
    float norm_epsilon;
    bool layer_norm;                        /* norms are LayerNorm with a bias; false: the family's norm */
    config_activation activation;           /* of the dense feed-forward; ACTIVATION_SILU: the family's */
    float attention_softcap, logit_softcap; /* 0: none */
    /* Layers with full attention among sliding-window layers: each n-th (0: none), or the list `full`. */
    int64_t full_attention_every;
    int full_count; /* of `full`; 0: full_attention_every decides */
    int32_t full[MODEL_MAX_FULL];
    double local_theta; /* RoPE base of sliding-window layers; 0: rope.theta */
    /* Multipliers (Granite): embedding output, residual branches, attention scores, logits. 0: none;
       attention scores are then multiplied by 1 / sqrt(head_dim). */
    float embedding_multiplier, residual_multiplier, attention_multiplier, logit_multiplier;
    bool scales_by_layer; /* attention scores of layer i are also divided by i + 1 */
    bool tied;            /* the output head is the embedding */
    bool qkv_bias, o_bias, mlp_bias;
    bool qk_norm;
    bool fused_qkv, fused_gate_up; /* one projection for q, k and v; one for gate and up */
    const ffn_kind *const *ffn;    /* [layers] kind of each layer's feed-forward; borrowed; NULL: by `moe` */
    /* Mixtures of experts: every moe_every-th layer, except for the first moe_first and those in `dense`. */
    moe_options moe; /* moe.experts 0: all layers are dense */
    int64_t moe_every, moe_first;
    int dense_count;
    int32_t dense[MODEL_MAX_DENSE];
    adapter_options adapter;
    /* With adapters: folder of the base weights, which checkpoints do not store; borrowed; NULL: they do. */
    const char *base;
    bool has_padding;
    int64_t padding; /* row of the embedding that gets no gradient from tokens; a tied head still trains it */
    config_init_style init_style;
    double init_std;
    /* train.freeze: patterns of parameters that are not trained; borrowed from the configuration and read by
       model_open; NULL: none. MODEL_INFERENCE reads it only if frozen parameters have their own format. */
    const config_list *freeze;
    /* Format of frozen matrices. OTT_E4M3: of linear layers in blocks, with the others in BF16. */
    ott_dtype frozen;
    config_frozen_granularity frozen_granularity; /* of OTT_E4M3 */
    /* For OTT_E4M3: decides which layers FP8 converts and how it casts their weights. Borrowed, read by
       model_open. NULL: rowwise for all. */
    const struct convert_options *frozen_convert;
    /* decides the state of trained parameters; NULL: no state, only gradients */
    const optimizer_rule *optimizer;
    ott_dtype master, gradient, state; /* formats of matrices, of their gradients, of optimizer state */
    config_offload offload;            /* what is kept in mapped host memory (device_allocate_mapped) */
    /* Process groups; borrowed; NULL: not split this way. */
    group *shard_ranks;  /* data-parallel ranks that shard the parameters (parallel/store.h) */
    group *expert_ranks; /* expert parallelism (nn/expert_ranks.h) */
    /* ranks of shard_ranks with the same experts, which shard these experts' weights */
    group *expert_shard_ranks;
    /* this rank's pipeline stage: only its layers are allocated; borrowed; NULL: all */
    const pipeline_stage *stage;
    group *stage_ranks;  /* the pipeline stages, in order */
    group *tensor_ranks; /* tensor parallelism (nn/tensor_ranks.h) */
    /* tensor_ranks also split the tokens between layers (sequence parallelism) */
    bool sequence_parallel;
    group *context_ranks; /* context parallelism (nn/context_ranks.h) */
} model_options;

/* The kind of a dense feed-forward. family is NULL for a model that an API user builds from layers. */
static inline family_mlp model_mlp(const model_options *o) {
    switch (o->activation) {
    case ACTIVATION_SILU: break;
    case ACTIVATION_GELU: return FAMILY_MLP_GELU_ERF;
    case ACTIVATION_RELU: return FAMILY_MLP_RELU;
    case ACTIVATION_GEGLU: return FAMILY_MLP_GEGLU_ERF;
    case ACTIVATION_GEGLU_TANH: return FAMILY_MLP_GEGLU;
    }
    return o->family ? o->family->mlp : FAMILY_MLP_SWIGLU;
}
/* The kind of all norms except for norms of heads (modules_norm). */
static inline family_norm model_norm(const model_options *o) {
    if (o->layer_norm) return FAMILY_NORM_LAYER_BIAS;
    return o->family ? o->family->norm : FAMILY_NORM_RMS;
}

/* True if this layer has full attention, whatever `window` is. */
static inline bool model_has_full_attention(const model_options *o, int64_t layer) {
    for (int i = 0; i < o->full_count; i++)
        if (o->full[i] == layer) return true;
    return o->full_attention_every > 0 && (layer + 1) % o->full_attention_every == 0;
}
/* True if some layers have a sliding window and other layers have full attention. */
static inline bool model_mixes_windows(const model_options *o) {
    return o->full_attention_every > 0 || o->full_count > 0;
}

/* Width of heads in attention. If widths of q and k differ from v's, the narrower are zero-padded. */
static inline int64_t model_head_width(const model_options *o) {
    return o->latent.value > o->head_dim ? o->latent.value : o->head_dim;
}
/* Width of a head of v, and number of columns of a head of q and k that rotary embedding is applied to. */
static inline int64_t model_value_width(const model_options *o) {
    return o->latent.key_rank > 0 ? o->latent.value : o->head_dim;
}
static inline int64_t model_rope_width(const model_options *o) {
    return o->latent.key_rank > 0 ? o->latent.rope_dim : o->head_dim;
}

/* Fills *out from cfg: the preset, overridden by explicit keys, then derived values. Writes these values back
   into cfg, so that the saved configuration is complete. OTT_ERR_CONFIG if the dimensions do not fit
   together. *out borrows lists and strings of cfg. The caller sets groups, stage, ffn and frozen_convert. */
ott_status model_options_resolve(config *cfg, model_options *out);

#endif
