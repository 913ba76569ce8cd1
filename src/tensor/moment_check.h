/* tensor/moment_check: what the op with moments in FP8 asks of its arguments beyond their shapes, on any backend. */
#ifndef TENSOR_MOMENT_CHECK_H
#define TENSOR_MOMENT_CHECK_H

#include "base/status.h"
#include "tensor/moment.h"
#include "tensor/ops.h"

/* Each group has its numbers. */
ott_status moment_check(const adamw_fp8_args *a);

#endif
