/* cpu/quantize/delayed: records amaxes for delayed scaling and updates the scales (fp8/history.h). */
#include "cpu/isa.h"
#include "fp8/history.h"

ott_status ISA(amax_record)(exec *cx, const amax_record_args *a) {
    (void)cx;
    float *seen = a->seen->data;
    const qdata *use = cast_spec_is_fp8(&a->q->spec.rowwise) ? &a->q->rowwise : &a->q->columnwise;
    seen[0] = history_record(seen[0], use->amax[0]);
    return OTT_OK;
}

ott_status ISA(amax_update)(exec *cx, const amax_update_args *a) {
    (void)cx;
    float *seen = a->seen->data;
    STATUS_REQUIRE(a->spec.history == a->amax_history->columns);
    history_update(&a->spec, seen[0], a->amax_history->data, a->scale->data);
    seen[0] = 0.0f;
    return OTT_OK;
}
