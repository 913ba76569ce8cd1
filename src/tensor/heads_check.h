/* tensor/heads_check: what the ops on columns of heads ask of their arguments beyond their shapes, on any backend. */
#ifndef TENSOR_HEADS_CHECK_H
#define TENSOR_HEADS_CHECK_H

#include "base/status.h"
#include "tensor/ops.h"

ott_status heads_check_rope(const rope_args *a); /* what turns lies in a head */
/* Heads are equal, and the columns lie in one. */
ott_status heads_check_join(const join_heads_args *a);
ott_status heads_check_sum(const sum_heads_args *a);

#endif
