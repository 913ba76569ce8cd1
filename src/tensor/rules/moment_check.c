/* tensor/rules/moment_check: argument checks of adamw_fp8. */
#include "tensor/rules/moment_check.h"

ott_status moment_check(const adamw_fp8_args *a) {
    if (a->group_scales1->columns == moment_scale_count(a->param->columns)) return OTT_OK;
    return status_fail(OTT_ERR_SHAPE,
                       "adamw_fp8: group_scales1 has %lld columns; it needs %lld for rows of %lld elements",
                       (long long)a->group_scales1->columns, (long long)moment_scale_count(a->param->columns),
                       (long long)a->param->columns);
}
