/*
 * nn/linear: Y[M,out] = X[M,in] W[out,in]^T + bias, in whatever representation its spec says (fp8/recipe.h).
 * The only layer that knows about FP8; the three GEMMs of forward and backward are three calls, so that the
 * layer above decides when each runs and what it accumulates into.
 */
#ifndef NN_LINEAR_H
#define NN_LINEAR_H

#include "nn/delayed.h"
#include "nn/dora.h"
#include "nn/frozen.h"
#include "nn/grouped.h"
#include "nn/lora.h"
#include "nn/tensor_ranks.h"

typedef struct linear {
    const char *name;      /* fully qualified, "model.layers.0.mlp.up_proj" */
    int64_t in, out;       /* of the part of the weight that is here */
    tensor_ranks ranks;    /* among which the weight is cut, */
    parameter_split split; /* in this way */
    parameter *weight;     /* [out, in] */
    parameter *bias;       /* [out], or NULL */
    lora *lora;            /* an adapter beside it, which every call runs too; borrowed; NULL: none */
    linear_spec spec;
    /* of a stack: of its products in FP8; fp8 false: there are none, and spec says all */
    linear_spec grouped;
    const char *recipe_name; /* of the recipe that spec follows from; borrowed; NULL: not known */
    /* hold the other rows of its input and grad_output; borrowed; NULL: all rows are here */
    group *row_ranks;
    const char *skip_reason; /* why it stays in high precision under an FP8 recipe; NULL when converted or
                                 not asked */
    float
        low_sqnr_count; /* health measurements in a row below the bound of float8.fallback; LINEAR_FELL_BACK: it has
                    moved to high precision for good */
    int input_copy,
        grad_copy; /* which form of its input activation and of its grad_output activation it uses; -1: high precision */
    /* The weight as the GEMMs read it, made from the master once for each optimizer step; of a frozen
       weight only once, unless its scaling is delayed. Where ranks share the weight, parallel/store has these made:
       scales once a step, the rest around the passes. A frozen weight that is kept in FP8 has none of these: what differs
       from its own codes each product makes anew; so it does where the weight is composed. */
    tensor compute;    /* in the activation format; data NULL: the master itself, or all in FP8 */
    qtensor quantized; /* both uses, where FP8 */
    operand packed;    /* b of linear_forward, after linear_pack; data NULL: not packed */
    /* codes of the columnwise use that are not the rowwise one's as well are not kept: each backward makes them;
       said before linear_set_spec */
    bool requantizes;
    /* the optimizer makes weight->shard.quantized, of these or their amax, with each value (linear_fuse_quantize) */
    bool optimizer_quantizes;
    int64_t quantized_step;              /* exec.step that it is of; -1: of none */
    void *compute_block;                 /* device memory behind all of these; owned by the linear */
    int64_t compute_step;                /* exec.step it, or its scales, were made for; -1: never */
    delayed_state delayed[TENSOR_COUNT]; /* views of the owner's delayed_store */
} linear;

#define LINEAR_FELL_BACK (-1.0f)

/* The spec that its products run under. */
static inline const linear_spec *linear_products_spec(const linear *l) {
    return l->grouped.fp8 ? &l->grouped : &l->spec;
}

/* Which part of one of its tensors is here. */
tensor_shard linear_shard(const linear *l, recipe_tensor which);
/* OTT_ERR_CONFIG when the ranks' parts of its tensors are not of whole scale blocks. */
ott_status linear_check_blocks(const linear *l, const linear_spec *spec);
/* Takes a compiled spec: allocates the compute weight it needs (freeing an earlier one). Delayed scaling also
   needs a store: linear_delayed_requests says what, before linear_connect. */
ott_status linear_set_spec(linear *l, device *d, const linear_spec *spec);
void linear_release(linear *l, device *d);
/* Its TENSOR_COUNT states of delayed scaling, for delayed_store_set. */
void linear_delayed_requests(linear *l, delayed_request wanted[TENSOR_COUNT]);
/* Registers this layer's wants on the activation that feeds it and on the activation of its grad_output. */
ott_status linear_connect(linear *l, activation_specs *input, activation_specs *grad_output);

/* Has it no master, but codes (nn/frozen.h)? */
static inline bool linear_keeps_codes(const linear *l) {
    return l->weight && l->weight->codes;
}
/* Does a decomposed adapter compose its weight (nn/dora.h)? Each product makes it, in the scaling of its recipe. */
static inline bool linear_is_composed(const linear *l) {
    return l->lora && l->lora->magnitude;
}
/* Is its weight cast from a master, once a step? */
static inline bool linear_casts_weight(const linear *l) {
    return quant_spec_is_fp8(&l->spec.weight) && !linear_keeps_codes(l) && !linear_is_composed(l);
}

/* What a product makes of codes that are kept (nn/frozen.h). */
typedef enum linear_codes_use {
    LINEAR_CODES_DIRECT,      /* it multiplies them */
    LINEAR_CODES_DEQUANTIZED, /* numbers in the activation format, at each use */
    LINEAR_CODES_REQUANTIZED, /* codes of their values in the blocks of its own recipe, at each use: these are rounded twice; so is what an
                       adapter composes of them, and a stack where its products are in FP8 */
    LINEAR_CODES_USES
} linear_codes_use;
/* The weight that the adapter composes, in fp32 and a buffer of its own; before its adapter, where `adapted` is false. */
ott_status linear_open_values(exec *cx, const linear *l, bool adapted, tensor *w, plan_buffer *buffer);
/* By forward, or by backward, which reads them columnwise. */
linear_codes_use linear_get_codes_use(const linear *l, bool backward);

/* From now on, until linear_set_spec, the optimizer makes what it can of the weight's form: all of it where that stays and no other
   rank knows more; else the amax, of a weight that ranks share only the one of all; nothing of one that does not train, of
   which no row is here, or that lies in several pieces of the whole. */
void linear_fuse_quantize(linear *l);
/* What the optimizer has made of the form is that of cx->step; of a recording, which is of one step among many. */
bool linear_is_quantized_by_optimizer(const exec *cx, const linear *l);
/* The optimizer's part of the form, where it has not been made since the weight changed. */
ott_status linear_quantize_weight(exec *cx, linear *l);

/* A frozen master stays as it is, and so does what is made of it, unless its scale moves on (delayed scaling). */
bool linear_weight_is_fixed(const linear *l);
/* Is the compute weight, or are its scales, that of cx->step, or of any and fixed? */
bool linear_weight_is_fresh(const exec *cx, const linear *l);

/* For inference: makes the compute weight from the master as it is now, rowwise only and packed
   (op_pack), in place of what linear_set_spec allocated. From then on the master is not read, and
   there is no backward. A stack that keeps codes stays as it is: few of its matrices have rows of a few tokens. */
ott_status linear_pack(exec *cx, linear *l);

/* x may be divided by its channels' powers (nn/activation.h): the weight's columns are multiplied by them before they are cast,
   and the weight gradient's as they are added. Not of a weight that ranks share, that is packed, kept in codes or adapted. */
/* y[M,out] = x W^T + bias. Where the weight's columns are cut, the sum of all ranks': y are the rows that this one has
   between layers (nn/tensor_ranks.h). */
ott_status linear_forward(exec *cx, linear *l, const activation *x, const tensor *y);
/* dx[M,in] = g W, or dx += g W; where the weight's rows are cut, this rank's part of a sum. */
ott_status linear_grad_input(exec *cx, linear *l, const activation *g, const tensor *dx, bool accumulate);
/* weight.grad += g^T x; bias.grad += column sums of g in high precision. Nothing of one that is frozen. */
ott_status linear_grad_weight(exec *cx, linear *l, const activation *x, const activation *g);
/* The same three of a stack, weight [experts][out of each, in], in high precision or, where `grouped` says so, in FP8.
   balance: an expert's weight gradient is multiplied by the mean number of rows over its own; NULL: it is not. */
ott_status linear_forward_grouped(exec *cx, linear *l, const tensor *x, const grouped_rows *r,
                                  const tensor *y);
ott_status linear_grad_input_grouped(exec *cx, linear *l, const tensor *g, const grouped_rows *r,
                                     const tensor *dx, bool accumulate);
ott_status linear_grad_weight_grouped(exec *cx, linear *l, const tensor *x, const tensor *g,
                                      const grouped_rows *r, const grouped_balance *balance);
/* linear_grad_input, then linear_grad_weight; closes g. */
ott_status linear_backward(exec *cx, linear *l, const activation *x, activation *g, const tensor *dx,
                           bool accumulate);

#endif
