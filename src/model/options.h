/* model/options: the dimensions of a model, resolved: preset, explicit keys and derived values made one. */
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
    int64_t rank; /* 0: there are none */
    float scale, dropout;
    double alpha;      /* which gives the scale, */
    bool by_root;      /* over the rank's root; else over the rank */
    bool decomposed;   /* nn/dora.h */
    bool drops_output; /* dropout is of what the adapter adds; else of its input */
    uint64_t seed;     /* of dropout */
    config_lora_init start;
    bool all; /* linear layers of the blocks have one, whatever the targets are */
    /* Patterns of their names, and of modules that train whole; borrowed from the configuration, read by model_open. */
    const config_list *targets, *excluded, *saved;
    const config_list *ranks,
        *alphas;               /* "q_proj=16": ranks and alphas of layers that match a pattern; borrowed */
    const config_list *layers; /* indices of blocks with adapters; NULL or empty: all; borrowed */
    const config_list *layer_lists; /* PEFT's layers_pattern: names of the list of blocks; borrowed */
} adapter_options;

enum { MODEL_MAX_DENSE = 64 }; /* single layers that are no mixture */
enum { MODEL_MAX_FULL = 256 }; /* single layers that see all */

typedef struct model_options {
    const family *family;
    int64_t dim, layers, heads, kv_heads, head_dim, hidden, vocab;
    latent_shape latent; /* head_dim is that of q and k; key_rank 0: plain attention */
    int64_t max_positions, window;
    rope_options rope;
    float norm_epsilon;
    bool layer_norm;              /* norms are layer normalization with a bias; else the family's */
    config_activation activation; /* of a feed-forward of two matrices; silu: the family's, as it is */
    float attention_softcap, logit_softcap; /* 0: none */
    /* layers with a window alternate with ones that see all: every so many-th does; 0: none does */
    int64_t full_every;
    int full_count; /* number of layers in `full`, which have no window; 0: full_every decides */
    int32_t full[MODEL_MAX_FULL];
    double local_theta; /* base of rotary embedding in layers with a window; 0: the others' */
    /* Of the embedding's output, of what attention and the feed-forward add, of q k^T, of the logits; 0: as they are,
       and q k^T by 1 / sqrt(head_dim). */
    float embedding_multiplier, residual_multiplier, attention_multiplier, logit_multiplier;
    bool scales_by_layer; /* q k^T of a layer is divided by its number from 1 on */
    bool tied;            /* the output head is the embedding */
    bool qkv_bias, o_bias, mlp_bias;
    bool qk_norm;
    bool fused_qkv, fused_gate_up; /* one projection for q, k and v; one for gate and up */
    const ffn_kind *const *ffn;    /* [layers], the kind of each layer's; borrowed; NULL: as moe says */
    moe_options moe;               /* of layers that are a mixture: every moe_every-th, */
    int64_t moe_every, moe_first;  /* but not the first so many, */
    int dense_count;               /* nor these */
    int32_t dense[MODEL_MAX_DENSE];
    adapter_options adapter;
    const char *
        base; /* beside adapters: the Hugging Face folder of all else, which checkpoints leave there; borrowed;
                         NULL: they hold it */
    bool has_padding;
    int64_t padding; /* the embedding's row that its tokens do not train; a tied head still does */
    config_init_style init_style;
    double init_std;
    /* train.freeze: patterns of parameters that are not trained. Read by model_open, with MODEL_INFERENCE where frozen ones
       have a format of their own; borrowed from the configuration; NULL: none. */
    const config_list *freeze;
    /* format of matrices that freeze names; E4M3: of those of linear layers in blocks, the others BF16 */
    ott_dtype frozen;
    config_frozen_granularity frozen_granularity; /* of E4M3 */
    /* Under E4M3: which layers FP8 reaches, and how it casts their weights. Read by model_open; borrowed; NULL: all alike. */
    const struct convert_options *frozen_convert;
    /* Whose state the parameters have where they are trained; NULL: none's, their gradients only. */
    const optimizer_rule *optimizer;
    ott_dtype master, gradient, state; /* formats of a matrix, of its gradient, of that state: fp32 or bf16 */
    config_offload offload;            /* which of these lie in the host's memory (device_allocate_mapped) */
    /* that hold the parameters between them (parallel/store.h); borrowed; NULL: each all */
    group *shard_ranks;
    group *
        expert_ranks; /* among which the experts of mixtures are divided (nn/expert_ranks.h); borrowed; NULL: none */
    group *
        expert_shard_ranks; /* of shard_ranks those that have the same experts, and hold them between them; NULL: each all */
    const pipeline_stage *stage; /* of a pipeline: only its layers are here; borrowed; NULL: all are */
    group *stage_ranks;          /* the stages, in their order; borrowed */
    group *tensor_ranks;         /* among which layers are cut (nn/tensor_ranks.h); borrowed; NULL: none */
    bool sequence_parallel;      /* these ranks also have different rows of what lies between the layers */
    /* have other tokens of each micro-batch (nn/context_ranks.h); borrowed; NULL: none */
    group *context_ranks;
} model_options;

/* The feed-forward of a dense layer. A model that is made of layers has no family. */
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
/* Norms, those of heads aside, which are the family's. */
static inline family_norm model_norm(const model_options *o) {
    if (o->layer_norm) return FAMILY_NORM_LAYER_BIAS;
    return o->family ? o->family->norm : FAMILY_NORM_RMS;
}

/* Does attention in this layer see all, whatever the window is? */
static inline bool model_has_full_attention(const model_options *o, int64_t layer) {
    for (int i = 0; i < o->full_count; i++)
        if (o->full[i] == layer) return true;
    return o->full_every > 0 && (layer + 1) % o->full_every == 0;
}
/* Have some layers a window, and others none? */
static inline bool model_mixes_windows(const model_options *o) {
    return o->full_every > 0 || o->full_count > 0;
}

/* Width of the heads that attention works on: the narrower of q and k, and v, have zeros behind them. */
static inline int64_t model_head_width(const model_options *o) {
    return o->latent.value > o->head_dim ? o->latent.value : o->head_dim;
}
/* Width of a head of v; columns of a head of q and k that rotary embedding is made for. */
static inline int64_t model_value_width(const model_options *o) {
    return o->latent.key_rank > 0 ? o->latent.value : o->head_dim;
}
static inline int64_t model_rope_width(const model_options *o) {
    return o->latent.key_rank > 0 ? o->latent.rope_dim : o->head_dim;
}

/* Puts the preset of cfg under its explicit keys, fills in what follows from others, checks that the
   dimensions fit together and writes all of it back into cfg, so that the written configuration says what
   runs. */
ott_status model_options_resolve(config *cfg, model_options *out);

#endif
