/*
 * bench/gpu/tensor_core_cases: operands for the tensor cores' instruction: random ones, and ones made so that
 * each rule of its addition decides some result. A pure function of the arguments.
 */
#ifndef TENSOR_CORE_CASES_H
#define TENSOR_CORE_CASES_H

#include "ottava/types.h"
#include <stdbool.h>
#include <stdint.h>

/* What the 32 products are, and what the accumulator is beside them; every pair makes a case. */
extern const char *const operand_kinds[];
extern const int operand_kind_count;
extern const char *const accumulator_kinds[];
extern const int accumulator_kind_count;

/* One tile: codes a [64,32] of format da and b [8,32] of format db, accumulators c [64,8]; `tile` tells tiles
   of one case apart. */
void case_tile(int operand_kind, int accumulator_kind, int tile, ott_dtype da, ott_dtype db, uint8_t *a,
               uint8_t *b, float *c);

/* `count` codes of normal numbers (of their magnitudes, where `one_sign`), scaled so that all fit the format.
 */
void case_normal(uint64_t stream, bool one_sign, ott_dtype d, int64_t count, uint8_t *codes);
/* `count` codes of integers from -4 to 4. */
void case_integers(uint64_t stream, ott_dtype d, int64_t count, uint8_t *codes);

#endif
