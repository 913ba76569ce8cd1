/* tensor/route_check: what the ops of a mixture of experts ask of their arguments beyond their shapes, on any backend. */
#ifndef TENSOR_ROUTE_CHECK_H
#define TENSOR_ROUTE_CHECK_H

#include "base/status.h"
#include "tensor/ops.h"

ott_status route_check_choice(const route_args *a); /* as many experts can be chosen */
ott_status
route_check_sort(const route_sort_args *a); /* the tokens are there, and every assignment has a place */
ott_status route_check_bias(const balance_bias_args *a); /* the biases are of experts that there are */
/* Groups have rows, and scales of their own. */
ott_status route_check_quantize(const grouped_quantize_args *a);
/* The stack has a matrix for each group; do they lie one after the other along the contraction? */
bool route_stack_is_deep(const grouped_gemm_args *a);
ott_status route_check_product(const grouped_gemm_args *a);
ott_status route_check_weight(const grouped_gemm_weight_args *a);

#endif
