/* cpu/statistics: what a cast did to a tensor (tensor/statistics.h). */
#include "cpu/rows.h"

ott_status TIER(quantize_statistics)(exec *cx, const quantize_statistics_args *a) {
    (void)cx, (void)a;
    return status_fail(OTT_ERR_UNSUPPORTED, "quantize_statistics: not written");
}
