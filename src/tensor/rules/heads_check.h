/* tensor/rules/heads_check: checks arguments of rope, join_heads and sum_heads that op_check does not
   check. */
#ifndef TENSOR_RULES_HEADS_CHECK_H
#define TENSOR_RULES_HEADS_CHECK_H

#include "base/status.h"
#include "tensor/ops.h"

ott_status heads_check_rope(const rope_args *a); /* the rotated columns must be in one head */
/* All heads must have the same width, and the columns that the op reads in a head must be inside it. */
ott_status heads_check_join(const join_heads_args *a);
ott_status heads_check_sum(const sum_heads_args *a);

#endif
