/* bench/gpu/tensor_core_rules: possible rules for a tensor core's addition of 32 FP8 products to an
   accumulator: the model of fp8/tensorcore and variants. */
#ifndef TENSOR_CORE_RULES_H
#define TENSOR_CORE_RULES_H

#include "ottava/types.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum rule_rounding { ROUND_TO_ZERO, ROUND_DOWN, ROUND_TO_EVEN } rule_rounding;

/* A variant of the model; all members zero: the model. A product's exponent is the sum of its operands'
   exponents. E is the largest exponent of all terms, F the fraction bits kept below 2^E, and R the fraction
   bits kept of the result. */
typedef struct rule {
    const char *name;
    int fraction;              /* F - 13 */
    int mantissa;              /* R - 13 */
    int accumulator_fraction;  /* extra bits that the accumulator keeps beyond F */
    rule_rounding terms;       /* rounding of a term to F bits */
    rule_rounding result;      /* rounding of the result to R bits */
    bool truncate_accumulator; /* first truncate the accumulator to 13 fraction bits */
    bool products_lead;        /* E ignores the accumulator */
    bool products_first;       /* sum the products on their own grid; the sum is then one term */
    bool zero_products;        /* zero products count for E, with their format's smallest exponents */
    bool smallest_product;     /* E is at least the sum of the formats' smallest exponents */
    bool normal_operands;      /* a subnormal operand has the exponent of its leading bit */
    bool normal_accumulator;   /* the same for the accumulator */
    bool flush_accumulator;    /* a subnormal accumulator counts as zero */
    bool minus_zero;           /* the sum of negative zeros is -0 */
} rule;

/* The model is the first rule. */
extern const rule rules[];
extern const int rule_count;

/* Adds 32 products of codes a[i] (format da) and b[i] (format db) to the accumulator. All must be finite. */
float rule_step(const rule *r, const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db,
                float accumulator);

enum { RULE_NO_EXPONENT = -100000 };
/* Returns the largest exponent of 32 products; RULE_NO_EXPONENT if all are zero. */
int rule_largest_product(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db);

#endif
