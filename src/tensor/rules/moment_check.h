/* tensor/rules/moment_check: checks the shapes of adamw_fp8's group scales, which op_check does not check. */
#ifndef TENSOR_RULES_MOMENT_CHECK_H
#define TENSOR_RULES_MOMENT_CHECK_H

#include "base/status.h"
#include "tensor/rules/moment.h"
#include "tensor/ops.h"

/* OTT_ERR_SHAPE unless the group scales have moment_scale_count columns. */
ott_status moment_check(const adamw_fp8_args *a);

#endif
