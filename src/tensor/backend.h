/*
 * tensor/backend: what a backend can do and how it wants its data to lie. A device (tensor/device.h) points at
 * the capabilities of its backend; layouts, plans and checks above the backends ask here, never which backend
 * it is.
 */
#ifndef TENSOR_BACKEND_H
#define TENSOR_BACKEND_H

#include "fp8/recipe.h"

typedef struct backend_capabilities {
    const char *name;  /* "cpu" */
    int64_t alignment; /* bytes, a power of two: where tensors inside one block of memory may begin */
    /* FP8 operands of a GEMM want the contraction contiguous: columnwise data lies transposed, columns x rows,
       and shares no codes with rowwise data. False: a GEMM reads either operand along rows or columns. */
    bool contiguous_contraction;
    /* What it cannot do, each with the reason ("needs compute capability 10.0"); NULL: it can. */
    const char *no_format[OTT_DTYPE_COUNT];        /* of a GEMM's operands */
    const char *no_granularity[GRANULARITY_COUNT]; /* of their scales */
    const char *no_accumulate[ACCUMULATE_MODES];
} backend_capabilities;

/* bytes, rounded up to the alignment. bytes is at most INT64_MAX - alignment. */
static inline int64_t backend_align(const backend_capabilities *c, int64_t bytes) {
    return (bytes + c->alignment - 1) / c->alignment * c->alignment;
}

/* Can it run linear layers under the recipe? OTT_ERR_UNSUPPORTED names the tensor or GEMM that it cannot, why, and the
   recipes that it can. */
ott_status backend_check_recipe(const backend_capabilities *can, const recipe *r);

#endif
