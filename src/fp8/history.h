/*
 * fp8/history: the update rule of delayed scaling (TransformerEngine's fused update, DelayedScaling recipe):
 * the scale of the next step from the largest magnitudes of this step and those before it. Pure functions.
 *
 * `seen` is the largest magnitude recorded since the last update, 0 when the tensor was not used. The amax_history
 * holds the spec's `history` magnitudes, the newest last (0 where there was none); between updates its last
 * place is 0 and waits for `seen`. When seen is 0 nothing changes ("roll only if seen"): a module that did
 * not run keeps its amax_history. Else seen takes the last place; the amax is the amax_history's largest member (NaN
 * ignored) or seen, by the algorithm; a finite amax above 0 gives the scale max / 2^margin / amax (FLT_MAX
 * when that is infinite), any other leaves the scale as it was; and the amax_history moves on by one, losing its
 * oldest member.
 */
#ifndef FP8_HISTORY_H
#define FP8_HISTORY_H

#include "fp8/recipe.h"

/* amax_history[spec->history] and *scale are updated; callbacks of the spec are called in their rules' place. */
void history_update(const cast_spec *spec, float seen, float *amax_history, float *scale);
/* What a tensor's amax adds to what was seen: the larger one. An amax that is not finite is left out, so that
   one bad step cannot freeze the scale for the length of the amax_history (TransformerEngine records it). */
ANYWHERE float history_record(float seen, float amax) {
    return isfinite(amax) && amax > seen ? amax : seen;
}
/* The published rule's scale. max: the format's largest value. */
ANYWHERE float history_scale(float max, int margin, float amax, float old_scale) {
    if (!isfinite(amax) || !(amax > 0.0f)) return old_scale;
    float scale = ldexpf(max, -margin) / amax;
    return isinf(scale) ? FLT_MAX : scale;
}
/* A amax_history of another length: keeps the newest members; new ones, at the old end, are 0. (TransformerEngine
   keeps the first rows, which breaks its own order.) */
void history_resize(const float *from, int64_t from_count, float *to, int64_t to_count);

#endif
