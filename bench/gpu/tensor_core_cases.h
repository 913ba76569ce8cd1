/* bench/gpu/tensor_core_cases: operands for the tensor-core instruction: random operands, and operands for
   which the rules of tensor_core_rules give different results. They depend only on the arguments. */
#ifndef TENSOR_CORE_CASES_H
#define TENSOR_CORE_CASES_H

#include "ottava/types.h"
#include <stdbool.h>
#include <stdint.h>

/* Names of the kinds of operands and of accumulators. A case combines one kind of each. */
extern const char *const operand_kinds[];
extern const int operand_kind_count;
extern const char *const accumulator_kinds[];
extern const int accumulator_kind_count;

/* Fills one tile: codes a [64,32] in format da, codes b [8,32] in format db, accumulators c [64,8]. tile:
   number of the tile in its case. */
void case_tile(int operand_kind, int accumulator_kind, int tile, ott_dtype da, ott_dtype db, uint8_t *a,
               uint8_t *b, float *c);

/* Writes codes of normal random numbers (one_sign: of absolute values), scaled to fit the format. */
void case_normal(uint64_t stream, bool one_sign, ott_dtype d, int64_t count, uint8_t *codes);
/* Writes `count` codes of integers from -4 to 4. */
void case_integers(uint64_t stream, ott_dtype d, int64_t count, uint8_t *codes);

#endif
