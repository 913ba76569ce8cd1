/* fp8/cast_spec: how one use of one tensor is cast: format, scales, rounding, and which amax. */
#ifndef FP8_CAST_SPEC_H
#define FP8_CAST_SPEC_H

#include "fp8/cast.h"
#include "fp8/granularity.h"
#include "fp8/scale.h"

typedef enum amax_policy {
    AMAX_CURRENT, /* the scale follows from this tensor's own amax */
    AMAX_DELAYED  /* from those of earlier steps (fp8/history.h); this tensor's amax is recorded */
} amax_policy;
typedef enum amax_algorithm { AMAX_MAX, AMAX_MOST_RECENT } amax_algorithm;

/* A user's own rules of delayed scaling; a NULL member is the published one. Run on the host between steps.
 */
typedef struct delayed_callbacks {
    /* The amax to scale by: amax_history[length], the newest last. */
    float (*amax)(void *user, const float *amax_history, int64_t length);
    /* The new scale. max: the format's largest value. */
    float (*scale)(void *user, float amax, float old_scale, float max, int margin);
    void *user;
} delayed_callbacks;

/* One use of one tensor. format F32, BF16 or F16 means the use stays in high precision and the rest is
 * ignored. */
typedef struct cast_spec {
    ott_dtype format;
    granularity grain;
    scale_options scale;
    cast_mode mode;
    cast_rounding rounding;
    amax_policy policy;
    /* AMAX_DELAYED only */
    amax_algorithm algorithm;
    int history;                        /* length of the amax history, this step's included */
    bool reduce;                        /* the largest amax of all ranks of the amax group counts */
    const delayed_callbacks *callbacks; /* NULL: none; borrowed */
} cast_spec;

bool cast_spec_is_fp8(const cast_spec *s);
/* In what they do: fields that a format or a policy ignores do not count. */
bool cast_spec_equal(const cast_spec *a, const cast_spec *b);

#endif
