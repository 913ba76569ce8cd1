/* tensor/gpus: the table of GPUs, and capabilities by compute capability (cuBLAS 13 documentation,
   "cublasLtMatmul" and "Narrow Precision Data Types Usage"). */
#include "tensor/gpus.h"
#include <stdlib.h>
#include <string.h>

const gpu gpu_table[GPU_COUNT] = {
#define GPU(id, name, family, capability, fp32, bf16, fp8)                                                   \
    {name, family, capability, (fp32)*1e12, (bf16)*1e12, (fp8)*1e12},
#include "tensor/gpus.def"
};

/* Returns the share of a GPU that a MIG instance has: "NVIDIA H100 80GB HBM3 MIG 3g.40gb" has 3 of 7. */
static double mig_share(const char *name) {
    const char *mig = strstr(name, " MIG ");
    int slices = mig ? atoi(mig + 5) : 0;
    return slices > 0 ? slices / 7.0 : 1;
}

double gpu_peak(const char *name, ott_dtype format) {
    for (const gpu *g = gpu_table; g < gpu_table + GPU_COUNT; g++)
        if (strstr(name, g->name))
            return mig_share(name) * (dtype_is_fp8(format) ? g->fp8 : format == OTT_F32 ? g->fp32 : g->bf16);
    return 0;
}

enum { AMPERE = 80, ADA = 89, HOPPER = 90, BLACKWELL = 100 };

bool gpu_orders_packed_attention(int capability) {
    return capability / 10 == HOPPER / 10 || capability / 10 == BLACKWELL / 10;
}

bool gpu_multiplies_row_scales(int capability) {
    return capability == HOPPER;
}

double gpu_flops_per_instruction(int capability) {
    return capability == AMPERE ? 1 : 2;
}

/* Sets what the tensor cores do not support. FP8 operands are contiguous along the contraction, because other
   layouts need compute capability 10.x. */
static void refuse_formats(int capability, backend_capabilities *out) {
    if (capability < ADA)
        out->no_format[OTT_E4M3] = out->no_format[OTT_E5M2] =
            "FP8 is only supported on SM89 or later GPUs (RTX 40, L40S, H100 and later); float8.emulate=true "
            "computes it here, not faster than bf16, and so does the CPU (train.device=cpu)";
    if (capability != HOPPER)
        out->no_granularity[GRANULARITY_1X128] = out->no_granularity[GRANULARITY_128X128] =
            "needs compute capability 9.0 (H100, H200): no other GPU multiplies FP8 in blocks of 128";
    if (capability < BLACKWELL)
        out->no_granularity[GRANULARITY_1X32] = "needs compute capability 10.0 (B200) or later";
}

void gpu_fill_capabilities(int capability, const char *name, bool emulates, backend_capabilities *out) {
    *out = (backend_capabilities){.name = name, .alignment = GPU_ALIGNMENT, .contiguous_contraction = true};
    out->no_accumulate[ACCUMULATE_HOPPER_FAST] = out->no_accumulate[ACCUMULATE_HOPPER_SPLIT] =
        "is the CPU's emulation of tensor cores; a GPU has its own (float8.accumulate=fp32)";
    out->no_accumulate[ACCUMULATE_TILE32] =
        "is the order of a CPU's tile units; a GPU has its own (float8.accumulate=fp32)";
    if (!emulates) refuse_formats(capability, out);
}
