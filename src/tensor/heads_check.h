/* tensor/heads_check: argument checks of ops on heads, beyond op_check, for every backend. */
#ifndef TENSOR_HEADS_CHECK_H
#define TENSOR_HEADS_CHECK_H

#include "base/status.h"
#include "tensor/ops.h"

ott_status heads_check_rope(const rope_args *a); /* the rotated columns are in one head */
/* All heads have the same width, and the columns are in one head. */
ott_status heads_check_join(const join_heads_args *a);
ott_status heads_check_sum(const sum_heads_args *a);

#endif
