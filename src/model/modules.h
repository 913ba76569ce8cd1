/*
 * model/modules: what a model is made of: a list of modules in the order they run, made once from its options.
 * Whatever is done to a whole model walks this list: declaring parameters, initial weights, conversion to FP8,
 * names in filters, checkpoints, Hugging Face folders, counting. Layers need not have the same modules.
 */
#ifndef MODEL_MODULES_H
#define MODEL_MODULES_H

#include "base/arena.h"
#include "model/options.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/norm.h"

/* What a module is in its model or block, in the order they run. */
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

enum { MODULES_OUTSIDE = -1 }; /* the layer of what is in no block */

typedef struct model_module {
    module_role role;
    module_kind kind;
    int layer;
    const char *name; /* Hugging Face's, "model.layers.0.self_attn.q_proj" */
    int rank; /* of the weight, as in files: 1 [columns], 2 [rows, columns], 3 [stack, rows, columns] */
    int64_t shape[PARAMETER_RANKS];
    parameter_split split; /* of its parameters by tensor parallelism; the bias' goes with the rows */
    bool has_bias;         /* [rows] */
    bool balances; /* its bias is a router's: it is added to no output, and moves with what its experts get */
    bool repeated; /* the first stage of a pipeline has it too: the table of a tied head */
    bool tied;     /* its weight is the embedding's */
    bool saved;    /* trains in full next to adapters (PEFT's modules_to_save) and is saved with them */
    bool fell_back; /* float8.fallback moved it to high precision, on this stage of a pipeline or another */
    /* In a model: the layer of its kind that runs, and its parameters. NULL before. */
    union {
        embedding *embedding;
        norm *norm;
        linear *linear;
    };
    parameter *weight, *bias;   /* bias NULL: none */
    parameter *lora_a, *lora_b; /* of its adapter (nn/lora.h); NULL: it has none */
    parameter *lora_m;          /* of one that is decomposed (nn/dora.h); NULL: it is not */
} model_module;

typedef struct module_list {
    model_module *of;
    int count;
} module_list;

/* The list of a model with these options, or of its stage of a pipeline, in `memory`; nothing is bound to a layer yet. */
ott_status modules_make(arena *memory, const model_options *o, module_list *out);

/* A module by itself, without a name; in a layer, or in none. */
model_module modules_describe(const model_options *o, module_role role, int layer);
/* Does this layer of a model with these options have one? Of a role in no block: the model itself. */
bool modules_has(const model_options *o, int layer, module_role role);
/* What a norm of this role computes. */
family_norm modules_norm(const model_options *o, module_role role);
/* Does a norm of this role normalize each head by itself, with weights of the head's own? */
bool modules_norms_apart(const model_options *o, module_role role);
/* Is it a part of a mixture of experts? */
bool modules_is_mixture(module_role role);
/* What the bias of a module is called, "bias". */
const char *modules_bias_name(const model_module *m);
/* What a layer has after its second norm. */
const ffn_kind *modules_ffn(const model_options *o, int64_t layer);
/* How a role's initial weights differ from others' (model/init.h). */
typedef enum module_start {
    START_PLAIN,
    START_EMBEDDING,
    START_HEAD,
    START_INSIDE,  /* an inner projection of a block that scales what goes to the residual stream */
    START_RESIDUAL /* adds to the residual stream */
} module_start;
module_start modules_start(module_role role);
/* Where a module's layer is, counted from the start of its block; of the model, when it is in none. */
int64_t modules_offset(module_role role);

/* How a framework spells a module's name; all are understood in filters. */
typedef enum naming { NAMING_HUGGING_FACE, NAMING_KEMPNERFORGE, NAMING_TORCHTITAN, NAMING_COUNT } naming;

enum { MODULES_NAME_BYTES = 128 };
/* Writes the name of a module into `out` and returns it; Hugging Face's is the family's, NULL: as most have it. */
const char *modules_name(const family *f, module_role role, naming style, int layer,
                         char out[MODULES_NAME_BYTES]);
/* The name of a matrix of a stack in a block, where files have them apart: its number before the last component. */
const char *modules_matrix_name(const family *f, module_role role, naming style, int layer, int64_t matrix,
                                char out[MODULES_NAME_BYTES]);

/*
 * Projections that may be one matrix or several: q, k and v, and gate and up. The rows of the parts lie one
 * below the other in the whole. How a model has them (options.fused_qkv, fused_gate_up) and how a family's
 * files have them need not agree; initial weights do not depend on it.
 */
enum { MODULES_PARTS = PARAMETER_SECTIONS };

/* Rows [first, first + count) of a module's weight and bias; of each matrix of a stack. */
typedef struct module_part {
    module_role role;
    int64_t first, count;
} module_part;

/* The parts of a module, in order; one that is never fused is its own only part. Returns how many. */
int modules_parts(const model_options *o, const model_module *m, module_part part[MODULES_PARTS]);
/* The whole that a part belongs to: its role, in *at the rows the part has of it, and how many rows it has.
   False: it belongs to none. */
bool modules_find_fused(const model_options *o, module_role part, module_part *at, int64_t *rows);

#endif
