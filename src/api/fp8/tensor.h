/* api/fp8/tensor: the structs of tensors, quantized tensors, recipes and groups. Internal to this folder. */
#ifndef API_FP8_TENSOR_H
#define API_FP8_TENSOR_H

#include "api/handle.h"
#include "nn/linear/delayed.h"
#include "train/precision.h"

struct ott_tensor {
    handle handle;
    tensor t;
    void *owned; /* device memory; NULL: t.data belongs to the caller */
};

struct ott_recipe {
    handle handle;
    /* a configuration with the keys of [float8] that ott_recipe_set has set; NULL: a recipe without FP8 */
    struct config *values;
    const recipe *plain;         /* row of the recipe table, for a recipe without FP8 */
    precision_plan plan;         /* plan.fp8 is the recipe; valid if not `stale` */
    delayed_callbacks callbacks; /* open objects may call them after the recipe is closed */
    bool stale;                  /* a value was set after `plan` was made */
};

struct ott_group {
    handle handle;
    group group;
    ott_group_options options;
};

struct ott_qtensor {
    handle handle;
    recipe_tensor which;
    qtensor q;
    ott_dtype high_precision; /* format of the rowwise or columnwise copy if it is not FP8 */
    void *block;              /* device memory of codes and scales */
    delayed_state delayed;
    delayed_store store;
    bool filled; /* ott_quantize was called at least once */
};

/* Returns the device of a context. The first call opens it. */
ott_status api_device(ott_context *context, device **out);
/* Fills in *out for ops on the context's device that run immediately, without a recorded plan. */
ott_status api_exec(ott_context *context, exec *out);
/* Checks that the context's device can run recipe r, or if r is NULL the recipe that `otherwise` names.
   OTT_ERR_UNSUPPORTED if it cannot. *out: the recipe, valid until the next ott_recipe_set on r. */
ott_status recipe_to_run(ott_context *context, ott_recipe *r, const char *otherwise, const recipe **out);

/* Fails with OTT_ERR_DTYPE unless t is fp32, bf16 or fp16. The text names the function and the argument. */
ott_status tensor_check_number(const ott_tensor *t, const char *function, const char *argument);
/* Fails with OTT_ERR_SHAPE, "x is [1, 2], but q is [4, 8]", unless t is [rows, columns]. by: "q is". */
ott_status tensor_check_shape(const ott_tensor *t, int64_t rows, int64_t columns, const char *by,
                              const char *function, const char *argument);
/* Fails with OTT_ERR_ARGUMENT if the memory of a and b overlaps. The text names the function, a and b. */
ott_status tensor_check_apart(const tensor *a, const char *name_a, const tensor *b, const char *name_b,
                              const char *function);

#endif
