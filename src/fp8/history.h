/*
 * fp8/history: the update rule of delayed scaling, as in TransformerEngine's DelayedScaling recipe: computes
 * the next step's scale from the amaxes of this and earlier steps. Pure functions.
 *
 * `seen` is the largest amax since the last update; 0 if the tensor was not used. amax_history holds
 * spec->history amaxes, the newest last; unused entries are 0. Between updates the last entry is 0.
 *
 * An update with seen = 0 changes nothing, so a module that did not run keeps its history. Otherwise seen
 * becomes the last entry. The amax is then the history's maximum (AMAX_MAX, NaN ignored) or `seen`
 * (AMAX_MOST_RECENT). A finite amax above 0 gives the scale max / 2^margin / amax, or FLT_MAX if that is
 * infinite. Any other amax keeps the scale. Finally the history shifts by one and drops its oldest entry.
 */
#ifndef FP8_HISTORY_H
#define FP8_HISTORY_H

#include "fp8/recipe.h"
#include <float.h>

/* Updates amax_history[spec->history] and *scale. The callbacks of the spec replace the published rule. */
void history_update(const cast_spec *spec, float seen, float *amax_history, float *scale);
/* Returns the new `seen` after a cast with this amax: the maximum. A non-finite amax is ignored, so that one
   bad step cannot freeze the scale for the history's length (TransformerEngine records it). */
ANYWHERE float history_record(float seen, float amax) {
    return isfinite(amax) && amax > seen ? amax : seen;
}
/* Returns the scale for an amax; old_scale if amax is 0 or not finite. max: the format's largest value. */
ANYWHERE float history_scale(float max, int margin, float amax, float old_scale) {
    if (!isfinite(amax) || !(amax > 0.0f)) return old_scale;
    float scale = ldexpf(max, -margin) / amax;
    return isinf(scale) ? FLT_MAX : scale;
}
/* Changes a history's length: keeps the newest entries and puts 0 before them. TransformerEngine keeps the
   first entries, which are not the newest. */
void history_resize(const float *from, int64_t from_count, float *to, int64_t to_count);

#endif
