/* tensor/rules/route_check: checks arguments of mixture-of-experts ops that op_check does not check. */
#ifndef TENSOR_RULES_ROUTE_CHECK_H
#define TENSOR_RULES_ROUTE_CHECK_H

#include "base/status.h"
#include "tensor/ops.h"

ott_status route_check_choice(const route_args *a);      /* there must be at least K experts to choose from */
ott_status route_check_sort(const route_sort_args *a);   /* checks the token range and the size of source */
ott_status route_check_bias(const balance_bias_args *a); /* experts [first, first + N) must exist */
/* The rows must consist of q's groups, which have equal sizes if `end` is NULL. No delayed scaling. */
ott_status route_check_quantize(const grouped_quantize_args *a);
/* True if the expert matrices of b are stored one after the other along the contraction (N x E K). */
bool route_experts_along_k(const grouped_gemm_args *a);
ott_status route_check_product(const grouped_gemm_args *a);
ott_status route_check_weight(const grouped_gemm_weight_args *a);

#endif
