/*
 * model/mixer: the sequence mixer of a block, which is the layer in which a token affects later tokens.
 * Attention is a mixer. Each kind of mixer is a table of functions. The blocks of a model may have different
 * kinds (model_options.mixer).
 *
 * To add a kind, write its layer in src/nn and its table in mixer.c. Add its name to MIXER_KINDS, and its new
 * roles to model/modules.h.
 */
#ifndef MODEL_MIXER_H
#define MODEL_MIXER_H

#include "model/modules.h"
#include "nn/attention/attention.h"
#include "nn/attention/latent_attention.h"

struct model;

/* Calls X with the name of each kind. src/nn has two structs for a kind: NAME is the layer, and NAME_saved
   has the tensors that forward saves. */
#define MIXER_KINDS(X) X(attention) X(latent_attention)

/* mixer_layer is a pointer to the layer of any kind, and mixer_saved a pointer to its saved tensors. The GNU
   attribute transparent_union allows mixer_kind to store functions that have one of the members as parameter:
   attention_connect(attention *, ...) is a `connect`. */
#define LAYER(kind) kind *kind;
typedef union mixer_layer {
    MIXER_KINDS(LAYER)
    attention_core *core; /* every kind of attention begins with it */
} mixer_layer __attribute__((transparent_union));
#undef LAYER

#define SAVED(kind) kind##_saved *kind;
typedef union mixer_saved {
    MIXER_KINDS(SAVED)
    attention_core_saved *core; /* every kind of attention begins with it */
} mixer_saved __attribute__((transparent_union));
#undef SAVED

/* Functions of one kind of mixer; nn/attention/attention.h describes them. */
struct mixer_kind {
    /* True if this kind has a module with this role, for a model with these options. */
    bool (*has)(const model_options *o, module_role role);
    int64_t at[ROLE_COUNT]; /* byte offset of each role's linear layer or norm in the mixer's layer */
    /* Sets the options of the mixer of block `layer`, before its linear layers and norms are set. */
    void (*prepare)(const struct model *m, int64_t layer, mixer_layer a);
    ott_status (*connect)(mixer_layer a, activation_specs *input, activation_specs *grad_output);
    /* Forward in two steps. `project` is the last GEMM, which recomputation may skip; it writes y[T,D]. */
    ott_status (*forward)(exec *cx, mixer_layer a, const sequence_metadata *at, const activation *x,
                          mixer_saved s);
    ott_status (*project)(exec *cx, mixer_layer a, mixer_saved s, const tensor *y);
    /* Close tensors after forward. `keep` closes the tensors that backward does not read or can quantize
       again; `discard` closes all. */
    ott_status (*keep)(exec *cx, mixer_saved s);
    ott_status (*discard)(exec *cx, mixer_saved s);
    ott_status (*backward)(exec *cx, mixer_layer a, const sequence_metadata *at, mixer_saved s,
                           const activation *x, const activation *g, const tensor *dx);
    /* Bytes of sequence_cache.data, which keeps at most `capacity` earlier tokens. */
    int64_t (*cache_bytes)(mixer_layer a, ott_dtype activation, int64_t capacity);
    /* FLOPs per token of a training step, without the FLOPs of linear layers (model_flops_per_token). */
    double (*flops)(const model_options *o, int64_t seq_len);
};

#define TABLE(kind) extern const mixer_kind mixer_##kind;
MIXER_KINDS(TABLE)
#undef TABLE

#endif
