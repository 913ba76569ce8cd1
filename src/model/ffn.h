/*
 * model/ffn: the feed-forward of a block. Each kind of feed-forward is a table of functions. The blocks of a
 * model may have different kinds (model_options.ffn).
 *
 * To add a kind, write its layer in src/nn and its table in ffn.c. Add its name to FFN_KINDS, and its roles
 * to model/modules.h.
 */
#ifndef MODEL_FFN_H
#define MODEL_FFN_H

#include "model/modules.h"
#include "nn/mlp.h"
#include "nn/moe/moe.h"

struct model;

/* Calls X with the name of each kind, like MIXER_KINDS in model/mixer.h: the dense MLP (nn/mlp) and the
   mixture of experts (nn/moe/moe). */
#define FFN_KINDS(X) X(mlp) X(moe)

/* Pointers to the layer of any kind, and to its saved tensors, like mixer_layer and mixer_saved. */
#define LAYER(kind) kind *kind;
typedef union ffn_layer {
    FFN_KINDS(LAYER)
} ffn_layer __attribute__((transparent_union));
#undef LAYER

#define SAVED(kind) kind##_saved *kind;
typedef union ffn_saved {
    FFN_KINDS(SAVED)
} ffn_saved __attribute__((transparent_union));
#undef SAVED

/* Functions of one kind of feed-forward; nn/mlp.h describes them. */
struct ffn_kind {
    /* True if this kind has a module with this role, for a model with these options. */
    bool (*has)(const model_options *o, module_role role);
    int64_t at[ROLE_COUNT]; /* byte offset of each role's linear layer in the feed-forward's layer */
    /* Sets the options of the feed-forward, before its linear layers are set. */
    void (*prepare)(struct model *m, ffn_layer f);
    /* store: FP8 gate and up layers keep their outputs in FP8 for backward. Call it before `connect`. */
    void (*store_inputs)(ffn_layer f, bool store);
    ott_status (*connect)(ffn_layer f, activation_specs *input, activation_specs *grad_output);
    /* Forward in three steps: first GEMMs; activation function; last GEMM, which writes out[T,D]. */
    ott_status (*forward)(exec *cx, ffn_layer f, const activation *x, ffn_saved s);
    ott_status (*activate)(exec *cx, ffn_layer f, ffn_saved s);
    ott_status (*project)(exec *cx, ffn_layer f, ffn_saved s, const tensor *out);
    /* Close tensors after forward. `keep` closes the tensors that backward does not read. `keep_products`
       closes only the output of `activate`. `discard` closes all. */
    ott_status (*keep)(exec *cx, ffn_layer f, ffn_saved s);
    ott_status (*keep_products)(exec *cx, ffn_saved s);
    ott_status (*discard)(exec *cx, ffn_saved s);
    ott_status (*backward)(exec *cx, ffn_layer f, ffn_saved s, const activation *x, const activation *g,
                           const tensor *dx);
};

#define TABLE(kind) extern const ffn_kind ffn_##kind;
FFN_KINDS(TABLE)
#undef TABLE

#endif
