/*
 * model/ffn: the kinds of feed-forward that a block can have, as tables of functions. Blocks of one model may
 * have different kinds (model_options.ffn). To add a kind, add its structs to the unions of model/block.h,
 * its roles to model/modules.h, and a table here.
 */
#ifndef MODEL_FFN_H
#define MODEL_FFN_H

#include "model/modules.h"
#include "nn/activation.h"

struct block;
struct block_saved;

/* Functions of one kind of feed-forward. They read s->n2 and keep their tensors in *s. */
struct ffn_kind {
    /* True if this kind has a module with this role, for a model with these options. */
    bool (*has)(const model_options *o, module_role role);
    /* store: FP8 gate and up layers keep their outputs in FP8 for backward. Call it before `connect`. */
    void (*store_inputs)(struct block *b, bool store);
    ott_status (*connect)(struct block *b); /* adds its layers' specs to mlp_input and grad_mlp of block b */
    /* Forward in three steps: first GEMMs; activation function; last GEMM, which writes out[T,D]. */
    ott_status (*forward)(exec *cx, struct block *b, struct block_saved *s);
    ott_status (*activate)(exec *cx, struct block *b, struct block_saved *s);
    ott_status (*project)(exec *cx, struct block *b, struct block_saved *s, const tensor *out);
    /* Close tensors after forward. `keep` closes the tensors that backward does not read. `keep_products`
       closes only the output of `activate`. `discard` closes all. */
    ott_status (*keep)(exec *cx, struct block *b, struct block_saved *s);
    ott_status (*keep_products)(exec *cx, struct block_saved *s);
    ott_status (*discard)(exec *cx, struct block_saved *s);
    /* g: the gradient of `out`. Writes dn2[T,D], the gradient of n2, and adds to the gradients of the
       weights. Closes the feed-forward's tensors in *s. */
    ott_status (*backward)(exec *cx, struct block *b, struct block_saved *s, const activation *g,
                           const tensor *dn2);
};

extern const ffn_kind ffn_mlp; /* the dense MLP (nn/mlp) */
extern const ffn_kind ffn_moe; /* the mixture of experts (nn/moe/moe) */

#endif
