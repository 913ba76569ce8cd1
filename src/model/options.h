/* model/options: a model's dimensions, formats and process groups. Nothing here knows the configuration. */
#ifndef MODEL_OPTIONS_H
#define MODEL_OPTIONS_H

#include "base/text/str.h"
#include "kinds/choices.h"
#include "kinds/family.h"
#include "nn/attention/latent.h"
#include "nn/moe/moe.h"
#include "optimizer/optimizer.h"
#include "nn/attention/rope.h"
#include "parallel/pipeline.h"

typedef struct mixer_kind mixer_kind; /* defined in model/mixer.h */
typedef struct ffn_kind ffn_kind;     /* defined in model/ffn.h */

/* Adapters of linear layers (model/adapters.h). */
typedef struct adapter_options {
    int64_t rank;         /* rank of the adapters; 0: no adapters */
    float scale, dropout; /* scale: alpha / rank, or alpha / sqrt(rank) if by_root */
    double alpha;
    bool by_root;         /* true: the scale of rsLoRA */
    bool decomposed;      /* true: DoRA (nn/linear/dora.h); false: LoRA */
    bool drops_output;    /* true: dropout applies to the adapter's output; false: to its input */
    uint64_t seed;        /* seed of dropout */
    kind_lora_init start; /* rule of A's initial values */
    bool all;             /* true: every linear layer of the blocks gets an adapter; ignores `targets` */
    /* Name patterns: `targets` get adapters, `excluded` do not, `saved` train in full. All lists here are
       borrowed; only model_open reads them. */
    const str_list *targets, *excluded, *saved;
    const str_list *ranks, *alphas; /* ranks and alphas of layers that match a pattern, "q_proj=16" */
    const str_list *layers;         /* indices of blocks with adapters; NULL or empty: all blocks */
    const str_list *layer_lists;    /* PEFT's layers_pattern: names of the list of blocks, like "layers" */
} adapter_options;

enum { MODEL_MAX_DENSE = 64 }; /* maximum entries of model.moe_dense_layers */
enum { MODEL_MAX_FULL = 256 }; /* maximum entries of model.full_attention_layers */

typedef struct model_options {
    const family *family;
    int64_t dim, layers, heads, kv_heads, head_dim, hidden, vocab;
    latent_shape latent;           /* MLA; head_dim is then the width of a q or k head; key_rank 0: no MLA */
    int64_t max_positions, window; /* window: number of keys that a query attends to; 0: no limit */
    rope_options rope;
    float norm_epsilon;
    bool layer_norm;            /* true: LayerNorm with a bias; false: the norm of the family */
    kind_activation activation; /* activation of dense feed-forwards; ACTIVATION_SILU: the family's */
    float attention_softcap, logit_softcap; /* caps of attention scores and of logits; 0: no cap */
    /* Layers without a window: each n-th layer (n = 0: none), or the layers that `full` lists. */
    int64_t full_attention_every;
    int full_count; /* number of layers in `full`; 0: full_attention_every decides */
    int32_t full[MODEL_MAX_FULL];
    double local_theta; /* RoPE base of sliding-window layers; 0: rope.theta */
    /* Granite's factors: of the embedding's output, of what a block adds to the residual stream, of attention
       scores, and of logits. 0: no factor, but for attention scores 1 / sqrt(head_dim). */
    float embedding_multiplier, residual_multiplier, attention_multiplier, logit_multiplier;
    bool scales_by_layer; /* true: attention scores of layer i are also divided by i + 1 */
    bool tied;            /* true: the output head's weight is the embedding's weight */
    bool qkv_bias, o_bias, mlp_bias;
    bool qk_norm;
    bool fused_qkv, fused_gate_up;  /* true: one projection for q, k and v; one for gate and up */
    const mixer_kind *const *mixer; /* [layers] kinds of mixer; borrowed; NULL: `latent` decides */
    const ffn_kind *const *ffn;     /* [layers] kinds of feed-forward; borrowed; NULL: `moe` decides */
    /* Every moe_every-th layer has experts, except the first moe_first layers and the layers in `dense`. */
    moe_options moe; /* moe.experts is 0 if all layers are dense */
    int64_t moe_every, moe_first;
    int dense_count;
    int32_t dense[MODEL_MAX_DENSE];
    adapter_options adapter;
    /* Folder of an adapter model's base weights; borrowed. NULL: checkpoints contain the base weights. */
    const char *base;
    bool has_padding;
    int64_t padding; /* index of an embedding row that gets no gradient from tokens (but from a tied head) */
    kind_init_style init_style;
    double init_std; /* standard deviation of initial weights (model/init.h) */
    /* train.freeze: patterns of parameters that do not train; NULL: none. Borrowed; only model_open reads it.
       Without effect for MODEL_INFERENCE if the format `frozen` equals `master`. */
    const str_list *freeze;
    /* Format of frozen matrices. OTT_E4M3: FP8 for linear layers of blocks, BF16 for other matrices. */
    ott_dtype frozen;
    kind_frozen_granularity frozen_granularity; /* granularity of the scales of FP8 codes */
    /* Decides which layers are stored in FP8, and how; NULL: all, rowwise. Borrowed; model_open reads it. */
    const struct convert_options *frozen_convert;
    const optimizer_rule *optimizer;   /* rule that owns the state of trained parameters; NULL: no state */
    ott_dtype master, gradient, state; /* formats of master matrices, of their gradients, of their state */
    kind_offload offload;              /* which tensors are in mapped host memory (device_allocate_mapped) */
    /* Process groups; borrowed. NULL: the model is not split in this way. */
    group *shard_ranks;          /* data-parallel ranks that shard the parameters (parallel/store.h) */
    group *expert_ranks;         /* expert-parallel ranks (nn/moe/expert_ranks.h) */
    group *expert_shard_ranks;   /* ranks of shard_ranks that have the same experts and shard their weights */
    const pipeline_stage *stage; /* this rank's pipeline stage; borrowed; NULL: the rank has all layers */
    group *stage_ranks;          /* the pipeline stages, in order */
    group *tensor_ranks;         /* tensor-parallel ranks (nn/tensor_ranks.h) */
    bool sequence_parallel;      /* true: tensor_ranks also use sequence parallelism */
    group *context_ranks;        /* context-parallel ranks (nn/attention/context_ranks.h) */
} model_options;

/* The kind of a dense feed-forward. o->family is NULL if the model was built by the API's layer functions. */
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
/* The kind of all norms except norms of q's and k's heads (modules_norm returns their kind). */
static inline family_norm model_norm(const model_options *o) {
    if (o->layer_norm) return FAMILY_NORM_LAYER_BIAS;
    return o->family ? o->family->norm : FAMILY_NORM_RMS;
}

/* True if this layer has no window even if o->window is set. */
static inline bool model_has_full_attention(const model_options *o, int64_t layer) {
    for (int i = 0; i < o->full_count; i++)
        if (o->full[i] == layer) return true;
    return o->full_attention_every > 0 && (layer + 1) % o->full_attention_every == 0;
}
/* True if some layers have a sliding window and other layers have full attention. */
static inline bool model_mixes_windows(const model_options *o) {
    return o->full_attention_every > 0 || o->full_count > 0;
}

/* Columns of a head in the attention kernel. Narrower heads (of q and k, or of v) are padded with zeros. */
static inline int64_t model_head_width(const model_options *o) {
    return o->latent.value > o->head_dim ? o->latent.value : o->head_dim;
}
/* model_value_width: columns of a v head. model_rope_width: columns of a q or k head that are rotated. */
static inline int64_t model_value_width(const model_options *o) {
    return o->latent.key_rank > 0 ? o->latent.value : o->head_dim;
}
static inline int64_t model_rope_width(const model_options *o) {
    return o->latent.key_rank > 0 ? o->latent.rope_dim : o->head_dim;
}

/* OTT_ERR_CONFIG if options contradict each other. The messages name the keys of [model]. All sizes must be
   set. Groups, stage, mixer, ffn and the members for storage and training are not read. */
ott_status model_options_check(const model_options *o);
/* OTT_ERR_CONFIG if x, the value of the key `what`, is not divisible by y, the value of `by`. */
ott_status model_check_divisible(const char *what, int64_t x, const char *by, int64_t y);

#endif
