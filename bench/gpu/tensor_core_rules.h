/*
 * bench/gpu/tensor_core_rules: ways in which a tensor core might add 32 FP8 products to an accumulator: the
 * model of fp8/tensorcore, and departures from it, each of which some detail of a chip could make true.
 */
#ifndef TENSOR_CORE_RULES_H
#define TENSOR_CORE_RULES_H

#include "ottava/types.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum rule_rounding { ROUND_TO_ZERO, ROUND_DOWN, ROUND_TO_EVEN } rule_rounding;

/* Every member is a departure; all of them zero is the model. A product's exponent is the sum of its
   operands' exponents; E is the largest exponent of all terms, F the fraction bits kept below 2^E, R the
   fraction bits kept of the result. */
typedef struct rule {
    const char *name;
    int fraction;             /* F - 13 */
    int mantissa;             /* R - 13 */
    int accumulator_fraction; /* the accumulator keeps as many bits more than F */
    rule_rounding terms;      /* of a term to the grid of F bits */
    rule_rounding result;     /* to R bits */
    bool cut_accumulator;     /* to 13 fraction bits of its own, before it is aligned */
    bool products_lead;       /* E is that of the products alone */
    bool products_first;      /* they are summed on their own grid, and their sum is then a term */
    bool zero_products;       /* count for E, a zero having its format's smallest exponent */
    bool smallest_product;    /* E is at least the sum of the formats' smallest exponents */
    bool normal_operands;     /* a subnormal operand's exponent is that of its leading bit */
    bool normal_accumulator;  /* the same of the accumulator */
    bool flush_accumulator;   /* a subnormal one is zero */
    bool minus_zero;          /* is the sum of zeros that are all negative */
} rule;

/* The model first. */
extern const rule rules[];
extern const int rule_count;

/* 32 products of codes a[i] of format da and b[i] of format db added to the accumulator; all of them finite.
 */
float rule_step(const rule *r, const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db,
                float accumulator);

enum { RULE_NO_EXPONENT = -100000 };
/* The largest exponent of 32 products, RULE_NO_EXPONENT where all are zero. */
int rule_largest_product(const uint8_t *a, ott_dtype da, const uint8_t *b, ott_dtype db);

#endif
