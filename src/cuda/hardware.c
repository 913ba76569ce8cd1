/* cuda/hardware: capabilities by compute capability (cuBLAS 13 documentation, "cublasLtMatmul"), peaks by data sheet. */
#include "cuda/hardware.h"
#include "cuda/cuda.h"
#include <string.h>

enum { SM_ADA = 89, SM_HOPPER = 90, SM_BLACKWELL = 100 };

void hardware_fill_capabilities(int sm, const char *name, backend_capabilities *out) {
    *out = (backend_capabilities){.name = name, .alignment = CUDA_ALIGNMENT, .contiguous_contraction = true};
    if (sm < SM_ADA)
        out->no_format[OTT_E4M3] = out->no_format[OTT_E5M2] =
            "FP8 is only supported on SM89 or later GPUs (RTX 40, L40S, H100 and later); train in bf16 here, "
            "or on "
            "the CPU, which computes FP8 in fp32";
    if (sm < SM_HOPPER) out->no_granularity[GRANULARITY_ROW] = "needs compute capability 9.0 (H100) or later";
    if (sm != SM_HOPPER)
        out->no_granularity[GRANULARITY_1X128] = out->no_granularity[GRANULARITY_128X128] =
            "needs compute capability 9.0 (H100, H200): no other has products of FP8 in blocks of 128";
    if (sm < SM_BLACKWELL)
        out->no_granularity[GRANULARITY_1X32] = "needs compute capability 10.0 (B200) or later";
    out->no_accumulate[ACCUMULATE_HOPPER_FAST] = out->no_accumulate[ACCUMULATE_HOPPER_SPLIT] =
        "is how the CPU imitates a tensor core; a GPU has its own (float8.accumulate=fp32)";
}

/* Teraflops of dense products with fp32 sums: fp32, bf16 and fp16, FP8. */
typedef struct hardware_row {
    const char *name; /* part of the device's */
    double fp32, half, fp8;
} hardware_row;

/* NVIDIA's data sheets and architecture papers, without sparsity. The first row that fits counts. */
static const hardware_row rows[] = {
    {"A100", 19.5, 312, 0},         {"L40S", 91.6, 362, 733},        {"RTX 4090", 82.6, 165.2, 330.3},
    {"H100 PCIe", 51.2, 756, 1513}, {"H100 NVL", 60, 835, 1671},     {"H100", 66.9, 989.4, 1978.9},
    {"H200 NVL", 60, 835, 1671},    {"H200", 66.9, 989.4, 1978.9},   {"GH200", 66.9, 989.4, 1978.9},
    {"B200", 80, 2250, 4500},       {"RTX 5090", 104.8, 209.5, 419},
};

double hardware_peak(const char *name, ott_dtype format) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!strstr(name, rows[i].name)) continue;
        if (dtype_is_fp8(format)) return 1e12 * rows[i].fp8;
        return 1e12 * (format == OTT_F32 ? rows[i].fp32 : rows[i].half);
    }
    return 0;
}
