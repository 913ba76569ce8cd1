/* fp8/cast_spec: how a tensor is cast to FP8 for one of its two uses as a GEMM operand (fp8/recipe.h):
   format, granularity, scale rule, rounding, and the amax that the scale is computed from. */
#ifndef FP8_CAST_SPEC_H
#define FP8_CAST_SPEC_H

#include "fp8/cast.h"
#include "fp8/granularity.h"
#include "fp8/scale.h"

typedef enum amax_policy {
    AMAX_CURRENT, /* the scale is computed from this tensor's own amax */
    AMAX_DELAYED  /* the scale is computed from the amaxes of earlier steps (fp8/history.h) */
} amax_policy;
typedef enum amax_algorithm { AMAX_MAX, AMAX_MOST_RECENT } amax_algorithm;

/* A user's own rules for delayed scaling, called on the host between steps. If a function is NULL, the
   published rule applies (fp8/history.h). */
typedef struct delayed_callbacks {
    /* Returns the amax that the scale is computed from. amax_history[length]: the newest amax is last. */
    float (*amax)(void *user, const float *amax_history, int64_t length);
    /* Returns the new scale. max: the format's largest value. */
    float (*scale)(void *user, float amax, float old_scale, float max, int margin);
    void *user;
} delayed_callbacks;

/* The cast for one use of a tensor. Format F32, BF16 or F16 means no cast; other members are ignored. */
typedef struct cast_spec {
    ott_dtype format;
    granularity grain;
    scale_options scale;
    cast_mode mode;
    cast_rounding rounding;
    amax_policy policy;
    /* only AMAX_DELAYED uses the following members */
    amax_algorithm algorithm;
#define RECIPE_LONGEST_HISTORY (1 << 20)
    int history;                        /* number of steps in the amax history, including the current one */
    bool reduce;                        /* true: use the largest amax of all ranks of the amax group */
    const delayed_callbacks *callbacks; /* owned by the user; NULL: the published rules */
} cast_spec;

bool cast_spec_is_fp8(const cast_spec *s);
/* True if a and b give equal casts. Members that the format or policy ignores are not compared. */
bool cast_spec_equal(const cast_spec *a, const cast_spec *b);

#endif
