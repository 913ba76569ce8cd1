/*
 * model/mixer: the kinds of sequence mixer that a block can have, as tables of functions. A mixer is the
 * layer of a block in which a token affects later tokens, like attention. Blocks of one model may have
 * different kinds (model_options.mixer). To add a kind, add its layer in src/nn, its new roles to
 * model/modules.h, its name to MIXER_KINDS, and a table in mixer.c.
 */
#ifndef MODEL_MIXER_H
#define MODEL_MIXER_H

#include "model/modules.h"
#include "nn/attention/attention.h"
#include "nn/attention/latent_attention.h"

struct model;

/* The kinds. In src/nn, a kind's layer is a struct with its name, and its saved tensors are NAME_saved. */
#define MIXER_KINDS(X) X(attention) X(latent_attention)

/* Pointers to a mixer's layer, and to the tensors that its forward saves. The unions are transparent, a GNU
   extension: a function whose parameter is one of these pointers may be stored in a table. */
#define LAYER(kind) kind *kind;
typedef union mixer_layer {
    MIXER_KINDS(LAYER)
    attention_core *core; /* first member of the kinds of attention */
} mixer_layer __attribute__((transparent_union));
#undef LAYER

#define SAVED(kind) kind##_saved *kind;
typedef union mixer_saved {
    MIXER_KINDS(SAVED)
    attention_core_saved *core; /* first member of the kinds of attention */
} mixer_saved __attribute__((transparent_union));
#undef SAVED

/* Functions of one kind of mixer; nn/attention/attention.h describes them. */
struct mixer_kind {
    /* True if this kind has a module with this role, for a model with these options. */
    bool (*has)(const model_options *o, module_role role);
    int64_t at[ROLE_COUNT]; /* byte offset of each role's layer in the mixer's layer */
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
    /* FLOPs per token of a training step, without those of linear layers (model_flops_per_token). */
    double (*flops)(const model_options *o, int64_t seq_len);
};

#define TABLE(kind) extern const mixer_kind mixer_##kind;
MIXER_KINDS(TABLE)
#undef TABLE

#endif
