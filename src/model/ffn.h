/*
 * model/ffn: the kinds of feed-forward that a block can have, as tables of functions. Layers of one model may
 * have different kinds (model_options.ffn). A new kind needs its layer in the unions of model/block.h, its
 * roles in model/modules.h, and a table here.
 */
#ifndef MODEL_FFN_H
#define MODEL_FFN_H

#include "model/modules.h"
#include "nn/activation.h"

struct block;
struct block_saved;

/* The functions of a kind read the input s->n2 and keep the feed-forward's tensors in `s`. */
struct ffn_kind {
    /* True if this kind has a module with this role under these options. */
    bool (*has)(const model_options *o, module_role role);
    /* Lets FP8 layers keep the outputs of gate and up for backward in FP8. Call it before connect. */
    void (*store_inputs)(struct block *b, bool store);
    ott_status (*connect)(struct block *b); /* adds its layers' specs to b->mlp_input and b->grad_mlp */
    /* forward: the first GEMMs. activate: the activation (cheap to recompute). project: writes out[T,D]. */
    ott_status (*forward)(exec *cx, struct block *b, struct block_saved *s);
    ott_status (*activate)(exec *cx, struct block *b, struct block_saved *s);
    ott_status (*project)(exec *cx, struct block *b, struct block_saved *s, const tensor *out);
    /* Close buffers after forward: `keep` closes what backward does not read, `keep_products` closes the
       output of `activate`, `discard` closes all. */
    ott_status (*keep)(exec *cx, struct block *b, struct block_saved *s);
    ott_status (*keep_products)(exec *cx, struct block_saved *s);
    ott_status (*discard)(exec *cx, struct block_saved *s);
    /* From g, the gradient of out: writes dn2[T,D], the gradient of n2, and adds to all weight gradients.
       Closes the feed-forward's buffers in `s`. */
    ott_status (*backward)(exec *cx, struct block *b, struct block_saved *s, const activation *g,
                           const tensor *dn2);
};

extern const ffn_kind ffn_mlp; /* the dense MLP (nn/mlp) */
extern const ffn_kind ffn_moe; /* the mixture of experts (nn/moe) */

#endif
