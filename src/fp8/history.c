/* fp8/history: delayed scaling's update rule. */
#include "fp8/history.h"
#include <string.h>

static float window_amax(const cast_spec *spec, const float *amax_history) {
    const delayed_callbacks *own = spec->callbacks;
    if (own && own->amax) return own->amax(own->user, amax_history, spec->history);
    float most = amax_history[spec->history - 1];
    if (spec->algorithm == AMAX_MAX)
        for (int i = 0; i < spec->history; i++) most = fmaxf(most, amax_history[i]);
    return most;
}

static float next_scale(const cast_spec *spec, float amax, float old_scale) {
    const delayed_callbacks *own = spec->callbacks;
    float max = dtype_max(spec->format);
    if (own && own->scale) return own->scale(own->user, amax, old_scale, max, spec->scale.margin);
    return history_scale(max, spec->scale.margin, amax, old_scale);
}

void history_update(const cast_spec *spec, float seen, float *amax_history, float *scale) {
    int last = spec->history - 1;
    if (seen == 0.0f) return;
    amax_history[last] = seen;
    *scale = next_scale(spec, window_amax(spec, amax_history), *scale);
    memmove(amax_history, amax_history + 1, (size_t)last * sizeof *amax_history);
    amax_history[last] = 0.0f;
}

void history_resize(const float *from, int64_t from_count, float *to, int64_t to_count) {
    int64_t kept = from_count < to_count ? from_count : to_count;
    for (int64_t i = 0; i < to_count - kept; i++) to[i] = 0.0f;
    memmove(to + to_count - kept, from + from_count - kept, (size_t)kept * sizeof *to);
}
