/*
 * model/ffn: what may stand in a block after its second norm: kinds of feed-forward as rows of functions. Layers of
 * one model may have different ones (model_options.ffn). A further kind is its layer, in the unions of model/block.h,
 * its roles (model/modules.h), and its row.
 */
#ifndef MODEL_FFN_H
#define MODEL_FFN_H

#include "model/modules.h"
#include "nn/activation.h"

struct block;
struct block_saved;

/* Every function reads n2 of what the block saves, and has what it saves itself there. */
struct ffn_kind {
    /* Is it made of modules of this role, with these options? */
    bool (*has)(const model_options *o, module_role role);
    /* gate and up, or what stands for them, wait for backward in FP8 where they are made in it; before connect. */
    void (*store_inputs)(struct block *b, bool store);
    ott_status (*connect)(struct block *b); /* adds to b->mlp_input and b->grad_mlp */
    /* From n2: first matrix products, then what is cheap to make again, then out[T,D]. */
    ott_status (*forward)(exec *cx, struct block *b, struct block_saved *s);
    ott_status (*activate)(exec *cx, struct block *b, struct block_saved *s);
    ott_status (*project)(exec *cx, struct block *b, struct block_saved *s, const tensor *out);
    /* Closes what backward does not read; what `activate` makes; all. */
    ott_status (*keep)(exec *cx, struct block *b, struct block_saved *s);
    ott_status (*keep_products)(exec *cx, struct block_saved *s);
    ott_status (*discard)(exec *cx, struct block_saved *s);
    /* From g, the gradient of out: dn2[T,D] and all weight gradients. Closes what it saved. */
    ott_status (*backward)(exec *cx, struct block *b, struct block_saved *s, const activation *g,
                           const tensor *dn2);
};

extern const ffn_kind ffn_mlp; /* the dense one, of nn/mlp */
extern const ffn_kind ffn_moe; /* a mixture of experts, of nn/moe */

#endif
