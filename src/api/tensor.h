/* api/tensor: the tensor, the quantized tensor, the recipe and the group behind their public handles.
 * Internal to this floor. */
#ifndef API_TENSOR_H
#define API_TENSOR_H

#include "api/handle.h"
#include "nn/delayed.h"
#include "train/precision.h"

struct ott_tensor {
    handle handle;
    tensor t;
    void *owned; /* device memory, NULL when it is the caller's */
};

struct ott_recipe {
    handle handle;
    struct config
        *values; /* what ott_recipe_set has set, as the configuration's [float8]; NULL: nothing is FP8 */
    const recipe *plain;         /* the table's row when nothing is FP8 */
    precision_plan plan;         /* plan.fp8 is the recipe */
    delayed_callbacks callbacks; /* what is made with the recipe points here: it stays after close */
    bool stale;                  /* set since it was last checked */
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
    ott_dtype high_precision; /* format of a use that is not FP8 */
    void *block;              /* device memory of codes and scales */
    delayed_state delayed;
    delayed_store store;
    bool filled; /* quantized at least once */
};

/* The device of a context, opened when it is first needed. */
ott_status api_device(ott_context *context, device **out);
/* An execution context on it whose plan opens buffers as they are asked for. */
ott_status api_exec(ott_context *context, exec *out);
/* The recipe that is to run on the context's device; r NULL: the row `otherwise`. OTT_ERR_UNSUPPORTED when it
   cannot. */
ott_status recipe_to_run(ott_context *context, ott_recipe *r, const char *otherwise, const recipe **out);

/* OTT_ERR_DTYPE, naming function and argument, unless the tensor is fp32, bf16 or fp16. */
ott_status tensor_check_number(const ott_tensor *t, const char *function, const char *argument);
/* OTT_ERR_SHAPE, with both shapes, unless the tensor has that one; `by` says what asks for it. */
ott_status tensor_check_shape(const ott_tensor *t, int64_t rows, int64_t columns, const char *by,
                              const char *function, const char *argument);
/* OTT_ERR_ARGUMENT, naming function and both arguments, when their memory overlaps. */
ott_status tensor_check_apart(const tensor *a, const char *name_a, const tensor *b, const char *name_b,
                              const char *function);

#endif
