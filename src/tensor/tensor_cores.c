/* tensor/tensor_cores: capabilities by compute capability (cuBLAS 13 documentation, "cublasLtMatmul"). */
#include "tensor/tensor_cores.h"

enum { ADA = 89, HOPPER = 90, BLACKWELL = 100 };

void tensor_cores_limit(int capability, backend_capabilities *out) {
    if (capability < ADA)
        out->no_format[OTT_E4M3] = out->no_format[OTT_E5M2] =
            "FP8 is only supported on SM89 or later GPUs (RTX 40, L40S, H100 and later); float8.emulate=true "
            "computes it here in fp32, slowly, and so does the CPU (train.device=cpu)";
    if (capability < HOPPER)
        out->no_granularity[GRANULARITY_ROW] = "needs compute capability 9.0 (H100) or later";
    if (capability != HOPPER)
        out->no_granularity[GRANULARITY_1X128] = out->no_granularity[GRANULARITY_128X128] =
            "needs compute capability 9.0 (H100, H200): no other GPU multiplies FP8 in blocks of 128";
    if (capability < BLACKWELL)
        out->no_granularity[GRANULARITY_1X32] = "needs compute capability 10.0 (B200) or later";
}
