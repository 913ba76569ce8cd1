/*
 * tensor/backend: a backend's capabilities and data layouts. A device (tensor/device.h) points to its
 * backend's capabilities. Code above the backends checks these capabilities, never which backend it runs on.
 */
#ifndef TENSOR_BACKEND_H
#define TENSOR_BACKEND_H

#include "fp8/recipe.h"

typedef struct backend_capabilities {
    const char *name;  /* name, such as "cpu" */
    int64_t alignment; /* alignment of tensors within one allocation, in bytes; a power of two */
    /* True: GEMMs require FP8 operands to be contiguous along the contraction, so columnwise codes are stored
       transposed, separately from rowwise codes. False: GEMMs also read transposed FP8 operands. */
    bool contiguous_contraction;
    /* The reason why GEMMs do not support a format, a granularity or an accumulate mode; NULL: supported. */
    const char *no_format[OTT_DTYPE_COUNT];
    const char *no_granularity[GRANULARITY_COUNT];
    const char *no_accumulate[ACCUMULATE_MODES];
} backend_capabilities;

/* Rounds bytes (at most INT64_MAX - alignment) up to the alignment. */
static inline int64_t backend_align(const backend_capabilities *c, int64_t bytes) {
    return (bytes + c->alignment - 1) / c->alignment * c->alignment;
}

/* True if the backend can run linear layers under the recipe. */
bool backend_can_run(const backend_capabilities *can, const recipe *r);
/* Lists the recipes that can run, with commas between them. */
void backend_list_recipes(const backend_capabilities *can, char *out, size_t size);
/* OTT_ERR_UNSUPPORTED if the backend cannot run linear layers under the recipe. The message names the tensor
   or GEMM, the reason, and the recipes that work. */
ott_status backend_check_recipe(const backend_capabilities *can, const recipe *r);

#endif
