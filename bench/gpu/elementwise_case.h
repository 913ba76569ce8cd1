/* bench/gpu/elementwise_case: one thing to measure: which kernels, on which arrays, and what they move. */
#ifndef ELEMENTWISE_CASE_H
#define ELEMENTWISE_CASE_H

#include "elementwise.h"
#include "fp8/recipe.h"
#include "gpu.h"

/* Whose numbers a case copies or quantizes. */
typedef enum case_source {
    SOURCE_X,
    SOURCE_WEIGHT, /* x in fp32 */
    SOURCE_NORM,
    SOURCE_SWIGLU,
    SOURCE_SWIGLU_BACKWARD
} case_source;

/* Residual and rstd go without saying, and the inverse scales where the scale is not given. */
enum { WRITES_Y = 1, WRITES_Q = 2, WRITES_QT = 4, WRITES_AMAX = 8, WRITES_COLUMN_AMAX = 16 };

typedef struct kernel_case {
    const char *name;
    case_source source;
    unsigned writes, shapes; /* shapes: elementwise.c's own */
    double bytes; /* read and written for each of the R x C elements; inverse scales of rows and columns,
                     less than 0.1 %, left out */
    ott_dtype format;
    granularity grain; /* GRANULARITY_TENSOR: the scale is given */
    scale_options rule;
    elementwise_kernel *before;        /* makes what the others read, untimed, or NULL */
    elementwise_kernel *kernel, *then; /* then: NULL or the second one */
} kernel_case;

/* What is quantized: [rows, value_columns], bf16, or fp32 of SOURCE_WEIGHT. */
int64_t case_value_columns(const kernel_case *c, int64_t columns);
const void *case_values(const kernel_case *c, const elementwise_args *a);

/* Makes the arrays: inputs normally distributed from the seed; what the case does not use stays NULL. */
void case_open(gpu *g, const kernel_case *c, int64_t rows, int64_t columns, uint64_t seed,
               elementwise_args *a);
void case_close(elementwise_args *a);
/* Outputs to 0xFF, or to 0 where a kernel only raises them. */
void case_poison(gpu *g, const kernel_case *c, const elementwise_args *a);
/* Queues `before`, if there is one; and what is timed: the kernels, and before them, where they raise them,
   amax and column_amax to 0, without which a second run would have nothing to raise. */
cudaError_t case_prepare(gpu *g, const kernel_case *c, const elementwise_args *a);
cudaError_t case_run(gpu *g, const kernel_case *c, const elementwise_args *a);

#endif
