/* fp8/quant_spec: compares quantization specs and the two uses in a spec. */
#include "fp8/quant_spec.h"

bool quant_spec_is_fp8(const quant_spec *s) {
    return cast_spec_is_fp8(&s->rowwise) || cast_spec_is_fp8(&s->columnwise);
}

bool quant_spec_equal(const quant_spec *a, const quant_spec *b) {
    return cast_spec_equal(&a->rowwise, &b->rowwise) && cast_spec_equal(&a->columnwise, &b->columnwise);
}

bool quant_spec_shares_scales(const quant_spec *s) {
    if (!cast_spec_equal(&s->rowwise, &s->columnwise)) return false;
    scale_block block = granularity_block(s->rowwise.grain);
    return !cast_spec_is_fp8(&s->rowwise) || block.mn == block.k;
}

static void use_from(cast_spec *s, ott_dtype d) {
    if (cast_spec_is_fp8(s) && s->scale.rule == SCALE_TE && granularity_is_block(s->grain))
        s->scale.infinite = dtype_max(d);
}

quant_spec quant_spec_from(quant_spec q, ott_dtype d) {
    use_from(&q.rowwise, d);
    use_from(&q.columnwise, d);
    return q;
}
