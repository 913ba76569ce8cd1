/*
 * fp8/recipe: how a linear layer's numbers are represented. A recipe is a row of plain const data; it is
 * compiled, per module, into quantization specs, and only specs travel: no code asks which recipe it runs
 * under.
 *
 * A linear layer Y[M,N] = X[M,K] W[N,K]^T has three GEMMs and three tensors, and each tensor is used exactly
 * twice:
 *
 *     GEMM          computes            contracts over    uses
 *     output        Y  = X W^T          K                 input rowwise,           weight rowwise
 *     grad_input    dX = G W            N                 grad_output rowwise,     weight columnwise
 *     grad_weight   dW = G^T X          M                 grad_output columnwise,  input columnwise
 *
 * The rowwise use contracts along a row, so it may have one scale a row; the columnwise use contracts along a
 * column, so it may have one scale a column. A quantization spec is therefore a pair of casts. What a layer keeps of
 * its input between forward and backward follows from the recipe: its columnwise use, in the format of that.
 */
#ifndef FP8_RECIPE_H
#define FP8_RECIPE_H

#include "base/status.h"
#include "fp8/quant_spec.h"

typedef enum accumulate_mode {
    ACCUMULATE_FP32,         /* one sequential fp32 chain over the contraction */
    ACCUMULATE_HOPPER_FAST,  /* the FP8 tensor core's own accumulator all the way (fp8/tensorcore.h) */
    ACCUMULATE_HOPPER_SPLIT, /* the same, promoted to fp32 every 128 elements */
    ACCUMULATE_TILE32        /* the order of CPU tile units: fp8/reference.h */
} accumulate_mode;
enum { ACCUMULATE_MODES = ACCUMULATE_TILE32 + 1 };
const char *
recipe_accumulate_name(accumulate_mode mode); /* "fp32", "hopper fast", "hopper split", "tile32" */
static inline bool recipe_accumulate_is_hopper(accumulate_mode mode) {
    return mode == ACCUMULATE_HOPPER_FAST || mode == ACCUMULATE_HOPPER_SPLIT;
}

/* In which order the two scale_inv scales meet a sum. Scales that hold for the whole contraction (tensor, row)
   meet the finished sum; block scales meet the partial sum p of their block, and the scaled partial sums are
   added in order: y = 0, then for each block y = fmaf(...). */
typedef enum scale_order {
    SCALE_PRODUCT, /* sum * (scale_inv_a * scale_inv_b);  blocks: y = fmaf(p, scale_inv_a * scale_inv_b, y) */
    SCALE_A_THEN_B /* (sum * scale_inv_a) * scale_inv_b;  blocks: y = fmaf(p * scale_inv_a, scale_inv_b, y) */
} scale_order;

typedef struct gemm_spec {
    accumulate_mode accumulate;
    bool fast_accumulate; /* asks a GPU for its fast accumulator; the CPU's fp32 chain is not touched by it */
    scale_order order;
} gemm_spec;

typedef enum recipe_tensor { TENSOR_INPUT, TENSOR_WEIGHT, TENSOR_GRAD_OUTPUT, TENSOR_COUNT } recipe_tensor;
typedef enum recipe_gemm { GEMM_OUTPUT, GEMM_GRAD_INPUT, GEMM_GRAD_WEIGHT, GEMM_COUNT } recipe_gemm;

typedef struct recipe {
    const char *name;     /* "tensorwise" */
    const char *display;  /* as torchao prints it: "TENSORWISE" */
    const char *source;   /* where the rule is published */
    ott_dtype activation; /* format of activations and their gradients: F32, BF16 or F16 */
    quant_spec input, weight, grad_output;
    gemm_spec gemm[GEMM_COUNT];
} recipe;

/* The table, in the order `ottava recipes` lists it; recipe_count rows. */
const recipe *recipe_table(int *count);
/* The row of that name, or NULL. */
const recipe *recipe_find(const char *name);
/* The row that runs everything in high precision with activations of format d (F32, BF16, F16). */
const recipe *recipe_high_precision(ott_dtype d);
/* True when some GEMM of the row multiplies FP8 operands; which = GEMM_COUNT asks for any. */
bool recipe_gemm_is_fp8(const recipe *r, recipe_gemm which);
/* Checks that a row is consistent: both operands of a GEMM FP8 or neither, no E5M2 x E5M2, a tensor cast to
   one format in both its GEMMs, columnwise use granularities that exist. Names the field that is not. */
ott_status recipe_check(const recipe *r);

/* What one linear module runs with: compiled from a recipe, per module. fp8: some GEMM multiplies FP8
 * operands. */
typedef struct linear_spec {
    quant_spec input, weight, grad_output;
    gemm_spec gemm[GEMM_COUNT];
    ott_dtype activation;
    bool fp8;
} linear_spec;

/* activation: F32, BF16 or F16, taken where the row says its own activation format. */
void recipe_compile(const recipe *r, ott_dtype activation, linear_spec *out);
bool recipe_spec_equal(const linear_spec *a, const linear_spec *b);

#endif
