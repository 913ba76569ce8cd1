/* tensor/route_check: argument checks of mixture-of-experts ops, beyond op_check, for every backend. */
#ifndef TENSOR_ROUTE_CHECK_H
#define TENSOR_ROUTE_CHECK_H

#include "base/status.h"
#include "tensor/ops.h"

ott_status route_check_choice(const route_args *a); /* there are enough experts to choose from */
ott_status
route_check_sort(const route_sort_args *a); /* the token range is valid; source has every assignment */
ott_status route_check_bias(const balance_bias_args *a); /* the range of experts is valid */
/* Each group has rows and separate scales. */
ott_status route_check_quantize(const grouped_quantize_args *a);
/* True if the expert matrices of b are stored one after the other along the contraction (N x E K). */
bool route_experts_along_k(const grouped_gemm_args *a);
ott_status route_check_product(const grouped_gemm_args *a);
ott_status route_check_weight(const grouped_gemm_weight_args *a);

#endif
