/*
 * nn/linear/linear: Y[M,out] = X[M,in] W[out,in]^T + bias. The spec (fp8/recipe.h) determines how X, W and
 * grad_output are quantized. No other layer contains FP8 logic. Forward, grad_input and grad_weight are
 * separate calls, so that the caller decides when each runs and where it adds its result.
 */
#ifndef NN_LINEAR_LINEAR_H
#define NN_LINEAR_LINEAR_H

#include "nn/moe/grouped.h"
#include "nn/weight/weight.h"

/* A linear layer. It owns only `source`: parameters, adapter, groups and strings are borrowed. */
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
    weight_source source;                /* how `weight` is stored and read; weight_release frees it */
    delayed_state delayed[TENSOR_COUNT]; /* views into a delayed_store */
} linear;

#define LINEAR_FELL_BACK (-1.0f)

/* The spec of this layer's GEMMs: `grouped` if that is FP8, else `spec`. */
static inline const linear_spec *linear_products_spec(const linear *l) {
    return l->grouped.fp8 ? &l->grouped : &l->spec;
}

/* ---- setup, in order: linear_set_spec, linear_delayed_requests, delayed_store_set, store_set (if sharded),
   linear_connect, weight_fuse; again for a new spec ---- */

/* Returns how a tensor of the layer is split: the ranks that have its other rows and its other columns. */
tensor_shard linear_shard(const linear *l, recipe_tensor which);
/* Sets l->spec, but not l->grouped, and lays out the weight for it. Delayed scaling of the weight becomes
   current scaling for DoRA weights and for weights stored as FP8 codes. */
ott_status linear_set_spec(linear *l, device *d, const linear_spec *spec);
/* Requests the layer's delayed-scaling states. Order of calls: this, delayed_store_set, linear_connect. */
void linear_delayed_requests(linear *l, delayed_request requests[TENSOR_COUNT]);
/* Adds the specs of the quantized copies that the GEMMs read to the specs of input and grad_output. */
ott_status linear_connect(linear *l, activation_specs *input, activation_specs *grad_output);

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
