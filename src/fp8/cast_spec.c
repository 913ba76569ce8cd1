/* fp8/cast_spec: comparison of cast specs. */
#include "fp8/cast_spec.h"

bool cast_spec_is_fp8(const cast_spec *s) {
    return dtype_is_fp8(s->format);
}

/* `infinite` is not compared, because granularity and source format determine it (quant_spec_from). */
static bool scale_options_equal(const scale_options *a, const scale_options *b) {
    return a->rule == b->rule && a->power_of_two == b->power_of_two && a->epsilon == b->epsilon &&
           a->margin == b->margin;
}

bool cast_spec_equal(const cast_spec *a, const cast_spec *b) {
    if (a->format != b->format) return false;
    if (!cast_spec_is_fp8(a)) return true;
    if (a->grain != b->grain || a->mode != b->mode || a->rounding != b->rounding || a->policy != b->policy)
        return false;
    if (!scale_options_equal(&a->scale, &b->scale)) return false;
    return a->policy != AMAX_DELAYED || (a->algorithm == b->algorithm && a->history == b->history &&
                                         a->reduce == b->reduce && a->callbacks == b->callbacks);
}
