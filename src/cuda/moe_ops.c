/* cuda/moe_ops: launches of grouped ops of mixtures of experts. */
#include "cuda/cuda.h"
#include "cuda/gemm/gemm.h"
#include "cuda/ops.h"
#include "cuda/quantize_ops.h"
#include "tensor/rules/route_check.h"

ott_status cuda_grouped_quantize(exec *cx, const grouped_quantize_args *a) {
    TRY(route_check_quantize(a));
    TRY(cuda_check_rounding("grouped_quantize", a->q));
    return cuda_check(quantize_groups(a->x, a->end, a->q, cuda_stream(cx)), "grouped_quantize");
}

ott_status cuda_grouped_gemm(exec *cx, const grouped_gemm_args *a) {
    TRY(route_check_product(a));
    TRY(cuda_check_accumulate(cx, "grouped_gemm", &a->spec));
    bool exact = cuda_device_of(cx->device)->own_products;
    return cuda_check((exact ? gemm_exact_grouped_launch : gemm_grouped_launch)(a, route_experts_along_k(a),
                                                                                cuda_stream(cx)),
                      "grouped_gemm");
}

ott_status cuda_grouped_gemm_weight(exec *cx, const grouped_gemm_weight_args *a) {
    TRY(route_check_weight(a));
    TRY(cuda_check_accumulate(cx, "grouped_gemm_weight", &a->spec));
    bool exact = cuda_device_of(cx->device)->own_products;
    return cuda_check((exact ? gemm_exact_weight_launch : gemm_grouped_weight_launch)(a, cuda_stream(cx)),
                      "grouped_gemm_weight");
}
