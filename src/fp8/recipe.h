/*
 * fp8/recipe: FP8 recipes: formats and scales of a linear layer's tensors. A recipe is a constant row of a
 * table. recipe_compile makes a linear_spec from it for each linear module. Layers read only the spec.
 *
 * A linear layer Y[M,N] = X[M,K] W[N,K]^T has three GEMMs and three tensors. Each tensor is used exactly
 * twice:
 *
 *     GEMM          computes            contracts over    uses
 *     output        Y  = X W^T          K                 input rowwise,           weight rowwise
 *     grad_input    dX = G W            N                 grad_output rowwise,     weight columnwise
 *     grad_weight   dW = G^T X          M                 grad_output columnwise,  input columnwise
 *
 * The rowwise use contracts along a row, so it may have one scale for each row. The columnwise use contracts
 * along a column, so it may have one scale for each column. So a quant_spec has two casts. Between forward
 * and backward a layer keeps the columnwise use of its input, in the format of that use.
 */
#ifndef FP8_RECIPE_H
#define FP8_RECIPE_H

#include "base/status.h"
#include "fp8/quant_spec.h"

typedef enum accumulate_mode {
    ACCUMULATE_FP32,         /* fp32 additions, term by term over the contraction */
    ACCUMULATE_HOPPER_FAST,  /* the FP8 tensor core's accumulator, for all terms (fp8/tensorcore.h) */
    ACCUMULATE_HOPPER_SPLIT, /* one such accumulator for each 128 terms; accumulators are added in fp32 */
    ACCUMULATE_TILE32        /* sums of 32 terms, as AMX computes them; fp8/reference.h defines the order */
} accumulate_mode;
enum { ACCUMULATE_MODES = ACCUMULATE_TILE32 + 1 };
/* Returns "fp32", "hopper fast", "hopper split" or "tile32". */
const char *recipe_accumulate_name(accumulate_mode mode);
static inline bool recipe_accumulate_is_hopper(accumulate_mode mode) {
    return mode == ACCUMULATE_HOPPER_FAST || mode == ACCUMULATE_HOPPER_SPLIT;
}

/* The order in which a sum is multiplied by scale_inv of A and of B. Scales of a tensor or row multiply the
   finished sum. Block scales multiply the partial sum p of their block. The result y is the sum of the scaled
   partial sums: y starts at 0, and an fmaf adds each block in order. */
typedef enum scale_order {
    SCALE_PRODUCT, /* sum * (scale_inv_a * scale_inv_b); block p: y = fmaf(p, scale_inv_a * scale_inv_b, y) */
    SCALE_A_THEN_B /* (sum * scale_inv_a) * scale_inv_b; block p: y = fmaf(p * scale_inv_a, scale_inv_b, y) */
} scale_order;

typedef struct gemm_spec {
    accumulate_mode accumulate;
    bool fast_accumulate; /* cuBLASLt may use the fast FP8 accumulator; the CPU ignores it */
    scale_order order;
} gemm_spec;

typedef enum recipe_tensor { TENSOR_INPUT, TENSOR_WEIGHT, TENSOR_GRAD_OUTPUT, TENSOR_COUNT } recipe_tensor;
typedef enum recipe_gemm { GEMM_OUTPUT, GEMM_GRAD_INPUT, GEMM_GRAD_WEIGHT, GEMM_COUNT } recipe_gemm;

typedef struct recipe {
    const char *name;     /* name, such as "tensorwise" */
    const char *display;  /* name as torchao prints it: "TENSORWISE" */
    const char *source;   /* where the recipe is published */
    ott_dtype activation; /* format of activations and their gradients: F32, BF16 or F16 */
    quant_spec input, weight, grad_output;
    gemm_spec gemm[GEMM_COUNT];
} recipe;

/* Returns the table of recipes, in the order of `ottava recipes`, and the number of its rows. */
const recipe *recipe_table(int *count);
/* Returns the row with this name, or NULL. */
const recipe *recipe_find(const char *name);
/* Returns the recipe with all GEMMs in high precision, for activations of format d (F32, BF16, F16). */
const recipe *recipe_high_precision(ott_dtype d);
/* True if this GEMM multiplies FP8 operands. which = GEMM_COUNT: true if any GEMM does. */
bool recipe_gemm_is_fp8(const recipe *r, recipe_gemm which);
/* Checks a recipe: each GEMM has two FP8 operands or none, at most one of them E5M2, and both with equally
   long blocks along K. A tensor's two FP8 uses have one format. The error names the field. */
ott_status recipe_check(const recipe *r);

/* The specs of one linear module, compiled from a recipe. fp8: at least one GEMM multiplies FP8 operands. */
typedef struct linear_spec {
    quant_spec input, weight, grad_output;
    gemm_spec gemm[GEMM_COUNT];
    ott_dtype activation;
    bool fp8;
} linear_spec;

/* Compiles a recipe. `activation` (F32, BF16 or F16) replaces the recipe's activation format. */
void recipe_compile(const recipe *r, ott_dtype activation, linear_spec *out);
bool recipe_spec_equal(const linear_spec *a, const linear_spec *b);

#endif
