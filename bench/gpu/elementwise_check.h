/* bench/gpu/elementwise_check: what a case writes against the definition, src/fp8/reference.h. */
#ifndef ELEMENTWISE_CHECK_H
#define ELEMENTWISE_CHECK_H

#include "elementwise_case.h"

/* Codes, scales, largest magnitudes and copies must be equal bit for bit (any NaN equals any NaN in a scale).
   Norm and SwiGLU are compared with arithmetic in double: a result is a mismatch when it is further away than
   2^-8 of itself and 2^-17, twice the error of the rounding to bf16; rstd by 1e-5 of itself. */
typedef struct case_check {
    cudaError_t status; /* of the launches; after an error nothing more is checked */
    int64_t mismatches;
    double rel_error; /* root mean square of norm's or SwiGLU's error relative to the reference's; else 0 */
} case_check;

/* Both add to `result`. Runs the case on small odd shapes from three seeds and on inputs with a NaN, an
   infinity, zeros and small numbers, and on a shape that it must refuse. */
void check_small(gpu *g, const kernel_case *c, case_check *result);
/* Runs the case on these arrays, and looks at the last rows, the last columns and every amax of a tensor. */
void check_case(gpu *g, const kernel_case *c, const elementwise_args *a, case_check *result);

#endif
