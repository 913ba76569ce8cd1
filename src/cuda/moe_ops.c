/* cuda/moe_ops: launches of mixture-of-experts ops. */
#include "cuda/cuda.h"
#include "cuda/gemm.h"
#include "cuda/kernels.h"
#include "cuda/ops.h"
#include "cuda/quantize_ops.h"
#include "tensor/route_check.h"

#define LAUNCH_OP(name) cuda_check(name##_launch(a, cuda_stream(cx)), #name)

ott_status cuda_route(exec *cx, const route_args *a) {
    TRY(route_check_choice(a));
    return LAUNCH_OP(route);
}

ott_status cuda_route_balance(exec *cx, const route_balance_args *a) {
    return LAUNCH_OP(route_balance);
}

ott_status cuda_route_backward(exec *cx, const route_backward_args *a) {
    return LAUNCH_OP(route_backward);
}

ott_status cuda_route_sort(exec *cx, const route_sort_args *a) {
    TRY(route_check_sort(a));
    return LAUNCH_OP(route_sort);
}

ott_status cuda_permute(exec *cx, const permute_args *a) {
    return LAUNCH_OP(permute);
}

ott_status cuda_unpermute(exec *cx, const unpermute_args *a) {
    return LAUNCH_OP(unpermute);
}

ott_status cuda_weigh(exec *cx, const weigh_args *a) {
    return LAUNCH_OP(weigh);
}

ott_status cuda_weigh_backward(exec *cx, const weigh_backward_args *a) {
    return LAUNCH_OP(weigh_backward);
}

ott_status cuda_grouped_quantize(exec *cx, const grouped_quantize_args *a) {
    TRY(route_check_quantize(a));
    TRY(cuda_check_rounding("grouped_quantize", a->q));
    return cuda_check(quantize_groups(a->x, a->end, a->q, cuda_stream(cx)), "grouped_quantize");
}

ott_status cuda_grouped_gemm(exec *cx, const grouped_gemm_args *a) {
    TRY(route_check_product(a));
    TRY(cuda_check_accumulate(cx, "grouped_gemm", &a->spec));
    return cuda_check(gemm_grouped_launch(a, route_experts_along_k(a), cuda_stream(cx)), "grouped_gemm");
}

ott_status cuda_grouped_gemm_weight(exec *cx, const grouped_gemm_weight_args *a) {
    TRY(route_check_weight(a));
    TRY(cuda_check_accumulate(cx, "grouped_gemm_weight", &a->spec));
    return cuda_check(gemm_grouped_weight_launch(a, cuda_stream(cx)), "grouped_gemm_weight");
}

ott_status cuda_dot(exec *cx, const dot_args *a) {
    return LAUNCH_OP(dot);
}

ott_status cuda_balance_bias(exec *cx, const balance_bias_args *a) {
    TRY(route_check_bias(a));
    return LAUNCH_OP(balance_bias);
}
