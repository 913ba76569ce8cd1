/*
 * nn/linear/linear: Y[M,out] = X[M,in] W[out,in]^T + bias. The spec (fp8/recipe.h) determines how X, W and
 * grad_output are quantized. No other layer contains FP8 logic. Forward, grad_input and grad_weight are
 * separate calls, so that the caller decides when each runs and where it adds its result.
 */
#ifndef NN_LINEAR_LINEAR_H
#define NN_LINEAR_LINEAR_H

#include "nn/linear/delayed.h"
#include "nn/linear/dora.h"
#include "nn/linear/frozen.h"
#include "nn/moe/grouped.h"
#include "nn/linear/lora.h"
#include "nn/tensor_ranks.h"

/* A linear layer. It owns only compute_block: parameters, adapter, groups and strings are borrowed. */
typedef struct linear {
    const char *name;      /* fully qualified, "model.layers.0.mlp.up_proj" */
    int64_t in, out;       /* dimensions of this rank's weight; expert weights: out is the sum over experts */
    tensor_ranks ranks;    /* the tensor-parallel ranks that share the weight */
    parameter_split split; /* the dimension of the weight that `ranks` split */
    parameter *weight;     /* weight [out, in] */
    parameter *bias;       /* bias [out]; NULL: none */
    lora *lora;            /* adapter, applied by all GEMMs except grouped ones; NULL: none */
    linear_spec spec;
    /* The spec of FP8 grouped GEMMs of expert weights; `spec` is then high precision. The caller sets it
       before linear_set_spec. If grouped.fp8 is false, `spec` applies to grouped GEMMs. */
    linear_spec grouped;
    const char *recipe_name; /* name of the recipe that `spec` was compiled from; NULL: unknown */
    group *row_ranks;        /* context-parallel ranks, which have other tokens; NULL: none */
    const char *skip_reason; /* why an FP8 recipe leaves this layer in high precision; NULL if it does not */
    /* How many health measurements in a row found an SQNR below the bound of float8.fallback.
       LINEAR_FELL_BACK: float8.fallback has moved the layer to high precision. */
    float low_sqnr_count;
    /* Which quantized copies of input and grad_output GEMMs read; -1: none. linear_connect sets them. */
    int input_copy, grad_copy;
    /* The compute weight: the weight in the formats that GEMMs read. It is made from the master once per
       optimizer step, or only once if the weight is frozen and its scaling is not delayed. If data-parallel
       ranks shard the weight, parallel/store makes it: scales once per step, values for each pass. DoRA
       weights and weights stored as FP8 codes have none: each GEMM makes what it reads. */
    tensor compute;    /* weight in the activation format; data NULL: GEMMs read the master or FP8 codes */
    qtensor quantized; /* FP8 codes and scales of the rowwise and columnwise uses */
    operand packed;    /* packed weight that linear_forward reads; data NULL: the weight is not packed */
    bool requantizes;  /* each backward makes the columnwise codes; set it before linear_set_spec */
    bool optimizer_quantizes;            /* linear_fuse_quantize is in effect */
    int64_t quantized_step;              /* exec.step of the optimizer's latest quantization; -1: none */
    void *compute_block;                 /* device memory of `compute` or `quantized` */
    int64_t compute_step;                /* exec.step of the compute weight or its scales; -1: none */
    delayed_state delayed[TENSOR_COUNT]; /* views into a delayed_store */
} linear;

#define LINEAR_FELL_BACK (-1.0f)

/* The spec of this layer's GEMMs: `grouped` if that is FP8, else `spec`. */
static inline const linear_spec *linear_products_spec(const linear *l) {
    return l->grouped.fp8 ? &l->grouped : &l->spec;
}

/* ---- setup, in order: linear_check_blocks, linear_set_spec, linear_delayed_requests, delayed_store_set,
   store_set (if sharded), linear_connect, linear_fuse_quantize; again for a new spec ---- */

/* Returns how a tensor of the layer is split: the ranks that have its other rows and its other columns. */
tensor_shard linear_shard(const linear *l, recipe_tensor which);
/* OTT_ERR_CONFIG if tensor parallelism splits a scale block between ranks. */
ott_status linear_check_blocks(const linear *l, const linear_spec *spec);
/* Sets l->spec, but not l->grouped. Releases the earlier compute weight and allocates a new one. Delayed
   scaling becomes current scaling for DoRA weights and for weights stored as FP8 codes. */
ott_status linear_set_spec(linear *l, device *d, const linear_spec *spec);
/* Frees the compute weight and ends linear_fuse_quantize. */
void linear_release(linear *l, device *d);
/* Requests the layer's delayed-scaling states. Order of calls: this, delayed_store_set, linear_connect. */
void linear_delayed_requests(linear *l, delayed_request requests[TENSOR_COUNT]);
/* Adds the specs of the quantized copies that the GEMMs read to the specs of input and grad_output. */
ott_status linear_connect(linear *l, activation_specs *input, activation_specs *grad_output);

/* ---- how the weight is stored and read ---- */

/* True if the weight is stored as FP8 codes without a master (nn/linear/frozen.h). */
static inline bool linear_keeps_codes(const linear *l) {
    return l->weight && l->weight->codes;
}
/* True if the adapter is DoRA (nn/linear/dora.h). Each GEMM then computes the weight W' and quantizes it. */
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
    /* Dequantizes the codes and quantizes them again as the recipe requires, so values are rounded twice. FP8
       GEMMs with expert weights or with a DoRA adapter always do this. */
    LINEAR_CODES_REQUANTIZED,
    LINEAR_CODES_USES
} linear_codes_use;
/* How grad_input (backward true) or forward (false) reads the codes. Requires linear_keeps_codes. */
linear_codes_use linear_get_codes_use(const linear *l, bool backward);
/* Opens w[out, in] in fp32: the weight or, if `adapted`, the weight with its DoRA adapter. The caller closes
   *buffer. Expert weights are not allowed. */
ott_status linear_open_values(exec *cx, const linear *l, bool adapted, tensor *w, plan_buffer *buffer);

/* Makes the optimizer step also quantize this weight, until the next linear_set_spec. Call it only if
   optimizer_rule.can_quantize accepts the weight. Call it after linear_connect and store_set, because it
   copies pointers that they set. After each update the caller sets quantized_step. The step makes codes and
   scales. It makes only the amax if the weight is sharded, if its scale depends on other ranks, or if
   columnwise codes are not kept. No effect for frozen weights, expert weights, weights that are not cast
   (linear_casts_weight), empty or non-contiguous shards, and sharded weights with several scales. */
void linear_fuse_quantize(linear *l);
/* True if the optimizer has quantized the weight for this step. While the plan is recorded, true if the
   optimizer will do so (linear_fuse_quantize). */
bool linear_is_quantized_by_optimizer(const exec *cx, const linear *l);
/* Quantizes the weight if no optimizer step has done so for cx->step (after loading). No effect without
   linear_fuse_quantize. Call it before a graph replay, which does not check this. */
ott_status linear_quantize_weight(exec *cx, linear *l);

/* True if the compute weight never changes: the weight is frozen and its scaling is not delayed. */
bool linear_weight_is_fixed(const linear *l);
/* True if the compute weight is up to date for cx->step. For a sharded weight: if its scales are. */
bool linear_weight_is_fresh(const exec *cx, const linear *l);

/* For inference: replaces the compute weight by a copy for forward, packed by op_pack. The layer borrows the
   copy, which is in `weights`. GEMMs then do not read the master or stored codes, and backward is impossible.
   Expert weights are converted, not packed; if they are stored as codes, they do not change. */
ott_status linear_pack(exec *cx, linear *l, device_arena *weights);

/* ---- the GEMMs ---- */

/* If x has channel scales (activation_smooth), linear_forward multiplies the weight's columns by them, and
   linear_grad_weight multiplies the columns of g^T x. linear_grad_input does not use them: dx is the gradient
   of x before activation_smooth. Forward must read x and the weight in FP8. The weight must not be sharded,
   packed, adapted or stored as codes. */

/* y[M,out] = x W^T + bias. If tensor-parallel ranks split the columns of W, y is summed over the ranks. With
   sequence parallelism each rank then gets only its rows of the sum. */
ott_status linear_forward(exec *cx, linear *l, const activation *x, const tensor *y);
/* dx[M,in] = g W, or dx += g W. If the ranks split the rows of W, their dx must be summed afterwards. */
ott_status linear_grad_input(exec *cx, linear *l, const activation *g, const tensor *dx, bool accumulate);
/* weight.grad += g^T x; bias.grad += column sums of g in high precision. Skips frozen parameters. Call it
   even if all are frozen: it records g's amax for delayed scaling and calls the user's hook. */
ott_status linear_grad_weight(exec *cx, linear *l, const activation *x, const activation *g);
/* The three GEMMs for expert weights, in FP8 if l->grouped.fp8. Rows of x and g are sorted by expert as `r`
   says. balance: multiplies an expert's weight gradient by mean rows / its rows; NULL: no factor. */
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
