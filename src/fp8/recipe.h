/*
 * fp8/recipe: how a linear layer's numbers are represented. A recipe is a row of plain const data; it is
 * compiled, per module, into quantization specs, and only specs travel: no code asks which recipe it runs
 * under.
 *
 * A linear layer Y[M,N] = X[M,K] W[N,K]^T has three GEMMs and three tensors, and each tensor is used exactly
 * twice:
 *
 *     GEMM          computes            contracts over    uses
 *     output        Y  = X W^T          K                 input by rows,        weight by rows
 *     grad_input    dX = G W            N                 grad_output by rows,  weight by columns
 *     grad_weight   dW = G^T X          M                 grad_output by columns, input by columns
 *
 * "By rows" contracts along a row, so it may have one scale a row; "by columns" contracts along a column, so
 * it may have one scale a column. A quantization spec is therefore a pair of sides. What a layer keeps of its
 * input between forward and backward follows from the row: its column side, in the column side's format.
 */
#ifndef FP8_RECIPE_H
#define FP8_RECIPE_H

#include "base/status.h"
#include "fp8/cast.h"
#include "fp8/scale.h"

typedef enum granularity {
    GRANULARITY_TENSOR, /* one scale */
    GRANULARITY_ROW, /* one scale for each line that is contracted: row side [rows], column side [columns] */
    GRANULARITY_1X128, /* one scale for each 128 contracted elements of a line */
    GRANULARITY_128X128,
    GRANULARITY_1X32
} granularity;

typedef enum amax_policy { AMAX_CURRENT, AMAX_DELAYED } amax_policy;
typedef enum amax_algorithm { AMAX_MAX, AMAX_MOST_RECENT } amax_algorithm;

/* One use of one tensor. format F32, BF16 or F16 means the use stays in high precision and the rest is
 * ignored. */
typedef struct side_spec {
    ott_dtype format;
    granularity grain;
    scale_options scale;
    cast_mode mode;
    cast_rounding rounding;
    amax_policy policy;
    amax_algorithm algorithm; /* AMAX_DELAYED only */
    int history;              /* AMAX_DELAYED only: length of the amax history */
} side_spec;

/* What an edge of the graph carries: both uses of the tensor that flows along it. */
typedef struct quant_spec {
    side_spec row, column;
} quant_spec;

bool quant_spec_equal(const quant_spec *a, const quant_spec *b);
/* True when at least one side is FP8. */
bool quant_spec_is_fp8(const quant_spec *s);
/* True when both sides have the same bytes: same format, one scale for the tensor, same rule. */
bool quant_spec_shares_data(const quant_spec *s);
bool side_spec_is_fp8(const side_spec *s);

typedef enum accumulate_mode {
    ACCUMULATE_FP32,        /* one sequential fp32 chain over the contraction */
    ACCUMULATE_HOPPER_FAST, /* the FP8 tensor core's own accumulator all the way (fp8/tensorcore.h) */
    ACCUMULATE_HOPPER_SPLIT /* the same, promoted to fp32 every 128 elements */
} accumulate_mode;

/* In which order the two inverse scales meet the finished sum. */
typedef enum scale_order {
    SCALE_PRODUCT, /* sum * (inverse_a * inverse_b) */
    SCALE_A_THEN_B /* (sum * inverse_a) * inverse_b */
} scale_order;

typedef struct gemm_spec {
    accumulate_mode accumulate;
    bool fast_accumulate; /* asks a GPU for its fast accumulator; the CPU's fp32 chain is not touched by it */
    scale_order order;
} gemm_spec;

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
   one format in both its GEMMs, column side granularities that exist. Names the field that is not. */
ott_status recipe_check(const recipe *r);

/* What one linear module runs with: compiled from a recipe, per module. fp8: some GEMM multiplies FP8
 * operands. */
typedef struct linear_spec {
    quant_spec input, weight, grad_output;
    gemm_spec gemm[GEMM_COUNT];
    ott_dtype activation;
    bool fp8;
} linear_spec;

void recipe_compile(const recipe *r, linear_spec *out);

#endif
