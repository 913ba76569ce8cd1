/* cuda/hardware: a GPU's capabilities, the layouts that the backend requires, and peaks by data sheet. */
#include "cuda/hardware.h"
#include "cuda/cuda.h"
#include "tensor/tensor_cores.h"
#include <string.h>

void hardware_fill_capabilities(int sm, const char *name, bool emulates, backend_capabilities *out) {
    *out = (backend_capabilities){.name = name, .alignment = CUDA_ALIGNMENT, .contiguous_contraction = true};
    out->no_accumulate[ACCUMULATE_HOPPER_FAST] = out->no_accumulate[ACCUMULATE_HOPPER_SPLIT] =
        "is the CPU's emulation of tensor cores; a GPU has its own (float8.accumulate=fp32)";
    out->no_accumulate[ACCUMULATE_TILE32] =
        "is the order of a CPU's tile units; a GPU has its own (float8.accumulate=fp32)";
    if (!emulates) tensor_cores_limit(sm, out);
}

/* Dense TFLOP/s with fp32 accumulation, for fp32, for bf16 and fp16, and for FP8. */
typedef struct hardware_row {
    const char *name; /* substring of the device's name */
    double fp32, half, fp8;
} hardware_row;

/* NVIDIA's numbers without sparsity, from the data sheets of A100, L40S, H100, H100 NVL, H200, GH200, HGX
   B200 and GB200. RTX cards follow the white papers of Ada and RTX Blackwell: fp32 is cores times boost
   clock; bf16 with fp32 sums is twice that, and FP8 four times. A GPU uses the first row with a name that is
   part of the GPU's name. */
static const hardware_row rows[] = {
    {"A100", 19.5, 312, 0},           {"L40S", 91.6, 362, 733},           {"RTX 4090", 82.6, 165.2, 330.3},
    {"H100 PCIe", 51.2, 756, 1513},   {"H100 NVL", 60, 835, 1671},        {"GH200", 66.9, 989.4, 1978.9},
    {"H100", 66.9, 989.4, 1978.9},    {"H200 NVL", 60, 835, 1671},        {"H200", 66.9, 989.4, 1978.9},
    {"GB200", 80, 2500, 5000},        {"B200", 75, 2250, 4500},           {"RTX 5090", 104.8, 209.5, 419},
    {"RTX 5080", 56.3, 112.6, 225.1}, {"RTX 5070 Ti", 43.9, 87.9, 175.8}, {"RTX 5070", 30.9, 61.7, 123.5},
};

double hardware_peak(const char *name, ott_dtype format) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!strstr(name, rows[i].name)) continue;
        if (dtype_is_fp8(format)) return 1e12 * rows[i].fp8;
        return 1e12 * (format == OTT_F32 ? rows[i].fp32 : rows[i].half);
    }
    return 0;
}
