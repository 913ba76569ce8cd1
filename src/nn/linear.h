/*
 * nn/linear: Y[M,out] = X[M,in] W[out,in]^T + bias. The spec (fp8/recipe.h) determines how X, W and
 * grad_output are quantized. No other layer contains FP8 logic. Forward, grad_input and grad_weight are
 * separate calls, so that the caller decides when and into what each accumulates.
 */
#ifndef NN_LINEAR_H
#define NN_LINEAR_H

#include "nn/delayed.h"
#include "nn/dora.h"
#include "nn/frozen.h"
#include "nn/grouped.h"
#include "nn/lora.h"
#include "nn/tensor_ranks.h"

/* A linear layer. It owns only compute_block: parameters, adapter, groups and strings are borrowed. */
typedef struct linear {
    const char *name;      /* fully qualified, "model.layers.0.mlp.up_proj" */
    int64_t in, out;       /* sizes of the local weight; expert weights: out counts all experts' rows */
    tensor_ranks ranks;    /* the tensor-parallel ranks that share the weight */
    parameter_split split; /* the dimension of the weight that `ranks` split */
    parameter *weight;     /* weight [out, in] */
    parameter *bias;       /* bias [out]; NULL: none */
    lora *lora;            /* adapter, applied by all GEMMs except grouped ones; NULL: none */
    linear_spec spec;
    /* Expert weights: the spec of FP8 grouped GEMMs, set by the caller before linear_set_spec; `spec` is then
       high precision. If grouped.fp8 is false, `spec` applies. */
    linear_spec grouped;
    const char *recipe_name; /* name of the recipe that `spec` was compiled from; NULL: unknown */
    group *row_ranks;        /* context-parallel ranks, which hold other rows of the input; NULL: none */
    const char *skip_reason; /* why an FP8 recipe leaves this layer in high precision; NULL if it does not */
    /* Number of consecutive health measurements with an SQNR below the bound of float8.fallback; or
       LINEAR_FELL_BACK if the layer has fallen back to high precision for good. */
    float low_sqnr_count;
    /* Set by linear_connect: which copies of input and grad_output GEMMs read; -1: high precision. */
    int input_copy, grad_copy;
    /* The compute weight, which the GEMMs read. It is made from the master once per optimizer step; if the
       weight is frozen and its scaling is not delayed, only once. If data-parallel ranks shard the weight,
       parallel/store fills it: scales once per step, values around each pass. DoRA weights and weights stored
       as FP8 codes have no compute weight: each GEMM makes its operand. */
    tensor compute;    /* weight in the activation format; data NULL: GEMMs read the master or FP8 codes */
    qtensor quantized; /* FP8 codes and scales of the rowwise and columnwise uses */
    operand packed;    /* packed operand b of linear_forward; data NULL: the weight is not packed */
    bool requantizes;  /* backward makes columnwise codes each time; set it before linear_set_spec */
    bool optimizer_quantizes;            /* linear_fuse_quantize is in effect */
    int64_t quantized_step;              /* exec.step of the optimizer's latest quantization; -1: none */
    void *compute_block;                 /* device memory of `compute`, `quantized` or `packed` */
    int64_t compute_step;                /* exec.step of the compute weight or its scales; -1: none */
    delayed_state delayed[TENSOR_COUNT]; /* views into a delayed_store */
} linear;

#define LINEAR_FELL_BACK (-1.0f)

/* The spec of this layer's GEMMs: `grouped` if that is FP8, else `spec`. */
static inline const linear_spec *linear_products_spec(const linear *l) {
    return l->grouped.fp8 ? &l->grouped : &l->spec;
}

/* ---- setup: linear_check_blocks, linear_set_spec, linear_delayed_requests, delayed_store_set, store_set (if
   the weight is sharded), linear_connect, linear_fuse_quantize; again after each change of the spec ---- */

/* Returns the ranks that hold the other shards of this tensor of the layer. */
tensor_shard linear_shard(const linear *l, recipe_tensor which);
/* OTT_ERR_CONFIG if tensor parallelism splits a scale block between ranks. */
ott_status linear_check_blocks(const linear *l, const linear_spec *spec);
/* Sets l->spec and allocates the compute weight. Releases an earlier compute weight. Does not set l->grouped.
   DoRA weights and weights stored as codes get current scaling instead of delayed scaling. */
ott_status linear_set_spec(linear *l, device *d, const linear_spec *spec);
/* Frees the compute weight and ends linear_fuse_quantize. */
void linear_release(linear *l, device *d);
/* Fills in the layer's requests. Call it before delayed_store_set, which must precede linear_connect. */
void linear_delayed_requests(linear *l, delayed_request requests[TENSOR_COUNT]);
/* Adds the specs of the copies that this layer reads to the specs of its input and of its grad_output. */
ott_status linear_connect(linear *l, activation_specs *input, activation_specs *grad_output);

/* ---- how the weight is stored and read ---- */

/* True if the weight is stored as FP8 codes without a master (nn/frozen.h). */
static inline bool linear_keeps_codes(const linear *l) {
    return l->weight && l->weight->codes;
}
/* True if the adapter is DoRA (nn/dora.h): each GEMM composes and quantizes the weight. */
static inline bool linear_is_composed(const linear *l) {
    return l->lora && l->lora->magnitude;
}
/* True if the weight is cast from a master to FP8 once per step. */
static inline bool linear_casts_weight(const linear *l) {
    return quant_spec_is_fp8(&l->spec.weight) && !linear_keeps_codes(l) && !linear_is_composed(l);
}

/* How a GEMM reads a weight that is stored as FP8 codes. */
typedef enum linear_codes_use {
    LINEAR_CODES_DIRECT,      /* the GEMM multiplies the stored codes */
    LINEAR_CODES_DEQUANTIZED, /* dequantizes the codes to the activation format */
    /* Dequantizes the codes, then quantizes as the recipe requires: values are rounded twice. FP8 GEMMs of
       expert weights, and FP8 GEMMs with a DoRA adapter, always do this. */
    LINEAR_CODES_REQUANTIZED,
    LINEAR_CODES_USES
} linear_codes_use;
/* Requires linear_keeps_codes. backward true: the use for grad_input (columnwise); false: for forward. */
linear_codes_use linear_get_codes_use(const linear *l, bool backward);
/* Opens w[out, in], the weight in fp32; adapted: with its DoRA adapter. The caller closes *buffer. Not for
   expert weights. */
ott_status linear_open_values(exec *cx, const linear *l, bool adapted, tensor *w, plan_buffer *buffer);

/* Lets the optimizer step also quantize this weight, until the next linear_set_spec. Call it only if
   optimizer_rule.can_quantize accepts the weight, and after linear_connect and store_set, because it copies
   the pointers that they set. After each update the caller sets quantized_step. The step makes codes and
   scales. It makes only the amax if the weight is sharded, if its scale depends on other ranks, or if
   columnwise codes are not kept. No effect for weights that are frozen, not cast (linear_casts_weight) or
   expert weights, for an empty or non-contiguous shard, or if a sharded weight has several scales. */
void linear_fuse_quantize(linear *l);
/* True if the optimizer quantized the weight for this step. While the plan is recorded, true if
   linear_fuse_quantize is in effect. */
bool linear_is_quantized_by_optimizer(const exec *cx, const linear *l);
/* Quantizes as the optimizer step does, unless quantized_step is cx->step: needed after loading. No effect
   without linear_fuse_quantize. Call it before a graph is replayed: the replay does not check. */
ott_status linear_quantize_weight(exec *cx, linear *l);

/* True if the compute weight never changes: the weight is frozen and its scaling is not delayed. */
bool linear_weight_is_fixed(const linear *l);
/* True if the compute weight (if sharded: its scales) is up to date for cx->step. */
bool linear_weight_is_fresh(const exec *cx, const linear *l);

/* For inference: replaces the compute weight by a rowwise copy, packed by op_pack. GEMMs no longer read the
   master or stored codes; backward is no longer possible. Expert weights are converted, not packed; expert
   weights that are stored as codes do not change. */
ott_status linear_pack(exec *cx, linear *l);

/* ---- the GEMMs ---- */

/* If x has channel scales (activation_smooth), linear_forward multiplies the weight's columns by them, and
   linear_grad_weight multiplies the columns of g^T x. linear_grad_input does not use them: dx is the gradient
   of x before it was divided. Forward must read x and the weight in FP8. Not for weights that are sharded,
   packed, adapted or stored as codes. */

/* y[M,out] = x W^T + bias. If the columns of W are split, y is the sum over the ranks; with sequence
   parallelism, this rank's rows of the sum. */
ott_status linear_forward(exec *cx, linear *l, const activation *x, const tensor *y);
/* dx[M,in] = g W, or dx += g W. If the rows of W are split, dx is this rank's term of a sum. */
ott_status linear_grad_input(exec *cx, linear *l, const activation *g, const tensor *dx, bool accumulate);
/* weight.grad += g^T x; bias.grad += column sums of g in high precision. Skips frozen parameters. Call it
   even if all are frozen: it records g's amax for delayed scaling and calls the hook. */
ott_status linear_grad_weight(exec *cx, linear *l, const activation *x, const activation *g);
/* The three calls above for expert weights. Rows of x and g are sorted by expert as in `r`. FP8 if
   l->grouped.fp8. balance: scales each expert's weight gradient by mean rows / own rows; NULL: no scaling. */
ott_status linear_forward_grouped(exec *cx, linear *l, const tensor *x, const grouped_rows *r,
                                  const tensor *y);
ott_status linear_grad_input_grouped(exec *cx, linear *l, const tensor *g, const grouped_rows *r,
                                     const tensor *dx, bool accumulate);
ott_status linear_grad_weight_grouped(exec *cx, linear *l, const tensor *x, const tensor *g,
                                      const grouped_rows *r, const grouped_balance *balance);
/* Calls linear_grad_input, then linear_grad_weight; closes g. dx must not be NULL. */
ott_status linear_backward(exec *cx, linear *l, const activation *x, activation *g, const tensor *dx,
                           bool accumulate);

#endif
