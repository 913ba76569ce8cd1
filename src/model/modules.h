/*
 * model/modules: the list of a model's modules, in forward order, made from model_options. A module is an
 * embedding, a norm or a linear layer. Code for a full model loops over this list: to declare parameters, to
 * draw initial weights, to convert to FP8, to match names, to save checkpoints, to count.
 */
#ifndef MODEL_MODULES_H
#define MODEL_MODULES_H

#include "base/arena.h"
#include "model/options.h"
#include "nn/embedding.h"
#include "nn/linear/linear.h"
#include "nn/norm.h"

/* The role of a module in its model or block, in forward order. */
typedef enum module_role {
    ROLE_EMBEDDING,
    ROLE_POSITION_EMBEDDING,
    ROLE_ATTENTION_NORM,
    ROLE_QKV,
    ROLE_Q,
    ROLE_K,
    ROLE_V,
    ROLE_Q_A,
    ROLE_Q_A_NORM,
    ROLE_Q_B,
    ROLE_KV_A,
    ROLE_KV_A_NORM,
    ROLE_KV_B,
    ROLE_Q_NORM,
    ROLE_K_NORM,
    ROLE_O,
    ROLE_ATTENTION_POST_NORM,
    ROLE_MLP_NORM,
    ROLE_GATE_UP,
    ROLE_GATE,
    ROLE_UP,
    ROLE_DOWN,
    ROLE_ROUTER,
    ROLE_EXPERT_GATE,
    ROLE_EXPERT_UP,
    ROLE_EXPERT_DOWN,
    ROLE_SHARED_GATE,
    ROLE_SHARED_UP,
    ROLE_SHARED_DOWN,
    ROLE_MLP_POST_NORM,
    ROLE_FINAL_NORM,
    ROLE_HEAD,
    ROLE_COUNT
} module_role;

typedef enum module_kind { MODULE_EMBEDDING, MODULE_NORM, MODULE_LINEAR } module_kind;

enum { MODULES_OUTSIDE = -1 }; /* model_module.layer of modules outside of the blocks */

typedef struct model_module {
    module_role role;
    module_kind kind;
    int layer;        /* index of the module's block, or MODULES_OUTSIDE */
    const char *name; /* Hugging Face's name, "model.layers.0.self_attn.q_proj" */
    /* number of axes and shape of the full weight: [columns], [rows, columns] or [experts, rows, columns] */
    int rank;
    int64_t shape[PARAMETER_RANKS];
    bool of_experts;       /* the weight has one matrix for each expert */
    parameter_split split; /* how tensor parallelism splits the weight; if by rows, also the bias */
    bool has_bias;         /* true: the module has a bias[rows] */
    bool balances;         /* the bias only affects the choice of experts and has no gradient (DeepSeek-V3) */
    bool repeated;         /* copy of the embedding on the last pipeline stage, for a tied head */
    bool tied;             /* the weight is the embedding's weight */
    bool saved;            /* trained in full next to adapters (PEFT's modules_to_save) and saved with them */
    bool fell_back;        /* float8.fallback moved the layer to high precision, on any pipeline stage */
    /* The module's layer: `kind` says which pointer. NULL before model_open, and on other pipeline stages. */
    union {
        embedding *embedding;
        norm *norm;
        linear *linear;
    };
    parameter *weight, *bias;   /* bias NULL: none */
    parameter *lora_a, *lora_b; /* A and B of the adapter (nn/linear/lora.h); NULL: no adapter */
    parameter *lora_m;          /* magnitude of a DoRA adapter (nn/linear/dora.h); NULL: no DoRA */
} model_module;

typedef struct module_list {
    model_module *items;
    int count;
} module_list;

/* Creates the module list of a model, or of its pipeline stage o->stage. Layer pointers are NULL. */
ott_status modules_make(arena *memory, const model_options *o, module_list *out);

/* Describes the module with this role in block `layer` (or MODULES_OUTSIDE), without name and pointers. */
model_module modules_describe(const model_options *o, module_role role, int layer);
/* True if block `layer` (MODULES_OUTSIDE: the model outside of blocks) has a module with this role. */
bool modules_has(const model_options *o, int layer, module_role role);
/* The kind of norm (RMSNorm, LayerNorm, ...) with this role. */
family_norm modules_norm(const model_options *o, module_role role);
/* True if a norm with this role normalizes each head separately and has separate weights for each head. */
bool modules_norms_apart(const model_options *o, module_role role);
/* True if the role belongs to a mixture of experts. */
bool modules_is_mixture(module_role role);
/* The name of the module's bias: "bias", or "e_score_correction_bias" if m->balances. */
const char *modules_bias_name(const model_module *m);
/* The kind of a layer's mixer (model/mixer.h), and of its feed-forward (model/ffn.h). */
const mixer_kind *modules_mixer(const model_options *o, int64_t layer);
const ffn_kind *modules_ffn(const model_options *o, int64_t layer);
/* The rule of a role's initial weights (model/init.h). */
typedef enum module_start {
    START_PLAIN,
    START_EMBEDDING,
    START_HEAD,
    START_INSIDE,  /* up projections of feed-forwards */
    START_RESIDUAL /* projections that are added to the residual stream: o and down */
} module_start;
module_start modules_start(module_role role);
/* Byte offset of this role's layer in struct block (block `layer`); outside of blocks, in struct model. */
int64_t modules_offset(const model_options *o, int layer, module_role role);

/* The framework that a module's name comes from. Filters accept the names of all three frameworks. */
typedef enum naming { NAMING_HUGGING_FACE, NAMING_KEMPNERFORGE, NAMING_TORCHTITAN, NAMING_COUNT } naming;

enum { MODULES_NAME_BYTES = 128 };
/* Writes a module's name to `out` and returns `out`. f NULL: the name that most families use. */
const char *modules_name(const family *f, module_role role, naming style, int layer,
                         char out[MODULES_NAME_BYTES]);
/* Writes the name of the matrix of expert number `matrix`, for example "...mlp.experts.7.gate_proj". */
const char *modules_matrix_name(const family *f, module_role role, naming style, int layer, int64_t matrix,
                                char out[MODULES_NAME_BYTES]);

/*
 * q, k and v may be fused into one matrix, and so may gate and up. The fused matrix has their rows, in this
 * order. options.fused_qkv and fused_gate_up decide this for the model; files of weights may be fused or not.
 * Fusing does not change initial weights.
 */
enum { MODULES_PARTS = PARAMETER_SECTIONS };

/* Rows [first, first + count) of a module's weight and bias. For expert weights: of each expert's matrix. */
typedef struct module_part {
    module_role role;
    int64_t first, count;
} module_part;

/* Writes the parts of a fused module, in order, or the module itself as one part. Returns their number. */
int modules_parts(const model_options *o, const model_module *m, module_part part[MODULES_PARTS]);
/* Finds the fused projection that may contain role `part`, for example qkv for q. *at: the projection's role,
   and the rows of `part` in it. *rows: number of its rows. Returns false if `part` is never fused. */
bool modules_find_fused(const model_options *o, module_role part, module_part *at, int64_t *rows);

#endif
