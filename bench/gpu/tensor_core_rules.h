/* bench/gpu/tensor_core_rules: possible rules for a tensor core's addition of 32 FP8 products to an
   accumulator: the model of fp8/tensorcore and variants of the model. */
#ifndef TENSOR_CORE_RULES_H
#define TENSOR_CORE_RULES_H

#include "ottava/types.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum rule_rounding { ROUND_TO_ZERO, ROUND_DOWN, ROUND_TO_EVEN } rule_rounding;

/* A variant of the model. If all members are zero, it is the model. A term is a product or the accumulator.
   The exponent of a product is the sum of the exponents of its operands. E is the largest exponent of all
   terms. Terms are rounded to F fraction bits relative to 2^E, and the result to R fraction bits. */
typedef struct rule {
    const char *name;
    int fraction;              /* 13 + fraction is F; the model has F = 13 */
    int mantissa;              /* 13 + mantissa is R; the model has R = 13 */
    int accumulator_fraction;  /* fraction bits of the accumulator beyond F */
    rule_rounding terms;       /* how a term is rounded to F bits */
    rule_rounding result;      /* how the result is rounded to R bits */
    bool truncate_accumulator; /* the accumulator is first truncated to 13 fraction bits */
    bool products_lead;        /* E ignores the accumulator */
    /* first only the products are summed, with E as their largest exponent; then this sum is one term */
    bool products_first;
    /* a product that is zero also counts when E is chosen (a zero has the smallest exponent of its format) */
    bool zero_products;
    /* the largest exponent E is at least the sum of the smallest exponents of both formats */
    bool smallest_product;
    bool normal_operands;    /* a subnormal operand has the exponent of its leading bit */
    bool normal_accumulator; /* a subnormal accumulator has the exponent of its leading bit */
    bool flush_accumulator;  /* a subnormal accumulator counts as zero */
    bool minus_zero;         /* the sum of negative zeros is -0 */
} rule;

/* All rules. The first one is the model. */
extern const rule rules[];
extern const int rule_count;

/* Adds 32 products of finite codes a[i] (format da) and b[i] (format db) to the accumulator by a rule. */
float rule_step(const rule *r, const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db,
                float accumulator);

enum { RULE_NO_EXPONENT = -100000 };
/* Returns the largest exponent of 32 products; RULE_NO_EXPONENT if all are zero. */
int rule_largest_product(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db);

#endif
