/*
 * model/family: what tells one model family from another, as a table over the one block of model/block. Names
 * are Hugging Face's; `%d` is the layer.
 */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include "base/status.h"
#include <stdbool.h>

/* X(member, what it names): the modules of a model, in the order they run. Names inside a block start with
 * "model.layers.%d.". */
#define FAMILY_MODULES(X)                                                                                    \
    X(embedding)                                                                                             \
    X(attention_norm)                                                                                        \
    X(q)                                                                                                     \
    X(k)                                                                                                     \
    X(v)                                                                                                     \
    X(qkv)                                                                                                   \
    X(o)                                                                                                     \
    X(q_norm)                                                                                                \
    X(k_norm)                                                                                                \
    X(mlp_norm)                                                                                              \
    X(gate)                                                                                                  \
    X(up)                                                                                                    \
    X(gate_up)                                                                                               \
    X(down)                                                                                                  \
    X(final_norm)                                                                                            \
    X(head)

enum family_module {
#define X(member) FAMILY_##member,
    FAMILY_MODULES(X)
#undef X
        FAMILY_MODULE_COUNT
};

/* How other frameworks spell a module's name; understood in filters. */
typedef enum naming { NAMING_HUGGING_FACE, NAMING_KEMPNERFORGE, NAMING_TORCHTITAN, NAMING_COUNT } naming;

typedef struct family {
    const char *name; /* config.json's model_type, "llama" */
    bool qkv_bias;    /* biases of q, k and v */
    bool qk_norm;     /* RMSNorm of each head of q and k */
    bool fused;       /* in files, q, k, v are one tensor, and so are gate and up */
} family;

const family *family_find(const char *name); /* NULL when there is none */
/* Writes a module's fully qualified name into out[128] and returns it. */
const char *family_module_name(enum family_module module, naming style, int layer, char out[128]);

#endif
